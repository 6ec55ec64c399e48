package worqr_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// When Run ends, it takes no more tasks, gives running handlers time, then ends their contexts, and
// returns the remaining tasks to the front in order.
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
			return ctx.Err() // its context hasn't ended yet
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
	receiveClosed(t, draining.Halted) // from here on a free slot stays free, and Drain hasn't begun
	close(finish)
	eventually(t, "the quick one is done", func() bool { return p.Stats().Finished == 1 })
	close(draining.Open)
	is.NoErr(receive(t, ran, 1)[0])
	is.Equal(receive(t, causes, 2), []error{worqr.ErrShutdown, worqr.ErrShutdown})
	is.Equal(waiting(t, q), []string{"a", "b", "waits"})
	is.Equal(len(started), 0)
	is.Equal(p.Stats().Finished, int64(1))
	nothingLeftBut(t, prefix, "q", ":queues:{q}", ":ages:{q}")
}

// While it drains, a peer keeps sending heartbeats, so no other peer takes its tasks.
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
	time.Sleep(time.Second) // several leases, during which nothing may happen
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
	is.True(is_(p.Shutdown(ctx), context.DeadlineExceeded)) // the handler is still running
	close(finish)
	is.NoErr(p.Shutdown(t.Context()))
	is.NoErr(p.Shutdown(t.Context())) // again
	is.NoErr(receive(t, ran, 1)[0])
	nothingLeft(t, prefix, "q")

	early := open(t, worqr.Options{})
	is.NoErr(early.Shutdown(t.Context())) // before Run
	is.True(is_(early.Run(context.Background()), worqr.ErrShutdown))
}

// Run waits until Redis can be reached, and returns when its context ends.
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
	is.True(receive(t, ran, 1)[0] != nil) // Run never reached Redis
}

// If Redis is down when Run ends, handlers that have returned don't delay it. It waits for
// outcomes that can't be stored, but no longer than documented.
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
			is.True(receive(t, ran, 1)[0] != nil)              // Run reports it
			if took := time.Since(at); took > 15*time.Second { // 5 s, plus slack for a busy machine
				t.Errorf("Run returned after %v", took)
			}
		})
	}
}

// Run logs what it serves, once it does, or that no queue has a handler.
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

// Run returns no error if its context ends before the worker has started.
func TestRunEndsBeforeItStarts(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Prefix: redistest.Prefix(t)})
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.NoErr(p.Run(ctx))
}

// While Run can't start, it logs the failure after its first attempt, however long that takes,
// and then every minute.
func TestRunRepeatsThatItCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes   time.Duration // a dial
		more    time.Duration // than one attempt takes
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
				is.Equal(len(told.Lines("WARN msg=\"worqr: Redis doesn't answer; retrying\"")), 1)
				is.Equal(len(told.Lines("ERROR msg=\"worqr: still can't start the worker; retrying\"")), c.repeats)
				is.NoErr(p.Close())
			})
		})
	}
}

// If Redis refuses the password, the log says so and doesn't show it.
func TestRunSaysThatTheLoginIsRefused(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t, "--requirepass", "right")
	told := &journal{}
	p := openAt(t, "redis://:"+canary+"@"+server.Addr(), worqr.Options{Logger: told.Logger()})
	stop, ended := start(t, p)
	eventually(t, "it is logged", func() bool {
		return len(told.Lines("worqr: Redis refuses the login; check the user and the password; retrying")) == 1
	})
	stop()
	is.True(<-ended != nil)
	is.Equal(len(told.Lines("doesn't answer")), 0)
	is.Equal(len(told.Lines(canary)), 0)
}

// Methods that may not be called while Run is running fail and change nothing. After Close, all
// methods fail with ErrShutdown.
func TestCloseAndRun(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	starts, stop := counting(t, p, "q", nil)
	q := p.Queue("q")
	idle(t, q, 1)
	is.True(is_(p.Close(), worqr.ErrInvalid))
	is.True(is_(p.StopWorker(t.Context()), worqr.ErrInvalid))
	enqueue(t, q, "a")
	receive(t, starts, 1) // Run is serving
	stop()
	is.NoErr(p.Close())
	is.NoErr(p.Close())
	errs := verbs(t.Context(), p, q)
	for _, errs["Events"] = range p.Events(t.Context()) {
		break
	}
	_, errs["Add"] = q.Add(t.Context(), worqr.TaskSpec{Key: "k", Payload: []byte("a")})
	_, errs["Check"] = p.Check(t.Context(), nil)
	_, errs["Explain"] = q.Explain(t.Context(), worqr.Query{Payload: []byte("a")})
	for verb, err := range errs {
		if !is_(err, worqr.ErrShutdown) || is_(err, worqr.ErrUnknownOutcome) || strings.Count(err.Error(), "shutting down") != 1 {
			t.Errorf("%s on a closed peer: %v", verb, err)
		}
	}

	other := open(t, worqr.Options{})
	is.NoErr(other.Close())
	is.True(is_(other.Run(t.Context()), worqr.ErrShutdown))
}

// A call is counted that Redis didn't take before its deadline; one that was canceled, or too late from the start, isn't.
func TestEnqueuesThatComeToNothing(t *testing.T) {
	is := parallel(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer silent.Close()
	p := sure(worqr.Open("redis://"+silent.Addr().String(), nil))(t)
	q := p.Queue("q")
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	is.True(errors.Is(q.Enqueue(late, []byte("x")), context.DeadlineExceeded))
	is.Equal(p.Stats().EnqueuesRefused, int64(1))
	is.True(q.Enqueue(late, []byte("x")) != nil)
	ended, end := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, end)
	is.True(q.Enqueue(ended, []byte("x")) != nil)
	is.Equal(p.Stats().EnqueuesRefused, int64(1))
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = q.Add(soon, worqr.TaskSpec{Payload: []byte("x")})
	is.True(errors.Is(err, context.DeadlineExceeded))
	is.Equal(p.Stats().EnqueuesRefused, int64(2))
}
