// Package peertest has what tests of peers share: peers that are closed in the end, looks
// at what is in Redis, and logs that are read. Only tests import it.
package peertest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Main runs the tests of a package. They mostly wait, so more of them run at once than
// there are processors. A -parallel on the command line is heeded: Run parses it.
func Main(m *testing.M) (code int) {
	if err := flag.Set("test.parallel", fmt.Sprint(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	return redistest.Main(m.Run)
}

// Panics checks that f panics, and with what.
func Panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), "worqr: ") {
			t.Errorf("%s: panics with %v", what, v)
		}
	}()
	f()
}

// Verbs calls everything that needs Redis, and returns the errors.
func Verbs(ctx context.Context, p *worqr.Peer, q *worqr.Queue) map[string]error {
	_, once := q.EnqueueOnce(ctx, "n", []byte("x"))
	_, cancel := q.Cancel(ctx, []byte("x"))
	_, count := q.Len(ctx)
	_, peek := q.Peek(ctx)
	_, stats := q.Stats(ctx)
	_, fail := p.FailWorker(ctx, "x")
	_, sweep := p.Sweep(ctx)
	var tasks, running, queues, workers error
	for _, tasks = range q.Tasks(ctx) {
	}
	for _, running = range q.Running(ctx) {
	}
	for _, queues = range p.Queues(ctx) {
	}
	for _, workers = range p.Workers(ctx) {
	}
	return map[string]error{
		"Enqueue": q.Enqueue(ctx, []byte("x")), "EnqueueUnique": q.EnqueueUnique(ctx, []byte("x")), "EnqueueOnce": once,
		"Cancel": cancel, "Len": count, "Peek": peek, "Stats": stats, "Tasks": tasks, "Running": running,
		"Queues": queues, "Workers": workers, "FailWorker": fail, "Sweep": sweep,
		"Pause": q.Pause(ctx), "Resume": q.Resume(ctx), "Delete": q.Delete(ctx), "StartWorker": p.StartWorker(ctx),
	}
}

func Is(err, target error) bool { return errors.Is(err, target) }

// Patience bounds every wait for something that must happen. It is far longer
// than anything takes, so that only a hang fails.
const Patience = 2 * time.Minute

// Open returns a peer on the shared Redis, in a namespace of the test's own
// unless opts names one.
func Open(t testing.TB, opts worqr.Options) *worqr.Peer {
	t.Helper()
	return OpenAt(t, redistest.URL(), opts)
}

func OpenAt(t testing.TB, url string, opts worqr.Options) *worqr.Peer {
	t.Helper()
	if opts.Prefix == "" {
		opts.Prefix = redistest.Prefix(t)
	}
	opts.Drain = cmp.Or(opts.Drain, time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := redistest.Sure(worqr.Open(redistest.Worker(t, url, opts.Prefix), &opts))(t)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// OpenQueue returns a peer as Open does, and its queue q.
func OpenQueue(t testing.TB, opts worqr.Options) (*worqr.Peer, *worqr.Queue) {
	t.Helper()
	return OpenQueueAt(t, redistest.URL(), opts)
}

func OpenQueueAt(t testing.TB, url string, opts worqr.Options) (*worqr.Peer, *worqr.Queue) {
	t.Helper()
	p := OpenAt(t, url, opts)
	return p, p.Queue("q")
}

// Run runs the peer. The returned function ends it and checks that it ended
// well; it is called in the end if the test does not.
func Run(t testing.TB, p *worqr.Peer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ran:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(Patience):
			t.Error("Run does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

// Working starts the peer's worker on the queue, without Run.
func Working(t testing.TB, p *worqr.Peer, queue string) *worqr.Queue {
	t.Helper()
	Must(t, p.StartWorker(t.Context()))
	q := p.Queue(queue)
	Must(t, q.StartWork(t.Context()))
	return q
}

func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Broken tells whether err is what worqr.Malformed returns.
func Broken(err error) bool {
	return err != nil && fmt.Sprintf("%T", err) == fmt.Sprintf("%T", worqr.Malformed(errors.New("")))
}

// Tells checks the text of an error.
func Tells(t testing.TB, err error, what string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("%q is not told by: %v", what, err)
	}
}
