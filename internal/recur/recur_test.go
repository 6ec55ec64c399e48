package recur

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// A bench has the schedules of peers of one fleet.
type bench struct {
	*is.I
	t     *testing.T
	lines *store.Lines
	space store.Space

	mu   sync.Mutex
	said strings.Builder
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

// told is how often something was logged.
func (b *bench) told(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.said.String(), what)
}

func newBench(t *testing.T) *bench {
	t.Parallel()
	place, err := store.Open(redistest.URL(), store.Access{})
	if err != nil {
		t.Fatal(err)
	}
	lines := store.NewLines(place, store.Lanes, logs.New(slog.New(slog.DiscardHandler)), store.DefaultTimeout, time.Second)
	t.Cleanup(lines.Close)
	return &bench{I: is.New(t), t: t, lines: lines, space: store.SpaceAt(place, redistest.Prefix(t))}
}

func (b *bench) peer() *Schedules {
	return New(Config{Calls: b.lines.Calls, Log: logs.New(slog.New(slog.NewTextHandler(b, nil))), Beat: time.Second,
		Home: b.lines.Calls.Home, List: func(context.Context, store.Target) {}})
}

func (b *bench) queue(name string) store.Target {
	return store.Target{Name: name, ID: name, Keys: b.space.Queue(name)}
}

// set has something recur under x on q, beginning at a time.
func (b *bench) set(s *Schedules, spec Spec) {
	b.t.Helper()
	b.NoErr(s.Set("q", "k:x", spec, Place{Target: b.queue("q")}))
}

// turn is one beat of a peer.
func (b *bench) turn(s *Schedules) {
	s.mu.Lock()
	for _, l := range s.lanes {
		l.visited = time.Time{}
	}
	s.mu.Unlock()
	s.turn(b.t.Context()).Wait()
	s.log.Flush()
}

// again has a peer assert all, as after a cycle.
func (b *bench) again(s *Schedules) {
	s.renewed = time.Time{}
	s.Renew()
	b.turn(s)
}

// field is one of the schedule.
func (b *bench) field(name string) string {
	b.t.Helper()
	text, err := redis.String(redistest.Conn(b.t).Do("HGET", b.queue("q").Keys.Recurrence("k:x"), name))
	if err != nil && err != redis.ErrNil {
		b.t.Fatal(err)
	}
	return text
}

// lapse makes Redis forget that anybody asserts it.
func (b *bench) lapse() {
	b.t.Helper()
	_, err := redistest.Conn(b.t).Do("ZADD", b.queue("q").Keys.Recurring(), 1, "k:x")
	b.NoErr(err)
}

func starting(at time.Time) Schedule {
	return next(func(t time.Time) time.Time {
		if t.Before(at) {
			return at
		}
		return t.Add(24 * time.Hour)
	})
}

func inHours(n int) time.Time {
	return time.Now().Add(time.Duration(n) * time.Hour).Truncate(time.Second)
}

func first(at time.Time) string { return fmt.Sprint(at.UnixMilli()) + " " }

// A peer that changes a schedule has the newest, whatever was in force, and even if its print doesn't
// tell.
func TestChanged(t *testing.T) {
	b := newBench(t)
	mine, other := b.peer(), b.peer()
	one, two, three := inHours(1), inHours(2), inHours(3)
	inForce := func(at time.Time) {
		t.Helper()
		b.Helper()
		b.True(strings.HasPrefix(b.field("times"), first(at)))
	}
	b.set(mine, Spec{Schedule: starting(one)})
	b.set(other, Spec{Schedule: starting(one)})
	b.turn(mine)
	b.turn(other)
	inForce(one)
	b.set(mine, Spec{Schedule: starting(two)}) // no sample shows it
	b.turn(mine)
	inForce(two)
	b.again(other)
	inForce(two)
	b.Equal(b.told("newer schedule"), 1)
	b.set(mine, Spec{Schedule: starting(one)}) // as before
	b.turn(mine)
	inForce(one)
	b.set(other, Spec{Schedule: starting(three), Payload: []byte("b")})
	b.turn(other)
	b.again(mine)
	inForce(three)
	b.Equal(b.field("payload"), "b")

	// What's equal stays, and isn't asserted at once.
	print, since := b.field("print"), b.field("since")
	b.set(other, Spec{Schedule: starting(three), Payload: []byte("b")})
	_, before := other.at(id{"q", "k:x"})
	b.True(before)
	b.again(other)
	b.Equal(b.field("print"), print)
	b.Equal(b.field("since"), since)
}

// The spec that was set last is asked for times, also if it's equal as far as anybody can tell.
func TestSetReplaces(t *testing.T) {
	b := newBench(t)
	s, at := b.peer(), inHours(1)
	b.set(s, Spec{Schedule: starting(at)})
	asked := false
	b.set(s, Spec{Schedule: next(func(t time.Time) time.Time {
		asked = true
		return starting(at).Next(t)
	})})
	asked = false
	b.turn(s)
	b.True(asked)
	b.True(s.Unset("q", "k:x"))
	b.True(!s.Unset("q", "k:x"))
}

// A queue whose keys are of another type harms no other.
func TestWrongType(t *testing.T) {
	b := newBench(t)
	s := b.peer()
	b.NoErr(s.Set("p", "k:x", Spec{Schedule: every(time.Hour)}, Place{Target: b.queue("p")}))
	b.set(s, Spec{Schedule: starting(inHours(1))})
	_, err := redistest.Conn(t).Do("SET", b.queue("p").Keys.Recurring(), "another type")
	b.NoErr(err)
	grown(s)
	s.Over(b.queue("p"))
	b.turn(s)
	b.True(b.field("print") != "")
	b.Equal(b.told("cannot assert schedules"), 1)
	b.True(s.judgesUntil(s.homes[""], s.lanes["q"], time.Now()) > 0)
	b.Equal(s.judgesUntil(s.homes[""], s.lanes["p"], time.Now()), int64(0))
}
