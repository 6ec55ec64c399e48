package dash

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr"
)

// A deed does an action that a form asks for. It returns how many tasks it's about, and what it did:
// a key of deeds' notes.
type deed func(d *dashboard, ctx context.Context, form url.Values) (n int, did string, err error)

var deeds = map[Verb]deed{
	Check:           checked,
	Enqueue:         enqueued,
	Pause:           paused,
	Resume:          resumed,
	Drain:           paused,
	Cancel:          canceled,
	Delete:          deleted,
	Requeue:         requeued,
	Discard:         discarded,
	RequeueMatching: matching,
	DiscardMatching: matching,
	Stop:            stopped,
	RunNow:          ranNow,
	Return:          returned,
	FailWorker:      failedWorker,
	Sweep:           swept,
}

// notes say what an action did.
var notes = map[string]string{
	"check": "The check has begun. Its findings appear here once it's done.", "enqueue": "The task is in the queue.",
	"pause": "The queue is paused: no more tasks start. Those that run go on.", "resume": "The queue is no longer paused.",
	"drain": "The queue is paused. It’s drained once nothing runs any more.", "run-now": "The next occurrence starts now, or once the running one has ended. Those after it stay.",
	"return": "The worker is evicted, and %s returned to the front.",
	"cancel": "Canceled: %s removed from the queue. Running copies are being stopped.", "delete": "All waiting tasks of the queue are deleted.",
	"requeue": "%s put back into the queue.", "discard": "%s deleted.", "job": "", "stop": "It stops.",
	"fail-worker": "The worker is evicted, and %s returned to the front.", "sweep": "Swept: %s evicted.",
}

// done says what the action did that led here. Links may have anything: a number that nothing asks
// for, or none.
func done(query url.Values) string {
	format := notes[query.Get("did")]
	if !strings.Contains(format, "%s") {
		return format
	}
	number, err := strconv.Atoi(query.Get("n"))
	if err != nil {
		return ""
	}
	what := "task"
	if query.Get("did") == "sweep" {
		what = "worker"
	}
	return fmt.Sprintf(format, several(number, what))
}

// actTimeout limits an action that isn't a job.
const actTimeout = 20 * time.Second

// act does what a form asks for, and logs it.
func (d *dashboard) act(w http.ResponseWriter, r *http.Request) {
	form, ok := d.form(w, r)
	if !ok {
		return
	}
	a := asked(form)
	do := deeds[a.Verb]
	switch {
	case do == nil:
		d.refuse(w, r, http.StatusBadRequest, "There's no such action.")
		return
	case !d.opts.AllowActions && a.Verb != Check:
		d.refuse(w, r, http.StatusForbidden, "This dashboard is read-only. Options.AllowActions of package dash lets it act.")
		return
	case !d.authorized(w, r, a):
		return
	}
	ctx, end := context.WithTimeout(r.Context(), actTimeout)
	defer end()
	n, did, err := do(d, ctx, form)
	d.record(r, a, form, n, err)
	var wrong mistake
	switch {
	case errors.As(err, &wrong):
		d.refuse(w, r, http.StatusUnprocessableEntity, string(wrong))
		return
	case err != nil:
		d.refuse(w, r, http.StatusBadGateway, "The action failed, perhaps halfway: "+err.Error())
		return
	}
	d.recur.forget()
	d.finds.forget()
	d.hub.refresh(ctx)
	d.check.follow(d.hub.current(ctx), true)
	to := back(form.Get("back"))
	q := to.Query()
	q = without(q, "did", "n", "search")
	if did != "" {
		q.Set("did", did)
		if n >= 0 {
			q.Set("n", strconv.Itoa(n))
		}
	}
	redirect(w, "./"+to.Path+"?"+q.Encode())
}

// A mistake is what is wrong with a form.
type mistake string

func (m mistake) Error() string { return string(m) }

// back is the page that a form came from. It never leaves the dashboard.
func back(to string) *url.URL {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil {
		return &url.URL{}
	}
	switch u.Path {
	case "queue", "failed", "task", "recurring", "workers", "server":
		return &url.URL{Path: u.Path, RawQuery: u.RawQuery}
	}
	return &url.URL{RawQuery: u.RawQuery}
}

// record logs an action. Payloads and keys are named by the start of their digests, as in the log of
// a peer.
func (d *dashboard) record(r *http.Request, a Action, form url.Values, n int, err error) {
	attrs := []any{slog.String("action", string(a.Verb)), slog.String("user", d.hooks.user(r)), slog.String("from", r.RemoteAddr)}
	if a.Queue != "" {
		attrs = append(attrs, slog.String("queue", a.Queue))
	}
	if a.Worker != "" {
		attrs = append(attrs, slog.String("worker", a.Worker))
	}
	for _, name := range []string{"key", "payload"} {
		if text := form.Get(name); text != "" && a.Verb != RequeueMatching && a.Verb != DiscardMatching {
			sum := sha1.Sum([]byte(text))
			attrs = append(attrs, slog.String(name, "#"+hex.EncodeToString(sum[:4])))
		}
	}
	if n >= 0 {
		attrs = append(attrs, slog.Int("tasks", n))
	}
	if err != nil {
		d.log.Warn("worqr: dashboard: an action failed", append(attrs, slog.String("error", err.Error()))...)
		return
	}
	d.log.Info("worqr: dashboard: action", attrs...)
}

// confirmed fails unless somebody has typed the name of the queue.
func confirmed(form url.Values) error {
	if form.Get("confirm") != form.Get("name") {
		return mistake("To confirm, type the name of the queue exactly as it's shown. Nothing was done.")
	}
	return nil
}

func checked(d *dashboard, _ context.Context, _ url.Values) (int, string, error) {
	d.check.start(0)
	return -1, "check", nil
}

func enqueued(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	payload := []byte(form.Get("payload"))
	if key := form.Get("key"); key != "" {
		return -1, "enqueue", q.Put(ctx, key, payload, nil)
	}
	return -1, "enqueue", q.Enqueue(ctx, payload)
}

// paused is a drain, too: that only shows more of what still runs.
func paused(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	return -1, form.Get("verb"), q.Pause(ctx)
}

func resumed(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	return -1, "resume", q.Resume(ctx)
}

func deleted(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	if err := confirmed(form); err != nil {
		return -1, "", err
	}
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	return -1, "delete", q.Delete(ctx)
}

// canceled cancels what has a key, or a payload that is found by its digest.
func canceled(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	name := form.Get("name")
	q, err := d.hooks.handle(name)
	if err != nil {
		return -1, "", err
	}
	var report *worqr.CancelReport
	if key := form.Get("key"); key != "" {
		report, err = q.CancelKey(ctx, key)
	} else {
		of := d.find(ctx, name, anywhere, func(_ string, payload []byte) bool { return digest(payload) == form.Get("digest") })
		if of == nil {
			return -1, "", mistake("The task is no longer there: it has probably ended. Nothing was done.")
		}
		report, err = q.Cancel(ctx, of.Payload)
	}
	if err != nil {
		return -1, "", err
	}
	return report.Removed, "cancel", nil
}

var errNoneChosen = mistake("Choose at least one task. Nothing was done.")

func requeued(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	if len(form["id"]) == 0 {
		return -1, "", errNoneChosen
	}
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	n, err := q.RequeueFailed(ctx, form["id"]...)
	return n, "requeue", err
}

func discarded(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	if len(form["id"]) == 0 {
		return -1, "", errNoneChosen
	}
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	n, err := q.DeleteFailed(ctx, form["id"]...)
	return n, "discard", err
}

func ranNow(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	found, err := q.RunNow(ctx, form.Get("key"))
	if err == nil && !found {
		err = mistake("Nothing recurs under this key any more. Nothing was done.")
	}
	return -1, "run-now", err
}

// returned evicts the worker of a task that runs. Redis has no way to take a single task from a
// worker that is alive: only the worker itself can stop its handler in order.
func returned(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	worker, attempt := form.Get("worker"), form.Get("attempt")
	q, err := d.hooks.handle(form.Get("name"))
	if err != nil {
		return -1, "", err
	}
	for t, err := range q.Running(ctx) {
		if err != nil {
			return -1, "", err
		}
		if t.AttemptID == attempt && t.WorkerID == worker {
			n, err := d.peer.FailWorker(ctx, worker)
			return n, "return", err
		}
	}
	return -1, "", mistake("The task no longer runs on that worker. Nothing was done.")
}

func failedWorker(d *dashboard, ctx context.Context, form url.Values) (int, string, error) {
	worker := form.Get("worker")
	if worker == "" {
		return -1, "", mistake("No worker is named. Nothing was done.")
	}
	known := false
	for w, err := range d.peer.Workers(ctx) {
		if err != nil {
			return -1, "", err
		}
		known = known || w.ID == worker
	}
	n, err := d.peer.FailWorker(ctx, worker) // also of one that is no longer registered
	if err == nil && !known && n == 0 {
		err = mistake("There's no such worker: none with this id is registered, and none held a task. It may have left, or come back under a new id.")
	}
	return n, "fail-worker", err
}

func swept(d *dashboard, ctx context.Context, _ url.Values) (int, string, error) {
	failed, err := d.peer.Sweep(ctx)
	return len(failed), "sweep", err
}
