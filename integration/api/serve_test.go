package api

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Use wraps handlers and OnFailed; the first function is outermost.
func TestUse(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	var mu sync.Mutex
	var said []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, what)
	}
	type layerKey string
	layer := func(name string) func(worqr.Handler) worqr.Handler {
		return func(h worqr.Handler) worqr.Handler {
			return func(ctx context.Context, t *worqr.Task) error {
				note(name + " in")
				err := h(context.WithValue(ctx, layerKey(name), t.AttemptID), t)
				note(fmt.Sprint(name, " out, permanent ", worqr.IsPermanent(err)))
				return err
			}
		}
	}
	p.Use(layer("first"), layer("second"))
	p.Use(layer("third"))
	no := errors.New("no")
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		if ctx.Value(layerKey("first")) != t.AttemptID || ctx.Value(layerKey("third")) != t.AttemptID {
			return errors.New("the context is another one")
		}
		note("handler")
		return worqr.Permanent(no)
	}, &worqr.HandleOptions{OnFailed: func(ctx context.Context, t *worqr.Task) error {
		note("OnFailed " + t.Failure.Error)
		return nil
	}})
	run(t, p)
	enqueue(t, q, "a")
	eventually(t, "OnFailed has finished it", func() bool { return p.Stats().Finished == 1 })
	mu.Lock()
	defer mu.Unlock()
	is.Equal(said, []string{
		"first in", "second in", "third in", "handler", "third out, permanent true", "second out, permanent true", "first out, permanent true",
		"first in", "second in", "third in", "OnFailed no", "third out, permanent false", "second out, permanent false", "first out, permanent false",
	})
}

// A wrapper may return without calling the handler, panic or end its goroutine, as a handler may.
func TestUseMisbehaves(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	p.Use(func(h worqr.Handler) worqr.Handler {
		return func(ctx context.Context, t *worqr.Task) error {
			switch string(t.Payload) {
			case "panic":
				panic("no")
			case "exit":
				runtime.Goexit()
			}
			return nil
		}
	})
	q.Handle(func(context.Context, *worqr.Task) error { t.Error("it is called"); return nil }, &worqr.HandleOptions{OnPanic: worqr.FailOnPanic, MaxRetries: -1})
	panics(t, "after Handle", func() { p.Use(func(h worqr.Handler) worqr.Handler { return h }) })
	run(t, p)
	enqueue(t, q, "panic", "exit", "a")
	eventually(t, "one is finished, two have failed", func() bool { return p.Stats().Finished == 1 && p.Stats().Failed == 2 })
	is.Equal(sorted(failedPayloads(t, q)), []string{"exit", "panic"})

	p, q = openQueue(t, worqr.Options{})
	panics(t, "nil", func() { p.Use(nil) })
	p.Use(func(worqr.Handler) worqr.Handler { return nil })
	panics(t, "no handler", func() { q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil) })
}

// Queues can be added and removed while the peer runs.
func TestHandleWhileRunning(t *testing.T) {
	is := parallel(t)
	ctx, prefix := context.WithValue(t.Context(), mark{}, "of Run"), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	ran := make(chan error, 1)
	ctx, end := context.WithCancel(ctx)
	go func() { ran <- p.Run(ctx) }()
	for i := range 3 {
		got := make(chan string, 100)
		q.Handle(func(ctx context.Context, t *worqr.Task) error {
			if ctx.Value(mark{}) != "of Run" {
				got <- "another context"
			}
			got <- string(t.Payload)
			return nil
		}, &worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }})
		panics(t, "twice", func() { q.Handle(tell(got), nil) })
		enqueue(t, q, numbers(fmt.Sprint(i, "-"), 20)...)
		is.Equal(sorted(receive(t, got, 20)), sorted(numbers(fmt.Sprint(i, "-"), 20)))
		is.NoErr(q.Unhandle(t.Context()))
		is.True(is_(q.Unhandle(t.Context()), worqr.ErrNotWorking))
		is.Equal(stats(t, q).Workers, 0)
		enqueue(t, q, "waits")
		is.Equal(waiting(t, q), []string{"waits"})
		is.NoErr(q.Delete(t.Context()))
	}
	end()
	is.NoErr(receive(t, ran, 1)[0])
	nothingLeft(t, prefix, "q")
}

type mark struct{}

// Unhandle waits for running tasks and returns those that haven't started, which other peers start
// at once.
func TestUnhandleWaits(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: time.Hour}) // no lease expires
	other := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	began, release, drains := make(chan string, 10), make(chan struct{}), make(chan string, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		select {
		case <-t.Draining():
			return errors.New("it drains already")
		default:
		}
		began <- string(t.Payload)
		<-t.Draining()
		drains <- string(t.Payload)
		<-release
		return ctx.Err() // nil, since it hasn't ended
	}, &worqr.HandleOptions{Concurrency: 2, Prefetch: 3})
	run(t, p)
	enqueue(t, q, "a", "b", "c", "d", "e", "f")
	is.Equal(sorted(receive(t, began, 2)), []string{"a", "b"})
	over := make(chan error, 2)
	for range 2 { // both wait for the same handlers
		go func() { over <- q.Unhandle(t.Context()) }()
	}
	is.Equal(sorted(receive(t, drains, 2)), []string{"a", "b"})
	eventually(t, "the others are back", func() bool { return slices.Equal(waiting(t, q), []string{"c", "d", "e", "f"}) })
	starts, _ := held(t, other, "q", &worqr.HandleOptions{Concurrency: 4})
	is.Equal(sorted(receive(t, starts, 4)), []string{"c", "d", "e", "f"})
	is.Equal(len(over), 0)
	close(release)
	for _, err := range receive(t, over, 2) {
		is.True(err == nil || is_(err, worqr.ErrNotWorking)) // the second may have come too late
	}
	is.Equal(p.Stats().Finished, int64(2))
	is.Equal(stats(t, q).Workers, 1)
}

// When its context ends, Unhandle interrupts handlers and returns, and their tasks go back. Handle
// may be called at once: it takes effect when the handlers have ended.
func TestUnhandleInterrupts(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("ignores its context ", deaf), func(t *testing.T) {
			is := parallel(t)
			p, q := openQueue(t, worqr.Options{})
			began, causes, release := make(chan string, 10), make(chan error, 10), make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				began <- string(t.Payload)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				if deaf {
					<-release
				}
				return ctx.Err()
			}, &worqr.HandleOptions{Grace: 50 * time.Millisecond, Concurrency: 2})
			run(t, p)
			enqueue(t, q, "a", "b")
			receive(t, began, 2)
			ctx, end := context.WithCancelCause(t.Context())
			late := errors.New("it takes too long")
			end(late)
			is.True(is_(q.Unhandle(ctx), late))
			got := make(chan string, 10)
			q.Handle(tell(got), nil)
			if err := q.StartWork(t.Context()); err != nil && !is_(err, worqr.ErrInvalid) {
				t.Errorf("StartWork: %v", err)
			}
			is.Equal(receive(t, causes, 2), []error{worqr.ErrShutdown, worqr.ErrShutdown})
			is.Equal(sorted(receive(t, got, 2)), []string{"a", "b"})
			is.NoErr(q.Unhandle(t.Context()))
			if deaf {
				is.Equal(p.Stats().StuckHandlers, int64(2))
				free()
				eventually(t, "they return", func() bool { return p.Stats().StuckHandlers == 0 })
			}
		})
	}
}

// Unhandle returns an error to a handler that would wait for itself. From another goroutine a
// handler may remove itself.
func TestUnhandleFromHandler(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	said, over := make(chan error, 1), make(chan error, 1)
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		said <- q.Unhandle(ctx)
		go func() { over <- q.Unhandle(t.Context()) }()
		<-task.Draining()
		return nil
	}, nil)
	run(t, p)
	enqueue(t, q, "a")
	err := receive(t, said, 1)[0]
	is.True(is_(err, worqr.ErrInvalid) && strings.Contains(err.Error(), "a handler's context"))
	is.NoErr(receive(t, over, 1)[0])
	is.Equal(p.Stats().Finished, int64(1))
}

// Before Run, Unhandle only removes the handler. While Run drains, Unhandle waits for that, and Run
// waits for an Unhandle that has begun.
func TestUnhandleAndRun(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Drain: patience})
	is.True(is_(q.Unhandle(t.Context()), worqr.ErrNotWorking))
	began, release := make(chan string, 10), make(chan struct{})
	q.Handle(tell(began), nil)
	is.NoErr(q.Unhandle(t.Context()))
	q.Handle(holding(began, release), nil)
	second := p.Queue("second")
	second.Handle(holding(began, release), nil)
	end, ran := start(t, p)
	enqueue(t, q, "a")
	enqueue(t, second, "b")
	receive(t, began, 2)
	over := make(chan error, 2)
	go func() { over <- q.Unhandle(t.Context()) }()
	eventually(t, "it has begun", func() bool { return is_(q.SetOptions(nil), worqr.ErrInvalid) })
	end()
	eventually(t, "Run drains", func() bool {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		return is_(p.Queue("third").Unhandle(ended), context.Canceled)
	})
	go func() { over <- second.Unhandle(t.Context()) }()
	q.Handle(tell(began), nil) // has no effect anymore
	is.Equal(len(over)+len(ran), 0)
	close(release)
	is.NoErr(receive(t, ran, 1)[0])
	for _, err := range receive(t, over, 2) {
		is.NoErr(err)
	}
	is.Equal(p.Stats().Finished, int64(2))
}

// Draining is closed whenever the peer begins to leave, even for tasks started by hand.
func TestDraining(t *testing.T) {
	is := parallel(t)
	for name, leave := range map[string]func(t *testing.T, p *worqr.Peer, q *worqr.Queue){
		"StopWork":   func(t *testing.T, p *worqr.Peer, q *worqr.Queue) { must(t, q.StopWork(t.Context())) },
		"StopWorker": func(t *testing.T, p *worqr.Peer, q *worqr.Queue) { must(t, p.StopWorker(t.Context())) },
		"Close":      func(t *testing.T, p *worqr.Peer, q *worqr.Queue) { must(t, p.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p := open(t, worqr.Options{})
			q := working(t, p, "q")
			enqueue(t, q, "a")
			task := take(t, q)
			select {
			case <-task.Draining():
				t.Error("it drains")
			default:
			}
			leave(t, p, q)
			<-task.Draining()
			is.True(is_(context.Cause(task.Context()), worqr.ErrShutdown))
		})
	}
	p, q := openQueue(t, worqr.Options{Drain: patience})
	drained := make(chan error, 1)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		<-t.Draining()
		drained <- ctx.Err()
		return nil
	}, nil)
	by := p.Queue("by-hand")
	end, ran := start(t, p)
	enqueue(t, q, "a")
	eventually(t, "the worker is started", func() bool { return by.StartWork(t.Context()) == nil })
	enqueue(t, by, "b")
	task := take(t, by)
	eventually(t, "it runs", func() bool { return p.Stats().RunningHandlers == 1 })
	end()
	is.NoErr(receive(t, drained, 1)[0]) // its context has not ended
	<-task.Draining()
	is.NoErr(receive(t, ran, 1)[0])
	is.True((&worqr.Task{}).Draining() == nil)
}
