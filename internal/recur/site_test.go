package recur

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// grown makes a peer one that has called Redis for a long time.
func grown(s *Schedules, l *site) {
	l.visited, l.steady = time.Now(), time.Now().Add(-3*s.period)
}

// A schedule that no peer asserts ends with the first turn after a peer has learned of it, if that
// peer may end schedules.
func TestOver(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	old, s := r.peer(), r.peer()
	r.give(old, paying(starting(inHours(1)), ""))
	r.beatOf(old)
	s.Over(r.target("q"))
	grown(s, r.site(s))
	r.beatOf(s) // learns Redis's time
	r.beatOf(s) // another peer asserts it
	is.True(r.held("q", "x"))
	is.True(s.leave(r.site(s)))
	r.lapse()

	young := r.peer()
	young.Over(r.target("q"))
	l := r.site(young)
	for range 3 {
		r.beatOf(young) // it asks, but may not end schedules
	}
	is.True(r.held("q", "x"))
	is.True(!young.leave(l))
	l.steady, l.visited = time.Now().Add(-3*young.period), time.Now().Add(-2*young.period)
	r.beatOf(young) // as after an outage, or a time without schedules
	is.True(r.held("q", "x"))
	grown(young, l) // as if it had called Redis all the time since then
	r.beatOf(young)
	is.True(!r.held("q", "x"))
	is.Equal(len(r.lines("schedules ended")), 1)
	is.True(!young.leave(l))
	r.beatOf(young) // there might have been more
	is.True(young.leave(l))
}

// A peer ends the schedules that it withdrew, since no other peer may do so.
func TestLeft(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s := r.peer()
	r.give(s, paying(starting(inHours(1)), ""))
	r.beatOf(s)
	l := r.site(s)
	is.True(s.Unset("q", "k:x"))
	is.True(!s.leave(l))
	grown(s, l)
	r.beatOf(s) // another peer may assert it, and this one has just done so
	is.True(r.held("q", "x"))
	is.True(!s.leave(l))
	l.watch = time.Now() // a period has passed
	r.lapse()
	l.steady = time.Now()
	r.beatOf(s) // it may not end schedules
	is.True(r.held("q", "x"))
	grown(s, l)
	r.beatOf(s)
	is.True(!r.held("q", "x"))
	r.beatOf(s)
	is.True(s.leave(l))
}

// Schedules that end are counted in one log line, which contains no key.
func TestEndedIsBounded(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	for i := range 40 {
		r.do("ZADD", r.target("q").Keys.Recurring(), 1, fmt.Sprint("k:secret", i))
	}
	r.Over(r.target("q"))
	l := r.site(r.Schedules)
	for range 2 { // the first one learns Redis's time
		grown(r.Schedules, l)
		r.beatOf(r.Schedules)
	}
	lines := r.lines("schedules ended")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "count=40"))
	is.Equal(strings.Count(lines[0], "#"), named)
	is.True(!strings.Contains(lines[0], "secret"))
}

// A damaged queue doesn't keep others from being asserted, however many schedules it has. It's
// logged once, with its name.
func TestDamagedQueue(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.do("SET", "p:recurrence:{a}", "of another type")
	for i := range 3 * perCall {
		r.set("a", fmt.Sprint(i), every(time.Hour))
	}
	r.set("b", "x", every(time.Hour))
	r.set("c", "x", every(time.Hour))
	r.run()
	r.eventually("the others are there", func() bool { return r.held("b", "x") && r.held("c", "x") })
	r.eventually("it is logged", func() bool { return len(r.lines("can't renew")) > 0 })
	r.quiet(3)
	lines := r.lines("")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "queue=a"))
	r.do("DEL", "p:recurrence:{a}")
	r.eventually("it's asserted, too", func() bool { return r.held("a", "0") && r.held("a", fmt.Sprint(3*perCall-1)) })
	r.eventually("that's logged", func() bool { return len(r.lines("recovered")) == 1 })
}

// A node that doesn't answer delays neither the others nor the shutdown.
func TestSilentNode(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.block = true
	r.set("a", "x", every(time.Hour))
	r.Begin(r.ctx) // waits only for a while
	r.set("b", "x", every(time.Hour))
	stop := r.run()
	r.eventually("the other is there", func() bool { return r.held("b", "x") })
	is.True(!r.held("a", "x"))
	stop()
	is.Equal(len(r.lines("")), 0)
}

// A peer that was inactive for a long time, or whose call failed, may not end schedules.
func TestJudges(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	l := &site{clock: 1}
	judges := func() bool { return r.judgesUntil(l, time.Now()) > 0 }
	grown(r.Schedules, l)
	is.True(judges())
	l.note(time.Now(), nil, r.period)
	is.True(judges())
	l.note(time.Now(), errors.New("WRONGTYPE"), r.period)
	is.True(!judges())
	grown(r.Schedules, l)
	l.note(time.Now().Add(-r.period), nil, r.period) // it took long
	is.True(!judges())
	grown(r.Schedules, l)
	l.visited = time.Now().Add(-2 * r.period)
	is.True(!judges())
	l.note(time.Now(), nil, r.period)
	is.True(!judges())
}

// If Redis's clock has jumped ahead, no peer ends schedules before all peers have asserted theirs
// again.
func TestJumpingClock(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	now := time.Now()
	l := &site{}
	grown(r.Schedules, l)
	is.Equal(r.judgesUntil(l, now), int64(0)) // it doesn't know Redis's time
	r.heard(l, now, 5000)
	is.Equal(r.judgesUntil(l, now.Add(time.Second)), 6000+r.Beat.Milliseconds())
	r.heard(l, now, 4000) // set back
	is.Equal(r.judgesUntil(l, now.Add(time.Second)), 5000+r.Beat.Milliseconds())
	r.heard(l, now, time.Hour.Milliseconds())
	is.Equal(r.judgesUntil(l, now.Add(time.Second)), int64(0))
}

func due(s *Schedules, l *site, now time.Time) []*job {
	jobs, _ := s.due(l, now)
	return jobs
}

// New schedules are asserted at once, the others once a cycle, a part of them in each turn.
func TestDue(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	const all = 6 * perCall
	for i := range all {
		r.set("q", fmt.Sprint(i), every(time.Hour))
	}
	l := r.site(r.Schedules)
	now := time.Now()
	is.Equal(len(due(r.Schedules, l, now)), all)
	is.Equal(len(due(r.Schedules, l, now)), 0)
	last := map[string]time.Time{}
	for beat := 1; beat <= 4*cycle; beat++ {
		at := now.Add(time.Duration(beat) * r.Beat)
		some := due(r.Schedules, l, at)
		is.True(len(some) <= all/cycle)
		for _, j := range some {
			if before := last[j.name]; !before.IsZero() && at.Sub(before) > (cycle+1)*r.Beat {
				t.Errorf("%s wasn't asserted for %v", j.name, at.Sub(before))
			}
			last[j.name] = at
		}
	}
	is.Equal(len(last), all)
	r.set("q", "new", every(time.Hour))
	is.True(len(due(r.Schedules, l, now.Add(4*cycle*r.Beat+r.Beat/2))) > 0)
}

// A failover may have lost that schedules were asserted: before a peer ends any, it asserts all of its own.
func TestOwnStay(t *testing.T) {
	is := redistest.Parallel(t)
	r := newBench(t)
	s := r.peer()
	for _, key := range []string{"x", "y"} {
		redistest.Must(t, s.Set(r.target("q"), "k:"+key, paying(every(time.Hour), "")))
	}
	r.beatOf(s)
	l := r.site(s)
	recurring := r.target("q").Keys.Recurring()
	r.do("ZADD", recurring, 1, "k:x", 1, "k:y", 1, "k:z")
	s.Over(r.target("q"))
	grown(s, l)
	l.jobs["k:x"].tried = time.Time{} // the other one isn't due
	r.beatOf(s)
	grown(s, l)
	r.beatOf(s)
	is.True(r.held("q", "x"))
	is.True(r.held("q", "y"))
	is.Equal(r.do("ZCARD", recurring), int64(2))
}
