package recur

import (
	"testing"
	"time"
)

// grown makes a peer one that has asked Redis for long.
func grown(s *Schedules) {
	s.homes[""] = &home{visited: time.Now(), steady: time.Now().Add(-3 * s.period)}
}

// A schedule that nobody asserts ends with the first beat after a peer has learned of it, if that peer may
// judge.
func TestOver(t *testing.T) {
	b := newBench(t)
	old, s := b.peer(), b.peer()
	b.set(old, Spec{Schedule: starting(inHours(1))})
	b.turn(old)
	s.Over(b.queue("q"))
	grown(s)
	b.turn(s) // learns the time
	b.turn(s) // somebody asserts it
	b.True(b.field("print") != "")
	b.lapse()
	b.turn(s) // nobody has said so
	b.True(b.field("print") != "")

	young := b.peer()
	young.Over(b.queue("q"))
	for range 3 {
		b.turn(young) // it asks, but doesn't judge
	}
	b.True(b.field("print") != "")
	young.homes[""].steady = time.Now().Add(-3 * young.period)
	young.homes[""].visited = time.Now().Add(-2 * young.period)
	b.turn(young) // as after an outage, or a time without schedules
	b.True(b.field("print") != "")
	grown(young) // it knows what to do since
	b.turn(young)
	b.Equal(b.field("print"), "")
	b.Equal(b.told("schedules ended"), 1)
	b.turn(young) // there may have been more
	b.Equal(len(young.ends.over), 0)
}

// A peer looks after what it had, as nobody else may do so.
func TestLeft(t *testing.T) {
	b := newBench(t)
	s := b.peer()
	b.set(s, Spec{Schedule: starting(inHours(1))})
	b.turn(s)
	b.True(s.Unset("q", "k:x"))
	grown(s)
	b.lapse()
	b.turn(s) // others may assert it
	b.True(b.field("print") != "")
	age := func() {
		l := s.ends.left[id{"q", "k:x"}]
		l.since = l.since.Add(-2 * s.period)
		s.ends.left[id{"q", "k:x"}] = l
	}
	age()
	s.homes[""].steady = time.Now()
	b.turn(s) // it may not judge
	b.Equal(len(s.ends.left), 1)
	grown(s)
	b.turn(s)
	b.Equal(b.field("print"), "")
	b.turn(s)
	b.Equal(len(s.ends.left), 0)
}
