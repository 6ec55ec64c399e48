package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// compose makes the next round out of what has gathered. If there is nothing to
// say it returns nil, and ends the talk unless answers to rounds are still to be
// taken in, behind which this one is to follow.
func (r *Session) compose(behind ...*exchange) *exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.composeLocked(time.Now(), behind...)
	if e == nil && len(behind) == 0 {
		r.stopLocked()
	}
	return e
}

// composeLocked is compose, without an end to the talk.
func (r *Session) composeLocked(now time.Time, behind ...*exchange) *exchange {
	solo := !r.engine.risk.Load()
	for _, b := range behind {
		if b.recalls != r.queue.recalls {
			return nil // what it has brought is to go back first
		}
		solo = solo && !b.Solo
	}
	if r.ended != nil || !r.dueLocked() {
		return nil
	}
	e := &exchange{answered: r.answered}
	r.number++
	budget := int(r.flow.budget(r.far.way()).Microseconds())
	said := r.gatherLocked(e, budget-min(r.wantedLocked()*int(startTime.Microseconds()), budget/2))
	// What goes back starts before all else. And ends that cost more than starts don't pile up.
	back := goBack(r.outbox) || len(r.outbox) > mostAhead
	r.askLocked(now, e, back)
	e.Budget = max(budget-said, 1)
	e.Solo = solo
	e.work = stepTime + time.Duration(said)*time.Microsecond + min(time.Duration(len(e.Start))*startTime, time.Duration(e.Budget)*time.Microsecond)
	e.Heard = r.cancels.ask(maxHeard)
	if e.Said = r.said; r.said < r.seen {
		e.Stopping, e.Said = stopping(r.held, r.seen, maxStopping)
	}
	if now.Sub(r.passing) > r.engine.lease.Beat*time.Duration(1+r.passed.Count/500) {
		r.passed, r.passing = store.Passed{}, now // some may start by now: their counts were reset
	}
	e.Passed = r.passed
	r.look = r.look && back
	r.talked = now
	e.Worker, e.Number, e.Lease, e.Seen = r.member.Worker, r.number, r.engine.lease.Grant, r.seen
	e.Results = r.engine.maxResult
	return e
}

// askLocked has a round ask for tasks: for callers, for free slots, and ahead. While
// something is to go back it asks for none.
func (r *Session) askLocked(now time.Time, e *exchange, back bool) {
	starts := 0
	for !back && len(r.wants) > 0 && starts+r.wants[0].n <= MaxStarts {
		starts += r.wants[0].n
		e.wants, r.wants = append(e.wants, r.wants[0]), r.wants[1:]
	}
	e.Crashes, e.Keep = r.queue.limitsLocked()
	switch {
	case !r.queue.serves():
	case r.closing:
		r.queue.forgoLocked()
	case !back:
		n := min(r.ask, MaxStarts-starts)
		e.slots = r.queue.reserveLocked(n)
		e.recalls = r.queue.recalls
		e.Ahead, e.Room = r.queue.aheadLocked(now, n-len(e.slots))
	}
	e.Idle = len(e.slots) > 0
	e.Start = store.NewIDs(starts + len(e.slots) + e.Ahead)
}

// wantedLocked is how many tasks the next round may ask for.
func (r *Session) wantedLocked() (n int) {
	for _, w := range r.wants {
		n += w.n
	}
	if r.queue.serves() && !r.closing {
		n += r.ask
	}
	return min(n, MaxStarts)
}

// fitLocked is how many of the outcomes, the first ones, fit into a budget of Redis's time, and
// what they take of it: one in any case.
func (r *Session) fitLocked(budget int) (n, cost int) {
	for _, s := range r.outbox[:min(len(r.outbox), maxOutcomes)] {
		c := s.Cost(r.heard, r.watched)
		if n > 0 && cost+c > budget {
			break
		}
		n, cost = n+1, cost+c
	}
	return n, cost
}

// gatherLocked takes as much of what is to be said into a round as fits into a budget, and
// tells what it costs.
func (r *Session) gatherLocked(e *exchange, budget int) (cost int) {
	n, cost := r.fitLocked(budget)
	if n < len(r.outbox) {
		r.lastFirstLocked()
		n, cost = r.fitLocked(budget) // sizes differ
	}
	said, rest := r.outbox[:n], slices.Clone(r.outbox[n:])
	e.outcomes = make([]*ending, 0, n)
	for _, s := range said {
		t := r.held[s.Process]
		if t != nil && t.round != 0 { // it is being ended already: one after the other
			rest = append(rest, s)
			continue
		}
		if s.held = t != nil; s.held {
			t.round = r.number
		}
		e.outcomes = append(e.outcomes, s)
	}
	r.outbox = rest
	// What goes back goes newest first, so that the oldest ends foremost.
	order := func(a, b *ending) int {
		if by := cmp.Compare(a.Rank(), b.Rank()); by != 0 {
			return by
		}
		stopA, stopB := a.Verb == store.Stop, b.Verb == store.Stop
		if stopA && stopB {
			return cmp.Compare(b.Token, a.Token)
		}
		return rank(stopA) - rank(stopB)
	}
	if !slices.IsSortedFunc(e.outcomes, order) {
		slices.SortStableFunc(e.outcomes, order)
	}
	e.Outcomes = make([]*store.Outcome, len(e.outcomes))
	for i, s := range e.outcomes {
		e.Outcomes[i] = &s.Outcome
	}
	return cost
}

// lastFirstLocked has what goes back do so newest first, also where it takes several
// rounds.
func (r *Session) lastFirstLocked() {
	var stops []*ending
	for _, s := range r.outbox {
		if s.Verb == store.Stop {
			stops = append(stops, s)
		}
	}
	slices.SortStableFunc(stops, func(a, b *ending) int { return cmp.Compare(b.Token, a.Token) })
	for i, s := range r.outbox {
		if s.Verb == store.Stop {
			r.outbox[i], stops = stops[0], stops[1:]
		}
	}
}

// rank sorts what is later behind the rest.
func rank(later bool) int {
	if later {
		return 1
	}
	return 0
}
