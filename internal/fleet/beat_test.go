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
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// newFleet returns the fleet of a peer, and a queue of it.
func newFleet(t *testing.T, prefix string, lease time.Duration) (*Fleet, *Queue) {
	t.Helper()
	place, err := store.Open(redistest.URL(), store.Access{})
	if err != nil {
		t.Fatal(err)
	}
	return newFleetAt(t, place.Dial(), prefix, lease)
}

func newFleetAt(t *testing.T, dial store.Dial, prefix string, lease time.Duration) (*Fleet, *Queue) {
	t.Helper()
	return newFleetWith(t, dial, prefix, lease, nil)
}

func newFleetWith(t *testing.T, dial store.Dial, prefix string, lease time.Duration, lost func(queue, sign string)) (*Fleet, *Queue) {
	t.Helper()
	return newFleetIn(t, store.Single(dial), prefix, lease, lost)
}

func newFleetIn(t *testing.T, place *store.Servers, prefix string, lease time.Duration, lost func(queue, sign string)) (*Fleet, *Queue) {
	t.Helper()
	log := logs.New(slog.New(slog.DiscardHandler))
	lines := store.NewLines(place, store.Lanes, log, store.DefaultTimeout, engine.LeaseOf(lease).Beat)
	t.Cleanup(lines.Close)
	e := engine.New(engine.Config{Log: log, Capacity: capacity.New(0), Lease: engine.LeaseOf(lease), CallTimeout: 5 * time.Second, StuckChanged: func() {}, LostWrites: lost})
	f := New(Config{
		Lines: lines, Space: store.SpaceAt(place, prefix), Log: log, Engine: e, Lease: lease,
		Describe: func(_, _ string, err error) error { return err }, CameBack: func() {},
	})
	q := &store.Served{Lines: lines, Name: "q", ID: "q", Keys: f.Space.Queue("q")}
	return f, &Queue{Part: engine.Part{Served: q}, Engine: e.Queue("q", "q", engine.Options{})}
}

// Beats wait for nobody: neither for a leave that takes long, nor for what a worker
// does to come back.
func TestBeatsWaitForNobody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	f, q := newFleet(t, prefix, time.Second)
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	w := f.present()
	is.NoErr(w.await(t.Context())) // as a leave does
	c := redistest.Conn(t)
	deadlines := map[string]bool{}
	for end := time.Now().Add(20 * time.Second); len(deadlines) < 10; { // in far more than a lease
		deadline, err := redis.String(c.Do("ZSCORE", prefix+":workers:{q}", f.ID()))
		is.NoErr(err)
		deadlines[deadline] = true
		if time.Now().After(end) {
			t.Fatalf("%d beats came", len(deadlines))
		}
	}
	w.pass()
	is.NoErr(f.Stop(t.Context()))
	is.Equal(f.Stop(t.Context()), ErrNotStarted)
}

// Of the errors of many queues the one that hit all of them is told, else the first ones.
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
	is.True(strings.HasSuffix(joined(many).Error(), "and 5 more errors"))
}

// Who was evicted is added up over the queues.
func TestEvictions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, _ := newFleet(t, "none", time.Second)
	dead := evictions{}
	is.Equal(f.swept("a", store.Look{Due: -1, Returned: 3, Failed: []store.Dead{{Worker: "w", Tasks: 3}}}, dead), time.Hour)
	is.Equal(f.swept("b", store.Look{Due: time.Second, Returned: 1, Failed: []store.Dead{{Worker: "w", Tasks: 1}}}, dead), time.Second+time.Millisecond)
	is.Equal(f.swept("b", store.Look{Again: true, Due: time.Second}, dead), 5*time.Millisecond) // but others get their turn
	at := dead["w"].at
	is.True(!at.IsZero())
	is.Equal(*dead["w"], eviction{at: at, queues: []string{"a", "b"}, tasks: 4})
	is.Equal(f.Counts().Returned.Load(), int64(4))
}

// A join that ends while the worker stops is nothing to warn of.
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
	_, first := w.ask(t.Context(), w.id, []*Queue{q}) // which has begun before
	is.Equal(first.err, ErrNotStarted)
	w.pass()
	is.NoErr(f.Stop(t.Context())) // leaves it
	n, err := redis.Int(redistest.Conn(t).Do("EXISTS", q.Keys.Workers()))
	is.NoErr(err)
	is.Equal(n, 0)
}

// A worker that ends while Redis restarts tries to leave until it has told so.
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
	f, q := newFleetAt(t, dial, prefix, time.Hour) // beats are rare
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
