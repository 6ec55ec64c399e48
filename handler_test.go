package worqr_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Whatever a handler does instead of returning nil, its task is tried again
// later, without holding up the next, and the peer goes on.
func TestHandlerFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":      func() error { return errors.New("no") },
		"panic":      func() error { panic("no") },
		"panic nil":  func() error { panic(nil) },
		"Goexit":     func() error { runtime.Goexit(); return nil },
		"own finish": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			p := open(t, worqr.Options{Prefix: prefix})
			q := p.Queue("q")
			got := make(chan string, 10)
			first := true
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				got <- string(t.Payload)
				if string(t.Payload) == "a" && first {
					first = false // one at a time
					if fail == nil {
						_ = t.Finish(ctx)
						return errors.New("after it finished")
					}
					return fail()
				}
				return nil
			}, &worqr.HandleOptions{Concurrency: 1}) // the default backoff
			enqueue(t, q, "a", "b")
			stop := run(t, p)
			if fail == nil {
				is.Equal(receive(t, got, 2), []string{"a", "b"})
			} else {
				is.Equal(receive(t, got, 3), []string{"a", "b", "a"})
			}
			stop()
			is.Equal(p.Stats().HandlerErrors, int64(1))
			is.Equal(p.Stats().Finished, int64(2))
			nothingLeft(t, prefix, "q")
		})
	}
}

type key struct{}

// The end of Run: no more tasks, time for those that run, then a nudge, and
// what remains goes to the front in its order.
func TestDrain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	draining := make(said, 10)
	p := open(t, worqr.Options{Prefix: prefix, Drain: 300 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(draining, nil))})
	q := p.Queue("q")
	started, causes, finish := make(chan string, 10), make(chan error, 10), make(chan struct{})
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		if ctx.Value(key{}) != "value" {
			return errors.New("the values of Run's context are missing")
		}
		if string(t.Payload) == "quick" {
			<-finish
			return ctx.Err() // not ended yet
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, &worqr.HandleOptions{Concurrency: 3})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	enqueue(t, q, "a", "quick", "b")
	receive(t, started, 3)
	enqueue(t, q, "waits")
	cancel()
	receive(t, draining, 1) // from here on a free slot stays free
	close(finish)
	is.NoErr(receive(t, ran, 1)[0])
	is.Equal(receive(t, causes, 2), []error{worqr.ErrShutdown, worqr.ErrShutdown})
	is.Equal(waiting(t, q), []string{"a", "b", "waits"})
	is.Equal(len(started), 0)
	is.Equal(p.Stats().Finished, int64(1))
	nothingLeftBut(t, prefix, "q", ":queues:{q}")
}

// While it drains, a peer still beats: nobody takes what it still works on.
func TestDrainKeepsTheLease(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond, Drain: patience})
	q := p.Queue("q")
	started, finish := make(chan string, 10), make(chan struct{})
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		started <- ""
		<-finish
		return ctx.Err()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	enqueue(t, q, "a")
	receive(t, started, 1)
	cancel()
	other := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	starts, _ := held(t, other, "q", nil)
	time.Sleep(time.Second) // several leases, in which nothing must happen
	is.Equal(len(starts), 0)
	is.Equal(other.Stats().WorkersEvicted, int64(0))
	close(finish)
	is.NoErr(receive(t, ran, 1)[0])
	is.Equal(p.Stats().Finished, int64(1))
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Drain: patience})
	q := p.Queue("q")
	started, finish := make(chan string, 1), make(chan struct{})
	q.Handle(func(context.Context, *worqr.Task) error {
		started <- ""
		<-finish
		return nil
	}, nil)
	ran := make(chan error, 1)
	go func() { ran <- p.Run(context.Background()) }()
	enqueue(t, q, "a")
	receive(t, started, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	is.True(is_(p.Shutdown(ctx), context.DeadlineExceeded)) // the handler is not done
	close(finish)
	is.NoErr(p.Shutdown(t.Context()))
	is.NoErr(p.Shutdown(t.Context())) // again
	is.NoErr(receive(t, ran, 1)[0])
	nothingLeft(t, prefix, "q")

	early := open(t, worqr.Options{})
	is.NoErr(early.Shutdown(t.Context())) // before Run
	is.True(is_(early.Run(context.Background()), worqr.ErrShutdown))
}

// Run waits for a Redis that is not there yet, and ends when it is told to.
func TestRunWithoutRedis(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	server.Kill()
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	q := p.Queue("q")
	got := make(chan string, 1)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- string(t.Payload)
		return nil
	}, nil)
	is.True(q.Enqueue(t.Context(), []byte("a")) != nil)
	stop := run(t, p)
	server.Restart(t)
	eventually(t, "Redis is there", func() bool { return q.Enqueue(t.Context(), []byte("b")) == nil })
	is.Equal(receive(t, got, 1), []string{"b"})
	stop()

	server.Kill()
	never := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- never.Run(ctx) }()
	cancel()
	is.True(receive(t, ran, 1)[0] != nil) // it has never reached Redis
}
