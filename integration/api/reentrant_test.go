package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A caller calls every method of a peer, its queue and a task from each place where the library
// calls user code.
type caller struct {
	t     testing.TB
	from  string // calls only from there
	ready chan struct{}
	p     *worqr.Peer
	q     *worqr.Queue

	mu     sync.Mutex
	seen   map[string]int       // how often user code was called at a place
	calls  map[string]time.Time // calls in progress: when they began
	next   int
	sweeps int // sweeps over all methods, in progress
	swept  int // completed sweeps
	more   int // sweeps that may still begin
}

// ends are the methods that end the peer or its handlers. The test itself calls them at the end.
var ends = []string{"Peer.Run", "Peer.Shutdown", "Queue.Unhandle"}

// each calls all methods, unless this place has had enough calls.
func (c *caller) each(from, place string, task *worqr.Task) {
	<-c.ready
	c.mu.Lock()
	c.seen[place]++
	skip := from != c.from || c.seen[place] > 2 || c.more == 0
	if !skip {
		c.more--
		c.sweeps++
	}
	c.mu.Unlock()
	if skip {
		return
	}
	defer func() {
		c.mu.Lock()
		c.sweeps--
		c.swept++
		c.mu.Unlock()
	}()
	all := append(methods(c.t, c.p), methods(c.t, c.q)...)
	if task != nil {
		all = append(all, methods(c.t, task)...)
	}
	for _, m := range all {
		if !slices.Contains(ends, m.name) {
			c.call(place, m)
		}
	}
	c.call(place, method{"Queue.StartWork", func(ctx context.Context) { _ = c.q.StartWork(ctx) }}) // after StopWork
}

func (c *caller) call(place string, m method) {
	c.mu.Lock()
	c.next++
	id := fmt.Sprintf("%s at %q, call %d", m.name, place, c.next)
	c.calls[id] = time.Now()
	c.mu.Unlock()
	defer func() {
		if v := recover(); v != nil && !strings.HasPrefix(fmt.Sprint(v), "worqr: ") { // panics of the library report misuse
			c.t.Errorf("%s: %v", id, v)
		}
		c.mu.Lock()
		took := time.Since(c.calls[id])
		delete(c.calls, id)
		c.mu.Unlock()
		if took > time.Second {
			c.t.Logf("%s took %v", id, took)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	m.call(ctx)
}

// watch fails the test, with all stacks, if a call takes far longer than its context.
func (c *caller) watch() {
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second): // poll
			}
			c.mu.Lock()
			for id, since := range c.calls {
				if took := time.Since(since); took > time.Minute {
					stacks := make([]byte, 4<<20)
					panic(fmt.Sprintf("%s hangs for %v\n%s", id, took, stacks[:runtime.Stack(stacks, true)]))
				}
			}
			c.mu.Unlock()
		}
	})
	c.t.Cleanup(func() { close(over); watching.Wait() })
}

func (c *caller) Enabled(context.Context, slog.Level) bool { return true }
func (c *caller) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *caller) WithGroup(string) slog.Handler            { return c }
func (c *caller) Handle(_ context.Context, r slog.Record) error {
	c.each("Logger", r.Message, nil)
	return nil
}

// A callingError calls all methods when its text is requested.
type callingError struct{ c *caller }

func (e callingError) Error() string {
	e.c.each("Error", "Error", nil)
	return "no"
}

// A callingPool sometimes returns an error instead of a connection. The error calls all methods
// when its text is requested; the pool itself doesn't, since the calls may wait for a connection.
type callingPool struct {
	*redis.Pool
	c *caller
	n *atomic.Int64
}

func (p callingPool) GetContext(ctx context.Context) (redis.Conn, error) {
	if p.n.Add(1)%10 == 0 {
		return nil, callingError{p.c}
	}
	return p.Pool.GetContext(ctx)
}

// quiet waits until no calls are in progress.
func (c *caller) quiet(when string) {
	c.t.Helper()
	eventually(c.t, "all calls are over: "+when, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.sweeps == 0
	})
}

func (c *caller) handle(ctx context.Context, t *worqr.Task) error {
	what := string(t.Payload)
	if what == "x" { // enqueued by a call
		return nil
	}
	c.each("handler", what, t)
	switch what {
	case "retry":
		return callingError{c}
	case "fail":
		return worqr.Permanent(callingError{c})
	case "panic":
		panic(callingError{c})
	case "hold", "hold on":
		<-ctx.Done()
		c.each("handler", what+", its context over", t)
	}
	return nil
}

// Whatever user code calls, from wherever the library calls it, nothing hangs: while tasks start,
// are retried and fail, while the worker is evicted and its connections are cut, while options
// change, while the peer drains, and when it's closed.
func TestReentrant(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"Logger", "handler", "OnFailed", "Backoff", "Error", "Trace"} {
		t.Run(from, func(t *testing.T) {
			is := parallel(t)
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			c := &caller{t: t, from: from, ready: make(chan struct{}), seen: map[string]int{}, calls: map[string]time.Time{}, more: 1000}
			c.watch()
			pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, link.URL()) }}
			t.Cleanup(func() { _ = pool.Close() })
			trace := tracing(func(told traced) { c.each("Trace", told.name, nil) })
			opts := &worqr.Options{Prefix: "p", Lease: time.Second, Drain: time.Second, Logger: slog.New(c), Trace: trace}
			c.p = worqr.New(callingPool{pool, c, &atomic.Int64{}}, opts)
			t.Cleanup(func() { _ = c.p.Close() })
			c.q = c.p.Queue("q")
			backoff := func(*worqr.Task, error) time.Duration {
				c.each("Backoff", "Backoff", nil)
				return 0
			}
			c.q.Handle(c.handle, &worqr.HandleOptions{
				Concurrency: 3, MaxRetries: 1, Grace: time.Minute, Backoff: backoff,
				OnFailed: func(_ context.Context, t *worqr.Task) error {
					c.each("OnFailed", string(t.Payload), t)
					return nil
				},
			})
			close(c.ready)
			other := openDoctor(t, server.URL(), worqr.Options{Prefix: "p"})
			q := other.Queue("q")
			stop := run(t, c.p)
			eventually(t, "it serves", func() bool { return stats(t, q).Workers == 1 })

			enqueue(t, q, "retry", "fail", "panic")
			finished := c.p.Stats().Finished
			eventually(t, "a task is finished after these", func() bool { // some are deleted by a call
				enqueue(t, q, "ok")
				c.quiet("start, retry, fail")
				return c.p.Stats().Finished > finished
			})
			old := c.p.WorkerID()
			enqueue(t, q, "hold")
			eventually(t, "it is evicted, and back", func() bool {
				sure(other.FailWorker(t.Context(), c.p.WorkerID()))(t)
				c.quiet("evict")
				return c.p.WorkerID() != old
			})
			link.Cut()
			enqueue(t, q, "ok")
			link.Cut()
			c.quiet("cut")
			for i := range 5 {
				is.NoErr(c.q.SetOptions(&worqr.HandleOptions{Concurrency: 1 + i%3, MaxRetries: 1, Grace: time.Minute, Backoff: backoff}))
				is.NoErr(c.p.SetCapacity(i))
				enqueue(t, q, "fail")
			}
			c.quiet("options")
			eventually(t, "something runs that drains", func() bool {
				enqueue(t, q, "hold on")
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.seen["hold on"] > 0
			})
			stop()
			c.quiet("drain")
			c.mu.Lock()
			c.more = 1 // if the Logger calls Close, Close waits a second for its log
			c.mu.Unlock()
			for _, m := range methods(t, c.p) {
				c.call("after Run", m)
			}
			is.NoErr(c.p.Close())
			c.mu.Lock()
			c.more = 0
			c.mu.Unlock()
			c.quiet("close")
			c.mu.Lock() // Close doesn't wait for a slow logger: lines may still come
			defer c.mu.Unlock()
			is.True(c.swept > 0)
			t.Logf("called all methods %d times, from %d places", c.swept, len(c.seen))
		})
	}
}

// A reentrantPool calls a method before it returns a connection, or returns an error that calls it
// when one of the error's methods is called.
type reentrantPool struct {
	*redis.Pool
	from string
	more *atomic.Int64 // how many calls to make
	call func()
}

func (p *reentrantPool) GetContext(ctx context.Context) (redis.Conn, error) {
	switch {
	case p.more.Load() <= 0:
	case p.from == "GetContext":
		p.again()
	default:
		return nil, reentrantError{p}
	}
	return p.Pool.GetContext(ctx)
}

func (p *reentrantPool) again() {
	if p.more.Add(-1) >= 0 {
		p.call()
	}
}

type reentrantError struct{ p *reentrantPool }

func (e reentrantError) from(method string) {
	if e.p.from == method {
		e.p.again()
	}
}

func (e reentrantError) Error() string { e.from("Error"); return "no connection" }
func (e reentrantError) Is(error) bool { e.from("Is"); return false }
func (e reentrantError) As(any) bool   { e.from("As"); return false }
func (e reentrantError) Unwrap() error { e.from("Unwrap"); return nil }

// A Pool may call any method of the peer, and so may the errors that it returns. If a call needs a
// connection, it fails after its timeout, and nothing hangs. The peer can be closed afterwards,
// unless it already is.
func TestReentrantPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for n, from := range []string{"GetContext", "Error", "Is", "As", "Unwrap"} {
		for _, runs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Run %t", from, runs), func(t *testing.T) {
				t.Parallel()
				var all sync.WaitGroup
				p := worqr.New(&redis.Pool{}, nil)
				for i := range len(methods(t, p)) + len(methods(t, p.Queue("q"))) {
					if ((n+i)%2 == 0) == runs { // to save time, half of the combinations of method and place with each kind of peer
						continue
					}
					all.Go(func() { reenter(t, server, fmt.Sprintf("p%s%t%d", from, runs, i), from, runs, i) })
				}
				all.Wait()
			})
		}
	}
}

// reenter makes the pool of a peer call one method, at each connection that the peer requests after
// all were cut.
func reenter(t *testing.T, server *redistest.Server, prefix, from string, runs bool, which int) {
	link := redistest.NewLink(t, server.Addr())
	c := &caller{t: t, calls: map[string]time.Time{}}
	c.watch()
	inner := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, link.URL()) }}
	defer func() { _ = inner.Close() }()
	pool := &reentrantPool{Pool: inner, from: from, more: &atomic.Int64{}}
	c.p = worqr.New(pool, &worqr.Options{Prefix: prefix, Lease: 3 * time.Second, Drain: time.Second, CallTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	c.q = c.p.Queue("q")
	m := append(methods(t, c.p), methods(t, c.q)...)[which]
	pool.call = func() { c.call(from, m) }

	call := func(what string, do func(ctx context.Context)) { c.call("the test", method{what, do}) }
	over := make(chan struct{})
	if runs {
		c.q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		go func() {
			defer close(over)
			_ = c.p.Run(t.Context())
		}()
	} else {
		close(over)
		eventually(t, "it serves", func() bool { // many peers share few processors
			return c.p.StartWorker(t.Context()) == nil && c.q.StartWork(t.Context()) == nil
		})
	}
	for _, err := range c.p.Events(t.Context()) {
		if err == nil { // it's subscribed
			break
		}
	}
	pool.more.Store(8)
	for closed := false; pool.more.Load() > 0 && !closed; { // each of these needs a connection
		link.Cut()
		call("Queue.Stats", func(ctx context.Context) {
			_, err := c.q.Stats(ctx)
			closed = errors.Is(err, worqr.ErrShutdown)
		})
		call("Peer.Events", func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			for range c.p.Events(ctx) {
			}
		})
	}
	pool.more.Store(0)
	call("Peer.Shutdown", func(ctx context.Context) { _ = c.p.Shutdown(ctx) })
	call("the end of Run", func(context.Context) { <-over })
	call("Peer.Close", func(context.Context) { _ = c.p.Close() })
}
