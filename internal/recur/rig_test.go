package recur

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A rig has the schedules of several peers, their log, and the number of their calls to Redis.
type rig struct {
	*Schedules // of the first peer
	t          *testing.T
	conn       redis.Conn
	config     Config // of all peers
	space      store.Space
	calls      atomic.Int64
	block      chan struct{} // if not nil, the next call waits for it, once
	home       func(store.Keys) string
	ctx        context.Context
	end        context.CancelFunc

	mu   sync.Mutex
	text strings.Builder
}

const fast = 20 * time.Millisecond

// newRig returns schedules with a beat of 20 ms and a period of 2 s, on their own Redis.
func newRig(t *testing.T) *rig {
	server, conn := redistest.StartAndDial(t)
	return newRigAt(t, server.URL(), conn, "p", fast)
}

// newBench returns schedules that don't run, on the shared Redis of the tests.
func newBench(t *testing.T) *rig {
	return newRigAt(t, redistest.URL(), redistest.Conn(t), redistest.Prefix(t), time.Second)
}

func newRigAt(t *testing.T, url string, conn redis.Conn, prefix string, beat time.Duration) *rig {
	r := &rig{t: t, conn: conn, space: store.SpaceOf(prefix), home: func(store.Keys) string { return store.Somewhere }}
	r.ctx, r.end = context.WithCancel(t.Context())
	line := redisconn.NewLine(redistest.Sure(redisconn.FromURL(url))(t), 10*time.Second)
	t.Cleanup(line.Close)
	r.config = Config{
		Calls: counted{line, r}, Log: logs.New(slog.New(slog.NewTextHandler(r, nil))), Beat: beat,
		Home: func(q store.Keys) string { return r.home(q) },
		List: func(context.Context, store.Target) {},
	}
	r.Schedules = New(r.config)
	return r
}

type counted struct {
	store.Runner
	r *rig
}

func (c counted) One(ctx context.Context, call redisconn.Call) (any, error) {
	if n := c.r.calls.Add(1); n == 1 && c.r.block != nil {
		select {
		case <-c.r.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Runner.One(ctx, call)
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// lines returns the log lines that contain a word.
func (r *rig) lines(word string) (all []string) {
	r.Log.Flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		if strings.Contains(line, word) {
			all = append(all, line)
		}
	}
	return all
}

func (r *rig) target(name string) store.Target {
	return store.Target{Name: name, ID: name, Keys: r.space.Queue(name)}
}

func (r *rig) set(queue, key string, s Schedule) {
	r.t.Helper()
	if err := r.Set(r.target(queue), store.EntryOf(key), Spec{Schedule: s}); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the schedules until the test, or the returned function, ends them.
func (r *rig) run() (stop func()) {
	var running sync.WaitGroup
	running.Go(func() { r.Run(r.ctx) })
	stop = sync.OnceFunc(func() { r.end(); running.Wait() })
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) do(command string, args ...any) any { return redistest.Do(r.t, r.conn, command, args...) }

// held reports whether Redis has a schedule.
func (r *rig) held(queue, key string) bool {
	n, err := redis.Int(r.conn.Do("EXISTS", r.target(queue).Keys.Recurrence(store.EntryOf(key))))
	return err == nil && n == 1
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within 30 s: %s\n%s", what, strings.Join(r.lines(""), ""))
		}
	}
}

// quiet lets some calls happen, and checks that there are at most perBeat of them per beat.
func (r *rig) quiet(perBeat int) {
	r.t.Helper()
	began, before := time.Now(), r.calls.Load()
	r.eventually("calls", func() bool { return time.Since(began) > 25*fast && r.calls.Load() > before+10 })
	beats := int64(time.Since(began)/fast) + 5 // plus those that are asserted at once
	if n := r.calls.Load() - before; n > beats*int64(perBeat) {
		r.t.Errorf("%d calls in %d beats", n, beats)
	}
}

// peer returns the schedules of another peer.
func (r *rig) peer() *Schedules { return New(r.config) }

// give sets a schedule under x on q.
func (r *rig) give(s *Schedules, spec Spec) {
	r.t.Helper()
	if err := s.Set(r.target("q"), "k:x", spec); err != nil {
		r.t.Fatal(err)
	}
}

// beatOf runs one beat of a peer.
func (r *rig) beatOf(s *Schedules) {
	s.mu.Lock()
	for _, l := range s.sites {
		l.visited = time.Time{}
	}
	s.mu.Unlock()
	s.startDue(r.t.Context()).Wait()
	s.Log.Flush()
}

// again makes a peer assert all its schedules, as after a cycle.
func (r *rig) again(s *Schedules) {
	s.renewed = time.Time{}
	s.Renew()
	r.beatOf(s)
}

// field returns a field of the schedule under x on q.
func (r *rig) field(name string) string {
	text, _ := r.do("HGET", r.target("q").Keys.Recurrence("k:x"), name).([]byte)
	return string(text)
}

// lapse makes Redis consider the schedule no longer asserted.
func (r *rig) lapse() { r.do("ZADD", r.target("q").Keys.Recurring(), 1, "k:x") }

// If Redis loses a schedule that has no further times, or that Redis doesn't accept, it isn't
// retried at full speed. It's logged once.
func TestLostSchedules(t *testing.T) {
	t.Parallel()
	t.Run("over", func(t *testing.T) {
		is := redistest.Parallel(t)
		r := newRig(t)
		var over atomic.Bool
		r.set("q", "x", next(func(at time.Time) time.Time {
			if over.Load() {
				return time.Time{}
			}
			return at.Truncate(time.Hour).Add(time.Hour)
		}))
		r.set("q", "y", every(time.Hour))
		r.run()
		r.eventually("both are there", func() bool { return r.held("q", "x") && r.held("q", "y") })
		over.Store(true)
		r.do("FLUSHALL")
		r.eventually("one is back", func() bool { return r.held("q", "y") })
		r.quiet(2)
		is.Equal(len(r.lines("no further times")), 1)
		is.Equal(len(r.lines("")), 1)
		over.Store(false)
		r.eventually("the other is back", func() bool { return r.held("q", "x") })
	})
	t.Run("full", func(t *testing.T) {
		is := redistest.Parallel(t)
		r := newRig(t)
		r.set("q", "x", every(time.Hour))
		r.set("q", "y", every(time.Hour))
		r.run()
		r.eventually("both are there", func() bool { return r.held("q", "x") && r.held("q", "y") })
		r.do("CONFIG", "SET", "maxmemory", 1)
		r.do("DEL", "p:recurrence:{q}:k:x")
		r.eventually("it is logged", func() bool { return len(r.lines("OOM")) > 0 })
		r.quiet(2)
		is.Equal(len(r.lines("")), 1)
		is.True(strings.Contains(r.lines("")[0], "queue=q"))
		r.do("CONFIG", "SET", "maxmemory", 0)
		r.eventually("it is back", func() bool { return r.held("q", "x") })
	})
}

// Renew asserts all schedules at once, but at most once a period.
func TestRenew(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	for i := range 3 {
		r.set(string(rune('a'+i)), "x", every(time.Hour))
	}
	r.run()
	r.eventually("all are there", func() bool { return r.held("a", "x") && r.held("b", "x") && r.held("c", "x") })
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			r.Renew()
		}
	})
	r.quiet(3)
	stop()
	all.Wait()
	is.Equal(len(r.lines("")), 0)
}
