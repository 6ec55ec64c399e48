package api

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/worqrtrace"
)

// A record has the calls of a Trace, in order.
type record struct {
	mu    sync.Mutex
	calls []traced
}

// A traced is one call. The field of the function's argument type is set.
type traced struct {
	name       string
	task       worqrtrace.Task
	queue      worqrtrace.Queue
	worker     worqrtrace.Worker
	connection worqrtrace.Connection
}

func (r *record) add(c traced) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// trace returns a Trace with all functions, which record their calls.
func (r *record) trace() *worqrtrace.Trace { return tracing(r.add) }

// tracing returns a Trace with all functions, which pass their calls to tell.
func tracing(tell func(traced)) *worqrtrace.Trace {
	task := func(name string) func(worqrtrace.Task) {
		return func(t worqrtrace.Task) { tell(traced{name: name, task: t}) }
	}
	queue := func(name string) func(worqrtrace.Queue) {
		return func(q worqrtrace.Queue) { tell(traced{name: name, queue: q}) }
	}
	worker := func(name string) func(worqrtrace.Worker) {
		return func(w worqrtrace.Worker) { tell(traced{name: name, worker: w}) }
	}
	connection := func(name string) func(worqrtrace.Connection) {
		return func(c worqrtrace.Connection) { tell(traced{name: name, connection: c}) }
	}
	return &worqrtrace.Trace{
		Started: task("started"), Ended: task("ended"),
		Enqueued: queue("enqueued"), Canceled: queue("canceled"), Changed: queue("changed"), Failed: queue("unstarted"), FailedDropped: queue("dropped"),
		Joined: queue("joined"), Left: queue("left"), TasksReturned: queue("returned"),
		Evicted: worker("evicted"), WorkerFailed: worker("failed"),
		ConnectionLost: connection("lost"), ConnectionRestored: connection("restored"),
		Missed: func(calls int) { tell(traced{name: "missed", queue: worqrtrace.Queue{Tasks: calls}}) },
	}
}

// of returns the calls of a function.
func (r *record) of(name string) (calls []traced) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.name == name {
			calls = append(calls, c)
		}
	}
	return calls
}

// await waits until a function was called n times, and returns these calls.
func (r *record) await(t testing.TB, name string, n int) []traced {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is called %d times", name, n), func() bool { return len(r.of(name)) >= n })
	return r.of(name)
}

// paired checks that each start has one end, and that it comes later.
func (r *record) paired(t testing.TB) {
	t.Helper()
	open, ended := map[string]bool{}, map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		id := c.task.AttemptID
		switch {
		case c.name == "started" && (open[id] || ended[id]):
			t.Errorf("%s starts again", id)
		case c.name == "started":
			open[id] = true
		case c.name == "ended" && !open[id]:
			t.Errorf("%s ends, and hasn't started or has ended before", id)
		case c.name == "ended":
			delete(open, id)
			ended[id] = true
		}
	}
	if len(open) > 0 {
		t.Errorf("%d tasks have started and not ended", len(open))
	}
}

// A task with a handler is traced with one start and one end, which have everything known about it.
// The end is traced after it was stored.
func TestTraceHandler(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for _, c := range []struct {
		name    string
		handler worqr.Handler
		opts    worqr.HandleOptions
		outcome worqrtrace.Outcome
		kind    inspect.FailureKind
		text    string
		next    time.Duration
	}{
		{name: "finished", outcome: worqrtrace.Finished, handler: func(_ context.Context, t *worqr.Task) error {
			t.Result = []byte("result")
			return nil
		}},
		{name: "retried", outcome: worqrtrace.Retried, text: "bad", next: time.Hour,
			handler: func(context.Context, *worqr.Task) error { return worqr.RetryAfter(bad, time.Hour) }},
		{name: "snoozed", outcome: worqrtrace.Snoozed, text: "snoozed for 1h0m0s", next: time.Hour,
			handler: func(context.Context, *worqr.Task) error { return worqr.Snooze(time.Hour) }},
		{name: "failed", outcome: worqrtrace.Failed, kind: inspect.FailureError, text: "bad",
			handler: func(context.Context, *worqr.Task) error { return worqr.Permanent(bad) }},
		{name: "malformed", outcome: worqrtrace.Failed, kind: inspect.FailureMalformed, text: "bad",
			handler: func(context.Context, *worqr.Task) error { return worqr.Malformed(bad) }},
		{name: "no retries", outcome: worqrtrace.Failed, kind: inspect.FailureError, text: "bad", opts: worqr.HandleOptions{MaxRetries: -1},
			handler: func(context.Context, *worqr.Task) error { return bad }},
		{name: "Goexit", outcome: worqrtrace.Failed, kind: inspect.FailureError, text: "the handler called runtime.Goexit", opts: worqr.HandleOptions{MaxRetries: -1},
			handler: func(context.Context, *worqr.Task) error { runtime.Goexit(); return nil }},
		{name: "timeout", outcome: worqrtrace.Failed, kind: inspect.FailureError, text: "worqr: the attempt took too long",
			opts: worqr.HandleOptions{MaxRetries: -1, Timeout: time.Millisecond},
			handler: func(ctx context.Context, _ *worqr.Task) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}},
		{name: "by itself", outcome: worqrtrace.Stopped,
			handler: func(ctx context.Context, t *worqr.Task) error {
				if t.Token > 1 {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return t.Stop(context.WithoutCancel(ctx))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := parallel(t)
			r, prefix := &record{}, redistest.Prefix(t)
			trace := r.trace()
			other := open(t, worqr.Options{Prefix: prefix}).Queue("q")
			held, note := make(chan int, 10), trace.Ended
			trace.Ended = func(task worqrtrace.Task) {
				n := 0
				for running := range each(t, other.Running(t.Context())) {
					if running.AttemptID == task.AttemptID {
						n++
					}
				}
				held <- n
				note(task)
			}
			p, q := openQueue(t, worqr.Options{Prefix: prefix, Trace: trace, Drain: -1})
			q.Handle(func(ctx context.Context, task *worqr.Task) error {
				task.Headers["trace"] = "8"
				return c.handler(ctx, task)
			}, &c.opts)
			add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("payload"), Headers: map[string]string{"trace": "7"}})
			stop := run(t, p)
			got := r.await(t, "ended", 1)[0].task
			is.Equal(<-held, 0) // it's stored
			stop()
			r.paired(t)

			began := r.of("started")[0].task
			is.Equal(got.Outcome, c.outcome)
			is.Equal(got.Kind, c.kind)
			is.Equal(got.Error, c.text)
			if c.next > 0 {
				is.Equal(got.Next.Sub(got.At), c.next)
			} else {
				is.True(got.Next.IsZero())
			}
			is.True(got.Ran >= 0 && got.Waited >= 0 && !got.At.Before(began.At))
			if c.name == "finished" {
				is.Equal(got.ResultSize, 6)
			}
			same := got
			same.At, same.Outcome, same.Ran, same.ResultSize, same.Kind, same.Error, same.Next = began.At, "", 0, 0, "", "", time.Time{}
			is.Equal(same, began) // apart from the end, they are equal
			id := began.AttemptID
			is.Equal(began.Headers, map[string]string{"trace": "7"}) // the handler can't change them
			began.Headers = nil
			is.Equal(began.EnqueuedAt.IsZero(), false)
			began.EnqueuedAt = time.Time{}
			is.Equal(began, worqrtrace.Task{At: began.At, Queue: "q", WorkerID: began.WorkerID, AttemptID: id, Key: "key", Digest: "f07e5a81", Token: 1, Size: 7, Waited: began.Waited, DueAt: began.DueAt})
		})
	}
}

// A task canceled while it runs ends as canceled, and the canceling peer traces what it removed.
func TestTraceCancel(t *testing.T) {
	is := parallel(t)
	r := &record{}
	p, q := openQueue(t, worqr.Options{Trace: r.trace()})
	starts, _ := held(t, p, "q", &worqr.HandleOptions{Concurrency: 1})
	enqueue(t, q, "payload", "payload")
	receive(t, starts, 1)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("other"), At: time.Now().Add(time.Hour)})
	sure(q.CancelKey(t.Context(), "key"))(t)
	wait(t, sure(q.Cancel(t.Context(), []byte("payload")))(t))
	end := r.await(t, "ended", 1)[0].task
	is.Equal(end.Outcome, worqrtrace.Canceled)
	is.Equal(end.Error, "worqr: the task was canceled")
	calls := r.await(t, "canceled", 2)
	is.Equal(calls[0].queue.Key, "key")
	is.Equal(calls[0].queue.Tasks, 1)
	is.Equal(calls[1].queue.Queue, "q")
}

// Each call that adds tasks is traced once, with their number, however many commands it sends. A
// call that adds nothing isn't traced.
func TestTraceEnqueued(t *testing.T) {
	is := parallel(t)
	r := &record{}
	p, q := openQueue(t, worqr.Options{Trace: r.trace()})
	ctx, at := t.Context(), time.Now().Add(time.Hour)
	one := []byte("one")
	is.NoErr(q.Enqueue(ctx, slices.Repeat([][]byte{one}, 3000)...)) // sent as a batch
	is.True(sure(q.EnqueueOnce(ctx, "nonce", one, one))(t))
	is.True(!sure(q.EnqueueOnce(ctx, "nonce", one, one))(t))
	sure(q.Add(ctx, worqr.TaskSpec{Payload: one, Unique: true}))(t)
	is.True(errors.Is(failure(q.Add(ctx, worqr.TaskSpec{Payload: one, Unique: true})), worqr.ErrDuplicate))
	sure(q.Add(ctx, worqr.TaskSpec{Key: "key", Payload: one, At: at, Headers: map[string]string{"trace": "7"}}))(t)
	key := sure(q.Add(ctx, worqr.TaskSpec{Payload: one, At: at}))(t)[0]
	added := sure(q.Add(ctx, worqr.TaskSpec{Payload: one, Once: "once"}))(t)[0]
	is.Equal(sure(q.Add(ctx, worqr.TaskSpec{Payload: one, Once: "once"}))(t)[0], added)
	later := sure(q.Add(ctx, worqr.TaskSpec{Payload: one, At: at, Once: "later"}))(t)[0]
	is.Equal(sure(q.Add(ctx, worqr.TaskSpec{Payload: one, At: at, Once: "later"}))(t)[0], later)
	sure(q.Add(ctx, worqr.TaskSpec{Payload: one}, worqr.TaskSpec{Payload: one}))(t)
	is.True(q.Enqueue(ctx) != nil)
	is.True(failure(q.Add(ctx, worqr.TaskSpec{Payload: one, MaxRetries: 1 << 30})) != nil)
	is.NoErr(p.Close())
	var got []worqrtrace.Queue
	for _, c := range r.of("enqueued") {
		is.True(!c.queue.At.IsZero() && c.queue.Took > 0)
		c.queue.At, c.queue.Took = time.Time{}, 0
		got = append(got, c.queue)
	}
	is.Equal(got, []worqrtrace.Queue{
		{Queue: "q", Tasks: 3000, Size: 9000},
		{Queue: "q", Tasks: 2, Size: 6},
		{Queue: "q", Tasks: 1, Size: 3},
		{Queue: "q", Tasks: 1, Size: 3, Key: "key", DueAt: at, Headers: map[string]string{"trace": "7"}},
		{Queue: "q", Tasks: 1, Size: 3, Key: key, DueAt: at},
		{Queue: "q", Tasks: 1, Size: 3, Key: added},
		{Queue: "q", Tasks: 1, Size: 3, Key: later, DueAt: at},
		{Queue: "q", Tasks: 2, Size: 6},
	})
}

// EnqueuedAt and DueAt are set if known, and joined traces get the same values.
func TestTraceTimes(t *testing.T) {
	is := parallel(t)
	r, second := &record{}, &record{}
	p, q := openQueue(t, worqr.Options{Trace: worqrtrace.Join(r.trace(), nil, second.trace())})
	due := time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	defer run(t, p)()
	sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("added")}))(t)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "put", Payload: []byte("put"), At: due}))(t)
	r.await(t, "ended", 2)
	for _, c := range second.await(t, "ended", 2) {
		is.True(near(c.task.EnqueuedAt, time.Now()))
		if is.Equal(c.task.DueAt.IsZero(), c.task.Key != "put"); c.task.Key == "put" {
			is.Equal(c.task.DueAt, due)
		}
	}
}

// A worker joins, is evicted, joins again under a new id, and leaves. Its trace ends the task
// as lost. The trace of the evicting peer has the eviction, and what was returned.
func TestTraceEviction(t *testing.T) {
	is := parallel(t)
	mine, theirs, prefix := &record{}, &record{}, redistest.Prefix(t)
	other := open(t, worqr.Options{Prefix: prefix, Trace: theirs.trace()})
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Name: "victim", Trace: mine.trace()})
	starts := make(chan string, 10)
	q.Handle(func(ctx context.Context, _ *worqr.Task) error {
		starts <- ""
		<-ctx.Done()
		return ctx.Err()
	}, &worqr.HandleOptions{Concurrency: 1, OnFailed: func(context.Context, *worqr.Task) error { return nil }})
	stop := run(t, p)
	enqueue(t, q, "task")
	receive(t, starts, 1)
	old := p.WorkerID()
	is.Equal(sure(other.FailWorker(t.Context(), old))(t), 1)
	evicted := mine.await(t, "evicted", 1)[0].worker
	receive(t, starts, 1) // again, under the new id
	is.Equal(evicted, worqrtrace.Worker{At: evicted.At, WorkerID: old, NewID: p.WorkerID(), Name: "victim", Queues: []string{"q"}})
	lost := mine.await(t, "ended", 1)[0].task
	is.Equal(lost.Outcome, worqrtrace.Lost)
	is.Equal(lost.Error, "worqr: worker evicted")
	is.Equal(lost.WorkerID, old)
	failed := theirs.await(t, "failed", 1)[0].worker
	is.Equal(failed, worqrtrace.Worker{At: failed.At, WorkerID: old, Queues: []string{"q"}, Tasks: 1})
	returned := theirs.await(t, "returned", 1)[0].queue
	is.Equal(returned, worqrtrace.Queue{At: returned.At, Queue: "q", WorkerID: other.WorkerID(), Tasks: 1})
	stop()
	stopped := mine.await(t, "ended", 2)[1].task // by the drain
	is.Equal(stopped.Outcome, worqrtrace.Stopped)
	is.Equal(stopped.Error, "worqr: the peer is shutting down")
	mine.paired(t)
	var members []string
	for _, c := range slices.Concat(mine.of("joined"), mine.of("left")) {
		is.NoErr(c.queue.Err)
		members = append(members, fmt.Sprint(c.name, " ", c.queue.Queue, " ", c.queue.OnFailed, " ", c.queue.WorkerID == old))
	}
	slices.Sort(members)
	is.Equal(members, []string{
		"joined q false false", "joined q false true", "joined q true false", "joined q true true", "left q false false", "left q true false",
	})
}

// The peer that evicts a dead worker traces it once, with its name and its tasks, before the first
// of these starts again.
func TestTraceDeadWorker(t *testing.T) {
	is := parallel(t)
	r, prefix := &record{}, redistest.Prefix(t)
	c := childConfig{URL: redistest.URL(), Prefix: prefix, Queue: "q", Concurrency: 3, Hold: true, Lease: 2 * time.Second}
	victim := spawn(t, c)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: c.Lease, Trace: r.trace()})
	enqueue(t, q, "a", "b", "c")
	victim.starts(t, 3)
	got := make(chan string, 10)
	q.Handle(tell(got), nil)
	stop := run(t, p)
	victim.Kill()
	for _, key := range left(t, prefix+":worker") { // on a slow machine, the eviction may come after two leases
		redistest.Do(t, redistest.Conn(t), "PERSIST", key)
	}
	receive(t, got, 3)
	allDone(t, q)
	stop()
	failed := r.of("failed")
	is.Equal(len(failed), 1)
	is.True(failed[0].worker.PID > 0 && failed[0].worker.Host != "")
	is.Equal(failed[0].worker.Tasks, 3)
	tasks := 0
	for _, c := range r.of("returned") {
		tasks += c.queue.Tasks
	}
	is.Equal(tasks, 3)
	for _, c := range r.of("started") {
		is.Equal(c.task.Crashes, 1)
	}
	r.paired(t)
}

// Tasks that fail without a start are counted by reason.
func TestTraceFailedUnstarted(t *testing.T) {
	is := parallel(t)
	r, prefix := &record{}, redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Trace: r.trace()})
	enqueue(t, q, "deadly")
	victim := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	take(t, working(t, victim, "q"))
	failWorker(t, p, victim.WorkerID(), 1)
	for range 3 {
		sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("late"), Expires: time.Now().Add(-time.Hour)}))(t)
	}
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{MaxCrashes: 1})
	stop := run(t, p)
	eventually(t, "all have failed", func() bool { return stats(t, q).Failed == 4 })
	stop()
	tasks := map[inspect.FailureKind]int{}
	for _, c := range r.of("unstarted") {
		is.Equal(c.queue.Queue, "q")
		is.True(c.queue.WorkerID != "" && !c.queue.OnFailed)
		tasks[c.queue.Kind] += c.queue.Tasks
	}
	is.Equal(tasks, map[inspect.FailureKind]int{inspect.FailureExpired: 3, inspect.FailureCrashed: 1})
	is.Equal(len(r.of("started")), 0)
}

// Changes to tasks by hand are traced, with how many were changed.
func TestTraceChanged(t *testing.T) {
	is := parallel(t)
	r := &record{}
	p := open(t, worqr.Options{Trace: r.trace()})
	q, ctx := working(t, p, "q"), t.Context()
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("payload")})
	is.True(sure(q.RemoveKey(ctx, "key"))(t))
	is.True(!sure(q.RemoveKey(ctx, "key"))(t))
	for range 2 {
		enqueue(t, q, "payload")
		is.NoErr(take(t, q).Fail(ctx, errors.New("no")))
	}
	is.Equal(sure(q.RequeueFailed(ctx, failed(t, q)[0].ID))(t), 1)
	is.Equal(sure(q.RequeueAllFailed(ctx))(t), 1)
	for range 2 {
		is.NoErr(take(t, q).Fail(ctx, errors.New("no")))
	}
	is.Equal(sure(q.DeleteFailed(ctx, failed(t, q)[0].ID))(t), 1)
	is.Equal(sure(q.DeleteAllFailed(ctx))(t), 1)
	is.NoErr(q.Pause(ctx))
	is.NoErr(q.Resume(ctx))
	is.NoErr(q.Delete(ctx))
	_, err := q.RemoveKey(ctx, "")
	is.True(err != nil) // nothing was sent
	_, err = q.RunNow(ctx, "")
	is.True(err != nil)
	is.True(!sure(q.RunNow(ctx, "key"))(t))
	var got []string
	for _, c := range r.await(t, "changed", 10) {
		is.True(c.queue.Took > 0 && !c.queue.At.IsZero() && c.queue.Queue == "q")
		got = append(got, fmt.Sprint(c.queue.Method, " ", c.queue.Key, " ", c.queue.Tasks, " ", c.queue.Err))
	}
	is.Equal(got, []string{"RemoveKey key 1 <nil>", "RemoveKey key 0 <nil>", "RequeueFailed  1 <nil>", "RequeueAllFailed  1 <nil>",
		"DeleteFailed  1 <nil>", "DeleteAllFailed  1 <nil>", "Pause  0 <nil>", "Resume  0 <nil>", "Delete  0 <nil>", "RunNow key 0 <nil>"})
}

// A peer that only adds tasks traces an outage, too, once two calls have failed.
func TestTraceOutageOfProducer(t *testing.T) {
	is := parallel(t)
	r, server := &record{}, redistest.Start(t)
	q := openAt(t, server.URL(), worqr.Options{Prefix: "p", Trace: r.trace()}).Queue("q")
	enqueue(t, q, "task")
	server.Kill()
	eventually(t, "it's told", func() bool {
		is.True(q.Enqueue(t.Context(), []byte("task")) != nil)
		return len(r.of("lost")) > 0
	})
	is.True(r.of("lost")[0].connection.Error != "")
	server.Restart(t)
	enqueue(t, q, "task")
	r.await(t, "restored", 1)
	is.Equal(len(r.of("lost")), 1)
}

// If a function panics, with whatever value, or ends its goroutine, only that call is lost.
func TestTracePanics(t *testing.T) {
	is := parallel(t)
	r, log := &record{}, &journal{}
	trace := r.trace()
	note := trace.Ended
	trace.Ended = func(task worqrtrace.Task) {
		note(task)
		switch {
		case task.Token == 10:
			panic(evil{runtime.Goexit})
		case task.Token%2 == 0:
			panic("no")
		}
		runtime.Goexit()
	}
	p, q := openQueue(t, worqr.Options{Trace: trace, Logger: log.Logger()})
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	enqueue(t, q, numbers("", 10)...)
	stop := run(t, p)
	r.await(t, "ended", 10)
	stop()
	r.paired(t)
	is.Equal(len(r.of("left")), 1)
	is.Equal(len(log.Lines("a Trace function panicked")), 1)
}
