package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// apply handles the answer to a round. It returns false if the session has ended in the
// meantime: then the tasks that were started aren't ours.
func (s *Session) apply(e *exchange, a *store.Answer) bool {
	if a.Dropped > 0 {
		s.queue.counts.Dropped.Add(int64(a.Dropped))
		s.dropped.Add(a.Dropped, e.Keep)
		s.engine.Trace.FailedDropped(worqrtrace.Queue{At: time.Now(), Queue: s.queue.name, WorkerID: s.member.Worker, Tasks: a.Dropped})
	}
	begun := make([]*Attempt, len(a.Started))
	for i, start := range a.Started {
		begun[i] = newAttempt(s, e.Start[i], start)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answerLocked(time.Now(), e, a, begun)
}

// answerLocked does apply's work under the lock. begun are the attempts that the round started.
func (s *Session) answerLocked(now time.Time, e *exchange, a *store.Answer, begun []*Attempt) bool {
	if s.ended != nil {
		for _, t := range begun {
			t.cancel(ErrShutdown) // nobody will run it
		}
		return false
	}
	expired, crashed := 0, 0 // what has failed without being begun
	for i, end := range e.outcomes {
		what := store.Gone
		if i < len(a.Settled) {
			what = a.Settled[i]
		}
		switch what = s.settledLocked(end, what, e.repeated, a.Trouble); {
		case what != store.OK || end.Verb != store.Fail || !end.isUnbegun():
		case end.Kind == store.Expired:
			expired++
		default:
			crashed++
		}
	}
	s.failedUnbegunLocked(store.Expired, expired, e.Crashes)
	s.failedUnbegunLocked(store.Crashed, crashed, e.Crashes)
	if s.compareLastLocked(a.Before(), e.mark) {
		s.token = a.Token // Redis issued the round's own tokens after that
	}
	s.reclaimLocked(e, len(begun))
	s.renewLocked(now, e.sent)
	late := !s.sureLocked(now) && len(begun) > 0
	tasks := s.keepLocked(e, a, begun, late)
	full := e.full(a) || len(e.slots) > 0 && len(begun) >= len(e.Start)-e.Ahead
	tasks = s.distributeLocked(e, tasks, a, late)
	asked := len(e.slots) + e.Ahead
	if a.Last > e.Number {
		asked = 0 // a later round overtook it, so it brings nothing: there may be more tasks
	} else {
		s.flowing = asked > 0 && full
	}
	if asked > 0 {
		s.ask = nextAsk(s.ask, len(tasks), full, full && len(begun) < len(e.Start))
	}
	s.noteLocked(e, a)
	s.handLocked(e, tasks, full || a.Again)
	if s.queue.serves() && a.Last <= e.Number {
		s.queue.needsLocked(a.More) // even if there was no room to ask for tasks
	}
	if a.Hungry > 0 && s.queue.serves() && s.queue.opts.Prefetch <= 0 {
		s.recallLocked()
	}
	s.clock.Stop()
	if a.Due >= 0 {
		s.clock.Reset(max(a.Due, 50*time.Microsecond))
	}
	s.toldLocked(now, e, a)
	s.look = s.look || a.Again
	if asked > 0 && full && (s.freeLocked() || !s.closing && s.queue.roomyLocked(now)) {
		s.lookLocked()
	}
	return true
}

// nextAsk returns how many tasks the next round asks for, after a round that asked for ask tasks
// and received brought. limited reports that more could start, but didn't.
func nextAsk(ask, brought int, full, limited bool) int {
	switch {
	case limited:
		return max(firstAsk, brought+brought/4) // not many more fit into a round
	case full:
		return min(2*ask, store.RoundWeight)
	}
	return max(firstAsk, brought)
}

// keepLocked records the started tasks as held. It returns the tasks to handle; the rest go back or
// fail. late reports that the answer came too late.
func (s *Session) keepLocked(e *exchange, a *store.Answer, begun []*Attempt, late bool) []*Attempt {
	if late && s.queue.serves() {
		s.recalls++ // tasks of rounds in flight must not overtake these either
	}
	tasks := make([]*Attempt, 0, len(begun))
	for i, t := range begun {
		start := &a.Started[i]
		if s.isLatestLocked(e.mark) {
			s.token = max(s.token, start.Token)
		}
		s.held[t.ID] = t
		switch {
		case late:
			s.giveBackLocked(t) // another worker may have it, or it was canceled
			continue
		case s.failLocked(t, a.Now, e.Crashes):
			continue
		case e.Crashes > 0 && start.Crashes >= max(e.Crashes-1, 1):
			if t.risky = s.engine.risk.CompareAndSwap(false, true); !t.risky {
				s.giveBackLocked(t) // another queue has started one in the meantime
				continue
			}
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// failLocked fails a task that has expired or crashed too often, and reports whether it has. In a failed queue,
// no task expires.
func (s *Session) failLocked(t *Attempt, now int64, crashes int) bool {
	o := store.Outcome{Verb: store.Fail}
	switch {
	case t.Failure == nil && t.Card.Expires > 0 && t.Card.Expires <= now:
		o.Kind, o.Reason = store.Expired, "its time was over before it started"
	case crashes > 0 && t.Crashes >= crashes:
		o.Kind, o.Reason = store.Crashed, fmt.Sprint(t.Crashes, " workers died holding it")
	default:
		return false
	}
	s.outbox = append(s.outbox, t.unbegun(o))
	return true
}

// toldLocked handles what an answer reports about cancels, other rounds and the queue.
func (s *Session) toldLocked(now time.Time, e *exchange, a *store.Answer) {
	said(e.Stopping, s.held)
	coverAllLocked(a.Cancels, s.held)
	if s.isLatestLocked(e.mark) {
		s.token, s.seen, s.said = max(s.token, a.Seen), max(s.seen, a.Seen), max(s.said, e.Said)
	} else {
		s.look = true // the next round asks for all cancels again: Redis has lost tokens since this one was sent
	}
	if a.Passed != nil {
		s.passed = *a.Passed
	}
	if slices.ContainsFunc(e.Outcomes, func(o *store.Outcome) bool { return o.Verb == store.Finish }) {
		s.heard = a.Heard
	}
	if a.Last < e.answered {
		s.lostLocked("Redis no longer has a round that it had acknowledged")
	}
	s.answered = e.Number
	s.turned.Broadcast()
	s.talked = now
	s.cancels.learnLocked(e.Heard, a.Tokens, s.held)
	if len(a.Cancels)+len(e.Heard) > 0 {
		s.dropReadyLocked()
	}
	if a.Rank == 0 {
		s.listens = now.Add(2 * s.engine.Lease.Beat)
	}
}

// noteLocked logs what an answer reports about the queue.
func (s *Session) noteLocked(e *exchange, a *store.Answer) {
	if a.Trouble != "" || s.troubled {
		var trouble error
		if s.troubled = a.Trouble != ""; s.troubled {
			trouble = errors.New(a.Trouble)
		}
		s.mu.laterLocked(func() { s.odd.Note(s.engine.Log, "tasks can't be started", trouble, "queue", s.queue.id) })
	}
}

// failedUnbegunLocked reports tasks that failLocked failed. Expired tasks don't indicate a fault, and there may be many.
func (s *Session) failedUnbegunLocked(kind store.Kind, tasks, most int) {
	if tasks == 0 {
		return
	}
	s.engine.Trace.Failed(worqrtrace.Queue{
		At: time.Now(), Queue: s.queue.name, WorkerID: s.member.Worker, OnFailed: s.view.Keys.IsFailed(), Kind: kind, Tasks: tasks,
	})
	if kind == store.Crashed {
		s.mu.laterLocked(func() { s.engine.failures.crashed(s.queue.id, tasks, most) })
		return
	}
	s.queue.counts.Expired.Add(int64(tasks))
	s.mu.laterLocked(func() { s.engine.failures.expired(s.queue.id, tasks) })
}

// restore undoes a round that Redis didn't execute. Its callers get the error.
func (s *Session) restore(e *exchange, err error) {
	m := mishapOf(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undoneLocked(e, m)
}

func (s *Session) undoneLocked(e *exchange, m mishap) {
	if s.queue.serves() && !s.closing {
		e.slots = s.queue.fillLocked(e.slots)
	}
	s.vacateLocked(e)
	for _, end := range e.outcomes {
		if t := s.held[end.Process]; t != nil && t.round == e.Number {
			t.round = 0 // the outcome wasn't sent after all
		}
		if end.ours {
			s.outbox = append(s.outbox, end)
		}
	}
	s.tellFailedLocked(e, m)
}

// release returns an error to the callers of a round that hasn't been answered yet.
func (s *Session) release(e *exchange, err error) {
	m := mishapOf(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releasedLocked(e, m)
}

func (s *Session) releasedLocked(e *exchange, m mishap) {
	s.doubtLocked()
	s.lendLocked(e)
	s.tellFailedLocked(e, m)
}

// lend frees the slots of a round whose answer may take a while.
func (s *Session) lend(e *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lendLocked(e)
}

// lendLocked does lend's work under the lock, so that queues on servers that do answer can use the
// slots. A heartbeat shows when this one answers again.
func (s *Session) lendLocked(e *exchange) {
	if !s.queue.serves() || e.lent || s.ended != nil {
		return
	}
	e.lent, e.slotted = true, len(e.slots)
	s.queue.asked -= e.Ahead
	s.queue.unreserveLocked(e.slots, true)
	e.slots = nil
}

// reclaimLocked takes slots for tasks that a round brought after its slots were lent. Tasks without
// a slot go back.
func (s *Session) reclaimLocked(e *exchange, begun int) {
	if !e.lent {
		return
	}
	e.lent = false
	s.queue.asked += e.Ahead
	e.slots = s.queue.reserveLocked(min(e.slotted, begun))
}

// tellFailedLocked returns the error of a failed round to its callers.
func (s *Session) tellFailedLocked(e *exchange, m mishap) {
	failed, final := settled{err: m.err, unknown: m.unknown}, s.ended != nil || m.final
	if final {
		failed.err = lost(m.err)
	}
	for _, end := range e.outcomes {
		if !end.ours || final {
			end.tellLocked(failed)
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

// settledLocked handles the answer to one ending. It returns the answer, corrected if the round was repeated.
func (s *Session) settledLocked(end *ending, what store.Settled, repeated bool, trouble string) store.Settled {
	c := s.queue.counts
	if what == store.Gone && repeated && end.held {
		what = store.OK // the first copy of the round ended it
	}
	if what == store.Refused {
		end.tellLocked(settled{err: errors.New(trouble)})
		t := s.held[end.Process]
		switch {
		case t == nil:
		case end.isUnbegun():
			t.round = 0
			s.refused = append(s.refused, t) // returned by the next beat; held until then, since its cancel isn't over
			s.safeLocked(t)
		default:
			t.round = 0
		}
		return what
	}
	switch {
	case what == store.Gone:
	case what == store.Canceled || end.Verb == store.Drop:
		c.Canceled.Add(1)
	case end.Verb == store.Finish:
		c.Finished.Add(1)
	case end.Verb == store.Retry:
		c.Retried.Add(1)
	case end.Verb == store.Snooze:
		c.Snoozed.Add(1)
	case end.Verb == store.Fail:
		c.Failed.Add(1)
		if t := s.held[end.Process]; t != nil && !end.isUnbegun() {
			s.mu.laterLocked(func() { s.engine.failures.final(t, end.Kind, logs.Printable(end.Reason)) })
		}
	case !end.isUnbegun():
		c.Stopped.Add(1)
	}
	if t := s.held[end.Process]; t != nil && t.Token == end.Token {
		delete(s.held, t.ID)
		t.settledLocked(end, what)
		t.endLocked(context.Canceled)
		s.safeLocked(t)
	}
	end.tellLocked(settled{what: what})
	return what
}

// distributeLocked gives tasks to the callers that asked for some, and returns the rest. If the
// answer came too late (late), these tasks go back.
func (s *Session) distributeLocked(e *exchange, tasks []*Attempt, a *store.Answer, late bool) []*Attempt {
	for _, w := range e.wants {
		if w.gone {
			continue
		}
		n := min(w.n, len(tasks))
		w.n, w.have, tasks = w.n-n, append(w.have, tasks[:n]...), tasks[n:]
		s.queue.counts.Started.Add(int64(n))
		switch {
		case w.n > 0 && len(a.Started) > 0 && a.More, len(w.have) == 0 && (late || a.Again && a.Trouble == ""):
			w.begun = w.begun || late
			s.wants = append(s.wants, w) // more tasks can start, or something blocked those that can
		case a.Trouble != "":
			w.tellLocked(errors.New(a.Trouble))
		default:
			w.tellLocked(ErrNoTask)
		}
	}
	return tasks
}

// handLocked gives tasks to the handler. Those that it can't take return to the queue.
func (s *Session) handLocked(e *exchange, tasks []*Attempt, full bool) {
	n, slots := min(len(tasks), len(e.slots)+e.Ahead), min(len(tasks), len(e.slots))
	// They must not overtake tasks recalled in the meantime.
	if !s.closing && n > 0 && e.recalls == s.recalls && s.queue.takeLocked(tasks[:n], e.slots[:slots:slots]) {
		tasks, e.slots = tasks[n:], e.slots[slots:]
	}
	if s.queue.serves() {
		s.queue.asked -= e.Ahead
		s.queue.unreserveLocked(s.queue.fillLocked(e.slots), !full)
		e.slots = nil
	}
	if s.queue.serves() && len(tasks) > 0 {
		s.recalls++ // tasks of rounds in flight must not overtake these either
	}
	for _, t := range tasks {
		s.giveBackLocked(t)
	}
}

// giveBackLocked returns an unbegun task to the front.
func (s *Session) giveBackLocked(t *Attempt) {
	s.outbox = append(s.outbox, t.unbegun(store.Outcome{Verb: store.Stop}))
	s.hurryLocked()
}

// unbegun returns the ending of a task that no handler or caller has begun.
func (t *Attempt) unbegun(o store.Outcome) *ending {
	return &ending{Outcome: t.outcome(o), ours: true}
}

func (end *ending) isUnbegun() bool { return end.ours && end.by == nil }

// dropReadyLocked ends the prefetched tasks that were canceled.
func (s *Session) dropReadyLocked() {
	if !s.queue.serves() {
		return
	}
	for _, t := range s.queue.withdrawLocked(func(t *Attempt) bool { return errors.Is(context.Cause(t.ctx), ErrCanceled) }) {
		s.outbox = append(s.outbox, t.unbegun(store.Outcome{Verb: store.Drop}))
	}
}

// safeLocked records that a risky task has ended, so another may start.
func (s *Session) safeLocked(t *Attempt) {
	if t.risky {
		t.risky = false
		s.engine.risk.Store(false)
		s.look = s.look || s.queue.serves()
	}
}
