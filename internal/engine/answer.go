package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A step is what follows from the failure of a half of a round, or from its answer.
type step int

const (
	take   step = iota // handle the answer
	evict              // the worker is no longer a member
	undo               // Redis hasn't carried it out
	repeat             // it may have: send it again unchanged
)

// next returns the step after a half of a round was answered, or has failed with err. lost reports that an earlier
// reply was lost: then Redis may have carried it out, whatever the error.
func next(err error, lost bool) step {
	switch {
	case err == nil:
		return take
	case errors.Is(err, store.ErrEvicted):
		return evict
	case lost, isUnknown(err):
		return repeat
	}
	return undo
}

// receive handles the answers that have come, in the order of the rounds.
func (s *Session) receive() {
	for {
		s.mu.Lock()
		var r *round
		for _, f := range s.flight {
			if f.answer.Load() != nil {
				r = f
				break
			}
		}
		s.mu.Unlock()
		if r == nil {
			return
		}
		answer := r.answer.Swap(nil)
		s.handle(r, answer.Read())
	}
}

// handle handles the result of a round.
func (s *Session) handle(r *round, res store.Result) {
	o := outcomeOf(r, res)
	s.note(o)
	var begun []*Attempt
	if res.Answer != nil {
		begun = s.begin(res.Answer)
	}
	if res.Dropped > 0 {
		s.queue.counts.Dropped.Add(int64(res.Dropped))
		s.dropped.Add(res.Dropped, r.Finish.MaxFailed)
		s.engine.Trace.FailedDropped(worqrtrace.Queue{At: time.Now(), Queue: s.queue.name, WorkerID: s.member.Worker, Tasks: res.Dropped})
	}
	if o.err == nil {
		s.retry.Reset()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handleLocked(time.Now(), r, res, o, begun)
}

// note logs the error of a round, and that rounds are answered again. Like a call, a round is repeated quietly for a
// while if it will soon be accepted: moving a slot is routine.
func (s *Session) note(o outcome) {
	switch {
	case !o.passes:
		s.refusals = time.Time{}
	case s.refusals.IsZero():
		s.refusals = time.Now()
	}
	if o.passes && time.Since(s.refusals) < s.engine.CallTimeout {
		return
	}
	trouble := o.err
	if errors.Is(trouble, store.ErrEvicted) {
		trouble = nil // Redis answers; the fleet says that the worker was evicted
	}
	s.upset.Note(s.engine.Log, "can't start or finish tasks; retrying", trouble, "queue", s.queue.id)
}

// An outcome says what follows from the result of a round. It's decided without a lock, since the error of a Pool is
// user code, whose methods may use the peer.
type outcome struct {
	finish, start step
	err           error // the first one
	passes        bool  // Redis will soon accept what it has refused
	unsent        bool  // Redis couldn't be reached, so it's no fault of the round
	closed        bool  // there will be no more answers
}

func outcomeOf(r *round, res store.Result) outcome {
	err := cmp.Or(res.FinishErr, res.StartErr)
	return outcome{
		finish: next(res.FinishErr, r.lost), start: next(res.StartErr, r.lost), err: err,
		passes: store.IsRepeatable(err), unsent: !isUnknown(err) && !store.IsAnswer(err), closed: errors.Is(err, store.ErrClosed),
	}
}

// handleLocked does handle's work under the lock. begun are the attempts that the round started.
func (s *Session) handleLocked(now time.Time, r *round, res store.Result, o outcome, begun []*Attempt) {
	defer s.calmLocked()
	s.talked = now
	if s.ended != nil {
		for _, t := range begun {
			t.cancel(ErrShutdown) // nobody will run it
		}
		return
	}
	if o.finish == evict || o.start == evict {
		s.evictedLocked()
		return
	}
	if r.Finish != nil {
		s.finishedLocked(r, o.finish, res)
	}
	if r.Start != nil {
		s.startedLocked(now, r, o.start, res, begun)
	}
	if r.Finish == nil && r.Start == nil {
		s.flight = slices.DeleteFunc(s.flight, func(f *round) bool { return f == r })
		s.stops.forget(s.flight, s.sent)
	}
	if o.err != nil {
		s.failedLocked(now, r, o)
	}
}

// begin returns the attempts that an answer started; nil for those that have ended since.
func (s *Session) begin(a *store.Answer) []*Attempt {
	begun := make([]*Attempt, 0, len(a.Tasks))
	for i := range a.Tasks {
		if !a.Tasks[i].Over {
			t := newAttempt(s, &a.Tasks[i])
			t.began = a.Now
			begun = append(begun, t)
		}
	}
	return begun
}

// failedLocked decides what follows after a round, or a half of it, has failed. The first loss of a reply
// is no reason to wait. If the replies to a round are lost again and again while Redis answers heartbeats,
// they are too large for something on the way, so the worker needs a new id: then others return its tasks. A repeat
// that Redis hasn't got, or postpones, doesn't count: after an outage, heartbeats may be answered first.
func (s *Session) failedLocked(now time.Time, r *round, o outcome) {
	isLost := r.Finish != nil || r.Start != nil
	if isLost {
		if r.failures == 0 {
			r.since = now
		}
		r.lost, r.again, r.failures = true, true, r.failures+1
		if !o.unsent && !o.passes {
			r.losses++
		}
		s.lendLocked(r)
		if r.losses >= mostLosses && s.lease.pulsed.After(r.since) {
			s.evictedLocked()
			return
		}
	}
	if s.closing && (!isLost && !(o.passes && now.Before(s.patient)) || r.failures > 1) || o.closed {
		s.abandonLocked()
		return
	}
	if isLost && r.failures == 1 {
		return
	}
	s.tellFailedLocked(r, o.err)
	s.restLocked()
}

// restLocked sends nothing for a while.
func (s *Session) restLocked() {
	if s.resting {
		return
	}
	s.resting = true
	time.AfterFunc(s.retry.Next(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resting = false
		s.nudge()
	})
}

// abandonLocked gives up what is in flight: the worker is about to leave, or the connections are closed.
func (s *Session) abandonLocked() {
	s.silent = true
	for _, r := range s.flight {
		s.vacateLocked(r)
		s.loseLocked(r, ErrNotWorking)
	}
	s.flight = nil
}

// tellFailedLocked returns the error of a round that will be repeated to those who wait for it.
func (s *Session) tellFailedLocked(r *round, err error) {
	if !r.lost {
		return // they know
	}
	if s.serves {
		s.queue.needsLocked(false)
	}
	unknown := &pair{store.ErrUnknown, err}
	for _, end := range r.ends {
		if !end.ours {
			end.tellLocked(settled{err: unknown, unknown: true})
		}
	}
	for _, w := range r.wants {
		if !w.gone {
			w.tellLocked(unknown)
		}
		w.gone = true
	}
}

// lendLocked gives back the slots of a round whose answer may take a while, so that queues on servers that do answer
// can use them.
func (s *Session) lendLocked(r *round) {
	if !s.serves || r.Start == nil {
		return
	}
	r.lent += len(r.slots)
	s.queue.unreserveLocked(r.slots, true)
	r.slots = nil
}

// vacateLocked gives back what a round has reserved.
func (s *Session) vacateLocked(r *round) {
	if s.serves && r.Start != nil {
		s.queue.unreserveLocked(r.slots, true)
		s.queue.asked -= r.ahead()
		r.slots = nil
	}
}

// finishedLocked handles the result of a Finish.
func (s *Session) finishedLocked(r *round, what step, res store.Result) {
	switch what {
	case repeat:
		return
	case undo:
		for _, end := range r.ends {
			if t := s.held[end.Attempt]; t != nil {
				t.away = false
			}
			if end.ours {
				s.say = append(s.say, end)
			} else {
				end.tellLocked(settled{err: res.FinishErr})
			}
		}
	case take:
		failed := map[store.Kind]int{} // without being begun
		for i, end := range r.ends {
			if s.settledLocked(end, res.Settled[i], r.lost) == store.OK && end.isUnfit() {
				failed[end.Kind]++
			}
		}
		s.failedUnbegunLocked(failed)
	}
	r.Finish, r.ends = nil, nil
}

// settledLocked handles the answer to one ending. It returns the answer, corrected if the round was repeated.
func (s *Session) settledLocked(end *ending, what store.Settled, repeated bool) store.Settled {
	t := s.held[end.Attempt]
	if what == store.Gone && repeated && end.held {
		what = store.OK // the first copy of the round ended it
	}
	if what == store.Refused {
		if t != nil {
			t.away = false
		}
		if t != nil && end.isUnbegun() {
			s.refused = append(s.refused, t) // returned by the next heartbeat
			s.safeLocked(t)
		}
		end.tellLocked(settled{err: errRefused})
		return what
	}
	s.countLocked(end, what)
	if t != nil && t.Token == end.Token {
		delete(s.held, t.ID)
		t.settledLocked(end, what)
		t.endLocked(context.Canceled)
		s.safeLocked(t)
	}
	end.tellLocked(settled{what: what})
	return what
}

// errRefused begins with Redis's own word.
var errRefused = errors.New("WRONGTYPE a key of the task, its queue or the failed queue has the wrong type; Check names it")

// countLocked counts an end, and notes a failure.
func (s *Session) countLocked(end *ending, what store.Settled) {
	c := s.queue.counts
	switch {
	case what == store.Gone:
	case what == store.Canceled || end.Verb == store.Drop:
		c.Canceled.Add(1)
	case end.Verb == store.Done:
		c.Finished.Add(1)
	case end.Verb == store.Retry:
		c.Retried.Add(1)
	case end.Verb == store.Snooze:
		c.Snoozed.Add(1)
	case end.Verb == store.Fail:
		c.Failed.Add(1)
		if t := s.held[end.Attempt]; t != nil && !end.isUnfit() {
			s.noteLocked(func() { s.engine.failures.final(t, end.Kind, logs.Printable(end.Reason)) })
		}
	case !end.isUnbegun():
		c.Stopped.Add(1)
	}
}

// failedUnbegunLocked reports tasks that failed without being begun. Expired tasks don't indicate a fault,
// and there may be many.
func (s *Session) failedUnbegunLocked(failed map[store.Kind]int) {
	crashes, _ := s.queue.limitsLocked()
	for kind, tasks := range failed {
		s.engine.Trace.Failed(worqrtrace.Queue{
			At: time.Now(), Queue: s.queue.name, WorkerID: s.member.Worker, OnFailed: s.queue.isFailed(), Kind: kind, Tasks: tasks,
		})
		if kind == store.Expired {
			s.queue.counts.Expired.Add(int64(tasks))
		}
		s.noteLocked(func() {
			switch kind {
			case store.Expired:
				s.engine.failures.expired(s.queue.id, tasks)
			case store.Crashed:
				s.engine.failures.crashed(s.queue.id, tasks, crashes)
			default:
				s.engine.failures.tooLarge(s.queue.id, tasks, s.engine.maxPayload())
			}
		})
	}
}

// startedLocked handles the result of a Start.
func (s *Session) startedLocked(now time.Time, r *round, what step, res store.Result, begun []*Attempt) {
	switch what {
	case repeat:
		return
	case undo:
		if s.serves && !s.closing {
			r.slots = s.queue.fillLocked(r.slots)
		}
		s.vacateLocked(r)
		for _, w := range r.wants {
			if !w.gone {
				w.tellLocked(res.StartErr)
			}
			w.gone = true
		}
		s.look = s.look || s.serves
	case take:
		s.applyLocked(now, r, res.Answer, begun)
	}
	r.Start, r.wants = nil, nil
}

// applyLocked handles the answer to a Start. begun are the attempts that it started.
func (s *Session) applyLocked(now time.Time, r *round, a *store.Answer, begun []*Attempt) {
	repeated := a.Before >= r.Start.Round
	if !repeated {
		s.witnessLocked(r, a)
	}
	s.lease.renew(now, r.at)
	if s.serves && !r.lost {
		s.queue.pace.answered(now, now.Sub(r.at))
	}
	late := !s.lease.isSure(now) && len(begun) > 0
	if r.lent > 0 {
		r.slots = s.queue.reserveLocked(min(r.lent, len(begun)))
	}
	tasks := s.keepLocked(r, a, begun, late)
	s.learn(r, a, len(tasks), repeated)
	tasks = s.distributeLocked(r, tasks, a, late)
	s.handLocked(r, tasks)
	if s.serves {
		s.queue.needsLocked(a.More > 0) // even if there was no room to ask for tasks
	}
	s.claimLocked(a)
	if s.idle && s.more { // none that can start could: some have moved, or another program's keys are in the way
		time.AfterFunc(soon, func() { s.Wake() })
	}
}

// learn draws conclusions from an answer that brought some tasks: whether the worker is idle now, whether
// more can start, and for how many to ask next.
func (s *state) learn(r *round, a *store.Answer, brought int, repeated bool) {
	if repeated { // whatever it asked for, a new start has to ask
		s.look, s.idle = true, false
		return
	}
	n := len(a.Tasks)
	s.more = a.More > 0
	s.plenty = s.more && n >= r.Start.Wanted
	s.idle = r.Start.Idle && n < r.Start.Wanted-r.Start.Ahead && (!s.more || n == 0)
	if s.serves && r.Start.Wanted > 0 {
		full := n == r.Start.Wanted || n > 0 && s.more
		s.ask = nextAsk(s.ask, brought, full, full && n < r.Start.Wanted)
	}
}

// keepLocked records the started tasks as held. It returns the tasks to handle; the rest go back or
// fail. late reports that the answer came too late.
func (s *Session) keepLocked(r *round, a *store.Answer, begun []*Attempt, late bool) []*Attempt {
	if late {
		s.recalls++ // tasks of rounds in flight must not overtake these
	}
	tasks, n := make([]*Attempt, 0, len(begun)), 0
	for i := range a.Tasks {
		if a.Tasks[i].Over {
			continue
		}
		t := begun[n]
		n++
		s.held[t.ID] = t
		s.meetLocked(t)
		if why, fails := s.fails(&a.Tasks[i], a.Now, r.Start.MaxCrashes); fails {
			s.say = append(s.say, t.unbegun(why))
			continue
		}
		if late { // another worker may have it, or it was canceled
			s.giveBackLocked(t)
			continue
		}
		if crashes := r.Start.MaxCrashes; crashes > 0 && t.Crashes >= max(crashes-1, 1) {
			if t.risky = s.engine.risk.CompareAndSwap(false, true); !t.risky {
				s.giveBackLocked(t) // another queue has started one in the meantime
				continue
			}
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// fails returns how a task ends that must not be handled: it has expired, has crashed too often, or is too
// large. In a failed queue, no task expires.
func (s *Session) fails(t *store.Attempt, now int64, crashes int) (e store.End, fails bool) {
	e.Verb = store.Fail
	size := len(t.Record.Payload)
	switch expires, most := t.Record.Expires, s.engine.maxPayload(); {
	case t.Record.Failure == nil && !s.queue.isFailed() && expires > 0 && expires <= now:
		e.Kind, e.Reason = store.Expired, "its time was over before it started"
	case crashes > 0 && t.Crashes >= crashes:
		e.Kind, e.Reason = store.Crashed, fmt.Sprint(t.Crashes, " workers died holding it")
	case size > most:
		e.Kind, e.Reason = store.Malformed, fmt.Sprintf("the payload has %d bytes; the limit is %d", size, most)
	default:
		return e, false
	}
	return e, true
}

// distributeLocked gives tasks to the callers that asked for some, and returns the rest. If the
// answer came too late (late), these tasks go back.
func (s *Session) distributeLocked(r *round, tasks []*Attempt, a *store.Answer, late bool) []*Attempt {
	for _, w := range r.wants {
		if w.gone {
			continue
		}
		n := min(w.n, len(tasks))
		w.n, w.have, tasks = w.n-n, append(w.have, tasks[:n]...), tasks[n:]
		s.queue.counts.Started.Add(int64(n))
		switch {
		case w.n > 0 && len(a.Tasks) > 0 && a.More > 0, len(w.have) == 0 && (late || r.lost):
			w.begun = w.begun || late
			s.wants = append(s.wants, w) // more tasks can start
		case len(w.have) == 0 && a.More == store.InReturn:
			s.wants = append(s.wants, w)
			s.restLocked()
		default:
			w.tellLocked(ErrNoTask)
		}
	}
	return tasks
}

// handLocked gives tasks to the handler. Those that it can't take return to the queue.
func (s *Session) handLocked(r *round, tasks []*Attempt) {
	if s.serves {
		n, slots := min(len(tasks), len(r.slots)+r.ahead()), min(len(tasks), len(r.slots))
		// They must not overtake tasks recalled in the meantime.
		if !s.closing && n > 0 && r.recalls == s.recalls && s.queue.takeLocked(tasks[:n], r.slots[:slots:slots]) {
			tasks, r.slots = tasks[n:], r.slots[slots:]
		}
		s.queue.asked -= r.ahead()
		s.queue.unreserveLocked(s.queue.fillLocked(r.slots), s.idle)
		r.slots = nil
		if len(tasks) > 0 {
			s.recalls++ // tasks of rounds in flight must not overtake these either
		}
	}
	for _, t := range tasks {
		s.giveBackLocked(t)
	}
}

// claimLocked keeps a timer until the time that this worker has claimed has passed, by Redis's clock.
func (s *Session) claimLocked(a *store.Answer) {
	if a.Due >= 0 {
		s.claim = a.Now + a.Due.Milliseconds()
		s.look = s.look || s.claim == a.Now // more have come than one round moves
	}
	if s.claim > a.Now {
		s.clock.Reset(time.Duration(s.claim-a.Now) * time.Millisecond)
	}
}
