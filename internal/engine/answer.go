package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// apply takes in the answer to a round. It is false when the session has ended
// meanwhile: what was started is not ours.
func (r *Session) apply(e *exchange, a *store.Answer) bool {
	if a.Dropped > 0 {
		r.engine.counts.Dropped.Add(int64(a.Dropped))
		r.dropped.Add(a.Dropped, e.Keep)
	}
	begun := make([]*Attempt, len(a.Started))
	for i, s := range a.Started {
		begun[i] = newAttempt(r, e.Start[i], s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answerLocked(time.Now(), e, a, begun)
}

// answerLocked is apply. The attempts are those that were started.
func (r *Session) answerLocked(now time.Time, e *exchange, a *store.Answer, begun []*Attempt) bool {
	if r.ended != nil {
		for _, t := range begun {
			t.cancel(ErrShutdown) // nobody has it
		}
		return false
	}
	for i, s := range e.outcomes {
		what := store.Gone
		if i < len(a.Settled) {
			what = a.Settled[i]
		}
		r.settledLocked(s, what, e.repeated, a.Trouble)
	}
	r.renewLocked(now, e.sent)
	late := !r.sureLocked(now) && len(begun) > 0
	tasks := r.keepLocked(e, a, begun, late)
	full := len(begun) == len(e.Start) || a.Cut || len(e.slots) > 0 && len(begun) >= len(e.Start)-e.Ahead
	tasks = r.distributeLocked(e, tasks, a, late)
	asked := len(e.slots) + e.Ahead
	if a.Last > e.Number {
		asked = 0 // it was overtaken, and so it brings nothing: more may be there
	} else {
		r.flowing = asked > 0 && full
	}
	if asked > 0 {
		r.ask = nextAsk(r.ask, len(tasks), full, a.Cut)
	}
	r.noteLocked(e, a)
	r.handLocked(e, tasks, full || a.Again)
	if a.Hungry > 0 && r.queue.serves() && r.queue.opts.Prefetch <= 0 {
		r.recallLocked()
	}
	r.clock.Stop()
	if a.Due >= 0 {
		r.clock.Reset(max(a.Due, 50*time.Microsecond))
	}
	r.toldLocked(now, e, a)
	r.look = r.look || a.Again || asked > 0 && full && (r.freeLocked() || !r.closing && r.queue.roomyLocked(now))
	return true
}

// nextAsk is for how many tasks the next round is to ask, when the last asked for so many
// and brought some.
func nextAsk(ask, brought int, full, cut bool) int {
	switch {
	case cut:
		return max(firstAsk, brought+brought/4) // not much more fits into a round
	case full:
		return min(2*ask, MaxStarts)
	}
	return max(firstAsk, brought)
}

// keepLocked holds what was started. It returns what may be handled; the rest goes back, or
// fails. Late tells that the answer came too late.
func (r *Session) keepLocked(e *exchange, a *store.Answer, begun []*Attempt, late bool) []*Attempt {
	if late && r.queue.serves() {
		r.queue.recalls++ // nor may what is under way overtake these
	}
	tasks := make([]*Attempt, 0, len(begun))
	for i, t := range begun {
		s := &a.Started[i]
		r.token = max(r.token, s.Token)
		r.held[t.ID] = t
		if t.late != nil {
			r.engine.background.Go(func() { r.identify(t) })
		}
		switch {
		case s.Bytes > 0:
			o := t.outcome(store.Outcome{Verb: store.Fail, Kind: store.Malformed,
				Reason: fmt.Sprintf("the payload of %d bytes didn't reach a worker: every reply that contained it was lost", s.Bytes)})
			r.outbox = append(r.outbox, &ending{Outcome: o, ours: true})
			continue
		case late:
			r.giveBackLocked(t) // others may have it, or it was canceled there
			continue
		case e.Crashes > 0 && s.Crashes >= max(e.Crashes-1, 1):
			if t.risky = r.engine.risk.CompareAndSwap(false, true); !t.risky {
				r.giveBackLocked(t) // one has started on another queue meanwhile
				continue
			}
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// toldLocked takes in what an answer tells of cancels, of other rounds and of the queue.
func (r *Session) toldLocked(now time.Time, e *exchange, a *store.Answer) {
	said(e.Stopping, r.held)
	r.said = max(r.said, e.Said)
	coverAllLocked(a.Cancels, r.held)
	r.postponeLocked(a.Cancels)
	if a.Seen < e.Seen {
		r.mu.laterLocked(func() {
			r.engine.log.Error("worqr: Redis has lost writes: its token counter decreased", "queue", r.queue.id)
		})
		r.seen, r.said = a.Seen, min(r.said, a.Seen)
	}
	r.seen = max(r.seen, a.Seen)
	if a.Passed != nil {
		r.passed = *a.Passed
	}
	if slices.ContainsFunc(e.Outcomes, func(o *store.Outcome) bool { return o.Verb == store.Finish }) {
		r.heard = a.Heard
	}
	r.watched = a.Watched
	if a.Last < e.answered {
		r.mu.laterLocked(func() { r.LostWrites("Redis no longer has a round that it had acknowledged") })
	}
	r.answered = e.Number
	r.turned.Broadcast()
	r.talked = now
	r.cancels.learnLocked(e.Heard, a.Tokens, r.held)
	if len(a.Cancels)+len(e.Heard) > 0 {
		r.dropReadyLocked()
	}
	if a.Rank == 0 {
		r.listens = now.Add(2 * r.engine.lease.Beat)
	}
}

// noteLocked has said what an answer tells of the queue.
func (r *Session) noteLocked(e *exchange, a *store.Answer) {
	if a.Trouble != "" || r.troubled {
		var trouble error
		if r.troubled = a.Trouble != ""; r.troubled {
			trouble = errors.New(a.Trouble)
		}
		r.mu.laterLocked(func() { r.odd.Note(r.engine.log, "tasks cannot be started", trouble, "queue", r.queue.id) })
	}
	if a.Buried > 0 {
		r.engine.counts.Failed.Add(int64(a.Buried))
		r.mu.laterLocked(func() {
			r.engine.log.Error("worqr: tasks failed for good: too many workers died holding them; list them with Failed",
				"queue", r.queue.id, "tasks", a.Buried, "kind", store.Crashed, "MaxCrashes", e.Crashes)
		})
	}
}

// restore undoes a round that was not carried out. Callers get the error.
func (r *Session) restore(e *exchange, err error) {
	m := mishapOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undoneLocked(e, m)
}

func (r *Session) undoneLocked(e *exchange, m mishap) {
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
