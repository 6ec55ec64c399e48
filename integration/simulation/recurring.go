package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/lane"
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

// An occurring has the occurrences of a name.
type occurring struct {
	started, ended int64 // the last ones, ms
	next           int64 // the one that is to be next when one starts; 0: not known
	all            []int64
	odd            []string // starts of other occurrences
}

// occurrences: each occurs once, none before its time, and when it has ended the next one is planned.
func (st *step) occurrences() {
	was, is := st.was, st.is
	for _, id := range st.ended {
		if end := st.ends[id]; isRecurring(was.Payload(id)) && end.verb == "done" && end.token == was.Token(id) && was.Owner[id] == st.r.worker() {
			st.Finished++
		}
	}
	if is.Failed || len(st.began)+len(st.ended) == 0 && !st.kind["recurrence"] {
		return
	}
	of := func(name string) *occurring {
		name = is.Queue + " " + name
		if st.occurs[name] == nil {
			st.occurs[name] = &occurring{}
		}
		return st.occurs[name]
	}
	for field, before := range was.Recurrence {
		// If the clock was set back, times that lay ahead come again.
		name, passed := strings.CutPrefix(field, "passed:")
		if passed && lane.Number(is.Recurrence[field]) < lane.Number(before) && st.w.back > 0 {
			delete(st.occurs, is.Queue+" "+name)
		}
	}
	for _, id := range st.ended {
		name := was.Name(id)
		took, now := was.Record(name), is.Record(name)
		if !took.Occurrence || now.Occurrence && now.Due == took.Due {
			continue // it waits for its retry
		}
		of(name).ended = max(of(name).ended, took.Due)
		if _, waits := is.Tasks[name]; !waits && st.next(name) > 0 {
			st.violation("%s of %s has ended, but the next one isn't planned", name, is.Queue)
		}
	}
	for _, id := range st.began {
		if name := is.Name(id); is.Record(name).Occurrence {
			st.occurrence(of(name), name)
		}
	}
}

// occurrence judges an occurrence that starts.
func (st *step) occurrence(o *occurring, name string) {
	is, turn := st.is, st.is.Record(name).Due
	switch passed := lane.Number(is.Recurrence["passed:"+name]); {
	case turn%rhythm.Milliseconds() != 0:
		st.violation("%s of %s occurs at %d, which isn't a time of its schedule", name, is.Queue, turn)
	case turn > st.ms()+st.w.back.Milliseconds(): // it may have started before the clock was set back
		st.violation("%s of %s occurs %d ms before its time", name, is.Queue, turn-st.ms())
	case turn <= o.ended:
		st.violation("the occurrence %d of %s of %s starts again, after %d has ended", turn, name, is.Queue, o.ended)
	case passed < turn && is.Recurrence[name] != "":
		st.violation("%s of %s occurs at %d, but only %d has passed", name, is.Queue, turn, passed)
	}
	if turn > o.started {
		if o.next != turn {
			o.odd = append(o.odd, fmt.Sprintf("%d instead of %d", turn, o.next))
		}
		o.started, o.next, o.all = turn, st.next(name), append(o.all, turn)
		st.Occurred++
	}
}

// next returns the first time of a schedule that hasn't passed; 0 if it isn't known.
func (st *step) next(name string) int64 {
	times, _, _ := strings.Cut(st.is.Recurrence[name], "|")
	for at := range strings.FieldsSeq(times) {
		if at := lane.Number(at); at > lane.Number(st.is.Recurrence["passed:"+name]) {
			return at
		}
	}
	return 0
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
