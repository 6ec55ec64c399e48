package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
)

// Schedules of a run: each queue has several, and the last one skips late occurrences. Processes spawned later
// have others under the same keys, as after a deploy.
const (
	schedules = 2
	shipped   = 6 // processes of one deploy
	skipLate  = 4 * time.Second
	rhythm    = 10 * time.Second // all times are multiples of it
)

func recurringKey(n int) string               { return fmt.Sprintf("every%d", n) }
func recurringPayload(q string, n int) string { return fmt.Sprintf("every %s/%d", q, n) }
func isRecurring(payload string) bool         { return strings.HasPrefix(payload, "every ") }

// recur makes a process assert the schedules of its deploy.
func (r *run) recur(p *process, deploy int) {
	for _, name := range r.opts.Queues {
		for n := range schedules {
			o := &worqr.EveryOptions{Headers: map[string]string{"deploy": fmt.Sprint(deploy)}}
			if n == schedules-1 {
				o.SkipLate = skipLate
			}
			every := worqr.Interval(time.Duration(1+(deploy+n)%3) * rhythm)
			if err := p.peer.Queue(name).Every(recurringKey(n), every, []byte(recurringPayload(name, n)), o); err != nil {
				r.violation("a schedule is refused: %v", err)
			}
		}
	}
}

// An occurring has the occurrences of an entry.
type occurring struct {
	started, ended int64 // the last ones, ms
	next           int64 // the one planned when one started; 0: none was
	all            []int64
	odd            []string // starts of occurrences that weren't planned
}

// occurrences: each occurs once, none before its time, and when it starts the next one is already planned.
func (st *step) occurrences() {
	was, is := st.was, st.is
	for _, id := range st.ended {
		if end := st.ends[id]; isRecurring(was.Process[id]) && end.verb == "finish" && end.token == was.TokenOf(id) && was.Owner[id] == st.r.worker() {
			st.Finished++
		}
	}
	if is.Failed || len(st.began)+len(st.ended) == 0 && !st.kind["recurrence"] {
		return
	}
	of := func(entry string) *occurring {
		name := is.Queue + " " + entry
		if st.occurs[name] == nil {
			st.occurs[name] = &occurring{}
		}
		return st.occurs[name]
	}
	for e, of := range was.Recurrence {
		// The clock was set back, so the times come again. A new or changed schedule begins at the time of the
		// clock.
		if now := is.Recurrence[e]; (now == nil || now["since"] != of["since"]) && st.w.back > 0 {
			delete(st.occurs, is.Queue+" "+e)
		}
	}
	for _, id := range st.ended {
		e := was.Entries[id]
		if took := was.Entry[e]["took"]; took != "" && is.Entry[e]["turn"] != took && is.Entry[e]["took"] != took {
			of(e).ended = max(of(e).ended, int64(atoi(took)))
		}
	}
	for _, id := range st.began {
		e := is.Entries[id]
		took, course := is.Entry[e]["took"], is.Recurrence[e]
		if took == "" {
			continue
		}
		o, turn, next := of(e), int64(atoi(took)), int64(atoi(is.Entry[e]["turn"]))
		switch {
		case turn%rhythm.Milliseconds() != 0:
			st.violation("%s of %s occurs at %d, which isn't a time of its schedule", e, is.Queue, turn)
		case turn > st.ms()+st.w.back.Milliseconds(): // it may have started before the clock was set back
			st.violation("%s of %s occurs %d ms before its time", e, is.Queue, turn-st.ms())
		case turn <= o.ended:
			st.violation("the occurrence %d of %s of %s starts again, after %d has ended", turn, e, is.Queue, o.ended)
		case next == 0 && later(course["times"], int64(atoi(course["passed"]))):
			st.violation("%s of %s occurs, but the next one isn't planned", e, is.Queue)
		case next > 0 && next <= max(turn, st.ms()) && turn > int64(atoi(was.Recurrence[e]["passed"])):
			st.violation("behind the occurrence %d of %s of %s, %d is planned", turn, e, is.Queue, next)
		}
		if turn > o.started {
			if o.next != turn {
				o.odd = append(o.odd, fmt.Sprintf("%d instead of %d", turn, o.next))
			}
			o.started, o.next, o.all = turn, next, append(o.all, turn)
			st.Occurred++
		}
	}
}

// later reports whether any of the times is after one.
func later(times string, after int64) bool {
	return slices.ContainsFunc(strings.Fields(times), func(at string) bool { return int64(atoi(at)) > after })
}

// probeRecurring checks that schedules occur when nothing is wrong: at each planned time.
func (r *run) probeRecurring() {
	r.locked(func() {
		for _, o := range r.world.judge.occurs {
			o.all, o.odd = nil, nil
		}
	})
	time.Sleep(100*time.Second + r.behind())
	r.locked(func() {
		j := r.world.judge
		for _, q := range r.opts.Queues {
			for n := range schedules {
				o := j.occurs[q+" k:"+recurringKey(n)]
				switch {
				case o == nil || len(o.all) == 0:
					j.violation("%s of %s does not occur: %v", recurringKey(n), q, j.lane(q, false).Recurrence)
				case n < schedules-1 && len(o.odd) > 1: // the first may have been planned before
					j.violation("%s of %s occurs at %v; unplanned: %v", recurringKey(n), q, o.all, o.odd)
				}
			}
		}
	})
}

// retire checks that schedules end when no process has them anymore.
func (r *run) retire() {
	for _, p := range r.living() {
		for _, name := range r.opts.Queues {
			for n := range schedules {
				if err := p.peer.Queue(name).Every(recurringKey(n), nil, nil, nil); err != nil {
					r.violation("a schedule can't be taken back: %v", err)
				}
			}
		}
	}
	for limit := time.Now().Add(3*time.Minute + r.behind()); ; time.Sleep(time.Second) {
		left := 0
		r.locked(func() {
			for _, l := range r.world.judge.lanes {
				left += len(l.Recurrence) + len(l.Recurring)
			}
		})
		switch {
		case left == 0:
			r.locked(func() { r.retired = true })
			return
		case time.Now().After(limit):
			r.locked(func() {
				for _, l := range r.world.judge.lanes {
					r.world.judge.violation("no process has them anymore, but these recur in %s: %v", l.Queue, slices.Collect(maps.Keys(l.Recurrence)))
				}
			})
			return
		}
	}
}
