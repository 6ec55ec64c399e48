// Package peertest has helpers for tests of peers: peers that are closed when the test ends,
// inspection of Redis, and captured logs. Only tests import it.
package peertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Main runs the tests of a package.
func Main(m *testing.M) (code int) { return redistest.MainOfMany(m.Run) }

// Panics checks that f, which what describes, panics with a message of this library.
func Panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), "worqr: ") {
			t.Errorf("%s: panics with %v", what, v)
		}
	}()
	f()
}

// Failure returns the error of a call whose other result doesn't matter.
func Failure[T any](_ T, err error) error { return err }

// Verbs calls everything that needs Redis, and returns the errors.
func Verbs(ctx context.Context, p *worqr.Peer, q *worqr.Queue) map[string]error {
	var tasks, named, running, queues, workers error
	for _, tasks = range q.Tasks(ctx) {
	}
	for _, named = range q.Named(ctx) {
	}
	for _, running = range q.Running(ctx) {
	}
	for _, queues = range p.Queues(ctx) {
	}
	for _, workers = range p.Workers(ctx) {
	}
	return map[string]error{
		"Enqueue": q.Enqueue(ctx, []byte("x")), "Add": Failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("x"), Unique: true})), "EnqueueOnce": Failure(q.EnqueueOnce(ctx, "n", []byte("x"))),
		"Cancel": Failure(q.Cancel(ctx, []byte("x"))), "Stats": Failure(q.Stats(ctx)),
		"Tasks": tasks, "Named": named, "Running": running, "Forget": q.Forget(ctx, 0, "n"),
		"Queues": queues, "Workers": workers, "FailWorker": Failure(p.FailWorker(ctx, "x")), "Sweep": Failure(p.Sweep(ctx)),
		"Pause": q.Pause(ctx), "Resume": q.Resume(ctx), "Delete": q.Delete(ctx), "StartWorker": p.StartWorker(ctx),
	}
}

func Is(err, target error) bool { return errors.Is(err, target) }

// Patience is the timeout for everything that must happen. It is so long that only a hang exceeds
// it.
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
	if opts.TLSConfig == nil {
		opts.TLSConfig = redistest.TLS(url)
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

// Start runs the peer until it's told to end, and sends what Run returns.
func Start(t testing.TB, p *worqr.Peer) (end func(), ran <-chan error) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return end, done
}

// Run runs the peer. The returned function stops it and checks that Run returned nil. It is also
// called when the test ends.
func Run(t testing.TB, p *worqr.Peer) (stop func()) {
	t.Helper()
	end, ran := Start(t, p)
	stop = sync.OnceFunc(func() {
		end()
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

// Working starts the peer's worker on the queue, without Run. With a short lease calls time out
// soon, so on a busy machine Redis may need several attempts to answer.
func Working(t testing.TB, p *worqr.Peer, queue string) *worqr.Queue {
	t.Helper()
	q := p.Queue(queue)
	for _, begin := range []func(context.Context) error{p.StartWorker, q.StartWork} {
		var err error
		Eventually(t, "the worker works", func() bool {
			err = begin(t.Context())
			return !errors.Is(err, os.ErrDeadlineExceeded)
		})
		Must(t, err)
	}
	return q
}

// Must is that of redistest.
var Must = redistest.Must

// Broken reports whether err is what worqr.Malformed returns.
func Broken(err error) bool {
	return err != nil && fmt.Sprintf("%T", err) == fmt.Sprintf("%T", worqr.Malformed(errors.New("")))
}

// Tells checks that an error contains a text.
func Tells(t testing.TB, err error, what string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("%q is not in: %v", what, err)
	}
}
