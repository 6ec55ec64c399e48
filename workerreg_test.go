package worqr_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A StopWorker whose context has ended doesn't wait until dead workers' registrations are removed.
func TestStopWorkerWaitsForNoRoster(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	way := redistest.NewLink(t, server.Addr())
	c := redistest.Dial(t, server.URL())
	told := &journal{}
	p := peertest.OpenThrough(t, way.URL(), worqr.Options{Prefix: "p", Lease: 6 * time.Second, Logger: told.Logger()}, func(c *peertest.Through) redis.Conn {
		c.OnSend = func(command string, args []any) {
			if command == "DEL" && args[0] == "p:worker:dead" {
				way.Deafen(true) // the request arrives, and its reply is lost
			}
		}
		return c
	})
	redistest.DoAll(t, c, [][]any{
		{"ZADD", "p:workers:{q}", 1, "dead"}, {"ZADD", "p:suspects:{q}", 1, "dead"}, {"SADD", "p:workers", "dead"}, {"HSET", "p:worker:dead", "protocol", 2},
	})
	working(t, p, "q")
	eventually(t, "the dead worker is removed, and the peer doesn't get the reply", func() bool {
		return sure(redis.Int(c.Do("EXISTS", "p:worker:dead")))(t) == 0
	})
	over, end := context.WithCancel(t.Context())
	end()
	is.True(p.StopWorker(over) != nil) // it couldn't reach Redis
	lines := told.Lines("removing the registrations of dead workers")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], context.Canceled.Error())) // long before the 2 s that the call may take
}

// A StopWorker that Run overtakes does nothing: it would stop Run's worker.
func TestStopWorkerBesideRun(t *testing.T) {
	is := parallel(t)
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
	// in makes a call in a goroutine, and waits until the call waits for its turn.
	in := func(method string, call func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- call() }()
		eventually(t, method+" waits", func() bool {
			all := make([]byte, 1<<22)
			for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
				if strings.Contains(stack, "[select") && strings.Contains(strings.Split(stack, "\n")[1], "(*Peer).alone(") && strings.Contains(stack, "(*Peer)."+method+"(") && strings.Contains(stack, t.Name()) {
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
	stopped := in("StopWorker", func() error { return p.StopWorker(context.Background()) }) // Run hasn't been called yet
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

// StartWorker doesn't change the worker's id.
func TestID(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	before := p.WorkerID()
	is.NoErr(p.StartWorker(t.Context()))
	is.Equal(p.WorkerID(), before)
	is.NoErr(p.StopWorker(t.Context()))
	is.NoErr(p.StartWorker(t.Context()))
	is.True(p.WorkerID() != before) // a late request of the first worker must not affect the second
}

// StartWorker waits for a slow Redis as other calls do: longer than a heartbeat may take.
func TestStartWorkerOnSlowRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, CallTimeout: patience})
	server.Pause(t)
	started := make(chan error, 1)
	go func() { started <- p.StartWorker(context.Background()) }()
	time.Sleep(time.Second) // Redis is slow for three heartbeats
	server.Resume(t)
	must(t, receive(t, started, 1)[0])
}

// Exclusive handlers are stopped before another peer can start their task, whether or not Redis can
// be reached. Other handlers keep running.
func TestExclusive(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	told := &journal{}
	p := openAt(t, link.URL(), worqr.Options{Lease: time.Second, Prefix: "p", Logger: told.Logger()})
	type end struct {
		queue string
		cause error
		at    time.Time
	}
	started, ends := make(chan string, 10), make(chan end, 10)
	handler := func(ctx context.Context, t *worqr.Task) error {
		started <- t.Queue
		<-ctx.Done()
		ends <- end{t.Queue, context.Cause(ctx), time.Now()}
		return ctx.Err()
	}
	p.Queue("exclusive").Handle(handler, &worqr.HandleOptions{Exclusive: true})
	p.Queue("other").Handle(handler, nil)
	stop := run(t, p)
	enqueue(t, p.Queue("exclusive"), "a")
	enqueue(t, p.Queue("other"), "a")
	receive(t, started, 2)

	other := openAt(t, server.URL(), worqr.Options{Lease: time.Second, Prefix: "p"})
	taken := make(chan time.Time, 1)
	other.Queue("exclusive").Handle(func(context.Context, *worqr.Task) error {
		taken <- time.Now()
		return nil
	}, nil)
	run(t, other)
	link.Deafen(true) // the first peer receives nothing anymore
	e := receive(t, ends, 1)[0]
	is.Equal(e.queue, "exclusive")
	is.Equal(e.cause, worqr.ErrLeaseExpired)
	is.True(e.at.Before(receive(t, taken, 1)[0]))
	eventually(t, "the first peer is evicted", func() bool { return other.Stats().WorkersEvicted == 1 })
	is.Equal(len(ends), 0)
	link.Deafen(false)
	link.Cut()
	is.Equal(receive(t, ends, 1)[0].queue, "other") // stopped once the peer knows of its eviction
	eventually(t, "that the lease expired, and that Redis is back, is logged", func() bool {
		return len(told.Lines("worqr: lease expired: Redis didn't answer in time")) == 1 && len(told.Lines("worqr: Redis answers again")) > 0
	})
	id := p.WorkerID()
	stop()
	is.Equal(len(told.Lines(`msg="worqr: stopped" worker=`+id)), 1)
	is.True(strings.Contains(told.Lines("worqr: lease expired")[0], "queue=exclusive tasks=1"))
}

// A worker with a negative lease is evicted only by FailWorker.
func TestNegativeLease(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: -1})
	q := working(t, p, "q")
	enqueue(t, q, "a")
	sure(q.StartTask(t.Context()))(t)
	c := redistest.Conn(t)
	is.True(sure(redis.Float64(c.Do("ZSCORE", prefix+":workers:{q}", p.WorkerID())))(t) > float64(time.Now().AddDate(1000, 0, 0).UnixMilli()))
	is.Equal(len(sure(open(t, worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}).Sweep(t.Context()))(t)), 0)
	is.Equal(sure(open(t, worqr.Options{Prefix: prefix}).FailWorker(t.Context(), p.WorkerID()))(t), 1)
}

// Each queue has its own counters, which include OnFailed, for tasks that a handler or the caller
// works on. They add up to the peer's.
func TestStatsOf(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	plain, other := p.Queue("plain"), p.Queue("other")
	plain.Handle(func(_ context.Context, t *worqr.Task) error {
		if string(t.Payload) == "bad" {
			return worqr.Permanent(errors.New("bad"))
		}
		return nil
	}, &worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }})
	other.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	enqueue(t, plain, "good", "bad", "good")
	enqueue(t, other, numbers("good", 9)...)
	stop := run(t, p)
	eventually(t, "all are done", func() bool { return p.Stats().Finished == 12 })
	stop()
	is.Equal(p.StatsOf("plain"), inspect.PeerStats{Started: 4, Finished: 3, Failed: 1, HandlerErrors: 1})
	is.Equal(p.StatsOf("other"), inspect.PeerStats{Started: 9, Finished: 9})
	is.Equal(p.StatsOf("unknown"), inspect.PeerStats{})
	is.Equal(p.Stats(), inspect.PeerStats{Started: 13, Finished: 12, Failed: 1, HandlerErrors: 1})
}

// A worker's registration has the sum of its handlers' Concurrency, without OnFailed's, and follows SetOptions.
func TestSlots(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Lease: 300 * time.Millisecond})
	one, two := p.Queue("one"), p.Queue("two")
	nothing := func(context.Context, *worqr.Task) error { return nil }
	one.Handle(nothing, &worqr.HandleOptions{Concurrency: 3})
	two.Handle(nothing, &worqr.HandleOptions{Concurrency: 4, OnFailed: nothing})
	run(t, p)
	registered := func(slots int) {
		t.Helper()
		eventually(t, "the registration has the slots", func() bool {
			all := slices.Collect(each(t, p.Workers(t.Context())))
			return len(all) == 1 && all[0].Slots == slots
		})
	}
	registered(7)
	is.Equal(one.SetOptions(&worqr.HandleOptions{Concurrency: 5}), nil)
	registered(9)
}

// probed returns the status and the text of a probe's response.
func probed(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

// A peer is ready once it has joined its queues, until it begins to drain, except while its lease
// may have expired. It's alive all the time.
func TestReady(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, Drain: patience})
	unready := func(why error, text string) {
		t.Helper()
		status, said := probed(p.Readyz())
		if err := p.Ready(); !errors.Is(err, why) || status != http.StatusServiceUnavailable || said != "worqr: not ready: "+text+"\n" {
			t.Errorf("%d %q, want %q", status, said, text)
		}
	}
	unready(worqr.ErrNotStarted, "the worker isn't started; call Run or StartWorker")
	is.True(p.LastBeat().IsZero())
	starts, release := make(chan string, 1), make(chan struct{})
	q.Handle(holding(starts, release), nil)
	must(t, p.StartWorker(t.Context()))
	is.True(errors.Is(p.Ready(), worqr.ErrNotWorking))
	end, ran := start(t, p)
	eventually(t, "it is ready", func() bool { return p.Ready() == nil })
	status, said := probed(p.Readyz())
	is.Equal(status, http.StatusOK)
	is.Equal(said, "ok\n")
	before := p.LastBeat()
	eventually(t, "it beats", func() bool { return p.LastBeat().After(before) })
	must(t, p.Ping(t.Context()))

	server.Kill()
	eventually(t, "its lease has expired", func() bool { return errors.Is(p.Ready(), worqr.ErrLeaseExpired) })
	is.True(errors.Is(p.Ping(t.Context()), worqr.ErrUnreachable))
	server.Restart(t)
	eventually(t, "it is ready again", func() bool { return p.Ready() == nil })

	enqueue(t, q, "task")
	receive(t, starts, 1)
	end()
	eventually(t, "it isn't ready while it drains", func() bool { return errors.Is(p.Ready(), worqr.ErrShutdown) })
	unready(worqr.ErrShutdown, "the peer is shutting down")
	status, _ = probed(p.Livez())
	is.Equal(status, http.StatusOK)
	close(release)
	must(t, <-ran)
	must(t, p.Close())
	unready(worqr.ErrShutdown, "the peer is shutting down")
	is.True(errors.Is(p.Ping(t.Context()), worqr.ErrShutdown))
}

// A peer without handlers is ready while it is a member of the queues that it works on, or
// works on none.
func TestReadyByHand(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	must(t, p.StartWorker(t.Context()))
	must(t, p.Ready())
	must(t, q.StartWork(t.Context()))
	must(t, p.Ready())
	must(t, q.StopWork(t.Context()))
	must(t, p.Ready())
	must(t, p.StopWorker(t.Context()))
	is.True(errors.Is(p.Ready(), worqr.ErrNotStarted))
}
