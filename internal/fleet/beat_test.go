package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// newFleet returns the fleet of a peer, and a queue of it.
func newFleet(t *testing.T, prefix string, lease time.Duration) (*Fleet, *Queue) {
	t.Helper()
	place, err := store.Open(redistest.URL(), store.Access{})
	if err != nil {
		t.Fatal(err)
	}
	return newFleetIn(t, place, prefix, lease, nil)
}

// newFleetIn is newFleet for other servers. lost is called when writes were lost.
func newFleetIn(t *testing.T, place *store.Servers, prefix string, lease time.Duration, lost func(queue, sign string)) (*Fleet, *Queue) {
	t.Helper()
	log := logs.New(slog.New(slog.DiscardHandler))
	lines := store.NewLines(place, store.Lanes, log, store.DefaultTimeout, engine.LeaseOf(lease).Beat)
	t.Cleanup(lines.Close)
	trace := tracing.New(nil, log)
	e := engine.New(engine.Config{Log: log, Trace: trace, Capacity: capacity.New(0), Lease: engine.LeaseOf(lease), CallTimeout: 5 * time.Second, StuckChanged: func() {}, LostWrites: lost})
	f := New(Config{
		Lines: lines, Space: store.SpaceAt(place, prefix), Log: log, Trace: trace, Engine: e, Lease: lease,
		Describe: func(_, _ string, err error) error { return err }, CameBack: func() {},
	})
	return f, queueOf(f, "q")
}

func queueOf(f *Fleet, name string) *Queue {
	of := f.Lines.Serve(name, name, f.Space.Queue(name))
	return &Queue{View: of, Engine: f.Engine.Queue(name, name, engine.Options{})}
}

// queueOn returns a queue whose slot is on a node of a cluster.
func queueOn(t *testing.T, f *Fleet, c *redistest.Cluster, node *redistest.Server) *Queue {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprint("q", i); c.Owner(t, c.Slot(t, "{"+name+"}")) == node {
			return queueOf(f, name)
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

// Beats wait neither for a slow leave nor for a worker that comes back.
func TestBeatsWaitForNobody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	f, q := newFleet(t, prefix, time.Second)
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	w := f.present()
	is.NoErr(w.await(t.Context())) // as in a leave
	c := redistest.Conn(t)
	deadlines := map[string]bool{}
	until(t, "ten beats are sent", func() bool { // over much more than a lease
		deadlines[redistest.Sure(redis.String(c.Do("ZSCORE", prefix+":workers:{q}", f.ID())))(t)] = true
		return len(deadlines) == 10
	})
	w.pass()
	is.NoErr(f.Stop(t.Context()))
	is.Equal(f.Stop(t.Context()), ErrNotStarted)
}

// The joined error of many queues contains the one that affects all of them, if there is one,
// and otherwise the first few.
func TestJoined(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.NoErr(joined([]error{nil, nil}))
	of := redis.Error("WRONGTYPE of a key")
	all := errors.New("Redis is away")
	is.Equal(joined([]error{nil, fmt.Errorf("queue a: %w", of), all}), all)
	many := make([]error, most+5)
	for i := range many {
		many[i] = of
	}
	is.True(strings.HasSuffix(joined(many).Error(), "more errors: 5"))
}

// The evictions of a worker are combined over all queues.
func TestEvictions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, _ := newFleet(t, "none", time.Second)
	dead := evictions{}
	is.Equal(f.swept("a", store.Look{Due: -1, Returned: 3, Failed: []store.Dead{{Worker: "w", Tasks: 3}}}, dead), time.Hour)
	is.Equal(f.swept("b", store.Look{Due: time.Second, Returned: 1, Failed: []store.Dead{{Worker: "w", Tasks: 1}}}, dead), time.Second+time.Millisecond)
	is.Equal(f.swept("b", store.Look{Again: true, Due: time.Second}, dead), 5*time.Millisecond) // so that other clients get their turn
	at := dead["w"].at
	is.True(!at.IsZero())
	is.Equal(*dead["w"], eviction{at: at, queues: []string{"a", "b"}, tasks: 4})
	is.Equal(f.Counts().Returned.Load(), int64(4))
}

// A join that ends while the worker stops causes no warning.
func TestJoinedWhileStopping(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, q := newFleet(t, redistest.Prefix(t), time.Second)
	is.NoErr(f.Start(t.Context()))
	w := f.present()
	is.NoErr(w.await(t.Context()))
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	_, first := w.ask(t.Context(), w.id, []*Queue{q}) // it began before the stop
	is.Equal(first.err, ErrNotStarted)
	w.pass()
	is.NoErr(f.Stop(t.Context())) // leaves the queue
	n, err := redis.Int(redistest.Conn(t).Do("EXISTS", q.Keys.Workers()))
	is.NoErr(err)
	is.Equal(n, 0)
}

// A worker that stops while Redis restarts retries the leave until Redis has confirmed it.
func TestLeaveWhileRedisRestarts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	link := redistest.NewLink(t, strings.TrimPrefix(redistest.URL(), "redis://"))
	place, err := store.Open(link.URL(), store.Access{})
	is.NoErr(err)
	var failures atomic.Int32
	dial := func(ctx context.Context) (redis.Conn, error) {
		if failures.Add(-1) >= 0 {
			return nil, errors.New("nobody listens")
		}
		return place.Dial()(ctx)
	}
	f, q := newFleetIn(t, store.Single(dial), prefix, time.Hour, nil) // heartbeats are rare
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	failures.Store(3)
	link.Cut()
	is.NoErr(f.Stop(t.Context()))
	is.True(failures.Load() < 0)
	n, err := redis.Int(redistest.Conn(t).Do("EXISTS", q.Keys.Workers(), prefix+":worker:"+f.ID()))
	is.NoErr(err)
	is.Equal(n, 0)
}
