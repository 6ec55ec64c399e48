package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"

	"github.com/worqr/worqr/internal/store"
)

// A settlement is the wish to end a process.
type ending struct {
	store.Outcome
	done   chan settled // gets one answer; nil if nobody waits for it
	ours   bool         // nobody waits: it is repeated until it is answered
	by     *run         // is told what became of it; nil if a task is given back that nobody took
	before store.Ending // by which it was to end before
	held   bool         // the task was held when this was first said
	task   *Attempt     // whose digest is to be said, too, and was not known before; mostly nil
}

// tellLocked answers the wish.
func (s *ending) tellLocked(d settled) {
	if s.by != nil {
		s.by.storedLocked(s, d)
		return
	}
	select {
	case s.done <- d:
	default: // the caller was let go
	}
}

type settled struct {
	what    store.Settled
	err     error
	unknown bool // it failed, and may have been carried out
}

// A mishap is why a round failed, and what that means. That is asked before a lock is
// taken: the error of a Pool is user code, whose methods may use the peer.
type mishap struct {
	err     error
	unknown bool // it may have been carried out
	final   bool // the worker has ended
}

func mishapOf(err error) mishap {
	return mishap{err, errors.Is(err, store.ErrUnknown), errors.Is(err, ErrEvicted) || errors.Is(err, ErrNotWorking)}
}

// A want is the wish for up to n tasks. Where the budget of one round is too small for
// all, further rounds bring the rest. Rounds.mu protects all but got.
type want struct {
	n     int        // how many more
	have  []*Attempt // what earlier rounds have brought
	begun bool       // an answer came too late, so what it brought goes back
	got   chan taken // gets one answer
	gone  bool       // nobody waits any more
}

// loseLocked answers the wish when the worker has ended. What was started for it is lost, and
// others count it as a crash: the caller is told that it may have happened.
func (w *want) loseLocked(m mishap) {
	if (w.begun || len(w.have) > 0) && !m.unknown {
		m.err = &pair{m.err, store.ErrUnknown}
	}
	w.have = nil
	w.tellLocked(m.err)
}

// tellLocked answers the wish, unless that was done: with an error only when it has brought
// nothing.
func (w *want) tellLocked(err error) {
	t := taken{tasks: w.have}
	if len(w.have) == 0 {
		t.err = err
	}
	select {
	case w.got <- t:
	default:
	}
}

type taken struct {
	tasks []*Attempt
	err   error
}

// An exchange is a round with those who wait for its answer.
type exchange struct {
	store.Round
	outcomes []*ending
	wants    []*want
	slots    []slot // for tasks of the handler, beyond those for wants
	pending  store.Sent
	lane     int // the connection: 0, or 1 beside another round
	sent     time.Time
	work     time.Duration // that Redis needs for it, about
	answered int64         // the last round that had been answered when this was put together
	recalls  int           // how often ready tasks had been recalled before
	repeated bool          // it may have been answered before, and the reply lost
	lost     int           // replies that were
}

// compose makes the next round out of what has gathered. If there is nothing to
// say it returns nil, and ends the talk unless answers to rounds are still to be
// taken in, behind which this one is to follow.
func (r *Session) compose(behind ...*exchange) *exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	solo := !r.engine.risk.Load()
	for _, b := range behind {
		if b.recalls != r.queue.recalls {
			return nil // what it has brought is to go back first
		}
		solo = solo && !b.Solo
	}
	if r.ended != nil || !r.dueLocked() {
		if len(behind) == 0 {
			r.stopLocked()
		}
		return nil
	}
	e := &exchange{answered: r.answered}
	r.number++
	budget := int(r.flow.budget(r.far.way()).Microseconds())
	said := r.gatherLocked(e, budget-min(r.wantedLocked()*int(startTime.Microseconds()), budget/2))
	starts := 0
	// What goes back starts before all else. And ends that cost more than starts don't pile up.
	back := goBack(r.outbox) || len(r.outbox) > mostAhead
	for !back && len(r.wants) > 0 && starts+r.wants[0].n <= MaxStarts {
		starts += r.wants[0].n
		e.wants, r.wants = append(e.wants, r.wants[0]), r.wants[1:]
	}
	e.Crashes, e.Keep = r.queue.limitsLocked()
	if r.queue.serves() {
		if r.closing {
			r.queue.forgoLocked()
		} else if !back {
			n := min(r.ask, MaxStarts-starts)
			e.slots = r.queue.reserveLocked(n)
			e.recalls = r.queue.recalls
			e.Ahead, e.Room = r.queue.aheadLocked(n - len(e.slots))
		}
		e.Idle = len(e.slots) > 0
	}
	e.Budget = max(budget-said, 1)
	e.Solo = solo
	e.Start = store.NewIDs(starts + len(e.slots) + e.Ahead)
	e.work = stepTime + time.Duration(said)*time.Microsecond + min(time.Duration(len(e.Start))*startTime, time.Duration(e.Budget)*time.Microsecond)
	e.Heard = r.cancels.ask(maxHeard)
	e.Stopping, e.Said = stopping(r.held, r.seen, maxStopping)
	if time.Since(r.passing) > r.engine.lease.Beat*time.Duration(1+r.passed.Count/500) {
		r.passed, r.passing = store.Passed{}, time.Now() // some may start by now: their counts were reset
	}
	e.Passed = r.passed
	r.look = r.look && back
	r.talked = time.Now()
	e.Worker, e.Number, e.Lease, e.Seen = r.member.Worker, r.number, r.engine.lease.Grant, r.seen
	e.Results = r.engine.maxResult
	return e
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
	e.Outcomes = make([]store.Outcome, len(e.outcomes))
	for i, s := range e.outcomes {
		e.Outcomes[i] = s.Outcome
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

// restore undoes a round that was not carried out. Callers get the error.
func (r *Session) restore(e *exchange, err error) {
	m := mishapOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.serves() && !r.closing {
		e.slots = r.queue.fillLocked(e.slots)
	}
	r.vacateLocked(e)
	for _, s := range e.outcomes {
		if t := r.held[s.Process]; t != nil && t.round == e.Number {
			t.round = 0 // it was not said after all
		}
		if s.ours {
			r.outbox = append(r.outbox, s)
		}
	}
	r.tellFailedLocked(e, m)
}

// release lets the callers of a round go whose answer is still to come.
func (r *Session) release(e *exchange, err error) {
	m := mishapOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellFailedLocked(e, m)
}

// tellFailedLocked tells the callers of a round that it failed.
func (r *Session) tellFailedLocked(e *exchange, m mishap) {
	end, final := settled{err: m.err, unknown: m.unknown}, r.ended != nil || m.final
	if final {
		end.err = lost(m.err)
	}
	for _, s := range e.outcomes {
		if !s.ours || final {
			s.tellLocked(end)
		}
	}
	for _, w := range e.wants {
		switch {
		case w.gone:
		case final:
			w.loseLocked(m)
		default:
			w.tellLocked(m.err)
		}
		w.gone = true
	}
}

// settledLocked answers one wish to end a process.
func (r *Session) settledLocked(s *ending, what store.Settled, repeated bool, trouble string) {
	c := &r.engine.counts
	if what == store.Gone && repeated && s.held {
		what = store.OK // the first copy of the round did it
	}
	if what == store.Refused {
		s.tellLocked(settled{err: errors.New(trouble)})
		t := r.held[s.Process]
		switch {
		case t == nil:
		case s.ours && s.by == nil:
			t.round = 0
			r.refused = append(r.refused, t) // for the next beat; until then it is held, or its cancel would be over
			r.safeLocked(t)
		default:
			t.round = 0
		}
		return
	}
	switch {
	case what == store.Gone:
	case what == store.Canceled || s.Verb == store.Drop:
		c.Canceled.Add(1)
	case s.Verb == store.Finish:
		c.Finished.Add(1)
	case s.Verb == store.Retry:
		c.Retried.Add(1)
	case s.Verb == store.Fail:
		c.Failed.Add(1)
		if t := r.held[s.Process]; t != nil {
			r.mu.laterLocked(func() { r.engine.failures.final(t, s.Kind, logs.Printable(s.Reason)) })
		}
	case s.done != nil || s.by != nil: // else it was not begun
		c.Stopped.Add(1)
	}
	if t := r.held[s.Process]; t != nil && t.Token == s.Token {
		delete(r.held, t.ID)
		t.endLocked(context.Canceled)
		r.safeLocked(t)
	}
	s.tellLocked(settled{what: what})
}

// distributeLocked gives tasks to those who asked for some, and returns the rest. Late
// tells that the answer came too late, so that what was started goes back.
func (r *Session) distributeLocked(e *exchange, tasks []*Attempt, a *store.Answer, late bool) []*Attempt {
	for _, w := range e.wants {
		if w.gone {
			continue
		}
		n := min(w.n, len(tasks))
		w.n, w.have, tasks = w.n-n, append(w.have, tasks[:n]...), tasks[n:]
		r.engine.counts.Started.Add(int64(n))
		switch {
		case w.n > 0 && a.Cut, len(w.have) == 0 && (late || a.Again && a.Trouble == ""):
			w.begun = w.begun || late
			r.wants = append(r.wants, w) // more can be started, or something stood before what can
		case a.Trouble != "":
			w.tellLocked(errors.New(a.Trouble))
		default:
			w.tellLocked(ErrNoTask)
		}
	}
	return tasks
}

// handLocked gives tasks to the handler, and what it cannot take back to the queue.
func (r *Session) handLocked(e *exchange, tasks []*Attempt, full bool) {
	n, slots := min(len(tasks), len(e.slots)+e.Ahead), min(len(tasks), len(e.slots))
	// They may not overtake what was recalled meanwhile.
	if !r.closing && n > 0 && e.recalls == r.queue.recalls && r.queue.takeLocked(tasks[:n], e.slots[:slots:slots]) {
		tasks, e.slots = tasks[n:], e.slots[slots:]
	}
	if r.queue.serves() {
		r.queue.answeredLocked(e.Ahead)
		r.queue.unreserveLocked(r.queue.fillLocked(e.slots), !full)
		e.slots = nil
	}
	if r.queue.serves() && len(tasks) > 0 {
		r.queue.recalls++ // nor may what is under way overtake these
	}
	for _, t := range tasks {
		r.giveBackLocked(t)
	}
}

// giveBackLocked has a task that nobody took go back to the front.
func (r *Session) giveBackLocked(t *Attempt) {
	r.outbox = append(r.outbox, t.unbegun(store.Stop))
	r.hurryLocked()
}

// unbegun is the end of a task that nobody has begun.
func (t *Attempt) unbegun(verb store.Ending) *ending {
	s := &ending{Outcome: t.outcome(store.Outcome{Verb: verb}), ours: true}
	if !t.isKnown() {
		s.task = t
	}
	return s
}

// complete waits for what is to be said besides of large payloads: else Redis would compute
// it, and do nothing else meanwhile.
func (e *exchange) complete() {
	for i, s := range e.outcomes {
		if s.task != nil {
			s.task.wait()
			e.Outcomes[i].Digest = s.task.sum()
		}
	}
}

// dropReadyLocked ends the tasks that were canceled before a handler has begun them.
func (r *Session) dropReadyLocked() {
	if !r.queue.serves() {
		return
	}
	for _, t := range r.queue.withdrawLocked(func(t *Attempt) bool { return errors.Is(context.Cause(t.ctx), ErrCanceled) }) {
		r.outbox = append(r.outbox, t.unbegun(store.Drop))
	}
}

// safeLocked notes that a risky task has ended: another may start.
func (r *Session) safeLocked(t *Attempt) {
	if t.risky {
		t.risky = false
		r.engine.risk.Store(false)
		r.look = r.look || r.queue.serves()
	}
}
