package recur

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// A rig has the schedules of several peers, their log, and the number of their calls to Redis.
type rig struct {
	*Schedules // of the first peer
	t          *testing.T
	conn       redis.Conn
	config     Config // of all peers
	space      keys.Space
	calls      atomic.Int64
	block      bool // the first call isn't answered
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
	r := &rig{t: t, conn: conn, space: keys.NewSpace(prefix)}
	r.ctx, r.end = context.WithCancel(t.Context())
	line := redisconn.NewLine(redistest.Sure(store.Open(url, store.Access{}))(t).Dial(), 10*time.Second)
	t.Cleanup(line.Close)
	r.config = Config{
		Calls: counted{line, r}, Log: logs.New(slog.New(slog.NewTextHandler(r, nil))), Beat: beat,
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
	if n := c.r.calls.Add(1); n == 1 && c.r.block {
		<-ctx.Done()
		return nil, ctx.Err()
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

// paying returns a spec with a payload.
func paying(s Schedule, payload string) Spec {
	record := store.Record{Payload: []byte(payload)}
	return Spec{Schedule: s, Record: record.Append(nil)}
}

func (r *rig) set(queue, key string, s Schedule) {
	r.t.Helper()
	redistest.Must(r.t, r.Set(r.target(queue), "k:"+key, paying(s, "")))
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

func (r *rig) recurrence(queue string) string {
	return r.target(queue).Keys.Recurrence()
}

// field returns a field of what Redis knows of the schedules of a queue; "" if it isn't there.
func (r *rig) field(queue, name string) string {
	text, _ := redis.String(r.conn.Do("HGET", r.recurrence(queue), name))
	return text
}

// held reports whether Redis has a schedule.
func (r *rig) held(queue, key string) bool { return r.field(queue, "k:"+key) != "" }

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
	redistest.Must(r.t, s.Set(r.target("q"), "k:x", spec))
}

// site returns a peer's site of q.
func (r *rig) site(s *Schedules) *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.siteLocked(r.target("q"))
}

// beatOf runs a turn of a peer on q.
func (r *rig) beatOf(s *Schedules) { s.turn(r.t.Context(), r.site(s)) }

// again makes a peer assert all its schedules on q, as after a cycle.
func (r *rig) again(s *Schedules) {
	for _, j := range r.site(s).jobs {
		j.tried = time.Time{}
	}
	r.beatOf(s)
}

// lapse makes Redis consider the schedule no longer asserted.
func (r *rig) lapse() { r.do("ZADD", r.target("q").Keys.Recurring(), 1, "k:x") }

// payload returns the payload of the schedule that is in force under x on q.
func (r *rig) payload() string {
	record, _, err := store.Occurrence(r.t.Context(), r.config.Calls, r.target("q").Keys, "k:x")
	redistest.Must(r.t, err)
	return string(record.Payload)
}

// since returns since when a peer has the schedule that is in force under x on q.
func (r *rig) since() string {
	words := strings.Fields(r.field("q", "prints:k:x"))
	return strings.Split(words[1], ":")[2]
}

// known is how many schedules Redis knows under x on q: the one in force, and those that were replaced.
func (r *rig) known() int { return len(strings.Fields(r.field("q", "prints:k:x"))) - 1 }
