package recur

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A site is a queue that may have schedules. Its goroutine owns what Schedules.mu doesn't protect.
//
// A peer may end schedules of a site that no peer asserts once it has called the site without a gap
// for twice the period: by then, all live peers have asserted theirs, whatever happened to Redis
// before.
type site struct {
	store.Target
	wake  chan struct{} // has a value if there is something to do
	first chan struct{} // closed after the first turn

	jobs map[string]*job // by name; this and the fields below are protected by Schedules.mu
	over bool            // a schedule isn't asserted anymore
	left bool            // this peer has withdrawn one
	runs bool            // the goroutine

	watch   time.Time // schedules that aren't asserted at this time may have to end; zero: none
	visited time.Time // when the last turn that made calls ended
	steady  time.Time // the first one since the last gap
	clock   int64     // Redis's time in the last call, in ms; 0 before
	asked   time.Time // when that call began
	upset   logs.Outage
}

// stir makes the site take a turn now.
func (l *site) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run takes a turn each beat, as long as there is something to do on the site.
func (s *Schedules) run(ctx context.Context, l *site) {
	for first := true; ctx.Err() == nil; first = false {
		if s.turn(ctx, l); first {
			close(l.first)
		}
		if s.leave(l) {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-time.After(s.Beat):
		}
	}
}

// leave forgets a site on which there is nothing to do anymore, and reports whether it has.
func (s *Schedules) leave(l *site) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.jobs) > 0 || l.over || l.left || !l.watch.IsZero() {
		return false
	}
	delete(s.sites, l.ID)
	return true
}

// turn asserts what is due, and ends what is over.
func (s *Schedules) turn(ctx context.Context, l *site) {
	began := time.Now()
	jobs, ends := s.due(l, began)
	if len(jobs) == 0 && l.watch.IsZero() {
		return
	}
	err := s.assert(ctx, l, jobs)
	if err == nil && (ends || len(jobs) == 0) {
		err = s.end(ctx, l, ends)
	}
	if ctx.Err() != nil {
		return
	}
	l.note(began, err, s.period)
	if err != nil {
		for _, j := range jobs {
			j.tried = time.Time{}
		}
	}
	l.upset.Note(s.Log, "can't renew schedules; retrying", err, "queue", l.Name)
	if err == nil && len(jobs) > 0 {
		s.List(ctx, l.Target)
	}
}

// due returns the jobs to assert now: new ones, and a part of the others, so that each has its turn once a
// cycle. If this peer may end schedules after that, it returns all: a failover may have lost that they were asserted.
func (s *Schedules) due(l *site, now time.Time) (jobs []*job, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.left {
		l.watch = now.Add(s.period) // until then, it may still be asserted
	} else if l.over && l.watch.IsZero() {
		l.watch = now
	}
	l.left, l.over = false, false
	ends = !l.watch.IsZero() && now.After(l.watch) && s.judgesUntil(l, now) > 0
	for _, j := range l.jobs {
		if ends || now.Sub(j.tried) >= s.Beat*cycle/2 {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(a.tried.Compare(b.tried), cmp.Compare(a.name, b.name))
	})
	n := max(perCall, (len(l.jobs)+cycle-1)/cycle)
	for n < len(jobs) && (ends || jobs[n].tried.IsZero()) {
		n++
	}
	jobs = jobs[:min(n, len(jobs))]
	for _, j := range jobs {
		j.tried = now
	}
	return jobs, ends
}

// note records the result of a turn. If there was a gap, this process may have been stalled, and so may
// other peers.
func (l *site) note(began time.Time, err error, period time.Duration) {
	now := time.Now()
	if err != nil || now.Sub(began) > period/2 || began.Sub(l.visited) > period {
		l.steady = now
	}
	l.visited = now
}

// judgesUntil returns the time, by Redis's clock, until which a call that begins now may end
// schedules, or 0 if it may not. If that clock has jumped ahead, all schedules have expired, and must
// be asserted again first.
func (s *Schedules) judgesUntil(l *site, now time.Time) int64 {
	if l.clock == 0 || now.Sub(l.visited) > s.period || now.Sub(l.steady) <= 2*s.period {
		return 0
	}
	return l.latest(now) + s.Beat.Milliseconds()
}

// latest returns the latest time that Redis's clock can show, unless it has jumped.
func (l *site) latest(now time.Time) int64 { return l.clock + now.Sub(l.asked).Milliseconds() }

// heard records Redis's time in a call that began at a given time. If its clock has jumped ahead,
// this peer ends no schedules for a while.
func (s *Schedules) heard(l *site, began time.Time, clock int64) {
	if now := time.Now(); l.clock > 0 && clock > l.latest(now)+s.Beat.Milliseconds() {
		l.steady = now
	}
	l.clock, l.asked = clock, began
}
