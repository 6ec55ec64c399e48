package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/integration"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	url     string // of the Redis in the container
	missing error  // why there is none
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	redis, err := integration.Start(10 * time.Minute)
	switch {
	case err == nil:
	case errors.Is(err, integration.ErrNoDocker) && os.Getenv(integration.RequireEnv) != "1":
		fmt.Println("optional tests skipped:", err)
		missing = err
		return m.Run()
	default:
		fmt.Println(err)
		return 1
	}
	defer func() {
		if err := redis.Remove(); err != nil {
			fmt.Println("the container is left behind:", err)
		}
	}()
	url = redis.URL
	return m.Run()
}

// patience bounds every wait for something that must happen.
const patience = 2 * time.Minute

// peers returns n peers in a namespace of their own.
func peers(t *testing.T, n int) []*worqr.Peer {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
	opts := &worqr.Options{
		Prefix: fmt.Sprintf("t%08x", rand.Uint32()),
		Logger: slog.New(slog.DiscardHandler),
	}
	all := make([]*worqr.Peer, n)
	for i := range all {
		p := redistest.Sure(worqr.Open(url, opts))(t)
		t.Cleanup(func() { must(t, p.Close()) })
		all[i] = p
	}
	return all
}

// serve runs the peer until the returned function is called, or the test ends.
func serve(t *testing.T, p *worqr.Peer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(t, ran); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Error("what was waited for does not come")
	}
	return v
}

func TestThreePeersKeepTheOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const n = 300
	fleet := peers(t, 3)
	var all sync.WaitGroup // all peers have started a task
	all.Add(len(fleet))
	ran := make(chan *worqr.Task, n)
	var stops []func()
	for _, p := range fleet {
		first := sync.OnceFunc(func() { all.Done(); all.Wait() })
		p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
			first()
			ran <- t
			return nil
		}, &worqr.HandleOptions{Concurrency: 1, Prefetch: -1}) // prefetched tasks may go back to an idle peer
		stops = append(stops, serve(t, p))
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
		is.NoErr(fleet[i%3].Queue("q").Enqueue(t.Context(), []byte(want[i])))
	}
	var tasks []*worqr.Task
	for range n {
		tasks = append(tasks, receive(t, ran))
	}
	var finished int64
	for i, stop := range stops {
		stop()
		finished += fleet[i].Stats().Finished
	}
	is.Equal(finished, int64(n))
	slices.SortFunc(tasks, func(a, b *worqr.Task) int { return int(a.Token - b.Token) })
	for i, task := range tasks {
		is.Equal(string(task.Payload), want[i]) // in the order of their starts
	}
	left := redistest.Sure(fleet[0].Queue("q").Stats(t.Context()))(t)
	left.Tokens = 0
	is.Equal(left, inspect.QueueStats{})
}

func TestFailWorkerFences(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	fleet := peers(t, 2)
	type attempt struct {
		worker      string
		token       int64
		cause, late error
	}
	started, attempts := make(chan string, 10), make(chan attempt, 10)
	first := true // one handler at a time
	fleet[0].Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
		a := attempt{worker: fleet[0].WorkerID(), token: t.Token}
		started <- a.worker
		if first {
			first = false
			<-ctx.Done()
			a.cause, a.late = context.Cause(ctx), t.Finish(context.Background())
		}
		attempts <- a
		return a.late
	}, &worqr.HandleOptions{Concurrency: 1})
	serve(t, fleet[0])
	q := fleet[1].Queue("q")
	is.NoErr(q.Enqueue(t.Context(), []byte("task")))
	failed := receive(t, started)
	is.Equal(redistest.Sure(fleet[1].FailWorker(t.Context(), failed))(t), 1)
	one, two := receive(t, attempts), receive(t, attempts) // the failed worker comes back
	is.Equal(one.cause, worqr.ErrEvicted)
	is.True(errors.Is(one.late, worqr.ErrNotOwner))
	is.True(two.worker != failed)
	is.True(two.token > one.token)
}
