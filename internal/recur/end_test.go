package recur

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// grown makes a peer one that has asked Redis for long.
func grown(s *Schedules) {
	s.homes[""] = &home{visited: time.Now(), steady: time.Now().Add(-3 * s.period)}
}

// A schedule that nobody asserts ends with the first beat after a peer has learned of it, if that peer may
// judge.
func TestOver(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	old, s := r.peer(), r.peer()
	r.give(old, Spec{Schedule: starting(inHours(1))})
	r.beatOf(old)
	s.Over(r.target("q"))
	grown(s)
	r.beatOf(s) // learns the time
	r.beatOf(s) // somebody asserts it
	is.True(r.field("print") != "")
	r.lapse()
	r.beatOf(s) // nobody has said so
	is.True(r.field("print") != "")

	young := r.peer()
	young.Over(r.target("q"))
	for range 3 {
		r.beatOf(young) // it asks, but doesn't judge
	}
	is.True(r.field("print") != "")
	young.homes[""].steady = time.Now().Add(-3 * young.period)
	young.homes[""].visited = time.Now().Add(-2 * young.period)
	r.beatOf(young) // as after an outage, or a time without schedules
	is.True(r.field("print") != "")
	grown(young) // it knows what to do since
	r.beatOf(young)
	is.Equal(r.field("print"), "")
	is.Equal(len(r.lines("schedules ended")), 1)
	r.beatOf(young) // there may have been more
	is.Equal(len(young.ends.over), 0)
}

// A peer looks after what it had, as nobody else may do so.
func TestLeft(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s := r.peer()
	r.give(s, Spec{Schedule: starting(inHours(1))})
	r.beatOf(s)
	is.True(s.Unset("q", "k:x"))
	grown(s)
	r.lapse()
	r.beatOf(s) // others may assert it
	is.True(r.field("print") != "")
	age := func() {
		l := s.ends.left[id{"q", "k:x"}]
		l.since = l.since.Add(-2 * s.period)
		s.ends.left[id{"q", "k:x"}] = l
	}
	age()
	s.homes[""].steady = time.Now()
	r.beatOf(s) // it may not judge
	is.Equal(len(s.ends.left), 1)
	grown(s)
	r.beatOf(s)
	is.Equal(r.field("print"), "")
	r.beatOf(s)
	is.Equal(len(s.ends.left), 0)
}
