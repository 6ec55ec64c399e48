package worqr_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// While the digest of a large payload is computed, which takes as long as this test likes,
// other tasks of the queue begin and end, cancels of them have effect, and beats go on. A
// cancel of the large one isn't over before it's known that it is covered, and then its
// handler doesn't begin.
func TestDigestHoldsUpNobody(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	large := bytes.Repeat([]byte("x"), 100_000)
	computing, release := make(chan struct{}, 10), make(chan struct{})
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	p.BeforeDigest(func([]byte) { computing <- struct{}{}; <-release })
	var begun atomic.Int64
	running, causes := make(chan string, 10), make(chan error, 10)
	q := p.Queue("q")
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		if len(task.Payload) == len(large) {
			begun.Add(1)
		}
		if string(task.Payload) == "runs" {
			running <- "runs"
			<-ctx.Done()
			causes <- context.Cause(ctx)
		}
		return ctx.Err()
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	other := openAt(t, redistest.URL(), worqr.Options{Prefix: prefix}).Queue("q")

	is.NoErr(q.Enqueue(t.Context(), large))
	receive(t, computing, 1)
	enqueue(t, q, numbers("", 100)...)
	eventually(t, "the others are finished", func() bool { return p.Stats().Finished == 100 })
	enqueue(t, q, "runs")
	receive(t, running, 1)
	report := cancel(t, other, "runs")
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
	eventually(t, "it is dropped", func() bool { return p.Stats().Canceled == 1 })

	c := redistest.Conn(t)
	deadline := func() float64 {
		return sure(redis.Float64(c.Do("ZSCORE", prefix+":workers:{q}", p.WorkerID())))(t)
	}
	for before, n := deadline(), 0; n < 3; n++ {
		eventually(t, "the lease is renewed", func() bool { return deadline() > before })
		before = deadline()
	}

	covers := sure(other.Cancel(t.Context(), large))(t)
	for _, r := range []*worqr.CancelReport{report, covers} { // nobody knows what they cover
		ctx, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
		is.True(is_(r.Wait(ctx), context.DeadlineExceeded))
		end()
	}
	let()
	wait(t, report)
	is.Equal(report.Stopped, 1)
	wait(t, covers)
	is.Equal(covers.Stopped, 1)
	is.Equal(begun.Load(), int64(0))
	is.Equal(p.Stats().TimesEvicted, int64(0))
}

// A message about a cancel that nobody has put on record stops what was held when it came,
// also if its digest wasn't known then.
func TestMessageBeforeDigest(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	computing, release := make(chan struct{}, 10), make(chan struct{})
	p := open(t, worqr.Options{Prefix: prefix})
	p.BeforeDigest(func([]byte) { computing <- struct{}{}; <-release })
	let := sync.OnceFunc(func() { close(release) })
	q := working(t, p, "q")
	t.Cleanup(let)
	large := string(bytes.Repeat([]byte("x"), 100_000))
	enqueue(t, q, large, "small")
	started := make(chan []*worqr.Task, 1)
	go func() {
		tasks, err := q.StartTasks(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		started <- tasks
	}()
	receive(t, computing, 1)
	small := take(t, q)
	c := redistest.Conn(t)
	for _, payload := range []string{large, "small"} {
		redistest.Do(t, c, "PUBLISH", prefix+"_{q}_cancel", payload)
	}
	<-small.Context().Done() // so the message before has been heard, too
	is.Equal(len(started), 0)
	let()
	task := receive(t, started, 1)[0][0]
	<-task.Context().Done()
	is.Equal(context.Cause(task.Context()), worqr.ErrCanceled)
	is.NoErr(task.Stop(t.Context()))
	is.NoErr(small.Stop(t.Context()))
}

// What goes back before its digest is known has it said all the same.
func TestReturnBeforeDigest(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	large := bytes.Repeat([]byte("x"), 100_000)
	computing, release, returned := make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
	link := &tamper{Url: server.URL(), Before: func(verb string, args []any) error {
		for i, a := range args {
			if verb == "step" && a == any("stop") {
				returned <- args[i+2].(string)
			}
		}
		return nil
	}}
	p := link.Open(t, worqr.Options{Prefix: "p"})
	p.BeforeDigest(func([]byte) { computing <- struct{}{}; <-release })
	let := sync.OnceFunc(func() { close(release) })
	begun, end := make(chan string, 10), make(chan struct{})
	q := p.Queue("q")
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		begun <- string(task.Payload[:1])
		<-end
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Prefetch: 1})
	stop := run(t, p)
	t.Cleanup(let)
	enqueue(t, q, "first", string(large))
	is.Equal(receive(t, begun, 1), []string{"f"})
	receive(t, computing, 1)
	var stopped sync.WaitGroup
	stopped.Go(stop)
	let()
	is.Equal(receive(t, returned, 1), []string{"100000:" + sha(string(large))})
	close(end)
	stopped.Wait()
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	is.Equal(waiting(t, other.Queue("q")), []string{string(large)})
}

// A worker that comes back leaves everything under its old id, also what a round brings
// meanwhile.
func TestComesBackWhileRoundsFlow(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	g := newGate(func(line string) bool { return strings.Contains(line, "coming back under a new id") })
	p := open(t, worqr.Options{Prefix: prefix, Lease: -1})
	p.BeforeLog(g.Before)
	starts, causes := held(t, p, "b", nil)
	before := p.WorkerID()
	working(t, p, "a")
	idle(t, p.Queue("b"), 1)
	c := redistest.Conn(t)
	redistest.Do(t, c, "ZREM", prefix+":workers:{a}", before)  // as good as failed, there
	go func() { _, _ = p.Queue("a").StartTask(t.Context()) }() // learns of it
	receiveClosed(t, g.Halted)
	enqueue(t, p.Queue("b"), "x")
	receive(t, starts, 1) // under the old id
	close(g.Open)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrEvicted})
	receive(t, starts, 1) // under the new one
	is.Equal(sure(redis.Strings(c.Do("ZRANGE", prefix+":workers:{b}", 0, -1)))(t), []string{p.WorkerID()})
	is.True(p.WorkerID() != before)
}

// A worker is failed between a round that starts a task and its answer: its
// handler does not start, and the task runs once, for the worker that takes over.
func TestAnswerAfterTheEnd(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	failing := make(chan struct{}, 100)
	at := newGate(func(line string) bool {
		if strings.HasPrefix(line, "worqr: cannot start or finish tasks") {
			failing <- struct{}{}
		}
		return strings.HasPrefix(line, "worqr: the problem is over") && strings.Contains(line, "cannot start or finish tasks") // answered, not taken in
	})
	p := open(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	p.BeforeLog(at.Before)
	type start struct {
		payload string
		crashes int
	}
	starts := make(chan start, 10)
	p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- start{string(t.Payload), t.Crashes}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1}) // the slot is taken as long as the answer is
	stop := run(t, p)
	other, q := openQueue(t, worqr.Options{Prefix: prefix})
	idle(t, q, 1)
	redistest.Do(t, c, "SET", prefix+":token:{q}", "no number")
	put(t, q, "key", "a", nil)
	receive(t, failing, 1)
	redistest.Do(t, c, "SET", prefix+":token:{q}", 1)
	<-at.Halted
	old := p.WorkerID()
	failWorker(t, other, old, 1)
	eventually(t, "it is back", func() bool { return p.WorkerID() != old && stats(t, q).Workers == 1 })
	close(at.Open)
	is.Equal(receive(t, starts, 1), []start{{"a", 1}})
	eventually(t, "it is finished", func() bool { return p.Stats().Finished == 1 })
	stop()
	is.Equal(len(starts), 0)
	is.Equal(p.Stats().Started, int64(1))
	nothingLeft(t, prefix, "q")
}
