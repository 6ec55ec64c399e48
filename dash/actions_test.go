package dash_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Each action has its effect, and is logged with the user, without payloads.
func TestActions(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	var log peertest.Journal
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, &dash.Options{AllowActions: true, Logger: log.Logger()})
	logged := func(action string) {
		t.Helper()
		lines := log.Lines("action=" + action + " ")
		if len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "user=ann") || !strings.Contains(lines[len(lines)-1], "queue=q") {
			t.Errorf("the log lines of %s: %q", action, lines)
		}
	}

	r := b.act("verb", "enqueue", "name", "q", "payload", "canary\r\nx", "back", "queue?name=q")
	is.True(strings.Contains(r.text, "The task is in the queue."))
	b.shows("queue?name=q", "canary x")
	is.Equal(peertest.Waiting(t, q), []string{"canary\nx"})
	logged("enqueue")
	b.act("verb", "enqueue", "name", "q", "payload", "keyed", "key", "k")
	is.Equal(len(peertest.Named(t, q)), 1)
	b.act("verb", "enqueue", "name", "q", "payload", "routed", "headers", "type: mail\r\n\r\n at : 10:30 \r\n", "key", "h")
	is.Equal(peertest.Named(t, q)[1].Headers, map[string]string{"type": "mail", "at": "10:30"})
	b.shows("queue?name=q&tab=named", `Named <span>2</span>`, `List <span>1</span>`)
	b.act("verb", "cancel", "name", "q", "key", "h")
	r = b.post("act", "verb", "enqueue", "name", "q", "payload", "x", "headers", "type mail")
	is.Equal(r.StatusCode, http.StatusUnprocessableEntity)
	is.True(strings.Contains(r.text, "A header is a name, a colon and a value"))

	r = b.act("verb", "pause", "name", "q", "back", "queue?name=q")
	is.True(strings.Contains(r.text, `value="resume"`)) // the page is newer than the action
	is.True(peertest.Stats(t, q).Paused)
	logged("pause")
	b.act("verb", "resume", "name", "q")
	is.True(!peertest.Stats(t, q).Paused)
	logged("resume")

	b.act("verb", "cancel", "name", "q", "key", "k")
	is.Equal(peertest.Named(t, q), nil)
	is.Equal(peertest.Waiting(t, q), []string{"canary\nx"})
	page := b.shows("queue?name=q", "task?digest=").text
	_, digest, _ := strings.Cut(page, "task?digest=")
	digest, _, _ = strings.Cut(digest, "&")
	r = b.act("verb", "cancel", "name", "q", "digest", digest, "back", "queue?name=q")
	is.True(strings.Contains(r.text, "Canceled: 1 task removed"))
	is.Equal(peertest.Waiting(t, q), nil)
	logged("cancel")
	is.Equal(b.post("act", "verb", "cancel", "name", "q", "digest", digest).StatusCode, http.StatusUnprocessableEntity)
	b.shows("task?name=q&digest="+digest, "it has probably ended")

	// If a list can't be read, it's unknown whether the task has ended.
	schedule := redistest.Sure(q.Explain(ctx, worqr.Query{Payload: []byte{}}))(t).Prefix + ":schedule:{q}"
	redistest.Do(t, redistest.Conn(t), "SET", schedule, "no zset")
	r = b.post("act", "verb", "cancel", "name", "q", "digest", digest)
	is.Equal(r.StatusCode, http.StatusBadGateway)
	is.True(strings.Contains(r.text, "WRONGTYPE"))
	is.True(!strings.Contains(b.get("task?name=q&digest="+digest).text, "it has probably ended"))
	redistest.Do(t, redistest.Conn(t), "DEL", schedule)

	peertest.Enqueue(t, q, "a", "b")
	is.Equal(b.post("act", "verb", "delete", "name", "q", "confirm", "Q").StatusCode, http.StatusUnprocessableEntity)
	is.Equal(len(peertest.Waiting(t, q)), 2)
	b.act("verb", "delete", "name", "q", "confirm", "q")
	is.Equal(peertest.Waiting(t, q), nil)
	logged("delete")

	peertest.Enqueue(t, q, "held")
	peertest.Take(t, q)
	r = b.act("verb", "fail-worker", "worker", p.WorkerID(), "back", "workers")
	is.True(strings.Contains(r.text, "1 task returned to the front"))
	is.Equal(peertest.Waiting(t, q), []string{"held"})
	b.act("verb", "sweep", "back", "workers")
	is.True(strings.Contains(b.act("verb", "check", "back", "server").text, "The check begins now"))
	b.shows("server", "Checked ")

	r = b.post("act", "verb", "fail-worker", "worker", "nobody", "back", "workers")
	is.Equal(r.StatusCode, http.StatusUnprocessableEntity)
	is.True(strings.Contains(r.text, "No worker with this id"))

	is.Equal(b.post("act", "verb", "nosuch").StatusCode, http.StatusBadRequest)
	is.Equal(b.post("act", "verb", "view").StatusCode, http.StatusBadRequest)
	is.Equal(b.post("act", "verb", "requeue", "name", "q").StatusCode, http.StatusUnprocessableEntity)
	is.Equal(b.post("act", "verb", "fail-worker").StatusCode, http.StatusUnprocessableEntity)
	is.Equal(b.post("act", "verb", "pause", "name", "bad name").StatusCode, http.StatusUnprocessableEntity)
	r = b.post("act", "verb", "enqueue", "name", "q", "key", strings.Repeat("k", worqr.MaxKeySize+1), "payload", "x")
	is.Equal(r.StatusCode, http.StatusUnprocessableEntity)
	is.True(strings.Contains(r.text, "the limit is") && !strings.Contains(r.text, "partway"))
	is.Equal(b.post("act", "verb", "enqueue", "name", "q", "payload", strings.Repeat("x", 2<<20)).StatusCode, http.StatusRequestEntityTooLarge)
	for _, to := range []string{"https://evil.example/", "//evil.example", "javascript:alert(1)", "/etc", "../x"} {
		at := b.post("act", "verb", "resume", "name", "q", "back", to).Header.Get("Location")
		is.True(strings.HasPrefix(at, "./?")) // it never leaves the dashboard
	}
	is.Equal(log.Lines("canary"), nil)
	is.NoErr(ctx.Err())
}

// Drain pauses a queue. Its page counts the running tasks until none is left.
func TestDrain(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Name: "api-7"})
	q := peertest.Working(t, p, "q")
	peertest.Enqueue(t, q, "a", "b")
	running := peertest.Take(t, q)
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	is.True(strings.Contains(b.get("queue?name=q").text, `value="drain"`))
	told := b.stream(t.Context(), "show=queue&name=q")
	r := b.act("verb", "drain", "name", "q", "back", "queue?name=q&tab=running")
	is.True(strings.Contains(r.text, "drained once nothing runs anymore"))
	is.True(strings.Contains(r.text, "Paused, 1 still running"))
	is.True(strings.Contains(r.text, "By api-7, <time"))
	is.True(strings.Contains(r.text, "1 task will start once the queue is resumed"))
	is.True(peertest.Stats(t, q).Paused)
	await(t, told, "drain", "Paused, 1 still running")
	is.NoErr(running.Finish(t.Context()))
	await(t, told, "drain", "Paused and drained")
	b.act("verb", "resume", "name", "q")
	await(t, told, "pause", `value="drain"`)
}

// Returning a running task evicts its worker, which returns everything that the worker holds. If the task has
// ended, no worker is evicted.
func TestReturn(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Name: "replica-1"})
	q := peertest.Working(t, p, "q")
	_, err := q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("held"), Headers: map[string]string{"trace": "abc"}})
	is.NoErr(err)
	peertest.Enqueue(t, q, "also held")
	peertest.Take(t, q)
	peertest.Take(t, q)
	b := browse(t, p, &dash.Options{AllowActions: true})
	list := b.shows("queue?name=q&tab=running", "also held").text
	_, link, _ := strings.Cut(list, `<td class="payload full"><a href="`)
	link, _, _ = strings.Cut(link, `"`)
	page := b.shows(strings.ReplaceAll(link, "&amp;", "&"), "Return to the front", "This evicts replica-1").text
	value := func(name string) string {
		_, v, _ := strings.Cut(page, `name="`+name+`" value="`)
		v, _, _ = strings.Cut(v, `"`)
		return v
	}
	is.Equal(value("worker"), p.WorkerID())
	is.Equal(b.post("act", "verb", "return", "name", "q", "worker", p.WorkerID(), "attempt", "other").StatusCode, http.StatusUnprocessableEntity)
	r := b.act("verb", "return", "name", "q", "worker", value("worker"), "attempt", value("attempt"), "back", "queue?name=q")
	is.True(strings.Contains(r.text, "2 tasks returned to the front"))
	is.Equal(len(peertest.Waiting(t, q))+len(peertest.Named(t, q)), 2)
	peertest.Eventually(t, "the worker comes back", func() bool {
		task, err := q.StartTask(t.Context())
		return err == nil && (task.Headers["trace"] == "abc" || string(task.Payload) == "also held")
	})
	is.Equal(b.post("act", "verb", "return", "name", "q", "worker", value("worker"), "attempt", value("attempt")).StatusCode, http.StatusUnprocessableEntity)
}

// Failed tasks are requeued and deleted one by one, by group, and all at once.
func TestFailedActions(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	for i := range 3 {
		fail(t, q, fmt.Sprint("mail ", i), fmt.Sprintf("no such mailbox: %d", i))
	}
	fail(t, q, "disk", "disk full", "disk full")
	fail(t, q, "lost", "connection reset")
	b := browse(t, p, &dash.Options{AllowActions: true})
	page := b.shows("failed?name=q", "6 failed tasks.", `type="checkbox" name="id"`).text
	is.Equal(strings.Count(page, `type="checkbox" name="id"`), 6)
	id := func(payload string) string {
		for _, f := range peertest.Failed(t, q) {
			if string(f.Payload) == payload {
				return f.ID
			}
		}
		t.Fatalf("%s hasn't failed", payload)
		return ""
	}

	r := b.act("verb", "requeue", "name", "q", "id", id("lost"), "back", "failed?name=q")
	is.True(strings.Contains(r.text, "1 task put back"))
	is.True(!strings.Contains(b.shows("failed?name=q", "5 failed tasks.").text, "connection reset")) // only groups that still exist can be chosen
	is.Equal(peertest.Waiting(t, q), []string{"lost"})
	r = b.act("verb", "discard", "name", "q", "id", id("disk"), "back", "failed?name=q")
	is.True(strings.Contains(r.text, "1 task deleted"))
	is.Equal(len(peertest.Failed(t, q)), 4)

	// A group is one error with different numbers.
	page = b.shows("failed?name=q", `<a href="failed?group=`).text
	_, link, _ := strings.Cut(page, `<a href="failed?group=`)
	group, _, _ := strings.Cut(link, "&")
	page = b.shows("failed?name=q&group="+group, "3 of 4 failed tasks match: <q>no such mailbox: …</q>").text
	_, list, _ := strings.Cut(page, "failed tasks match") // a banner has the reasons
	is.True(!strings.Contains(list, "disk full"))
	r = b.act("verb", "requeue-matching", "name", "q", "search", "group="+group, "back", "failed?name=q")
	is.True(strings.Contains(r.text, "Requeued 3 tasks"))
	is.Equal(len(peertest.Failed(t, q)), 1)
	is.Equal(len(peertest.Waiting(t, q)), 4)

	is.Equal(b.post("act", "verb", "discard-matching", "name", "q", "search", "reason=DISK", "confirm", "").StatusCode, http.StatusUnprocessableEntity)
	is.Equal(b.post("act", "verb", "discard-matching", "name", "q", "search", "reason=(", "confirm", "q").StatusCode, http.StatusUnprocessableEntity)
	for _, verb := range []string{"discard-matching", "requeue-matching"} { // otherwise it would apply to all
		r = b.post("act", "verb", verb, "name", "q", "search", "header=:never", "confirm", "q")
		is.Equal(r.StatusCode, http.StatusUnprocessableEntity)
		is.True(strings.Contains(r.text, "the header has no name; write name: value. Nothing was done."))
	}
	is.Equal(len(peertest.Failed(t, q)), 1)
	is.True(strings.Contains(b.get("failed?name=q&reason=(").text, "missing closing )"))
	page = b.get("failed?name=q&header=:never").text
	is.True(strings.Contains(page, `<p class="lead" role="alert">This can’t be searched: the header has no name; write name: value.</p>`))
	is.True(!strings.Contains(page, "discard-matching"))
	b.act("verb", "discard-matching", "name", "q", "search", "reason=nothing", "confirm", "q")
	is.Equal(len(peertest.Failed(t, q)), 1)
	r = b.act("verb", "discard-matching", "name", "q", "search", "reason=DISK", "confirm", "q", "back", "failed?name=q")
	is.True(strings.Contains(r.text, "Deleted 1 task"))
	is.Equal(len(peertest.Failed(t, q)), 0)

	fail(t, q, "x", "one", "two")
	is.Equal(b.post("act", "verb", "requeue-matching", "name", "q", "kind", "crashed").StatusCode, http.StatusUnprocessableEntity) // no search
	is.Equal(len(peertest.Failed(t, q)), 2)
	b.act("verb", "requeue-matching", "name", "q", "search", "name=q")
	is.Equal(len(peertest.Failed(t, q)), 0)
	b.act("verb", "stop", "name", "q") // no job is running: nothing happens
}

// An action on all that a search finds repeats it byte for byte, though browsers change the fields of forms.
func TestSearchOfBytes(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	for _, key := range []string{"a\r\nb", "a\nb"} {
		_, err := q.Add(t.Context(), worqr.TaskSpec{Key: key, Payload: []byte("x")})
		is.NoErr(err)
		peertest.Must(t, peertest.Take(t, q).Fail(t.Context(), errors.New("no")))
	}
	b := browse(t, p, &dash.Options{AllowActions: true})
	page := b.shows("failed?name=q&key=a%0D%0Ab", "1 of 2 failed tasks match").text
	_, search, _ := strings.Cut(page, `name="search" value="`)
	search, _, _ = strings.Cut(search, `"`)
	b.act("verb", "discard-matching", "name", "q", "search", html.UnescapeString(search), "confirm", "q")
	left := peertest.Failed(t, q)
	is.Equal(len(left), 1)
	is.Equal(left[0].Key, "a\nb")
}

// The page of a task doesn't read long lists to the end. An action does.
func TestSlowLists(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := peertest.OpenDoctor(t, link.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	q := p.Queue("q")
	for i := range 4 {
		peertest.Enqueue(t, q, fmt.Sprint(i, strings.Repeat("x", 500_000)))
	}
	b := browse(t, p, &dash.Options{AllowActions: true})
	b.shows("queue?name=q", "4")
	link.Narrow(1 << 20)
	digest := strings.Repeat("0", 40)
	b.shows("task?name=q&digest="+digest, "takes too long")
	r := b.post("act", "verb", "cancel", "name", "q", "digest", digest)
	is.Equal(r.StatusCode, http.StatusUnprocessableEntity)
	is.True(strings.Contains(r.text, "it has probably ended"))
}

// A dashboard is read-only unless actions are allowed. A check is harmless, so it's still allowed.
func TestReadOnly(t *testing.T) {
	is := parallel(t)
	var log peertest.Journal
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	fail(t, q, "x", "no")
	peertest.Enqueue(t, q, "a")
	b := browse(t, p, &dash.Options{Logger: log.Logger()})
	before := peertest.Stats(t, q)
	for _, verb := range []dash.Verb{dash.Enqueue, dash.Pause, dash.Resume, dash.Cancel, dash.Delete, dash.Requeue, dash.RequeueMatching, dash.Discard,
		dash.DiscardMatching, dash.Stop, dash.FailWorker, dash.Sweep, dash.Drain, dash.Return, dash.RunNow} {
		r := b.post("act", "verb", string(verb), "name", "q", "confirm", "q", "payload", "p", "key", "k", "id", "x", "worker", p.WorkerID())
		is.Equal(r.StatusCode, http.StatusForbidden)
	}
	after := peertest.Stats(t, q)
	before.Oldest, after.Oldest = 0, 0
	is.Equal(after, before)
	is.Equal(b.post("act", "verb", "check", "worker", strings.Repeat("long", 1<<16)).StatusCode, http.StatusSeeOther)
	is.Equal(len(log.Lines("dashboard")), 1)
	is.True(len(log.Lines("dashboard")[0]) < 1000) // whoever reads doesn't decide how long the log gets
}

// The hook is asked about each page, stream and action, and its refusal is shown.
func TestAuthorize(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Lease: 200 * time.Millisecond})
	peertest.Enqueue(t, p.Queue("open"), "a")
	peertest.Enqueue(t, p.Queue("closed"), "a")
	b := browse(t, p, &dash.Options{AllowActions: true, Authorize: func(r *http.Request, a dash.Action) error {
		switch name, _, _ := r.BasicAuth(); {
		case a.Queue == "closed":
			return errors.New("ask ben")
		case a.Verb != dash.View && name != "ann":
			return errors.New("who are you?")
		case a.Verb == dash.FailWorker && a.Worker != "":
			return errors.New("not even ann")
		}
		return nil
	}})
	is.Equal(b.get("queue?name=open").StatusCode, http.StatusOK)
	for _, page := range []string{"queue?name=closed", "failed?name=closed", "task?name=closed&key=k", "stream?show=queue&name=closed"} {
		r := b.get(page)
		is.Equal(r.StatusCode, http.StatusForbidden)
		is.True(strings.Contains(r.text, "ask ben"))
	}
	is.Equal(b.post("task", "name", "closed", "payload", "a").StatusCode, http.StatusForbidden)
	is.Equal(b.post("act", "verb", "pause", "name", "open").StatusCode, http.StatusSeeOther)
	is.Equal(b.post("act", "verb", "pause", "name", "closed").StatusCode, http.StatusForbidden)
	is.Equal(b.post("act", "verb", "fail-worker", "worker", "w").StatusCode, http.StatusForbidden)
	is.True(peertest.Stats(t, p.Queue("open")).Paused)
	is.True(!peertest.Stats(t, p.Queue("closed")).Paused)
}

// Forms from another site have no effect.
func TestCrossOrigin(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	peertest.Enqueue(t, q, "a")
	b := browse(t, p, &dash.Options{AllowActions: true})
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+"act", strings.NewReader("verb=pause&name=q"))
		is.NoErr(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(header[0], header[1])
		is.Equal(b.do(r).StatusCode, http.StatusForbidden)
	}
	is.True(!peertest.Stats(t, q).Paused)
}

// An action on many tasks continues without its page, shows its progress, and can be stopped.
func TestJob(t *testing.T) {
	is := parallel(t)
	const n = 900
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	for range n / 100 {
		peertest.Enqueue(t, q, slices.Repeat([]string{"x"}, 100)...)
		for _, task := range redistest.Sure(q.StartTasks(t.Context(), 100))(t) {
			is.NoErr(task.Fail(t.Context(), fmt.Errorf("reason %d", 7)))
		}
	}
	entered, leave := make(chan bool, 1), make(chan bool)
	b := browse(t, p, &dash.Options{AllowActions: true, Payload: func(string, []byte) string {
		select {
		case entered <- true: // the job's search reads payloads
			<-leave
		default:
		}
		return "x"
	}})
	done := make(chan reply, 1)
	go func() { done <- b.post("act", "verb", "requeue-matching", "name", "q", "search", "payload=x") }()
	<-entered
	is.Equal((<-done).StatusCode, http.StatusSeeOther) // the job continues
	is.Equal(b.post("act", "verb", "requeue-matching", "name", "q", "search", "name=q").StatusCode, http.StatusUnprocessableEntity)
	is.True(strings.Contains(b.get("queue?name=q").text, "Requeuing 0 tasks"))
	b.act("verb", "stop", "name", "q")
	close(leave)
	b.shows("queue?name=q", "Requeued 0 tasks", "It stopped: ")
	is.Equal(len(peertest.Failed(t, q)), n)
	b.act("verb", "requeue-matching", "name", "q", "search", "payload=x")
	b.shows("queue?name=q", "Requeued 900 tasks")
	is.Equal(len(peertest.Failed(t, q)), 0)
}

// A form changes line breaks and bytes that aren't UTF-8, so it has the key of a task in another form: otherwise the
// action would affect the task under the changed key.
func TestAnyKey(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, &dash.Options{AllowActions: true})
	var keys []string
	for _, key := range []string{"a\nb", "a\r\nb", "a\rb", "a\xffb", "a+%62", " "} {
		peertest.Add(t, q, worqr.TaskSpec{Key: key, Payload: []byte("x")})
		peertest.Must(t, peertest.Take(t, q).Fail(t.Context(), errors.New("no")))
		keys = append(keys, key)
	}
	browsed := func(value string) string { // as a browser sends it
		return strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n").Replace(strings.ToValidUTF8(html.UnescapeString(value), "\ufffd"))
	}
	for _, input := range strings.Split(b.shows("failed?name=q", "6 failed tasks.", `name="id" value="`).text, `name="id" value="`)[1:] {
		id, _, _ := strings.Cut(input, `"`)
		r := b.act("verb", "requeue", "name", "q", "id", browsed(id), "back", "failed?name=q")
		is.True(strings.Contains(r.text, "1 task put back"))
	}
	for len(keys) > 0 {
		key := keys[len(keys)-1]
		keys = keys[:len(keys)-1]
		page := b.shows("task?name=q&key="+url.QueryEscape(key), "Cancel this key").text
		_, input, _ := strings.Cut(page, `name="verb" value="cancel"><input type="hidden" name="name" value="q"><input type="hidden" `)
		input, _, _ = strings.Cut(input, ">")
		name, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(input, `name="`), `"`), `" value="`)
		r := b.act("verb", "cancel", "name", "q", name, browsed(value))
		is.True(strings.Contains(r.text, "Canceled: 1 task removed"))
		var left []string
		for s, err := range q.Named(t.Context()) {
			is.NoErr(err)
			left = append(left, s.Key)
		}
		slices.Sort(left)
		want := slices.Sorted(slices.Values(keys))
		is.Equal(left, want)
	}
}

// A silence from the dashboard has the user's name, and is shown with its end.
func TestSilence(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("q"), "x")
	b := browse(t, p, &dash.Options{AllowActions: true, User: func(*http.Request) string { return "ann" }})
	b.shows("", "No worker", `value="silence"`)
	b.act("verb", "silence", "kind", "no-worker", "name", "q", "reason", "a move", "hours", "2", "by", "forged")
	text := b.shows("", "Silenced: No worker", "Silenced by ann until", "a move", `value="unsilence"`).text
	is.True(!strings.Contains(text, "forged"))
	b.act("verb", "check")
	b.shows("server", `<span class="tag notice">silenced</span>`)
	b.act("verb", "unsilence", "kind", "no-worker", "name", "q")
	is.True(!strings.Contains(b.shows("", "No worker").text, "Silenced: "))
}
