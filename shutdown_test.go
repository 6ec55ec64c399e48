package worqr_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The end of Run while Redis is away: handlers that have returned hold up
// nothing, and what could not be stored is not waited for longer than said.
func TestShutdownWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Server, testing.TB){
		"gone":    func(s *redistest.Server, _ testing.TB) { s.Kill() },
		"stopped": func(s *redistest.Server, t testing.TB) { s.Signal(t, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Drain: time.Minute})
			q := p.Queue("q")
			started, finish := make(chan string, 1), make(chan struct{})
			q.Handle(func(context.Context, *worqr.Task) error {
				started <- ""
				<-finish
				return nil
			}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- p.Run(ctx) }()
			enqueue(t, q, "a")
			receive(t, started, 1)
			away(server, t)
			cancel()
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
			t.Parallel()
			is := is.New(t)
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

// While Run cannot start, it says so at once, and again every minute.
func TestRunRepeatsThatItCannotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		told := &journal{}
		p := worqr.New(&redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("away") }}, &worqr.Options{Prefix: "p", Logger: told.Logger()})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		is.True(p.Run(ctx) != nil)
		is.Equal(len(told.Lines("WARN msg=\"worqr: cannot start the worker; retrying\"")), 1)
		is.Equal(len(told.Lines("ERROR msg=\"worqr: still cannot start the worker; retrying\"")), 3)
		is.NoErr(p.Close())
	})
}

// What may not be called while Run runs says so, and changes nothing; after
// Close, everything says that it is closed.
func TestCloseAndRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
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

// A StopWorker whose context has ended does not wait until Redis has said that the dead
// are off the roster.
func TestStopWorkerWaitsForNoRoster(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	way := redistest.NewLink(t, server.Addr())
	c := redistest.Dial(t, server.URL())
	told := &journal{}
	p := openAt(t, way.URL(), worqr.Options{Prefix: "p", Lease: 6 * time.Second, Logger: told.Logger()})
	p.BeforeLog(func(msg string, _ []any) {
		if strings.Contains(msg, "evicted a worker") {
			way.Deafen(true) // and then it's struck off
		}
	})
	for _, cmd := range [][]any{
		{"ZADD", "p:workers:{q}", 1, "dead"}, {"ZADD", "p:suspects:{q}", 1, "dead"}, {"SADD", "p:workers", "dead"}, {"HSET", "p:worker:dead", "name", "dead"},
	} {
		_, err := c.Do(cmd[0].(string), cmd[1:]...)
		is.NoErr(err)
	}
	working(t, p, "q")
	eventually(t, "the dead one is struck off, which the peer does not hear", func() bool {
		n, err := redis.Int(c.Do("EXISTS", "p:worker:dead"))
		is.NoErr(err)
		return n == 0
	})
	over, end := context.WithCancel(t.Context())
	end()
	is.True(p.StopWorker(over) != nil) // it could not tell Redis
	lines := told.Lines("removing the registrations of dead workers")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], context.Canceled.Error())) // long before the 2 s that it may take
}

// A StopWorker that Run overtakes does nothing: what it would stop is the worker of Run.
func TestStopWorkerBesideRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	registers, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
		if verb == "register" {
			first.Do(func() { close(registers); hold(t, goOn) })
		}
		return nil
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	began := make(chan string, 1)
	p.Queue("q").Handle(func(_ context.Context, task *worqr.Task) error {
		began <- string(task.Payload)
		return nil
	}, nil)
	// in calls something in a goroutine, and waits until that waits for a lock.
	in := func(method string, call func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- call() }()
		eventually(t, method+" waits", func() bool {
			all := make([]byte, 1<<22)
			for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
				if strings.Contains(stack, "[sync.Mutex.Lock") && strings.Contains(stack, "(*Peer)."+method+"(") && strings.Contains(stack, t.Name()) {
					return true
				}
			}
			return false
		})
		return done
	}
	started := make(chan error, 1)
	go func() { started <- p.StartWorker(context.Background()) }()
	receiveClosed(t, registers)
	id := p.WorkerID()
	stopped := in("StopWorker", func() error { return p.StopWorker(context.Background()) }) // Run was not called yet
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ran := in("Run", func() error { return p.Run(ctx) })
	close(goOn)
	is.Equal(receive(t, started, 1), []error{nil})
	is.True(is_(receive(t, stopped, 1)[0], worqr.ErrInvalid))
	enqueue(t, p.Queue("q"), "x")
	is.Equal(receive(t, began, 1), []string{"x"})
	is.Equal(p.WorkerID(), id)
	end()
	is.Equal(receive(t, ran, 1), []error{nil})
}

// The id that a peer has before it is started is the one that it then has.
func TestID(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	before := p.WorkerID()
	is.NoErr(p.StartWorker(t.Context()))
	is.Equal(p.WorkerID(), before)
	is.NoErr(p.StopWorker(t.Context()))
	is.NoErr(p.StartWorker(t.Context()))
	is.True(p.WorkerID() != before) // a late request of the first must not touch the second
}

// A handler may do what it likes with the payload: the task keeps its identity.
func TestHandlerChangesPayload(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	started := make(chan string, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		for i := range t.Payload {
			t.Payload[i] = 'x'
		}
		t.Payload = nil
		started <- ""
		<-ctx.Done()
		return errors.New("ended")
	}, nil)
	run(t, p)
	enqueue(t, q, "job")
	receive(t, started, 1)
	report := cancel(t, q, "job")
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.Equal(len(started), 0)
}

// Events end with their context, whether Redis answers or not.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	synced := make(chan string, 1)
	go func() {
		defer close(ended)
		for range p.Events(ctx) {
			synced <- ""
		}
	}()
	receive(t, synced, 1)
	server.Signal(t, syscall.SIGSTOP)
	cancel()
	receiveClosed(t, ended)
	server.Signal(t, syscall.SIGCONT)
}

// A peer takes off the roster whom somebody else has found dead and did not live
// to strike off.
func TestRosterIsPruned(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	c := redistest.Conn(t)
	_, err := c.Do("SADD", prefix+":workers", "long dead")
	must(t, err)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	must(t, p.StartWorker(t.Context()))
	eventually(t, "it is off the roster", func() bool {
		n, err := redis.Int(c.Do("SCARD", prefix+":workers"))
		must(t, err)
		return n == 1 // the peer itself
	})
}

// When Redis does not let it, it tries again.
func TestRosterIsPrunedLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	c := redistest.Dial(t, server.URL())
	_, err := c.Do("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-srandmember")
	is.NoErr(err)
	_, err = c.Do("SADD", "p:workers", "long dead")
	is.NoErr(err)
	p := openAt(t, "redis://app:pw@"+server.Addr(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	is.NoErr(p.StartWorker(t.Context()))
	eventually(t, "it has tried", func() bool {
		log, err := redis.Values(c.Do("ACL", "LOG"))
		is.NoErr(err)
		return len(log) > 0
	})
	_, err = c.Do("ACL", "SETUSER", "app", "+srandmember")
	is.NoErr(err)
	eventually(t, "it is off the roster", func() bool {
		n, err := redis.Int(c.Do("SCARD", "p:workers"))
		is.NoErr(err)
		return n == 1 // the peer itself
	})
}

// StartWorker waits for a slow Redis as other calls do: longer than a beat may take.
func TestStartWorkerOnSlowRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, CallTimeout: patience})
	server.Pause(t)
	started := make(chan error, 1)
	go func() { started <- p.StartWorker(context.Background()) }()
	time.Sleep(time.Second) // three beats, as long as Redis is slow
	server.Resume(t)
	must(t, receive(t, started, 1)[0])
}
