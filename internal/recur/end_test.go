package recur

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// grown makes a peer one that has called Redis for a long time.
func grown(s *Schedules) {
	s.homes[""] = &home{visited: time.Now(), steady: time.Now().Add(-3 * s.period)}
}

// A schedule that no peer asserts ends with the first beat after a peer has learned of it, if that
// peer may end schedules.
func TestOver(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	old, s := r.peer(), r.peer()
	r.give(old, Spec{Schedule: starting(inHours(1))})
	r.beatOf(old)
	s.Over(r.target("q"))
	grown(s)
	r.beatOf(s) // learns Redis's time
	r.beatOf(s) // another peer asserts it
	is.True(r.field("print") != "")
	r.lapse()
	r.beatOf(s) // s hasn't been notified
	is.True(r.field("print") != "")

	young := r.peer()
	young.Over(r.target("q"))
	for range 3 {
		r.beatOf(young) // it asserts, but may not end schedules
	}
	is.True(r.field("print") != "")
	young.homes[""].steady = time.Now().Add(-3 * young.period)
	young.homes[""].visited = time.Now().Add(-2 * young.period)
	r.beatOf(young) // as after an outage, or a time without schedules
	is.True(r.field("print") != "")
	grown(young) // as if it had called Redis all the time since then
	r.beatOf(young)
	is.Equal(r.field("print"), "")
	is.Equal(len(r.lines("schedules ended")), 1)
	r.beatOf(young) // there may be more
	is.Equal(len(young.ends.over), 0)
}

// A peer ends the schedules that it withdrew, since no other peer may do so.
func TestLeft(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s := r.peer()
	r.give(s, Spec{Schedule: starting(inHours(1))})
	r.beatOf(s)
	is.True(s.Unset("q", "k:x"))
	grown(s)
	r.lapse()
	r.beatOf(s) // another peer may assert it
	is.True(r.field("print") != "")
	age := func() {
		l := s.ends.left[id{"q", "k:x"}]
		l.since = l.since.Add(-2 * s.period)
		s.ends.left[id{"q", "k:x"}] = l
	}
	age()
	s.homes[""].steady = time.Now()
	r.beatOf(s) // it may not end schedules
	is.Equal(len(s.ends.left), 1)
	grown(s)
	r.beatOf(s)
	is.Equal(r.field("print"), "")
	r.beatOf(s)
	is.Equal(len(s.ends.left), 0)
}
