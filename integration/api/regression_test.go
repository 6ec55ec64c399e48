package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A cancel message that comes late, when a copy that was enqueued after the
// cancel runs: that one is spared.
func TestLateCancelMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	q := p.Queue("q")
	wait(t, cancel(t, q, "x")) // nobody holds it
	enqueue(t, q, "x", "y")
	receive(t, starts, 2)
	c := redistest.Conn(t)
	for _, payload := range []string{"x", "y"} { // of y, no cancel is on record
		_, err := c.Do("PUBLISH", prefix+"_{q}_cancel", payload)
		is.NoErr(err)
	}
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled}) // y, asked for together with x or after it
	is.Equal(len(causes), 0)
	var running []string
	eventually(t, "only x runs", func() bool {
		running = nil
		for r, err := range q.Running(t.Context()) {
			is.NoErr(err)
			running = append(running, string(r.Payload))
		}
		return len(running) == 1
	})
	is.Equal(running, []string{"x"})
}

// A user who may not publish: messages are hints, and everything else works.
func TestMayNotPublish(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	_, err := redistest.Dial(t, server.URL()).Do("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "resetchannels")
	is.NoErr(err)
	p := openAt(t, "redis://app:pw@"+server.Addr(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	starts, _ := counting(t, p, "q", nil)
	q := p.Queue("q")
	idle(t, q, 1)
	for range 3 {
		is.NoErr(q.Enqueue(t.Context(), []byte("a")))
		receive(t, starts, 1) // noticed with a beat
	}
	report := cancel(t, q, "a")
	wait(t, report)
	is.NoErr(q.Delete(t.Context()))
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 3 })
}

// An end that contradicts the one before is refused, also when its first reply
// was lost.
func TestEndAfterEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, "a")
	task, err := q.StartTask(t.Context())
	is.NoErr(err)
	is.NoErr(task.Stop(t.Context()))
	link.LoseReplyTo("p:working:{q}:")
	is.True(is_(task.Finish(t.Context()), worqr.ErrNotOwner))
	is.Equal(waiting(t, q), []string{"a"})
	is.Equal(p.Stats().Finished, int64(0))
}

// Redis has lost writes, and its tokens went back: cancels still reach who
// holds something.
func TestTokensGoBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	enqueue(t, q, "a", "b")
	receive(t, starts, 2)
	for range 10 {
		wait(t, cancel(t, q, "none")) // each has a token
	}
	_, err := redistest.Conn(t).Do("SET", prefix+":token:{q}", 2)
	is.NoErr(err)
	wait(t, cancel(t, q, "a"))
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
}

// A StopWork of which nobody knows whether it was carried out, and StartWork
// under the same id: what was held goes back, and other queues are not touched.
func TestStopWorkFailsAndStartsAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{Lease: 300 * time.Millisecond})
	q, other := working(t, p, "q"), p.Queue("other")
	is.NoErr(other.StartWork(t.Context()))
	enqueue(t, other, "o")
	theirs, err := other.StartTask(t.Context())
	is.NoErr(err)
	enqueue(t, q, "a")
	_, err = q.StartTask(t.Context())
	is.NoErr(err)
	over, end := context.WithCancel(t.Context())
	end()
	is.True(q.StopWork(over) != nil)
	is.NoErr(q.StartWork(t.Context()))
	task, err := q.StartTask(t.Context())
	is.NoErr(err)
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
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
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

// An end that is refused when its caller has long gone, and was told that it is
// unknown: others go on.
func TestRefusedToNobody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, "a", "b")
	tasks, err := q.StartTasks(t.Context(), 2)
	is.NoErr(err)
	_, err = redistest.Dial(t, server.URL()).Do("SET", "p:process:{q}:"+tasks[0].AttemptID, "foreign")
	is.NoErr(err)

	lost := link.LoseRepliesTo("p:working:{q}:", 2)
	server.Signal(t, syscall.SIGSTOP) // so that the caller goes before the first of them
	eventually(t, "it is under way", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return is_(tasks[0].Finish(ctx), worqr.ErrUnknownOutcome)
	})
	server.Signal(t, syscall.SIGCONT)
	<-lost // and the third is answered
	ended := make(chan error, 1)
	go func() { ended <- tasks[1].Finish(context.Background()) }()
	is.Equal(receive(t, ended, 1), []error{nil})
	err = tasks[0].Finish(t.Context())
	is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
}

// Only Run serves a queue with a handler: without it, StartWork is refused, nothing is
// handled, and Close leaves nothing behind.
func TestHandleWithoutRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	started := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }})
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
	is.True(errors.Is(q.StartWork(t.Context()), worqr.ErrInvalid)) // Run is over
	is.NoErr(p.Close())
	is.Equal(p.Stats().RunningHandlers, int64(0))
}

// Many handlers that ignore their contexts at the same time: the tasks end, however
// long the log takes, which tells of them at most once a second.
func TestDisownMany(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const many = 100
	log := newGate(func(line string) bool { return strings.Contains(line, "didn't return") })
	p := open(t, worqr.Options{Logger: slog.New(log)})
	q := p.Queue("q")
	release := make(chan struct{})
	q.Handle(func(context.Context, *worqr.Task) error {
		<-release
		return nil
	}, &worqr.HandleOptions{Concurrency: many, Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond, MaxRetries: -1})
	run(t, p)
	began := time.Now()
	enqueue(t, q, numbers("", many)...)
	<-log.Halted
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == many })
	is.Equal(p.Stats().StuckHandlers, int64(many))
	is.Equal(p.Stats().RunningHandlers, int64(0))
	close(log.Open)
	close(release)
	eventually(t, "all have returned", func() bool { return p.Stats().StuckHandlers == 0 })
	is.True(log.Lines.Load() <= 1+int64(time.Since(began)/time.Second))
	is.Equal(len(failed(t, q)), many)
}
