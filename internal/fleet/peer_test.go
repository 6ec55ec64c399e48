package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// peerAt returns a peer that isn't started. lost is called when Redis has lost writes. The caller closes its lines.
func peerAt(servers *store.Servers, prefix string, lease time.Duration, lost func(queue, sign string)) *Fleet {
	log := logs.New(slog.New(slog.DiscardHandler))
	trace := tracing.New(nil, log)
	space := store.SpaceOf(prefix)
	lines := store.NewLines(servers, log, store.DefaultTimeout, engine.LeaseOf(lease).Beat)
	if lines.InCluster() {
		space = space.InCluster()
	}
	e := engine.New(engine.Config{
		Log: log, Trace: trace, Capacity: capacity.New(0), Lease: engine.LeaseOf(lease), CallTimeout: store.DefaultTimeout,
		StuckChanged: func() {}, LostWrites: lost,
	})
	return New(Config{
		Lines: lines, Space: space, Log: log, Trace: trace, Engine: e, Lease: lease, Protocol: store.Ours,
		Describe: func(_, _ string, err error) error { return err }, CameBack: func() {},
	})
}

// newPeer is peerAt for a test, which has a prefix of its own.
func newPeer(t *testing.T, url, prefix string, lease time.Duration) *Fleet {
	t.Helper()
	servers, err := store.Open(url, store.Access{})
	redistest.Must(t, err)
	f := peerAt(servers, prefix, lease, nil)
	t.Cleanup(f.Lines.Close)
	return f
}

// queueOf returns a queue that is served by hand.
func queueOf(f *Fleet, name string) *Queue {
	return &Queue{View: f.Lines.Serve(name, name, f.Space.Queue(name)), Engine: f.Engine.Queue(name, name, engine.Options{})}
}

// serve starts a peer that serves a queue. It stops at the end of the test.
func serve(t *testing.T, f *Fleet, queues ...string) {
	t.Helper()
	redistest.Must(t, f.Start(t.Context()))
	for _, name := range queues {
		q := queueOf(f, name)
		until(t, "it joins", func() bool { return f.Join(t.Context(), q) == nil }) // a busy machine may need a second try
	}
	t.Cleanup(func() {
		if f.IsStarted() {
			_ = f.Stop(context.Background())
		}
	})
}

// start starts n tasks, which must be there.
func start(t *testing.T, f *Fleet, queue string, n int) []*engine.Attempt {
	t.Helper()
	s, err := f.Session(queue)
	redistest.Must(t, err)
	tasks, err := s.Start(t.Context(), n)
	redistest.Must(t, err)
	if len(tasks) != n {
		t.Fatalf("%d tasks started, not %d", len(tasks), n)
	}
	return tasks
}

// finish ends attempts, and returns how many of them were still this worker's, and an error of the others.
func finish(ctx context.Context, tasks []*engine.Attempt) (n int, err error) {
	for _, task := range tasks {
		if one := task.End(ctx, store.End{Verb: store.Done}); one != nil {
			err = one
			continue
		}
		n++
	}
	return n, err
}

// die makes a peer vanish without leaving, as if its process had been killed.
func die(f *Fleet) {
	w := f.present()
	w.stop()
	w.loops.Wait()
	for _, s := range f.Sessions() {
		s.End(engine.ErrNotWorking)
		s.Unlisten()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worker = nil
}

// hear makes a channel get the lines of a peer's log that contain a text.
func hear(f *Fleet, what string) <-chan string {
	said := make(chan string, 1000)
	f.Log.Before = func(msg string, attrs []any) {
		if line := fmt.Sprint(msg, attrs); strings.Contains(line, what) {
			said <- line
		}
	}
	return said
}

// heard reports whether a line contains a text, and takes the lines up to that one.
func heard(said <-chan string, what string) bool {
	for {
		select {
		case line := <-said:
			if strings.Contains(line, what) {
				return true
			}
		default:
			return false
		}
	}
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(200 * time.Microsecond) { // interval between two checks
		if time.Now().After(end) {
			t.Fatal("it never came about that ", what)
		}
	}
}

// enqueue puts n tasks on a queue.
func enqueue(t *testing.T, c redis.Conn, q store.Keys, n int) {
	t.Helper()
	args := redis.Args{q.Waiting()}
	for i := range n {
		args = args.Add(fmt.Sprint("task ", i))
	}
	redistest.Do(t, c, "LPUSH", args...)
}

// waiting returns how many tasks wait in the list.
func waiting(t *testing.T, c redis.Conn, q store.Keys) int {
	t.Helper()
	return redistest.Sure(redis.Int(c.Do("LLEN", q.Waiting())))(t)
}

// members returns the members of a queue.
func members(t *testing.T, c redis.Conn, q store.Keys) []string {
	t.Helper()
	return redistest.Sure(redis.Strings(c.Do("ZRANGE", q.Workers(), 0, -1)))(t)
}

// digest returns the digest of a script, which its calls contain.
func digest(verb string) string {
	for _, v := range store.Verbs() {
		if v.Name == verb {
			digest, _ := v.Digests()
			return digest
		}
	}
	panic(verb)
}
