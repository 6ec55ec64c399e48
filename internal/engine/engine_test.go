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
	"github.com/worqr/worqr/internal/verdict"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// plain are the handler options that tests start from.
var plain = Options{Concurrency: 4, Grace: time.Second, Policy: verdict.Policy{MaxRetries: 10}, MaxCrashes: 3, Keep: 1000, Weight: 1, Backoff: func(t *Attempt, _ error) time.Duration { return verdict.DefaultBackoff(t.Retries) }}

// A world is a queue on a server, as one peer sees it.
type world struct {
	testing.TB
	*Queue
	conn    redis.Conn // straight to the server
	keys    keys.Queue
	view    *store.View
	evicted chan struct{} // holds a value once Membership.Evicted was called
	said    *said
}

// newWorld returns the queue q of an engine that uses url. Redis, or what's in front of it, is there.
func newWorld(t testing.TB, url string) *world {
	return worldOf(t, redistest.Sure(store.Open(url, store.Access{}))(t).Dial(), LeaseOf(time.Hour), redistest.Prefix(t))
}

func worldOf(t testing.TB, dial redisconn.Dial, l Lease, prefix string) *world {
	said := &said{}
	log := logs.New(slog.New(slog.NewTextHandler(said, nil)))
	lines := store.NewLines(store.Single(dial), log, 2*time.Second, time.Second)
	e := New(Config{
		Log: log, Capacity: capacity.New(0), Lease: l, CallTimeout: 5 * time.Second, MaxPayload: 4 << 20, MaxResult: 1 << 20, StuckChanged: func() {},
		Trace: tracing.New(nil, log),
	})
	of := keys.NewSpace(prefix).Queue("q")
	w := &world{
		TB: t, Queue: e.Queue("q", "q", Options{MaxCrashes: 3, Keep: 1000}), keys: of, view: lines.Serve("q", "q", of),
		evicted: make(chan struct{}, 9), said: said,
	}
	t.Cleanup(func() {
		w.mu.Lock()
		if w.session != nil {
			w.session.endLocked(ErrShutdown, false)
		}
		w.mu.Unlock()
		lines.Abort()
		lines.Close()
		e.Wait()
		e.Flush()
		log.Flush()
	})
	return w
}

// lonely returns a queue of an engine that can't reach Redis.
func lonely(t testing.TB) *world {
	nowhere := func(context.Context) (redis.Conn, error) { return nil, errors.New("nowhere") }
	return worldOf(t, nowhere, LeaseOf(time.Hour), "p")
}

// served returns a world on the shared server whose handler has options that change adjusts.
func served(t testing.TB, url string, change func(o *Options), h Handler) *world {
	t.Helper()
	w := newWorld(t, url)
	w.conn = redistest.Dial(t, redistest.URL())
	o := plain
	if change != nil {
		change(&o)
	}
	w.Serve(h, o)
	return w
}

// join makes a worker a member, and begins its session.
func (w *world) join(worker string) *Session {
	w.Helper()
	m := w.member(worker)
	return w.Queue.Join(w.view, m)
}

// member makes a worker a member.
func (w *world) member(worker string) Membership {
	w.Helper()
	if w.conn == nil {
		w.conn = redistest.Dial(w, redistest.URL())
	}
	asked := int64(0)
	w.eventually("it has joined", func() bool { // a cut connection may lose replies
		tokens, errs := store.Tokens(w.Context(), w.view.Control, []keys.Queue{w.keys})
		if asked = tokens[0]; errs[0] != nil {
			return false
		}
		join := store.Join{Queue: w.view.Shared, Asked: asked, Round: 2}
		joined, errs := store.JoinAll(w.Context(), w.view.Control, worker, w.engine.Lease.Grant, []store.Join{join})
		return errs[0] == nil && joined[0] == store.IsMember
	})
	return Membership{Worker: worker, Asked: asked, Round: 2, Evicted: func() { w.evicted <- struct{}{} }, Beat: func() {}}
}

// beat sends a heartbeat of the session's worker.
func (w *world) beat(s *Session) *store.Pulse {
	w.Helper()
	sent := time.Now()
	h := store.Heartbeat{Worker: s.member.Worker, Lease: w.engine.Lease.Grant, Queues: []*store.Shared{w.view.Shared}, Judge: []bool{false}}
	heard := h.Send(w.Context(), w.view.Control, keys.NewSpace("p"))
	switch err := heard.Errs[0]; {
	case errors.Is(err, store.ErrNoMember):
		s.Evicted()
	case err != nil:
		s.Unheard()
	default:
		s.Pulse(heard.Pulses[0], sent)
	}
	return heard.Pulses[0]
}

// do runs a command on a key of the queue.
func (w *world) do(command, key string, args ...any) any {
	w.Helper()
	return redistest.Sure(w.conn.Do(command, append([]any{key}, args...)...))(w)
}

// number runs a command that answers a number; nothing counts as 0.
func (w *world) number(command, key string, args ...any) int {
	w.Helper()
	n, err := redis.Int(w.do(command, key, args...), nil)
	if err != redis.ErrNil {
		is.New(w).NoErr(err)
	}
	return n
}

// enqueue adds payloads at the back, and wakes an idle worker, as the script enqueue does.
func (w *world) enqueue(payloads ...string) {
	w.Helper()
	args := []any{w.keys.Channel(""), 0}
	for _, p := range payloads {
		args = append(args, p)
	}
	w.script("enqueue", []string{w.keys.Waiting(), w.keys.Idle(), w.keys.Workers(), w.keys.Once("x"), w.keys.Once("")}, args...)
}

// add makes a named task ready, or schedules it, and wakes a worker.
func (w *world) add(s *Session, name string, r store.Record, at int64) {
	w.Helper()
	w.do("HSET", w.keys.Tasks(), name, r.Append(nil))
	if at > 0 {
		w.do("ZADD", w.keys.Schedule(), at, name)
	} else {
		w.do("ZADD", w.keys.Ready(), 1, name)
	}
	s.Wake()
}

// queued runs a script that has the keys of the queue.
func (w *world) queued(verb string, args ...any) any {
	w.Helper()
	prefix, tail := w.keys.Ends()
	return w.script(verb, []string{w.keys.State(), keys.None(w.keys)}, append([]any{prefix, tail}, args...)...)
}

func (w *world) script(verb string, keys []string, args ...any) any {
	w.Helper()
	for _, v := range store.Verbs() {
		if v.Name == verb {
			all := []any{v.Source(), len(keys)}
			for _, k := range keys {
				all = append(all, k)
			}
			return redistest.Sure(w.conn.Do("EVAL", append(all, args...)...))(w)
		}
	}
	w.Fatal("there is no script", verb)
	return nil
}

// cancel cancels the tasks with a payload, as Cancel does.
func (w *world) cancel(payload string) {
	w.Helper()
	reply := redistest.Sure(redis.Values(w.queued("cancel", payload, ""), nil))(w)
	w.Logf("%s", reply)
	token := redistest.Sure(redis.Int(reply[2], nil))(w)
	for _, worker := range redistest.Sure(redis.Strings(reply[3], nil))(w) {
		w.queued("mark", payload, token, worker, "")
	}
}

// none checks that nothing of the queue is left: no task waits, runs, or has failed.
func (w *world) none(worker string) {
	w.Helper()
	for _, key := range []string{w.keys.Waiting(), w.keys.Tasks(), w.keys.Ready(), w.keys.Schedule(), w.keys.Risky(), w.keys.Runs(), w.keys.Working(worker)} {
		if w.number("EXISTS", key) > 0 {
			w.Errorf("%s is left", key)
		}
	}
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	for limit := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			w.Fatalf("it never holds: %s\n%s", what, w.said.text())
		}
	}
}

// failed returns the tasks in the failed queue.
func (w *world) failed() (all []store.Record) {
	w.Helper()
	texts := redistest.Sure(redis.ByteSlices(w.do("HVALS", w.keys.Failed().Tasks()), nil))(w)
	for _, text := range texts {
		all = append(all, store.ReadRecord(text, true))
	}
	return all
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
