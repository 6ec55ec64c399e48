package dash

import (
	"cmp"
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
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// An actionFunc performs an action. It returns the number of affected tasks, or uncounted if that isn't known.
type actionFunc func(ctx context.Context, d *dashboard, form url.Values) (n int, err error)

const uncounted = -1

var actionFuncs = map[Verb]actionFunc{
	Check: func(_ context.Context, d *dashboard, _ url.Values) (int, error) {
		d.check.start(0)
		return uncounted, nil
	},
	Enqueue: onQueue(enqueue),
	Pause:   plain((*worqr.Queue).Pause),
	Resume:  plain((*worqr.Queue).Resume),
	Drain:   plain((*worqr.Queue).Pause), // the page also shows what still runs
	Cancel:  cancel,
	Delete:  confirmed(plain((*worqr.Queue).Delete)),
	Requeue: onChosen((*worqr.Queue).RequeueFailed),
	Discard: onChosen((*worqr.Queue).DeleteFailed),

	RequeueMatching: matching,
	DiscardMatching: confirmed(matching),
	Stop: func(_ context.Context, d *dashboard, form url.Values) (int, error) {
		d.jobs.stop(form.Get("name"))
		return uncounted, nil
	},
	Silence:    silence,
	Unsilence:  unsilence,
	RunNow:     onQueue(runNow),
	Return:     returnTask,
	FailWorker: failWorker,
	Sweep: func(ctx context.Context, d *dashboard, _ url.Values) (int, error) {
		failed, err := d.peer.Sweep(ctx)
		return len(failed), err
	},
}

// onQueue returns an actionFunc that needs only the handle of its queue.
func onQueue(do func(ctx context.Context, q *worqr.Queue, form url.Values) (int, error)) actionFunc {
	return func(ctx context.Context, d *dashboard, form url.Values) (int, error) {
		return do(ctx, d.peer.Queue(form.Get("name")), form)
	}
}

// plain returns an actionFunc that needs only the queue from the form.
func plain(do func(*worqr.Queue, context.Context) error) actionFunc {
	return onQueue(func(ctx context.Context, q *worqr.Queue, _ url.Values) (int, error) { return uncounted, do(q, ctx) })
}

// onChosen returns an actionFunc for the chosen failed tasks.
func onChosen(do func(*worqr.Queue, context.Context, ...string) (int, error)) actionFunc {
	return onQueue(func(ctx context.Context, q *worqr.Queue, form url.Values) (int, error) {
		if len(form["id"]) == 0 {
			return uncounted, sentence("Select at least one task. Nothing was done.")
		}
		return do(q, ctx, form["id"]...)
	})
}

// confirmed returns an actionFunc that fails unless the name of the queue was typed.
func confirmed(do actionFunc) actionFunc {
	return func(ctx context.Context, d *dashboard, form url.Values) (int, error) {
		if form.Get("confirm") != form.Get("name") {
			return uncounted, sentence("To confirm, type the name of the queue exactly as it's shown. Nothing was done.")
		}
		return do(ctx, d, form)
	}
}

// notes describe what an action did, if that's worth showing.
var notes = map[Verb]string{
	Check: "The check begins now, or after a pause if one has just ended. Its findings appear here once it's done.", Enqueue: "The task is in the queue.",
	Pause: "The queue is paused: no more tasks start. Running tasks continue.", Resume: "The queue is no longer paused.",
	Drain: "The queue is paused. It’s drained once nothing runs anymore.", RunNow: "An extra run starts now, or once the current one ends. The schedule doesn't change.",
	Return: "The worker is evicted, and %s returned to the front.",
	Cancel: "Canceled: %s removed from the queue. Running copies are being stopped.", Delete: "All waiting tasks of the queue are deleted.",
	Requeue: "%s put back into the queue. One stays if another task with its key waits or runs.", Discard: "%s deleted.", Stop: "Stopping.",
	Silence: "Silenced, for everybody, until its end.", Unsilence: "No longer silenced.",
	FailWorker: "The worker is evicted, and %s returned to the front.", Sweep: "Swept: %s evicted.",
}

// done describes the action that led to this page. The number in a link may be missing or made up.
func done(query url.Values) string {
	did := Verb(query.Get("did"))
	format := notes[did]
	if !strings.Contains(format, "%s") {
		return format
	}
	number, err := strconv.Atoi(query.Get("n"))
	if err != nil {
		return ""
	}
	what := "task"
	if did == Sweep {
		what = "worker"
	}
	return fmt.Sprintf(format, words.Counted(number, what))
}

// actTimeout limits an action that isn't a job.
const actTimeout = 20 * time.Second

func (d *dashboard) act(w http.ResponseWriter, r *http.Request) {
	form, ok := d.form(w, r)
	if !ok {
		return
	}
	a := asked(form)
	do := actionFuncs[a.Verb]
	switch {
	case do == nil:
		d.refuse(w, http.StatusBadRequest, "There's no such action.")
		return
	case !d.opts.AllowActions && a.Verb != Check:
		d.refuse(w, http.StatusForbidden, "This dashboard is read-only. To allow actions, set Options.AllowActions of package dash.")
		return
	case !d.authorized(w, r, a):
		return
	}
	ctx, end := context.WithTimeout(r.Context(), actTimeout)
	defer end()
	if a.Verb == Silence {
		form.Set("by", d.hooks.user(r)) // whoever the form says
	}
	n, err := do(ctx, d, form)
	d.record(r, a, form, n, err)
	var wrong sentence
	switch {
	case errors.As(err, &wrong) || errors.Is(err, worqr.ErrInvalid) || errors.Is(err, worqr.ErrBadName): // it wasn't sent
		d.refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	case err != nil:
		d.refuse(w, http.StatusBadGateway, "The action failed, possibly partway through: "+err.Error())
		return
	}
	if a.Verb != Check { // it changes nothing
		d.recur.forget()
		d.finds.forget()
		d.hub.refresh(ctx)
		d.follow(d.hub.current(ctx), true)
	}
	to := back(form.Get("back"))
	q := without(to.Query(), "did", "n", "search")
	q.Set("did", string(a.Verb))
	if n >= 0 {
		q.Set("n", strconv.Itoa(n))
	}
	redirect(w, "./"+to.Path+"?"+q.Encode())
}

// back returns the page that a form came from. It never leaves the dashboard.
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

// longestLogged is how much of a text from a request is logged: some may have 1 MiB, from someone who only reads.
const longestLogged = 255

// record logs an action. It shows the start of the digests of payloads and keys, as in a peer's log.
func (d *dashboard) record(r *http.Request, a Action, form url.Values, n int, err error) {
	search, _ := url.ParseQuery(form.Get("search"))
	attrs := []any{slog.String("action", string(a.Verb)), slog.String("user", line(d.hooks.user(r), longestLogged)), slog.String("from", r.RemoteAddr)}
	for _, o := range [][2]string{{"queue", a.Queue}, {"worker", a.Worker}, {"kind", cmp.Or(form.Get("kind"), search.Get("kind"))}, {"hours", form.Get("hours")}} {
		if o[1] != "" {
			attrs = append(attrs, slog.String(o[0], line(o[1], longestLogged)))
		}
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
		d.log.Warn("worqr: dashboard: an action failed", append(attrs, slog.String("error", line(err.Error(), 4*longestLogged)))...)
		return
	}
	d.log.Info("worqr: dashboard: action", attrs...)
}

func enqueue(ctx context.Context, q *worqr.Queue, form url.Values) (int, error) {
	spec := worqr.TaskSpec{Key: form.Get("key"), Payload: []byte(form.Get("payload")), Headers: map[string]string{}}
	for text := range strings.Lines(form.Get("headers")) {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); name == "" && strings.TrimSpace(value) == "" {
			continue
		} else if !ok || name == "" {
			return uncounted, sentence("A header is a name, a colon and a value, one a line. Nothing was done.")
		}
		spec.Headers[name] = strings.TrimSpace(value)
	}
	if spec.Key == "" && len(spec.Headers) == 0 {
		return uncounted, q.Enqueue(ctx, spec.Payload)
	}
	_, err := q.Add(ctx, spec)
	return uncounted, err
}

// cancel cancels tasks with a key, or a payload that is found by its digest.
func cancel(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	name := form.Get("name")
	q := d.peer.Queue(name)
	var report *worqr.CancelReport
	var err error
	if key := form.Get("key"); key != "" {
		report, err = q.CancelKey(ctx, key)
	} else {
		var of *found
		of, err = d.find(ctx, name, anywhere, func(_ string, payload []byte) bool { return digest(payload) == form.Get("digest") })
		switch {
		case err != nil:
			return uncounted, err
		case of == nil:
			return uncounted, sentence("The task is no longer there: it has probably ended. Nothing was done.")
		}
		report, err = q.Cancel(ctx, of.Payload)
	}
	if err != nil {
		return uncounted, err
	}
	return report.Removed, nil
}

// silence silences findings of a kind, on a queue or on all.
func silence(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	hours, err := strconv.Atoi(form.Get("hours"))
	if err != nil || strings.TrimSpace(form.Get("reason")) == "" {
		return uncounted, sentence("A silence needs a reason and a number of hours. Nothing was done.")
	}
	return uncounted, d.peer.Silence(ctx, inspect.Silence{Kind: inspect.FindingKind(form.Get("kind")), Queue: form.Get("name"),
		Reason: form.Get("reason"), By: form.Get("by"), Until: time.Now().Add(time.Duration(hours) * time.Hour)})
}

func unsilence(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	_, err := d.peer.Unsilence(ctx, inspect.FindingKind(form.Get("kind")), form.Get("name"))
	return uncounted, err
}

func runNow(ctx context.Context, q *worqr.Queue, form url.Values) (int, error) {
	found, err := q.RunNow(ctx, form.Get("key"))
	if err == nil && !found {
		err = sentence("There's no recurring task with this key anymore. Nothing was done.")
	}
	return uncounted, err
}

// returnTask evicts the worker of a running task. Redis can't take a single task from a live worker: only the
// worker itself can stop its handler properly.
func returnTask(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	worker, attempt := form.Get("worker"), form.Get("attempt")
	for t, err := range d.peer.Queue(form.Get("name")).Running(ctx) {
		if err != nil {
			return uncounted, err
		}
		if t.AttemptID == attempt && t.WorkerID == worker {
			return d.peer.FailWorker(ctx, worker)
		}
	}
	return uncounted, sentence("The task no longer runs on that worker. Nothing was done.")
}

func failWorker(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	worker := form.Get("worker")
	if worker == "" {
		return uncounted, sentence("No worker is named. Nothing was done.")
	}
	known := false
	for w, err := range d.peer.Workers(ctx) {
		if err != nil {
			return uncounted, err
		}
		known = known || w.ID == worker
	}
	n, err := d.peer.FailWorker(ctx, worker) // even if it's no longer registered
	if err == nil && !known && n == 0 {
		err = sentence("No worker with this id is registered or held a task. It may have left, or come back under a new id.")
	}
	return n, err
}
