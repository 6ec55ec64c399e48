package worqr_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A StopWorker whose context has ended does not wait until Redis has said that the dead
// are off the roster.
func TestStopWorkerWaitsForNoRoster(t *testing.T) {
	is := parallel(t)
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
		redistest.Do(t, c, cmd[0].(string), cmd[1:]...)
	}
	working(t, p, "q")
	eventually(t, "the dead one is struck off, which the peer does not hear", func() bool {
		return sure(redis.Int(c.Do("EXISTS", "p:worker:dead")))(t) == 0
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
	// in calls something in a goroutine, and waits until that waits for its turn.
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
	is := parallel(t)
	p := open(t, worqr.Options{})
	before := p.WorkerID()
	is.NoErr(p.StartWorker(t.Context()))
	is.Equal(p.WorkerID(), before)
	is.NoErr(p.StopWorker(t.Context()))
	is.NoErr(p.StartWorker(t.Context()))
	is.True(p.WorkerID() != before) // a late request of the first must not touch the second
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
