package worqr_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The end of Run: no more tasks, time for those that run, then a nudge, and
// what remains goes to the front in its order.
func TestDrain(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	draining := newGate(func(line string) bool { return strings.Contains(line, "draining") })
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Drain: 300 * time.Millisecond, Logger: slog.New(draining)})
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
	receiveClosed(t, draining.Halted) // from here on a free slot stays free; Drain has not begun
	close(finish)
	eventually(t, "the quick one is done", func() bool { return p.Stats().Finished == 1 })
	close(draining.Open)
	is.NoErr(receive(t, ran, 1)[0])
	is.Equal(receive(t, causes, 2), []error{worqr.ErrShutdown, worqr.ErrShutdown})
	is.Equal(waiting(t, q), []string{"a", "b", "waits"})
	is.Equal(len(started), 0)
	is.Equal(p.Stats().Finished, int64(1))
	nothingLeftBut(t, prefix, "q", ":queues:{q}")
}

// While it drains, a peer still beats: nobody takes what it still works on.
func TestDrainKeepsTheLease(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond, Drain: patience})
	started, finish := make(chan string, 10), make(chan struct{})
	q.Handle(holding(started, finish), nil)
	end, ran := start(t, p)
	enqueue(t, q, "a")
	receive(t, started, 1)
	end()
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
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Drain: patience})
	started, finish := make(chan string, 1), make(chan struct{})
	q.Handle(holding(started, finish), nil)
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
	is := parallel(t)
	server := redistest.Start(t)
	server.Kill()
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	got := make(chan string, 1)
	q.Handle(tell(got), nil)
	is.True(q.Enqueue(t.Context(), []byte("a")) != nil)
	stop := run(t, p)
	server.Restart(t)
	eventually(t, "Redis is there", func() bool { return q.Enqueue(t.Context(), []byte("b")) == nil })
	is.Equal(receive(t, got, 1), []string{"b"})
	stop()

	server.Kill()
	refused := newGate(func(line string) bool { return strings.Contains(line, "retrying") })
	never := openAt(t, server.URL(), worqr.Options{Prefix: "p", Logger: slog.New(refused)})
	end, ran := start(t, never)
	receiveClosed(t, refused.Halted)
	close(refused.Open)
	end()
	is.True(receive(t, ran, 1)[0] != nil) // it has never reached Redis
}

// The end of Run while Redis is away: handlers that have returned hold up
// nothing, and what could not be stored is not waited for longer than said.
func TestShutdownWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Server, testing.TB){
		"gone":    func(s *redistest.Server, _ testing.TB) { s.Kill() },
		"stopped": func(s *redistest.Server, t testing.TB) { s.Pause(t) },
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			server := redistest.Start(t)
			p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Drain: time.Minute})
			started, finish := make(chan string, 1), make(chan struct{})
			q.Handle(holding(started, finish), nil)
			end, ran := start(t, p)
			enqueue(t, q, "a")
			receive(t, started, 1)
			away(server, t)
			end()
			close(finish)
			at := time.Now()
			is.True(receive(t, ran, 1)[0] != nil)              // it says so
			if took := time.Since(at); took > 15*time.Second { // 5 s, and some for a busy machine
				t.Errorf("Run returned after %v", took)
			}
		})
	}
}

// Run tells what it serves, once it does, and that nothing has a handler.
func TestRunTellsWhatItServes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queues []string
		says   string
		warned int
	}{"two": {[]string{"b", "a"}, "[a b]", 0}, "none": {nil, "[]", 1}} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			told := &journal{}
			p := open(t, worqr.Options{Logger: told.Logger()})
			for _, q := range c.queues {
				p.Queue(q).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
			}
			stop := run(t, p)
			eventually(t, "it serves", func() bool { return len(told.Lines("worqr: serving")) > 0 })
			lines := told.Lines("worqr: serving")
			is.Equal(len(lines), 1)
			for _, want := range []string{"INFO", p.WorkerID(), c.says, worqr.Version} {
				is.True(strings.Contains(lines[0], want))
			}
			is.Equal(len(told.Lines("no queue has a handler")), c.warned)
			stop()
		})
	}
}

// A peer that is told to stop before it has started has not failed.
func TestRunEndsBeforeItStarts(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Prefix: redistest.Prefix(t)})
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.NoErr(p.Run(ctx))
}

// While Run cannot start, it says so after its first attempt, however long that takes, and again
// every minute.
func TestRunRepeatsThatItCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes   time.Duration // a dial
		more    time.Duration // than one attempt
		repeats int
	}{"refused": {0, 200 * time.Second, 3}, "silent": {4 * time.Second, time.Second, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				told := &journal{}
				p := worqr.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
					select {
					case <-ctx.Done():
					case <-time.After(c.takes):
					}
					return nil, errors.New("away")
				}}, &worqr.Options{Prefix: "p", Logger: told.Logger()})
				began := time.Now()
				is.True(p.StartWorker(t.Context()) != nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Since(began)+c.more)
				defer cancel()
				is.True(p.Run(ctx) != nil)
				is.Equal(len(told.Lines("WARN msg=\"worqr: Redis does not answer; retrying\"")), 1)
				is.Equal(len(told.Lines("ERROR msg=\"worqr: still cannot start the worker; retrying\"")), c.repeats)
				is.NoErr(p.Close())
			})
		})
	}
}

// A wrong password is named as such, and not shown.
func TestRunSaysThatTheLoginIsRefused(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t, "--requirepass", "right")
	told := &journal{}
	p := openAt(t, "redis://:"+canary+"@"+server.Addr(), worqr.Options{Logger: told.Logger()})
	stop, ended := start(t, p)
	eventually(t, "it says so", func() bool {
		return len(told.Lines("worqr: Redis refuses the login; check the user and the password; retrying")) == 1
	})
	stop()
	is.True(<-ended != nil)
	is.Equal(len(told.Lines("does not answer")), 0)
	is.Equal(len(told.Lines(canary)), 0)
}

// What may not be called while Run runs says so, and changes nothing; after
// Close, everything says that it is closed.
func TestCloseAndRun(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	starts, stop := counting(t, p, "q", nil)
	q := p.Queue("q")
	idle(t, q, 1)
	is.True(is_(p.Close(), worqr.ErrInvalid))
	is.True(is_(p.StopWorker(t.Context()), worqr.ErrInvalid))
	enqueue(t, q, "a")
	receive(t, starts, 1) // it serves
	stop()
	is.NoErr(p.Close())
	is.NoErr(p.Close())
	errs := verbs(t.Context(), p, q)
	for _, errs["Events"] = range p.Events(t.Context()) {
		break
	}
	errs["Put"] = q.Put(t.Context(), "k", []byte("a"), nil)
	_, errs["Check"] = p.Check(t.Context(), nil)
	_, errs["Explain"] = q.Explain(t.Context(), []byte("a"))
	for verb, err := range errs {
		if !is_(err, worqr.ErrShutdown) || is_(err, worqr.ErrUnknownOutcome) || strings.Count(err.Error(), "shutting down") != 1 {
			t.Errorf("%s on a closed peer: %v", verb, err)
		}
	}

	other := open(t, worqr.Options{})
	is.NoErr(other.Close())
	is.True(is_(other.Run(t.Context()), worqr.ErrShutdown))
}
