package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A step is what follows from the failure of a half of a round, or from its answer.
type step int

const (
	take    step = iota // handle the answer
	evicted             // the worker is no longer a member
	undo                // Redis hasn't carried it out
	repeat              // it may have: send it again unchanged
)

// next returns the step after a half of a round was answered, or has failed with err. lost reports that an earlier
// reply was lost: then Redis may have carried it out, whatever the error.
func next(err error, lost bool) step {
	switch {
	case err == nil:
		return take
	case errors.Is(err, store.ErrNoMember):
		return evicted
	case lost, errors.Is(err, store.ErrUnknown):
		return repeat
	}
	return undo
}

// receive handles the answers that have come, in the order of the rounds.
func (s *Session) receive() {
	s.mu.Lock()
	flight := slices.Clone(s.flight)
	s.mu.Unlock()
	answers := make([]*store.Replied, len(flight))
	for i, r := range slices.Backward(flight) { // if the answer to a later round is there, so are those before it
		answers[i] = r.answer.Swap(nil)
	}
	for i, r := range flight {
		if answers[i] != nil {
			s.handle(r, answers[i].Read())
		}
	}
}

// handle handles the result of a round.
func (s *Session) handle(r *round, res store.Result) {
	now := time.Now()
	o := s.outcomeOf(now, r, res)
	s.note(now, r, o)
	var started []*Attempt
	if res.Answer != nil {
		started = s.attemptsOf(res.Answer)
	}
	if res.Dropped > 0 {
		s.queue.counts.Dropped.Add(int64(res.Dropped))
		s.engine.failures.Dropped(s.queue.id, res.Dropped, r.Finish.MaxFailed)
		s.engine.Trace.FailedDropped(worqrtrace.Queue{At: time.Now(), Queue: s.queue.name, WorkerID: s.member.Worker, Tasks: res.Dropped})
	}
	if o.err == nil {
		s.retry.Reset()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handleLocked(time.Now(), r, res, o, started)
}

// note logs the error of a round, and that rounds are answered again. Rounds that were in flight together fail together,
// for example because the connection was closed: that's one failure.
func (s *Session) note(now time.Time, r *round, o outcome) {
	trouble := o.err
	switch {
	case o.brief, trouble != nil && r.at.Before(s.failed):
		return
	case errors.Is(trouble, store.ErrNoMember):
		trouble = nil // Redis answers; the fleet says that the worker was evicted
	}
	if trouble != nil {
		s.failed = now
	}
	s.upset.Note(s.engine.Log, "can't start or finish tasks; retrying", trouble, "queue", s.queue.id)
}

// An outcome says what follows from the result of a round. It's decided without a lock, since the error of a Pool is
// user code, whose methods may use the peer.
type outcome struct {
	finish, start step
	err           error // the first one
	passes        bool  // Redis will soon accept what it has refused
	brief         bool  // the same, and it hasn't refused for longer than a call may take: nothing is logged
	unsent        bool  // there was no connection, so it's no fault of the round
	closed        bool  // there will be no more answers
}

// outcomeOf returns what follows from the result of a round. Call it once for each, in order.
func (s *Session) outcomeOf(now time.Time, r *round, res store.Result) outcome {
	err := cmp.Or(res.FinishErr, res.StartErr)
	passes := store.IsRepeatable(err)
	switch {
	case !passes:
		s.postponed = time.Time{}
	case s.postponed.IsZero():
		s.postponed = now
	}
	return outcome{
		finish: next(res.FinishErr, r.isLost()), start: next(res.StartErr, r.isLost()), err: err,
		passes: passes, brief: passes && now.Sub(s.postponed) < s.engine.CallTimeout,
		unsent: !errors.Is(err, store.ErrUnknown) && (!store.IsAnswer(err) || store.IsUnsent(err)), closed: errors.Is(err, store.ErrClosed),
	}
}

// handleLocked does handle's work under the lock. started are the attempts that the round started.
func (s *Session) handleLocked(now time.Time, r *round, res store.Result, o outcome, started []*Attempt) {
	defer s.hushLocked()
	s.talked = now
	if !slices.Contains(s.flight, r) { // the session has given it up, so nobody waits for the answer
		for _, t := range started {
			t.cancel(ErrShutdown) // nobody will run it
		}
		return
	}
	if o.finish == evicted || o.start == evicted {
		s.evictedLocked()
		return
	}
	if r.Finish != nil {
		s.finishedLocked(now, r, o, res)
	}
	if r.Start != nil {
		if a := res.Answer; a != nil && a.Before >= r.Start.Round && !r.isLost() {
			s.evictedLocked() // another program has raised the last round: only under a new id does anything start
			return
		}
		s.startedLocked(now, r, o, res, started)
	}
	if r.Finish == nil && r.Start == nil {
		s.flight = slices.DeleteFunc(s.flight, func(f *round) bool { return f == r })
	}
	if o.err != nil {
		s.failedLocked(now, r, o)
	}
	s.stopLocked()
}

// attemptsOf returns the attempts that an answer started, without those that have ended since.
func (s *Session) attemptsOf(a *store.Answer) []*Attempt {
	started := make([]*Attempt, 0, len(a.Tasks))
	for i := range a.Tasks {
		if !a.Tasks[i].Over {
			started = append(started, newAttempt(s, &a.Tasks[i], a.Now))
		}
	}
	return started
}

// failedLocked decides what follows after a round, or a half of it, has failed. A half that Redis has refused is settled
// and nil by now; one whose reply was lost isn't.
//
//	refused for a reason that passes    rest; then say and ask again
//	refused                             the same; if closing, give up
//	the first reply is lost             repeat the round at once
//	a later one is lost                 tell those who wait, and rest; if closing, give up
//	three are lost, or repeats refused  if heartbeats are answered, take a new id: the round may be too large for something
//	no more answers will come           give up
//
// A repeat that Redis hasn't got, or postpones, isn't counted: after an outage, heartbeats may be answered first.
func (s *Session) failedLocked(now time.Time, r *round, o outcome) {
	unsettled := r.Finish != nil || r.Start != nil
	if unsettled {
		if !r.isLost() {
			r.since = now
		}
		r.again, r.failures = true, r.failures+1
		if !o.unsent && !o.passes {
			r.unanswered++
		}
		s.vacateRoundLocked(r) // the answer may take a while, and queues on servers that do answer can use the slots
		if r.unanswered >= mostUnanswered && s.lease.pulsed.After(r.since) {
			s.evictedLocked()
			return
		}
	}
	if s.closing && (!unsettled && !o.brief || r.failures > 1) || o.closed {
		s.loseFlightLocked(ErrNotWorking) // the worker is about to leave, or the connections are closed
		s.silenceLocked()
		return
	}
	if unsettled && r.failures == 1 {
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

// tellFailedLocked returns the error of a round that will be repeated to those who wait for it.
func (s *Session) tellFailedLocked(r *round, err error) {
	if !r.isLost() {
		return // they know
	}
	s.queue.needsLocked(false)
	unknown := &pair{store.ErrUnknown, err}
	for _, end := range r.ends {
		if end.done != nil {
			end.tellLocked(unknown)
		}
	}
	for _, w := range r.wants {
		w.tellLocked(nil, unknown)
	}
}

// vacateRoundLocked gives back the slots of a round, and the spare ones.
func (s *Session) vacateRoundLocked(r *round) {
	if r.Start != nil {
		s.queue.forgoLocked()
		s.queue.vacateLocked(r.slots)
		r.slots = nil
	}
}

// finishedLocked handles the result of a Finish.
func (s *Session) finishedLocked(now time.Time, r *round, o outcome, res store.Result) {
	switch o.finish {
	case repeat:
		return
	case undo:
		for _, end := range r.ends {
			end.task.away = false
			if end.done == nil || o.passes && now.Before(end.until) {
				s.say = append(s.say, end)
			} else {
				end.tellLocked(res.FinishErr)
			}
		}
	case take:
		failed := map[store.Kind]int{} // without being begun
		for i, end := range r.ends {
			if s.settledLocked(end, res.Settled[i], r.isLost()) == store.OK && end.unfit {
				failed[end.Kind]++
			}
		}
		s.failedUnbegunLocked(failed)
	}
	r.Finish, r.ends = nil, nil
}

// settledLocked handles the answer to one ending. It returns the answer, corrected if an earlier reply was lost.
func (s *Session) settledLocked(end *ending, what store.Settled, lost bool) store.Settled {
	t := end.task
	isHeld := s.held[t.ID] == t
	if what == store.Gone && lost && end.held {
		what = store.OK // the first copy of the round ended it
	}
	switch what {
	case store.Refused:
		s.refusedLocked(end)
		return what
	case store.Postponed:
		t.away = false
		s.say = append(s.say, end)
		return what
	}
	if end.refused {
		s.mu.laterLocked(func() {
			s.queue.upset.Note(s.engine.Log, "can't store task results; retrying", nil, "queue", s.queue.id)
		})
	}
	s.countLocked(end, what, isHeld)
	if isHeld {
		t.answeredLocked(end, what)
		s.releaseLocked(t, context.Canceled)
	}
	if what != store.Gone {
		t.ended = end.Verb
	}
	if t.ended == end.Verb { // now, or by an earlier call
		end.tellLocked(nil)
	} else {
		end.tellLocked(ErrNotOwner)
	}
	return what
}

// refusedLocked handles that Redis refuses an ending, since a key has the wrong type. The task stays.
func (s *Session) refusedLocked(end *ending) {
	end.task.away = false
	if end.done != nil {
		end.tellLocked(errRefused)
		return
	}
	end.refused = true
	s.refused = append(s.refused, end)
	s.mu.laterLocked(func() {
		s.queue.upset.Note(s.engine.Log, "can't store task results; retrying", errRefused, "queue", s.queue.id)
	})
}

// releaseLocked lets go of a task, and ends its context.
func (s *Session) releaseLocked(t *Attempt, cause error) {
	delete(s.held, t.ID)
	t.interruptLocked(cause)
	if t.Crashes > 0 {
		s.crashed--
	}
	if t.risky { // another risky one may start
		t.risky = false
		s.engine.risk.Store(false)
		if s.serves {
			s.wakeLocked()
		}
	}
}

// errRefused begins with Redis's own word.
var errRefused = errors.New("WRONGTYPE a key of the task, its queue or the failed queue has the wrong type; Check names it")

// countLocked counts an end, and logs a failure.
func (s *Session) countLocked(end *ending, what store.Settled, isHeld bool) {
	c := s.queue.counts
	switch {
	case what == store.Gone:
		if isHeld && !end.isUnbegun() {
			c.Lost.Add(1)
		}
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
		if t := end.task; !end.unfit && s.engine.failures.HasHandlers() {
			attrs := t.named("kind", string(end.Kind), "attempts", t.Retries+1, "err", logs.Printable(end.Reason))
			s.mu.laterLocked(func() { s.engine.failures.Error("worqr: task failed for good", s.queue.id, 1, attrs...) })
		}
	case !end.isUnbegun():
		c.Stopped.Add(1)
	}
}

// failedUnbegunLocked reports how many tasks failed without being begun, by kind. Expired tasks don't indicate a fault.
func (s *Session) failedUnbegunLocked(failed map[store.Kind]int) {
	q, f := s.queue, s.engine.failures
	for kind, tasks := range failed {
		s.engine.Trace.Failed(worqrtrace.Queue{
			At: time.Now(), Queue: q.name, WorkerID: s.member.Worker, OnFailed: q.isFailed(), Kind: kind, Tasks: tasks,
		})
		attrs := []any{"queue", q.id, "tasks", tasks, "kind", string(kind)}
		say, what := f.Error, "worqr: tasks failed for good without running; list them with Failed"
		if kind == store.Expired {
			q.counts.Expired.Add(int64(tasks))
			say, what = f.Warn, "worqr: tasks expired before they started; list them with Failed"
		}
		s.mu.laterLocked(func() { say(what, q.id, tasks, attrs...) })
	}
}

// startedLocked handles the result of a Start.
func (s *Session) startedLocked(now time.Time, r *round, o outcome, res store.Result, started []*Attempt) {
	switch o.start {
	case repeat:
		return
	case undo:
		if s.serves && !s.closing {
			r.slots = s.queue.fillLocked(r.slots)
		}
		s.vacateRoundLocked(r)
		for _, w := range r.wants {
			switch {
			case w.gone:
			case o.passes && now.Before(w.until):
				s.wants = append(s.wants, w)
			default:
				w.tellLocked(nil, res.StartErr)
			}
		}
		s.woken = s.woken || s.serves
	case take:
		s.applyLocked(now, r, res.Answer, started)
	}
	s.queue.coming -= r.Start.Ahead
	r.Start, r.wants = nil, nil
}

// applyLocked handles the answer to a Start. started are the attempts that it started.
func (s *Session) applyLocked(now time.Time, r *round, a *store.Answer, started []*Attempt) {
	repeated := a.Before >= r.Start.Round
	if !repeated {
		s.witnessLocked(r, a)
	}
	s.lease.renew(now, r.at)
	switch {
	case !s.serves:
	case r.isLost(): // its slots were given back
		r.slots = s.queue.reserveLocked(min(r.Start.Wanted-r.Start.Ahead, len(started)))
	default:
		s.queue.pace.Answered(now, now.Sub(r.at))
	}
	late := !s.lease.isSure(now) && len(started) > 0
	tasks := s.keepLocked(r, started, late)
	s.learn(r, a, len(tasks), repeated)
	tasks = s.distributeLocked(r, tasks, a, late)
	s.handLocked(r, tasks)
	s.queue.needsLocked(a.More > 0) // even if there was no room to ask for tasks
	s.claimLocked(a)
	if s.idle && s.more { // none that can start could: some have moved, or another program's keys are in the way
		time.AfterFunc(soon, func() { s.Wake() })
	}
}

// learn draws conclusions from an answer that brought some tasks: whether the worker is idle now, whether
// more can start, and for how many to ask next.
func (s *state) learn(r *round, a *store.Answer, brought int, repeated bool) {
	if repeated { // whatever it asked for, a new start has to ask
		s.woken, s.idle = true, false
		return
	}
	n := len(a.Tasks)
	s.more = a.More > 0
	s.plenty = s.more && n >= r.Start.Wanted
	s.idle = r.Start.Idle && n < r.Start.Wanted-r.Start.Ahead && (!s.more || n == 0)
	if s.serves && r.Start.Wanted > 0 {
		switch {
		case n == r.Start.Wanted:
			s.ask = min(2*s.ask, store.RoundWeight)
		case n > 0 && s.more:
			s.ask = max(firstAsk, brought+brought/4) // not many more fit into a round
		default:
			s.ask = max(firstAsk, brought)
		}
	}
}

// keepLocked records the started tasks as held. It returns the tasks to handle; the rest go back or
// fail. late reports that the answer came too late.
func (s *Session) keepLocked(r *round, started []*Attempt, late bool) []*Attempt {
	if late {
		s.recalls++ // tasks of rounds in flight must not overtake these
	}
	tasks := make([]*Attempt, 0, len(started))
	for _, t := range started {
		s.held[t.ID] = t
		if t.Crashes > 0 {
			s.crashed++
		}
		if why, fails := t.fails(r.Start.MaxCrashes); fails {
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

// distributeLocked gives tasks to the callers that asked for some, and returns the rest. late reports that the answer
// came too late.
func (s *Session) distributeLocked(r *round, tasks []*Attempt, a *store.Answer, late bool) []*Attempt {
	for _, w := range r.wants {
		n := min(w.n, len(tasks))
		more := a.More > 0 && len(a.Tasks) > 0 // but these can't be handled
		switch {
		case w.gone:
		case n > 0:
			s.queue.counts.Started.Add(int64(n))
			w.tellLocked(tasks[:n:n], nil)
			tasks = tasks[n:]
		case late || more || r.isLost():
			s.wants = append(s.wants, w)
		case a.More > 0, a.More == store.InReturn: // all that this round read became risky, or nothing starts yet
			s.wants = append(s.wants, w)
			s.restLocked()
		default:
			w.tellLocked(nil, ErrNoTask)
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
		if s.idle {
			s.queue.forgoLocked()
		}
		s.queue.vacateLocked(s.queue.fillLocked(r.slots))
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
		s.woken = s.woken || s.claim == a.Now // more have come than one round moves
	}
	if s.claim > a.Now {
		s.clock.Reset(time.Duration(s.claim-a.Now) * time.Millisecond)
	}
}
