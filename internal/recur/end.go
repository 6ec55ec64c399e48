package recur

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// The ends of schedules: what to judge, as soon as this peer has asked the node without a gap for twice
// the period. By then, all peers that live have asserted theirs, whatever happened to Redis before.
type ends struct {
	over map[string]store.Target // queues with a schedule that nobody asserts, by id
	left map[id]left
}

// A left is a schedule that this peer had. It must judge that itself if nobody serves the queue.
type left struct {
	target store.Target
	since  time.Time // when this peer can't have asserted it any more; zero: not yet
}

// Over is called when a schedule of a queue isn't asserted any more.
func (s *Schedules) Over(q store.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ends.over[q.ID]; !known {
		s.ends.over[q.ID] = q
		s.stir()
	}
}

// endsLocked books visits to queues that have something to judge, at most once a beat.
func (s *Schedules) endsLocked(visits map[string]*visit, now time.Time) {
	look := func(q store.Target) {
		if l := s.laneLocked(q); now.Sub(l.visited) >= s.Beat/2 && s.admitsLocked(l, now) {
			s.bookLocked(visits, l, nil)
		}
	}
	for _, q := range s.ends.over {
		look(q)
	}
	for at, l := range s.ends.left {
		if lane := s.laneLocked(l.target); l.since.IsZero() && !lane.busy {
			l.since = now
			s.ends.left[at] = l
		}
		if s.isGoneLocked(l, now) {
			look(l.target)
		}
	}
}

// isGoneLocked reports whether this peer has left a schedule so long ago that nobody asserts it if no
// other peer does.
func (s *Schedules) isGoneLocked(l left, now time.Time) bool {
	return !l.since.IsZero() && now.Sub(l.since) > s.period
}

// judgesLocked reports whether a schedule that nobody asserts in a lane has nobody any more: whoever
// has it could have asserted it meanwhile.
func (s *Schedules) judgesLocked(h *home, l *lane, now time.Time) bool {
	return now.Sub(h.steady) > 2*s.period && now.Sub(l.steady) > 2*s.period
}

// judgesUntil returns until when, by Redis's clock, a call that begins now may judge; 0: it may not.
// If that clock has jumped ahead, all schedules have lapsed, and must be asserted first.
func (s *Schedules) judgesUntil(h *home, l *lane, now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.clock == 0 || !s.judgesLocked(h, l, now) {
		return 0
	}
	return l.latest(now) + s.Beat.Milliseconds()
}

// latest is what Redis's clock shows at most, unless it has jumped.
func (l *lane) latest(now time.Time) int64 { return l.clock + now.Sub(l.asked).Milliseconds() }

// heard takes in what Redis's clock showed in a call that began then. If it has jumped ahead, nobody is
// judged for a while.
func (s *Schedules) heard(l *lane, began time.Time, clock int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); l.clock > 0 && clock > l.latest(now)+s.Beat.Milliseconds() {
		l.steady = now
	}
	l.clock, l.asked = clock, began
}

// judged notes that a lane was judged, in a call that began then, and nothing is left.
func (s *Schedules) judged(l *lane, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends.over, l.ID)
	for at, one := range s.ends.left {
		if one.target.ID == l.ID && s.isGoneLocked(one, began) {
			delete(s.ends.left, at)
		}
	}
}
