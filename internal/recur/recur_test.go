package recur

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

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

// When a peer changes a schedule, the new one wins, whatever was in force.
func TestChanged(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	mine, other := r.peer(), r.peer()
	one, two, three := inHours(1), inHours(2), inHours(3)
	inForce := func(at time.Time) {
		t.Helper()
		is.Helper()
		is.True(strings.HasPrefix(r.field("q", "k:x"), fmt.Sprintf("%d ", at.UnixMilli())))
	}
	r.give(mine, paying(starting(one), ""))
	r.give(other, paying(starting(one), ""))
	r.beatOf(mine)
	r.beatOf(other)
	inForce(one)
	r.give(mine, paying(starting(two), ""))
	r.beatOf(mine)
	inForce(two)
	r.again(other)
	inForce(two)
	is.Equal(len(r.lines("newer schedule")), 1)
	r.give(mine, paying(starting(one), "")) // as before
	r.beatOf(mine)
	inForce(one)
	r.give(other, paying(starting(three), "b"))
	r.beatOf(other)
	r.again(mine)
	inForce(three)
	is.Equal(r.payload(), "b")

	// An equal schedule stays, and isn't asserted at once.
	prints := r.field("q", "prints:k:x")
	r.give(other, paying(starting(three), "b"))
	is.Equal(len(due(other, r.site(other), time.Now())), 0)
	r.again(other)
	is.Equal(r.field("q", "prints:k:x"), prints)
}

// The spec that was set last computes the times, even if it seems equal.
func TestSetReplaces(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s, at := r.peer(), inHours(1)
	r.give(s, paying(starting(at), ""))
	asked := false
	r.give(s, paying(next(func(t time.Time) time.Time {
		asked = true
		return starting(at).Next(t)
	}), ""))
	asked = false
	r.beatOf(s)
	is.True(asked)
	is.True(s.Unset("q", "k:x"))
	is.True(!s.Unset("q", "k:x"))
}

// Of two concurrent calls, the one that ends last wins, even if its spec equals the one that both replace.
func TestSetMeanwhile(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s, one, two := r.peer(), starting(inHours(1)), starting(inHours(2))
	meanwhile := func() {}
	r.give(s, paying(next(func(t time.Time) time.Time {
		meanwhile()
		return one.Next(t)
	}), ""))
	r.beatOf(s)
	before := r.field("q", "k:x")
	meanwhile = func() {
		meanwhile = func() {}
		r.give(s, paying(two, ""))
		r.beatOf(s)
	}
	r.give(s, paying(one, ""))
	is.True(r.field("q", "k:x") != before)
	r.beatOf(s)
	is.Equal(r.field("q", "k:x"), before)
}

// A schedule is valid for 10 s, or for the lease if that's longer. Redis always knows the times of two
// such periods.
func TestPeriod(t *testing.T) {
	is := redistest.Parallel(t)
	for _, c := range []struct{ lease, period time.Duration }{
		{time.Second / 2, 2 * time.Second},
		{time.Second, 10 * time.Second / 3},
		{3 * time.Second, 10 * time.Second},
		{10 * time.Second, 10 * time.Second},
		{time.Minute, time.Minute},
		{time.Hour, time.Hour},
		{24 * time.Hour, time.Hour},
	} {
		s := New(Config{Beat: c.lease / 3})
		is.Equal(s.period.Round(time.Millisecond), c.period.Round(time.Millisecond))
		is.True(s.ahead() >= 2*s.period)
		is.True(s.ahead() <= 2*time.Hour)
	}
}

// When Begin returns, it has asserted all schedules.
func TestBegin(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.set("a", "x", every(time.Hour))
	r.set("b", "x", every(time.Hour))
	r.Begin(r.ctx)
	is.True(r.held("a", "x"))
	is.True(r.held("b", "x"))
	r.run()()
}

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
		r.eventually("it is logged", func() bool { return len(r.lines("no further times")) > 0 })
		r.quiet(2)
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
		r.do("HDEL", r.recurrence("q"), "k:x", "prints:k:x")
		r.eventually("it is logged", func() bool { return len(r.lines("OOM")) > 0 })
		r.quiet(2)
		is.Equal(len(r.lines("")), 1)
		is.True(strings.Contains(r.lines("")[0], "queue=q"))
		r.do("CONFIG", "SET", "maxmemory", 0)
		r.eventually("it is back", func() bool { return r.held("q", "x") })
	})
}

// Schedules can be set, and are asserted, while others run.
func TestSetWhileRunning(t *testing.T) {
	redistest.Parallel(t)
	r := newRig(t)
	r.run()
	r.set("a", "x", every(time.Hour))
	r.eventually("it is there", func() bool { return r.held("a", "x") })
	r.set("a", "y", every(time.Hour))
	r.set("b", "x", every(time.Hour))
	r.eventually("the others are, too", func() bool { return r.held("a", "y") && r.held("b", "x") })
}
