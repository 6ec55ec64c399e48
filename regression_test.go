package worqr_test

import (
	"context"
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
	is.True(is_(task.Finish(t.Context()), worqr.ErrLost))
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
	is.Equal(p.Stats().Evicted, int64(0))
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
