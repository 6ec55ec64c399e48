package api

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A cancel stops running copies on every peer. Other tasks and copies enqueued afterwards aren't
// affected.
func TestCancelRunning(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	started, causes := make(chan string, 10), make(chan error, 10)
	var peers []*worqr.Peer
	for range 2 {
		p := open(t, worqr.Options{Prefix: prefix})
		p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
			started <- string(t.Payload)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, &worqr.HandleOptions{Concurrency: 2})
		run(t, p)
		peers = append(peers, p)
	}
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q") // a third peer
	enqueue(t, q, "x", "y", "x", "x", "x")
	receive(t, started, 4)

	report := cancel(t, q, "x")
	is.Equal(report.Removed, 1) // the fifth was waiting
	wait(t, report)
	is.Equal(len(causes), 3)
	for range 3 {
		is.Equal(<-causes, worqr.ErrCanceled)
	}
	enqueue(t, q, "x") // this is a new task
	is.Equal(receive(t, started, 1), []string{"x"})
	is.Equal(len(causes), 0)
	is.Equal(peers[0].Stats().Canceled+peers[1].Stats().Canceled, int64(3))
}

// A cancel may race with the start of its task.
func TestCancelStarting(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 4})
	removed := 0
	for range 200 {
		enqueue(t, q, "a")
		report := cancel(t, q, "a")
		wait(t, report)
		removed += report.Removed
	}
	is.Equal(len(causes), len(starts)) // each that has started was stopped
	eventually(t, "each was removed or stopped, which the peer learns after Redis", func() bool { return int64(removed)+p.Stats().Canceled == 200 })
	is.Equal(stats(t, q).Running+stats(t, q).Waiting, 0)
	t.Logf("%d were removed and %d stopped", removed, len(starts))
}

// If a cancel message is lost, the next heartbeat finds the cancel in the log.
func TestCancelWithoutMessage(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "mute", "on", "nopass", "+@all", "~*", "resetchannels") // may not subscribe
	p := openAt(t, "redis://mute:x@"+server.Addr(), worqr.Options{Prefix: prefix})
	_, _ = c.Do("ACL", "SETUSER", "mute", "&"+prefix+"_nothing")
	starts, causes := held(t, p, "q", nil)
	other := openAt(t, server.URL(), worqr.Options{Prefix: prefix})
	redistest.Do(t, c, "ACL", "SETUSER", "mute", "allchannels", "-subscribe", "-psubscribe")
	enqueue(t, other.Queue("q"), "a")
	receive(t, starts, 1)
	report := cancel(t, other.Queue("q"), "a")
	wait(t, report)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
}

// A canceled task that a killed peer held is dropped, not returned.
func TestCancelHeldByTheDead(t *testing.T) {
	is := parallel(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 3, Hold: true, Lease: 500 * time.Millisecond}
	victim := spawn(t, c)
	p, q := openQueue(t, worqr.Options{Prefix: c.Prefix, Lease: c.Lease})
	enqueue(t, q, "a", "b", "a")
	victim.starts(t, 3)
	victim.Kill()
	report := cancel(t, q, "a")
	is.Equal(report.Removed, 0)
	starts, _ := held(t, p, "q", &worqr.HandleOptions{Concurrency: 3})
	wait(t, report)
	is.Equal(receive(t, starts, 1), []string{"b"})
	is.Equal(len(starts), 0)
}

// A cancel ends the contexts of tasks started with StartTasks. They are dropped when they are
// stopped, retried or failed. If one finishes anyway, it counts as finished.
func TestCancelTakenByHand(t *testing.T) {
	is := parallel(t)
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a", "a", "a", "a", "b")
	tasks := sure(q.StartTasks(t.Context(), 5))(t)
	report := cancel(t, q, "a")
	for _, task := range tasks[:4] {
		<-task.Context().Done()
		is.Equal(context.Cause(task.Context()), worqr.ErrCanceled)
	}
	is.NoErr(tasks[4].Context().Err())
	is.NoErr(tasks[0].Stop(t.Context()))
	is.NoErr(tasks[1].Retry(t.Context(), 0))
	is.NoErr(tasks[2].Fail(t.Context(), errors.New("no")))
	is.NoErr(tasks[3].Finish(t.Context()))
	wait(t, report)
	is.Equal(waiting(t, q), nil)
	is.Equal(len(failed(t, q)), 0)
}

// holdStart returns a hook that runs after each call and holds the reply to the first round that
// has started a task. The returned channel is closed then.
func holdStart(t *testing.T, server *redistest.Server, answered chan struct{}) (chan struct{}, func(verb string)) {
	t.Helper()
	look, once, started := redistest.Dial(t, server.URL()), sync.Once{}, make(chan struct{})
	return started, func(verb string) {
		if verb != "start" {
			return
		}
		if n, err := redis.Strings(look.Do("KEYS", "p:process:*")); err == nil && len(n) > 0 {
			once.Do(func() { close(started); hold(t, answered) })
		}
	}
}

// A task that can't be returned, because a key has the wrong type, is still held: its cancel
// doesn't end before the task is gone.
func TestCancelOfWhatCannotGoBack(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	answered, refused := make(chan struct{}), make(chan struct{})
	started, after := holdStart(t, server, answered)
	refuse := sync.OnceFunc(func() { close(refused) })
	link := &tamper{Url: server.URL(), After: func(verb string, args []any) {
		if verb == "finish" && slices.Contains(args, any("stop")) {
			refuse()
		} else {
			after(verb)
		}
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: 900 * time.Millisecond})
	q, other := working(t, p, "q"), openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	enqueue(t, other, "x")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := q.StartTask(ctx); left <- err }()
	receiveClosed(t, started)
	leave() // so that the task must be returned
	is.True(is_(receive(t, left, 1)[0], context.Canceled))
	redistest.Do(t, c, "SET", "p:queues:{q}", "foreign")
	close(answered)
	receiveClosed(t, refused)
	_, err := q.StartTask(t.Context())
	is.True(err != nil) // so the worker has handled the refusal
	redistest.Do(t, c, "DEL", "p:queues:{q}")

	report := cancel(t, other, "x")
	wait(t, report)
	is.Equal(stats(t, other), inspect.QueueStats{Workers: 1})
}

// If the reply that starts a task arrives after its worker was evicted and the task
// canceled, no handler runs the task.
func TestCancelBeforeTheStartIsKnown(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	answered := make(chan struct{})
	started, after := holdStart(t, server, answered)
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
		select {
		case <-started:
			if verb == "heartbeat" {
				hold(t, answered)
			}
		default:
		}
		return nil
	}, After: func(verb string, _ []any) { after(verb) }}
	opts := worqr.Options{Prefix: "p", Lease: 900 * time.Millisecond}
	p := link.Open(t, opts)
	began := make(chan string, 10)
	p.Queue("q").Handle(tell(began), nil)
	run(t, p)
	idle(t, p.Queue("q"), 1)
	q := working(t, openAt(t, server.URL(), opts), "q") // evicts p
	before := p.WorkerID()
	enqueue(t, q, "x")
	receiveClosed(t, started)
	wait(t, cancel(t, q, "x"))
	close(answered)
	eventually(t, "it comes back", func() bool { return p.WorkerID() != before })
	enqueue(t, q, "y")
	is.Equal(receive(t, began, 1), []string{"y"})
}

// Wait returns when the tasks that ran at the time of its cancel have ended, regardless of later
// cancels.
func TestCancelAgainAndAgain(t *testing.T) {
	is := parallel(t)
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "x", "y", "y")
	tasks := sure(q.StartTasks(t.Context(), 1))(t)
	first := cancel(t, q, "x")
	<-tasks[0].Context().Done()
	is.NoErr(tasks[0].Stop(t.Context()))
	for range 3 { // each time, cancel a running task that doesn't stop
		enqueue(t, q, "x")
		for _, o := range sure(q.StartTasks(t.Context(), 3))(t) {
			if string(o.Payload) == "y" {
				is.NoErr(o.Finish(t.Context()))
			}
		}
		cancel(t, q, "x")
	}
	wait(t, first)
}

// Cancels published by other programs are looked up page by page, until none is left.
func TestCancelBurst(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 350})
	payloads := numbers("burst", 350)
	subscribed(t, prefix, "q")
	enqueue(t, p.Queue("q"), payloads...)
	receive(t, starts, 350)
	c := redistest.Conn(t)
	for _, payload := range payloads {
		is.NoErr(c.Send("PUBLISH", prefix+"_{q}_cancel", payload))
	}
	redistest.Do(t, c, "")
	for _, cause := range receive(t, causes, 350) {
		is.Equal(cause, worqr.ErrCanceled)
	}
}

// A task is taken, the reply is lost, and the task is canceled before the worker asks again. A
// handler that starts with an ended context counts as stuck after Grace, like any other.
func TestBornCanceledIsDisowned(t *testing.T) {
	t.Parallel()
	server, c := redistest.StartAndDial(t)
	oq := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	var armed atomic.Bool
	link := &tamper{Url: server.URL(), Before: func(verb string, args []any) error {
		if verb != "start" || !armed.Load() {
			return nil
		}
		carryOut(t, c, args)
		if stats(t, oq).Running == 0 {
			return nil
		}
		armed.Store(false)
		sure(oq.Cancel(context.Background(), []byte("a")))(t)
		return io.ErrUnexpectedEOF
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	q := p.Queue("q")
	release := make(chan struct{})
	var running atomic.Int64
	q.Handle(func(context.Context, *worqr.Task) error {
		running.Add(1)
		<-release // ignores its context
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Grace: 20 * time.Millisecond})
	run(t, p)
	idle(t, q, 1)
	armed.Store(true)
	enqueue(t, oq, "a")
	eventually(t, "it is disowned, if it was begun", func() bool {
		s := p.Stats()
		return running.Load() == 1 && s.StuckHandlers == 1 || running.Load() == 0 && s.Canceled == 1
	})
	close(release)
}

// typed runs a command in which % stands for the prefix, # for the digest of x, and @ for an attempt.
func typed(t testing.TB, c redis.Conn, prefix, attempt, command string) {
	t.Helper()
	words := strings.Fields(strings.NewReplacer("%", prefix, "#", sha("x"), "@", attempt).Replace(command))
	redistest.Do(t, c, words[0], redis.Args{}.AddFlat(words[1:])...)
}

// If Redis has lost its record of a cancel, Wait fails with ErrUnknownOutcome: nothing is known of the attempts either.
func TestCancelOfWhatRedisLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{
		"all":        "all",
		"the record": "DEL %:canceled:{q}:#",
		"the record, in a time before the cancel": "SET %:canceled:{q}:# 1",
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			prefix, c := redistest.Prefix(t), redistest.Conn(t)
			q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
			enqueue(t, q, "y", "x")
			is.NoErr(take(t, q).Finish(t.Context()))
			task := take(t, q)
			report := cancel(t, open(t, worqr.Options{Prefix: prefix}).Queue("q"), "x")
			<-task.Context().Done()
			ctx, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer end()
			is.True(is_(report.Wait(ctx), context.DeadlineExceeded)) // it still runs
			if lost == "all" {
				lost = "DEL " + strings.Join(left(t, prefix), " ")
			}
			typed(t, c, prefix, task.AttemptID, lost)
			is.True(is_(waitAll(t, report), worqr.ErrUnknownOutcome))
			is.True(is_(waitAll(t, report), worqr.ErrUnknownOutcome)) // it stays unknown
		})
	}
}

// waitAll calls Wait with a generous timeout.
func waitAll(t testing.TB, report *worqr.CancelReport) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return report.Wait(ctx)
}

// A late cancel message doesn't stop a running copy that was enqueued after the cancel.
func TestLateCancelMessage(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	q := p.Queue("q")
	subscribed(t, prefix, "q")
	wait(t, cancel(t, q, "x")) // no worker holds it
	enqueue(t, q, "x", "y")
	receive(t, starts, 2)
	c := redistest.Conn(t)
	for _, payload := range []string{"x", "y"} { // there's no record of a cancel of y
		redistest.Do(t, c, "PUBLISH", prefix+"_{q}_cancel", payload)
	}
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled}) // y's; the peer has looked up x by then, too
	is.Equal(len(causes), 0)
	var running []string
	eventually(t, "only x runs", func() bool {
		running = nil
		for r := range each(t, q.Running(t.Context())) {
			running = append(running, string(r.Payload))
		}
		return len(running) == 1
	})
	is.Equal(running, []string{"x"})
}

// Wait survives lost replies. If Redis is down for longer than CallTimeout, Wait returns that
// error. It isn't ErrUnknownOutcome, which would mean that the outcome can never be known.
func TestCancelWaitsThroughOutages(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	q := working(t, openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour}), "q")
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", CallTimeout: 4 * time.Second}) // five calls fit into it
	enqueue(t, q, "x")
	task := take(t, q)
	report := cancel(t, p.Queue("q"), "x")
	<-task.Context().Done()
	over := make(chan error, 1)
	wait := func() { over <- waitAll(t, report) }

	lost := link.LoseRepliesTo("p:canceled:{q}:", 5)
	go wait()
	<-lost
	is.NoErr(task.Finish(t.Context()))
	is.NoErr(receive(t, over, 1)[0])

	enqueue(t, q, "y")
	take(t, q)
	report = cancel(t, p.Queue("q"), "y")
	link.LoseRepliesTo("p:canceled:{q}:", 1<<30)
	go wait()
	err := receive(t, over, 1)[0]
	is.True(err != nil && !is_(err, worqr.ErrUnknownOutcome))
	is.True(strings.Contains(err.Error(), "reply was lost"))
}
