package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// plain are the handler options that tests start from.
var plain = Options{Concurrency: 4, Grace: time.Second, MaxRetries: 10, MaxCrashes: 3, Keep: 1000, Weight: 1, Backoff: func(t *Attempt, _ error) time.Duration { return DefaultBackoff(t.Retries) }}

// A viewed is a queue with its view.
type viewed struct {
	*Queue
	view *store.View
}

// queueAt returns the queue q of an engine that uses dial.
func queueAt(t testing.TB, dial redisconn.Dial) *viewed {
	l := logs.New(slog.New(slog.DiscardHandler))
	lines := store.NewLines(store.Single(dial), store.Lanes, l, 0, 0)
	e := New(Config{
		Log: l, Capacity: capacity.New(0), Lease: LeaseOf(time.Hour), CallTimeout: 5 * time.Second, MaxResult: 1 << 20, StuckChanged: func() {},
		Trace: tracing.New(nil, l),
	})
	q := e.Queue("q", "q", Options{MaxCrashes: 3, Keep: 1000})
	t.Cleanup(func() {
		q.mu.Lock()
		if q.session != nil {
			q.session.endLocked(ErrShutdown)
		}
		q.mu.Unlock()
		lines.Abort()
		lines.Calls.Abort()
		lines.Close()
		e.Wait()
	})
	return &viewed{q, lines.Serve("q", "q", keys.NewSpace("p").Queue("q"))}
}

// newSession begins a session that receives no messages.
func (q *viewed) newSession(m Membership) *Session { return newSession(q.Queue, q.view, m) }

// lonely returns a queue of an engine that can't reach Redis.
func lonely(t testing.TB) *viewed {
	nowhere := func(context.Context) (redis.Conn, error) { return nil, errors.New("nowhere") }
	return queueAt(t, nowhere)
}

// joined returns a session of the worker w on the queue q at url.
func joined(t testing.TB, url string) *Session {
	t.Helper()
	is := is.New(t)
	dial := redistest.Sure(redisconn.FromURL(url))(t)
	q := queueAt(t, dial)
	control := q.view.Control
	asked := redistest.Sure(store.ReadToken(control.Do(t.Context(), store.TokenCall(q.view.Keys))[0]))(t)
	is.NoErr(store.List(t.Context(), control, keys.NewSpace("p"), "q"))
	is.True(redistest.Sure(store.ReadJoin(control.Do(t.Context(), store.JoinCall(q.view.Keys, "w", time.Hour, asked, 2))[0]))(t))
	return q.Join(q.view, Membership{Worker: "w", Asked: asked, Round: 2, Evicted: func() {}})
}

// enqueue adds payloads to the queue q.
func enqueue(t testing.TB, q *store.View, payloads ...string) {
	t.Helper()
	var all []any
	for _, p := range payloads {
		all = append(all, []byte(p))
	}
	_, err := store.Enqueue(t.Context(), q.Calls, q.Keys, all)
	is.New(t).NoErr(err)
}

// hushed waits until there is nothing more to send.
func hushed(r *Session) {
	r.mu.Lock()
	silence := r.idle
	r.mu.Unlock()
	if silence != nil {
		<-silence
	}
}

// The longest CallTimeout means that Wait has no limit.
func TestWaitWithoutLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Log: logs.New(slog.New(slog.DiscardHandler)), Capacity: capacity.New(0), Lease: LeaseOf(time.Hour), CallTimeout: math.MaxInt64})
		began := time.Now()
		e.background.Go(func() { time.Sleep(time.Hour) })
		e.Wait()
		is.New(t).Equal(time.Since(began), time.Hour)
	})
}
