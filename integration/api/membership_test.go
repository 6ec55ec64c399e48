package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that doesn't know whether it has joined joins again under its id, even if it was evicted in the meantime:
// it has started nothing.
func TestUncertainJoin(t *testing.T) {
	t.Parallel()
	for name, failed := range map[string]bool{"still there": false, "failed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			server, c := redistest.StartAndDial(t)
			link := redistest.NewLink(t, server.Addr())
			p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
			working(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}), "other") // so that Redis has loaded the script
			is.NoErr(p.StartWorker(t.Context()))
			before, q := p.WorkerID(), p.Queue("q")
			lost := link.LoseRepliesTo("\r\n{q}\r\n", 1) // a script
			is.True(is_(q.StartWork(t.Context()), worqr.ErrUnknownOutcome))
			<-lost
			members := sure(redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1)))(t)
			is.Equal(members, []string{before}) // it has joined
			if failed {
				sure(openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), before))(t)
			}
			is.NoErr(q.StartWork(t.Context()))
			is.Equal(p.WorkerID(), before)
			members = sure(redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1)))(t)
			is.Equal(members, []string{p.WorkerID()})
			if !failed { // it has joined again without leaving, which would delay the joins of others
				is.True(!sure(redis.Bool(c.Do("HEXISTS", "p:state:{q}", "fence")))(t))
			}
		})
	}
}

// If the reply to a leave is lost, the worker serves that queue again when asked to, and
// keeps serving the others.
func TestUncertainLeave(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	a := working(t, p, "a")
	working(t, p, "b")
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	is.NoErr(working(t, other, "c").StopWork(t.Context())) // so that Redis has loaded the script
	lost := link.LoseReplyTo("\r\n{a}\r\n")
	is.NoErr(a.StopWork(t.Context()))
	<-lost
	is.NoErr(a.StartWork(t.Context()))
	for _, q := range []string{"a", "b"} {
		eventually(t, "it is there", func() bool {
			return slices.Equal(sure(redis.Strings(c.Do("ZRANGE", "p:workers:{"+q+"}", 0, -1)))(t), []string{p.WorkerID()})
		})
	}
}

// The contexts of an exclusive handler's tasks end before a leave returns the tasks to the queue.
func TestStopWorkOfExclusiveHandler(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	began, causes := make(chan context.Context, 10), make(chan error, 10)
	running := t.Context()
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
		if verb == "leave" {
			causes <- context.Cause(running)
		}
		return nil
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	q := p.Queue("q")
	q.Handle(func(ctx context.Context, _ *worqr.Task) error {
		began <- ctx
		<-ctx.Done()
		return ctx.Err()
	}, &worqr.HandleOptions{Exclusive: true})
	run(t, p)
	other := working(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}), "q")
	enqueue(t, other, "x")
	running = receive(t, began, 1)[0]
	is.NoErr(q.StopWork(t.Context()))
	is.Equal(receive(t, causes, 1), []error{worqr.ErrShutdown})
	is.Equal(string(take(t, other).Payload), "x")
}

// After StopWork, Run no longer serves the queue, and the log says so once. If Run didn't serve the
// queue, nothing is logged, since the caller of StopWork called StartWork, too.
func TestStopWorkIsLogged(t *testing.T) {
	is := parallel(t)
	var j journal
	p := open(t, worqr.Options{Prefix: redistest.Prefix(t), Logger: j.Logger()})
	starts, _ := counting(t, p, "served", nil)
	served, other := p.Queue("served"), p.Queue("other")
	enqueue(t, served, "a")
	receive(t, starts, 1)
	is.NoErr(other.StartWork(t.Context()))
	is.NoErr(other.StopWork(t.Context()))
	is.NoErr(served.StopWork(t.Context()))
	is.True(is_(served.StopWork(t.Context()), worqr.ErrNotWorking))
	id := p.WorkerID()
	is.NoErr(p.Shutdown(t.Context()))
	eventually(t, "it is logged", func() bool { return len(j.Lines("StopWork")) > 0 })
	lines := j.Lines("StopWork")
	is.Equal(len(lines), 1)
	for _, want := range []string{"level=INFO", `"worqr: no longer serving a queue; StopWork was called"`, "queue=served", "worker=" + id} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q lacks %q", lines[0], want)
		}
	}
}

// A cancel on a queue without workers doesn't keep a worker from joining: the join isn't refused as
// if a worker had left.
func TestCancelBesideAJoin(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	working(t, other, "other") // so that Redis has loaded the script
	q := other.Queue("q")
	joins := make(chan string, 1000)
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) (err error) {
		if verb == "join" { // it carries the last token
			joins <- ""
			_, err = q.Cancel(context.Background(), []byte("nothing"))
		}
		return err
	}}
	working(t, link.Open(t, worqr.Options{Prefix: "p"}), "q")
	is.Equal(len(joins), 1)
}

// The same applies after a lost join: the worker keeps its id, and the tasks it runs on other
// queues.
func TestCancelBehindALostJoin(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	var lose atomic.Bool
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
		if verb == "join" && lose.CompareAndSwap(true, false) {
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	elsewhere := working(t, p, "elsewhere")
	enqueue(t, elsewhere, "long")
	task, id := take(t, elsewhere), p.WorkerID()
	lose.Store(true)
	q := p.Queue("q")
	is.True(is_(q.StartWork(t.Context()), worqr.ErrUnknownOutcome))
	cancel(t, q, "nothing")
	is.NoErr(q.StartWork(t.Context()))
	is.Equal(p.WorkerID(), id)
	is.NoErr(task.Finish(t.Context()))
}

// A join is carried out, its reply is lost, and its repetition is refused. The refusal says nothing
// about the first try. If the worker learns that it was evicted in the meantime, it doesn't come back under its id.
func TestRefusedBehindALostJoin(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	var lose atomic.Bool
	link := &tamper{Url: server.URL(), Before: func(verb string, args []any) error {
		if verb == "join" && lose.CompareAndSwap(true, false) {
			carryOut(t, c, args)
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	working(t, p, "elsewhere")
	id, q := p.WorkerID(), p.Queue("q")
	lose.Store(true)
	is.True(is_(q.StartWork(t.Context()), worqr.ErrUnknownOutcome))
	redistest.Do(t, c, "RENAME", "p:rounds:{q}", "rounds")
	redistest.Do(t, c, "SET", "p:rounds:{q}", "damaged") // so that Redis refuses joins and leaves
	is.True(q.StartWork(t.Context()) != nil)
	redistest.Do(t, c, "RENAME", "rounds", "p:rounds:{q}")

	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	sure(other.FailWorker(t.Context(), id))(t)
	_ = q.StartWork(t.Context()) // unless it has just learned that it was evicted
	if p.WorkerID() != id {
		is.Equal(redistest.Do(t, c, "ZSCORE", "p:workers:{q}", id), nil)
	}
}

// A worker that comes back leaves its queues in parallel, not one after the other.
func TestComesBackFromManyQueues(t *testing.T) {
	is := parallel(t)
	const queues = 100
	server, c := redistest.StartAndDial(t)
	var left, exchanges, unanswered atomic.Int64
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
		if verb == "leave" {
			left.Add(1)
			if unanswered.Add(1) == 1 {
				exchanges.Add(1)
			}
		}
		return nil
	}, After: func(verb string, _ []any) {
		if verb == "leave" {
			unanswered.Add(-1)
		}
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	for _, name := range numbers("q", queues) {
		working(t, p, name)
	}
	before := p.WorkerID()
	redistest.DoAll(t, c, [][]any{{"ZREM", "p:workers:{q0}", before}, {"HDEL", "p:rounds:{q0}", before}}) // as good as evicted on that queue
	is.True(is_(failure(p.Queue("q0").StartTask(t.Context())), worqr.ErrEvicted))
	for _, name := range numbers("q", queues) {
		eventually(t, "it is there again", func() bool {
			members := sure(redis.Strings(c.Do("ZRANGE", "p:workers:{"+name+"}", 0, -1)))(t)
			return p.WorkerID() != before && slices.Equal(members, []string{p.WorkerID()})
		})
	}
	is.True(left.Load() >= queues-1) // all but the one that it was evicted from
	t.Logf("in %d exchanges", exchanges.Load())
	is.True(exchanges.Load() < queues/4) // as many as are batched; it once was one for each
}

// StartWork under the same id after a StopWork with an unknown outcome returns what was held to the
// queue, and leaves other queues alone.
func TestStopWorkFailsAndStartsAgain(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Lease: time.Second})
	q, other := working(t, p, "q"), p.Queue("other")
	is.NoErr(other.StartWork(t.Context()))
	enqueue(t, other, "o")
	theirs := sure(other.StartTask(t.Context()))(t)
	enqueue(t, q, "a")
	sure(q.StartTask(t.Context()))(t)
	over, end := context.WithCancel(t.Context())
	end()
	is.True(q.StopWork(over) != nil)
	is.NoErr(q.StartWork(t.Context()))
	task := sure(q.StartTask(t.Context()))(t)
	is.Equal(string(task.Payload), "a")
	is.NoErr(task.Finish(t.Context()))
	is.NoErr(theirs.Context().Err())
	is.NoErr(theirs.Finish(t.Context()))
	is.Equal(p.Stats().TimesEvicted, int64(0))
}

// Workers that start and stop while they join leave nothing behind.
func TestStartAndStopAtOnce(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	for range 100 {
		must(t, p.StartWorker(t.Context()))
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			_ = q.StartWork(t.Context()) // before, during or after the stop
		}()
		must(t, p.StopWorker(t.Context()))
		<-joined
	}
	nothingLeft(t, prefix, "q")
}

// Only Run serves a queue that has a handler: without Run, StartWork is refused, nothing is
// handled, and Close leaves nothing behind.
func TestHandleWithoutRun(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	started := make(chan string, 10)
	q.Handle(tell(started), &worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }})
	enqueue(t, q, "a")
	is.NoErr(p.StartWorker(t.Context()))
	is.True(errors.Is(q.StartWork(t.Context()), worqr.ErrInvalid))
	other := p.Queue("other")
	is.NoErr(other.StartWork(t.Context()))
	func() {
		defer func() { is.True(strings.Contains(fmt.Sprint(recover()), "after StartWork")) }()
		other.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	}()
	is.Equal(p.Stats().Started, int64(0))
	stop := run(t, p)
	is.Equal(receive(t, started, 1), []string{"a"})
	is.NoErr(q.StopWork(t.Context()))
	is.NoErr(q.StartWork(t.Context())) // Run serves it again
	enqueue(t, q, "b")
	is.Equal(receive(t, started, 1), []string{"b"})
	stop()
	is.NoErr(p.StartWorker(t.Context()))
	is.True(errors.Is(q.StartWork(t.Context()), worqr.ErrInvalid)) // Run has ended
	is.NoErr(p.Close())
	is.Equal(p.Stats().RunningHandlers, int64(0))
}

// Redis refuses a copy of a round from before a worker left and rejoined a queue: round numbers go on.
func TestRejoinRefusesEarlierRounds(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	is.True(is_(failure(q.StartTask(t.Context())), worqr.ErrNoTask))
	conn := redistest.Dial(t, redistest.URL())
	last := func() int { return sure(redis.Int(conn.Do("HGET", prefix+":rounds:{q}", p.WorkerID())))(t) }
	before := last()
	is.NoErr(q.StopWork(t.Context()))
	is.NoErr(q.StartWork(t.Context()))
	is.True(last() > before)
}
