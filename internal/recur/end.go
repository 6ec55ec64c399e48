package recur

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// ends holds the schedules that may have to end. This peer may judge that once it has called the
// node without a gap for twice the period: by then, all live peers have asserted theirs, whatever
// happened to Redis before.
type ends struct {
	over map[string]store.Target // by id: queues with a schedule that no peer asserts
	left map[id]left
}

// A left is a schedule that this peer has withdrawn. If no peer serves the queue, this peer must
// end the schedule.
type left struct {
	target store.Target
	since  time.Time // the time from which this peer can't have asserted it; zero: unknown yet
}

// Over is called when a schedule of a queue is no longer asserted.
func (s *Schedules) Over(q store.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ends.over[q.ID]; !known {
		s.ends.over[q.ID] = q
		s.stir()
	}
}

// endsLocked books visits to queues whose schedules may have to end, at most once a beat.
func (s *Schedules) endsLocked(visits map[string]*visit, now time.Time) {
	look := func(q store.Target) {
		if l := s.siteLocked(q); now.Sub(l.visited) >= s.Beat/2 && s.admitsLocked(l, now) {
			s.bookLocked(visits, l, nil)
		}
	}
	for _, q := range s.ends.over {
		look(q)
	}
	for at, l := range s.ends.left {
		if site := s.siteLocked(l.target); l.since.IsZero() && !site.busy {
			l.since = now
			s.ends.left[at] = l
		}
		if s.isGoneLocked(l, now) {
			look(l.target)
		}
	}
}

// isGoneLocked reports whether this peer withdrew a schedule so long ago that, unless another peer
// asserts it, no peer does.
func (s *Schedules) isGoneLocked(l left, now time.Time) bool {
	return !l.since.IsZero() && now.Sub(l.since) > s.period
}

// judgesLocked reports whether this peer may end schedules in a site that no peer asserts: a peer
// that has one would have asserted it by now.
func (s *Schedules) judgesLocked(h *home, l *site, now time.Time) bool {
	return now.Sub(h.steady) > 2*s.period && now.Sub(l.steady) > 2*s.period
}

// judgesUntil returns the time, by Redis's clock, until which a call that begins now may end
// schedules, or 0 if it may not. If that clock has jumped ahead, all schedules have expired, and must
// be asserted again first.
func (s *Schedules) judgesUntil(h *home, l *site, now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.clock == 0 || !s.judgesLocked(h, l, now) {
		return 0
	}
	return l.latest(now) + s.Beat.Milliseconds()
}

// latest returns the latest time that Redis's clock can show, unless it has jumped.
func (l *site) latest(now time.Time) int64 { return l.clock + now.Sub(l.asked).Milliseconds() }

// heard records Redis's time in a call that began at a given time. If its clock has jumped ahead,
// this peer ends no schedules for a while.
func (s *Schedules) heard(l *site, began time.Time, clock int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); l.clock > 0 && clock > l.latest(now)+s.Beat.Milliseconds() {
		l.steady = now
	}
	l.clock, l.asked = clock, began
}

// judged records that a call ended all schedules of a site that no peer asserts.
func (s *Schedules) judged(l *site, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends.over, l.ID)
	for at, one := range s.ends.left {
		if one.target.ID == l.ID && s.isGoneLocked(one, began) {
			delete(s.ends.left, at)
		}
	}
}
