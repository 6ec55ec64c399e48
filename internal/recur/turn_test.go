package recur

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A damaged queue doesn't keep others from being asserted, however many schedules it has. It's
// logged once, with its name.
func TestDamagedLane(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.do("SET", "p:contents:{a}", "of another type")
	for i := range 3 * perBeat {
		r.set("a", fmt.Sprint(i), every(time.Hour))
	}
	r.set("b", "x", every(time.Hour))
	r.set("c", "x", every(time.Hour))
	r.run()
	r.eventually("the others are there", func() bool { return r.held("b", "x") && r.held("c", "x") })
	r.eventually("it is logged", func() bool { return len(r.lines("can't renew")) > 0 })
	r.quiet(6)
	lines := r.lines("")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "queue=a"))
	r.do("DEL", "p:contents:{a}")
	r.eventually("it's asserted, too", func() bool { return r.held("a", "0") && r.held("a", fmt.Sprint(3*perBeat-1)) })
	is.Equal(len(r.lines("recovered")), 1)
}

// A node that doesn't answer delays neither the others nor the shutdown.
func TestSilentHome(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.home = func(q store.Keys) string { return q.Waiting() }
	r.block = make(chan struct{})
	r.set("a", "x", every(time.Hour))
	r.Begin(r.ctx) // hangs, and waits only for a while
	r.set("b", "x", every(time.Hour))
	stop := r.run()
	r.eventually("the other is there", func() bool { return r.held("b", "x") })
	is.True(!r.held("a", "x"))
	stop()
	is.Equal(len(r.lines("")), 0)
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
}

// A peer that was inactive for a long time, or whose call failed, may not end schedules.
func TestJudges(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	now := time.Now()
	l := &site{Target: r.target("q"), clock: 1}
	h := &home{steady: now.Add(-3 * r.period)}
	judges := func(l *site) bool { return r.judgesUntil(h, l, time.Now()) > 0 }
	is.True(judges(l))
	r.note(h, l, now, nil)
	is.True(judges(l))
	r.note(h, l, now, errors.New("WRONGTYPE"))
	is.True(!judges(l))
	is.True(judges(&site{clock: 1})) // on other sites, it may
	r.note(h, l, now.Add(-r.period), nil)
	is.True(!judges(&site{clock: 1}))
}

// If Redis's clock has jumped ahead, no peer ends schedules before all peers have asserted theirs
// again.
func TestJumpingClock(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	now := time.Now()
	l, h := &site{Target: r.target("q")}, &home{steady: now.Add(-3 * r.period)}
	is.Equal(r.judgesUntil(h, l, now), int64(0)) // it doesn't know Redis's time
	r.heard(l, now, 5000)
	is.Equal(r.judgesUntil(h, l, now.Add(time.Second)), 6000+fast.Milliseconds())
	r.heard(l, now, 4000) // set back
	is.Equal(r.judgesUntil(h, l, now.Add(time.Second)), 5000+fast.Milliseconds())
	r.heard(l, now, time.Hour.Milliseconds())
	is.Equal(r.judgesUntil(h, l, now.Add(time.Second)), int64(0))
}

// Each schedule is asserted once a cycle, and new ones first.
func TestDue(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	for i := range 3 * perBeat {
		r.set("q", fmt.Sprint(i), every(time.Hour))
	}
	now := time.Now()
	count := func(visits map[string]*visit) (n int) {
		for _, v := range visits {
			for _, jobs := range v.jobs {
				n += len(jobs)
			}
			r.left(v)
		}
		return n
	}
	visits, _ := r.due(now)
	is.Equal(count(visits), 3*perBeat)
	visits, _ = r.due(now.Add(fast / 4))
	is.Equal(count(visits), 0) // too soon
	visits, _ = r.due(now.Add(fast))
	is.Equal(count(visits), perBeat)
	visits, _ = r.due(now.Add(2 * fast))
	again, _ := r.due(now.Add(3 * fast))
	is.Equal(count(again), 0) // another visit is in progress
	is.Equal(count(visits), perBeat)
}
