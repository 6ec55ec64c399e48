package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// compose makes the next round from what has gathered. If there's nothing to send, it returns nil,
// and ends the talk unless rounds are in flight.
func (s *Session) compose(behind ...*exchange) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.composeLocked(time.Now(), behind...)
	if e == nil && len(behind) == 0 {
		s.stopLocked()
	}
	return e
}

// composeLocked does compose's work, except that it doesn't end the talk.
func (s *Session) composeLocked(now time.Time, behind ...*exchange) *exchange {
	solo := !s.engine.risk.Load()
	for _, b := range behind {
		if b.recalls != s.recalls {
			return nil // the tasks that it brought must go back first
		}
		solo = solo && !b.Solo
	}
	if s.ended != nil || !s.dueLocked() {
		return nil
	}
	e := &exchange{answered: s.answered, mark: s.markLocked()}
	s.number++
	s.gatherLocked(e)
	// Returned tasks start before all others. This also limits the outcomes that wait.
	back := goBack(s.outbox) || len(s.outbox) > mostAhead
	s.askLocked(now, e, back)
	e.Solo = solo
	e.Heard = s.cancels.ask(maxHeard)
	if e.Said = s.said; s.said < s.seen {
		e.Stopping, e.Said = stopping(s.held, s.seen, maxStopping)
	}
	if now.Sub(s.passing) > s.engine.Lease.Beat*time.Duration(1+s.passed.Count/500) {
		s.passed, s.passing = store.Passed{}, now // some may be able to start now: their counts were reset
	}
	e.Passed = s.passed
	s.look = s.look && back
	s.talked = now
	e.Worker, e.Number, e.Lease = s.member.Worker, s.number, s.engine.Lease.Grant
	e.Seen, e.Issued = s.seen, e.mark.token
	return e
}

// askLocked makes a round ask for tasks: for callers, for free slots, and to prefetch. While tasks
// have to go back, it asks for none.
func (s *Session) askLocked(now time.Time, e *exchange, back bool) {
	starts := 0
	for !back && len(s.wants) > 0 && starts < store.RoundWeight {
		starts = min(starts+s.wants[0].n, store.RoundWeight)
		e.wants, s.wants = append(e.wants, s.wants[0]), s.wants[1:]
	}
	e.Crashes, e.Keep = s.queue.limitsLocked()
	switch {
	case !s.queue.serves():
	case s.closing:
		s.queue.forgoLocked()
	case !back:
		n := min(s.ask, store.RoundWeight-starts)
		e.slots = s.queue.reserveLocked(n)
		e.recalls = s.recalls
		e.Ahead = s.queue.aheadLocked(s.lanes(s.queue.pace.trip), now, n-len(e.slots))
	}
	e.Idle = len(e.slots) > 0
	e.Start = store.NewIDs(starts + len(e.slots) + e.Ahead)
}

// fitLocked returns how many of the first outcomes fit into a round, and their weight.
func (s *Session) fitLocked() (n, weight int) {
	bytes, most := 0, store.RoundBytes
	if s.heard {
		most = store.EventBytes
	}
	for _, end := range s.outbox {
		w, b := end.Weight()
		if n > 0 && (weight+w > store.RoundWeight || bytes+b > most) {
			break
		}
		n, weight, bytes = n+1, weight+w, bytes+b
	}
	return n, weight
}

// gatherLocked moves as many outcomes into a round as fit.
func (s *Session) gatherLocked(e *exchange) {
	n, weight := s.fitLocked()
	if n < len(s.outbox) {
		s.lastFirstLocked()
		n, weight = s.fitLocked() // the order has changed, and weights differ
	}
	e.weight = weight
	said, rest := s.outbox[:n], slices.Clone(s.outbox[n:])
	e.outcomes = make([]*ending, 0, n)
	for _, end := range said {
		t := s.held[end.Process]
		if t != nil && t.round != 0 { // another round is ending it: one at a time
			rest = append(rest, end)
			continue
		}
		if end.held = t != nil; end.held {
			t.round = s.number
		}
		e.outcomes = append(e.outcomes, end)
	}
	s.outbox = rest
	// Tasks go back last, and newest first, so that the oldest ends up in front.
	back := func(end *ending) int64 {
		if end.Verb == store.Stop {
			return math.MaxInt64 - end.Token
		}
		return 0
	}
	order := func(a, b *ending) int { return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), cmp.Compare(back(a), back(b))) }
	if !slices.IsSortedFunc(e.outcomes, order) {
		slices.SortStableFunc(e.outcomes, order)
	}
	e.Outcomes = make([]*store.Outcome, len(e.outcomes))
	for i, end := range e.outcomes {
		e.Outcomes[i] = &end.Outcome
	}
}

// lastFirstLocked makes tasks go back newest first, even if that takes several rounds.
func (s *Session) lastFirstLocked() {
	var stops []*ending
	for _, end := range s.outbox {
		if end.Verb == store.Stop {
			stops = append(stops, end)
		}
	}
	slices.SortStableFunc(stops, func(a, b *ending) int { return cmp.Compare(b.Token, a.Token) })
	for i, end := range s.outbox {
		if end.Verb == store.Stop {
			s.outbox[i], stops = stops[0], stops[1:]
		}
	}
}
