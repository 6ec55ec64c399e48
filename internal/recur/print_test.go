package recur

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

// Prints after an instant are equal for specs with the same payload, properties and next ten times, and
// only for those.
func TestPrint(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)
	print := func(s Spec) string {
		p, _ := s.plan(at, at)
		return p.print
	}
	until := func(n int) Schedule { // hourly, n times
		return next(func(t time.Time) time.Time {
			if t = t.Truncate(time.Hour).Add(time.Hour); t.After(at.Add(time.Duration(n) * time.Hour)) {
				return time.Time{}
			}
			return t
		})
	}
	seen := map[string]string{}
	for name, s := range map[string]Spec{
		"hours": {Schedule: every(time.Hour)}, "days": {Schedule: every(24 * time.Hour)}, "seconds": {Schedule: every(time.Second)},
		"payload": {Schedule: every(time.Hour), Payload: []byte("a")}, "late": {Schedule: every(time.Hour), Late: time.Second},
		"card": {Schedule: every(time.Hour), Card: []byte("a")}, "both": {Schedule: every(time.Hour), Card: []byte("a"), Payload: []byte("b")},
		"card of two": {Schedule: every(time.Hour), Card: []byte("ab")},
		"Berlin":      {Schedule: nightly{3, 0, zone(t, "Europe/Berlin")}}, "New York": {Schedule: nightly{3, 0, zone(t, "America/New_York")}},
		"never": {Schedule: until(0)}, "once": {Schedule: until(1)}, "nine times": {Schedule: until(9)},
	} {
		p := print(s)
		if other, twice := seen[p]; twice {
			t.Errorf("%s is %s", name, other)
		}
		seen[p] = name
	}
	is := is.New(t)
	is.Equal(print(Spec{Schedule: every(time.Hour)}), print(Spec{Schedule: every(time.Hour), Payload: []byte{}}))
	is.Equal(print(Spec{Schedule: nightly{3, 0, time.UTC}}), print(Spec{Schedule: nightly{3, 0, zone(t, "UTC")}}))
	is.Equal(print(Spec{Schedule: every(time.Hour)}), print(Spec{Schedule: until(10)})) // they differ later
	is.Equal(print(Spec{Schedule: next(func(t time.Time) time.Time { return t })}), "")
}

// Peers of one schedule agree on it whenever they ask, between all of its occurrences; and a restarted
// peer of a replaced one finds its age, whatever the instants of the prints are.
func TestPrintsMove(t *testing.T) {
	is := is.New(t)
	r := newBench(t)
	one, two := Spec{Schedule: every(time.Hour)}, Spec{Schedule: every(time.Hour), Payload: []byte("2")}
	three := Spec{Schedule: every(time.Hour), Payload: []byte("3")}
	mine, other := r.peer(), r.peer()
	r.give(mine, one)
	r.beatOf(mine)
	since := r.field("since")
	r.give(other, one)
	move := func(s *Schedules) {
		t.Helper()
		is.Helper()
		before := r.field("print")
		for before == r.field("print") { // until another millisecond has begun
			passed := fmt.Sprint(time.Now().UnixMilli()-1, " ", r.field("times"))
			r.do("HSET", r.target("q").Keys.Recurrence("k:x"), "more", 0, "times", passed)
			r.again(s)
		}
	}
	for range 3 {
		move(mine)
		move(other)
		is.Equal(r.field("since"), since)
	}
	is.Equal(len(r.field("before")), 0)

	for i, spec := range []Spec{two, three} {
		s := r.peer()
		r.give(s, spec)
		r.beatOf(s)
		is.Equal(r.field("payload"), string(spec.Payload))
		if i == 0 {
			move(s)
		}
	}
	for _, spec := range []Spec{one, two} {
		again := r.peer()
		r.give(again, spec)
		r.beatOf(again)
		is.Equal(again.jobs[id{"q", "k:x"}].state, "older")
		is.Equal(r.field("payload"), "3")
	}
	is.Equal(len(r.lines("newer schedule")), 2)
	r.lapse()
	r.again(mine) // no peer has the newer ones anymore
	is.Equal(r.field("payload"), "")
}
