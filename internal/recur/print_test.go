package recur

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// hours is an hourly schedule with n times after an instant.
func hours(after time.Time, n int) Schedule {
	return next(func(t time.Time) time.Time {
		if t = t.Truncate(time.Hour).Add(time.Hour); t.After(after.Add(time.Duration(n) * time.Hour)) {
			return time.Time{}
		}
		return t
	})
}

// Prints after an instant are equal for specs with the same record and next ten times after the instant,
// and only for those.
func TestPrint(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)
	print := func(s Spec) string {
		p, _ := s.plan(at, at)
		return p.print
	}
	of := func(r store.Record) Spec { return Spec{every(time.Hour), r.Append(nil)} }
	seen := map[string]string{}
	for name, s := range map[string]Spec{
		"hours": {Schedule: every(time.Hour)}, "days": {Schedule: every(24 * time.Hour)}, "seconds": {Schedule: every(time.Second)},
		"payload": of(store.Record{Payload: []byte("a")}), "late": of(store.Record{Expires: 1000}), "result": of(store.Record{Keep: time.Second}),
		"metadata": of(store.Record{Metadata: store.Metadata{MaxRetries: 1}}),
		"both":     of(store.Record{Metadata: store.Metadata{MaxRetries: 1}, Payload: []byte("b")}),
		"Berlin":   {Schedule: nightly{3, 0, zone(t, "Europe/Berlin")}}, "New York": {Schedule: nightly{3, 0, zone(t, "America/New_York")}},
		"never": {Schedule: hours(at, 0)}, "once": {Schedule: hours(at, 1)}, "nine times": {Schedule: hours(at, 9)},
	} {
		p := print(s)
		if other, twice := seen[p]; twice {
			t.Errorf("%s is %s", name, other)
		}
		seen[p] = name
	}
	is := is.New(t)
	is.Equal(print(Spec{Schedule: nightly{3, 0, time.UTC}}), print(Spec{Schedule: nightly{3, 0, zone(t, "UTC")}}))
	is.Equal(print(Spec{Schedule: every(time.Hour)}), print(Spec{Schedule: hours(at, 10)})) // they differ later
	is.Equal(print(Spec{Schedule: next(func(t time.Time) time.Time { return t })}), "")
}

// pass makes the first known time of the schedule under x on q one that has come, and wants more.
func (r *rig) pass() {
	record := r.field("q", "k:x")
	now := fmt.Sprint(time.Now().UnixMilli() - 1)
	r.do("HSET", r.recurrence("q"), "k:x", now+" "+record, "prints:k:x", "0"+r.field("q", "prints:k:x")[len(now):])
}

// Peers of one schedule agree on it whenever they ask, between all of its occurrences; and a restarted
// peer of a replaced one finds its age, whatever the instants of the prints are.
func TestPrintsMove(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	one, two, three := paying(every(time.Hour), "1"), paying(every(time.Hour), "2"), paying(every(time.Hour), "3")
	mine, other := r.peer(), r.peer()
	r.give(mine, one)
	r.beatOf(mine)
	since := r.since()
	r.give(other, one)
	move := func(s *Schedules) {
		t.Helper()
		is.Helper()
		before := r.field("q", "prints:k:x")
		r.eventually("another millisecond has begun", func() bool {
			r.pass()
			r.again(s)
			return before != r.field("q", "prints:k:x")
		})
	}
	for range 3 {
		move(mine)
		move(other)
		is.Equal(r.since(), since)
	}
	is.Equal(r.known(), 1)

	for i, spec := range []Spec{two, three} {
		s := r.peer()
		r.give(s, spec)
		r.beatOf(s)
		is.Equal(r.payload(), fmt.Sprint(i+2))
		if i == 0 {
			move(s)
		}
	}
	for _, spec := range []Spec{one, two} {
		again := r.peer()
		r.give(again, spec)
		r.beatOf(again)
		is.Equal(r.site(again).jobs["k:x"].word, store.ScheduleOlder)
		is.Equal(r.payload(), "3")
	}
	is.Equal(len(r.lines("newer schedule")), 2)
	r.lapse()
	r.again(mine) // no peer has the newer ones anymore
	is.Equal(r.payload(), "1")
}
