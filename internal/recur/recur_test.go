package recur

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

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

// When a peer changes a schedule, the new one wins, whatever was in force, even if its print is the
// same.
func TestChanged(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	mine, other := r.peer(), r.peer()
	one, two, three := inHours(1), inHours(2), inHours(3)
	inForce := func(at time.Time) {
		t.Helper()
		is.Helper()
		is.True(strings.HasPrefix(r.field("times"), fmt.Sprintf("%d ", at.UnixMilli())))
	}
	r.give(mine, Spec{Schedule: starting(one)})
	r.give(other, Spec{Schedule: starting(one)})
	r.beatOf(mine)
	r.beatOf(other)
	inForce(one)
	r.give(mine, Spec{Schedule: starting(two)}) // no sample shows the difference
	r.beatOf(mine)
	inForce(two)
	r.again(other)
	inForce(two)
	is.Equal(len(r.lines("newer schedule")), 1)
	r.give(mine, Spec{Schedule: starting(one)}) // as before
	r.beatOf(mine)
	inForce(one)
	r.give(other, Spec{Schedule: starting(three), Payload: []byte("b")})
	r.beatOf(other)
	r.again(mine)
	inForce(three)
	is.Equal(r.field("payload"), "b")

	// An equal schedule stays, and isn't asserted at once.
	print, since := r.field("print"), r.field("since")
	r.give(other, Spec{Schedule: starting(three), Payload: []byte("b")})
	_, before := other.specAt(id{"q", "k:x"})
	is.True(before)
	r.again(other)
	is.Equal(r.field("print"), print)
	is.Equal(r.field("since"), since)
}

// The spec that was set last computes the times, even if it seems equal.
func TestSetReplaces(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s, at := r.peer(), inHours(1)
	r.give(s, Spec{Schedule: starting(at)})
	asked := false
	r.give(s, Spec{Schedule: next(func(t time.Time) time.Time {
		asked = true
		return starting(at).Next(t)
	})})
	asked = false
	r.beatOf(s)
	is.True(asked)
	is.True(s.Unset("q", "k:x"))
	is.True(!s.Unset("q", "k:x"))
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
