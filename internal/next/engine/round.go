package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/next/store"
	"github.com/worqr/worqr/worqrtrace"
)

const (
	maxFlight  = 2  // rounds in flight
	firstAsk   = 4  // tasks to ask for after a lull
	worthwhile = 32 // ends to say, or tasks to ask for, that justify a second round
	soon       = 20 * time.Millisecond
	mostLosses = 3 // replies to a round that are lost before the worker takes a new id
)

// A state is what a session knows: what it holds, what it has to say, and what is in flight.
type state struct {
	ended   error // why there are no more rounds
	closing bool  // start no more tasks
	silent  bool  // send no more rounds
	serves  bool  // there is a handler

	held    map[string]*Attempt
	refused []*Attempt // tasks still held because Redis refused to take them back
	say     []*ending
	wants   []*want
	flight  []*round  // sent and not answered, oldest first
	number  int64     // of the last start
	sent    int64     // how many rounds were sent
	talked  time.Time // when a round was last sent or answered
	resting bool      // a round has failed: send nothing for a while

	look    bool // send a start: tasks may wait, or the wake-up must be passed on
	idle    bool // Redis wakes this worker when tasks come
	more    bool // according to the last answer, more tasks can start
	crowded bool // according to the last heartbeat, another worker is idle: prefetch nothing
	ask     int  // for how many tasks the next round asks at most
	recalls int  // how many times ready tasks were recalled

	claim int64 // ms of Redis time: this worker sends a start then; 0 or past: it has claimed no time
}

func newState(last int64, serves bool) state {
	return state{held: map[string]*Attempt{}, number: last, ask: firstAsk, look: serves, serves: serves}
}

// A round is sent and not answered.
type round struct {
	store.Round           // a half that is settled is nil
	ends        []*ending // of the Finish, in its order
	wants       []*want   // that the Start asks for first
	slots       []slot    // for the handler's tasks, which follow
	lent        int       // slots given back while the reply was lost
	index       int64     // it's the nth that was sent
	at          time.Time // when it was sent
	mark        Mark      // what the session knew then
	recalls     int       // how many times ready tasks had been recalled by then
	lost        bool      // Redis may have carried it out before: it's repeated unchanged
	losses      int       // how many replies were lost since since
	since       time.Time // when the first of them was lost
	again       bool      // it has to be sent again
	answer      atomic.Pointer[store.Replied]
}

// ahead returns how many tasks the round prefetches.
func (r *round) ahead() int {
	if r.Start == nil {
		return 0
	}
	return r.Start.Ahead
}

// nextLocked returns the round to send now: one that must be repeated, or a new one. It returns nil if there's none.
func (s *Session) nextLocked(now time.Time) *round {
	if s.ended != nil || s.silent || s.resting {
		return nil
	}
	if r, repeating := s.repeated(); repeating {
		if r != nil {
			r.again, r.at = false, now
		}
		return r
	}
	free, room := 0, 0
	if s.serves && !s.closing {
		if free = s.queue.freeLocked(); !s.crowded {
			room = s.queue.roomLocked()
		}
	}
	if !s.isDue(free, room) {
		return nil
	}
	r := s.composeLocked(now, s.queue, free, room)
	if r == nil {
		return nil
	}
	if r.Finish != nil {
		r.Finish.Worker = s.member.Worker
	}
	if r.Start != nil {
		r.Start.Worker, r.Start.Lease = s.member.Worker, s.engine.Lease.Grant
	}
	r.mark, s.talked = s.marks.now(), now
	s.flight = append(s.flight, r)
	return r
}

// repeated returns the first round to send again, once all that failed are known. repeating reports that
// nothing else may be sent.
func (s *state) repeated() (r *round, repeating bool) {
	for _, f := range s.flight {
		repeating = repeating || f.lost
		if f.again && r == nil {
			r = f
		}
	}
	for _, f := range s.flight {
		if r != nil && !f.again && !f.lost {
			return nil, true // its failure is about to come
		}
	}
	return r, repeating
}

// isDue reports whether to send a round now. free slots could take tasks, and room is how many more could be prefetched.
func (s *state) isDue(free, room int) bool {
	asks := s.look || len(s.wants) > 0 || free > 0 && !s.idle || s.more && room >= worthwhile
	switch len(s.flight) {
	case 0:
		return len(s.say) > 0 || asks
	case 1: // a second round has to be worth it, unless it's for what the first doesn't do
		return len(s.say) >= worthwhile || s.more && min(s.ask, free+room) >= worthwhile || asks && s.flight[0].Start == nil
	}
	return false
}

// composeLocked makes the next round. It takes slots from the queue for the tasks that it asks for. It returns nil if there's
// nothing to send.
func (s *state) composeLocked(now time.Time, q *Queue, free, room int) *round {
	r := &round{index: s.sent + 1, at: now, recalls: s.recalls}
	crashes, keep := q.limitsLocked()
	back := s.gather(r)
	if len(r.ends) > 0 {
		r.Finish = &store.Finish{MaxFailed: keep, Ends: make([]*store.End, len(r.ends))}
		for i, end := range r.ends {
			r.Finish.Ends[i] = &end.End
		}
	}
	start := &store.Start{MaxCrashes: crashes, Stamp: now.UnixMilli()}
	if !back {
		s.requestLocked(r, start, q, free, room)
	}
	if s.look && !back || start.Wanted > 0 {
		s.number++
		start.Round, start.Solo = s.number, s.maySolo(q.engine)
		r.Start, s.look = start, false
	}
	if r.Finish == nil && r.Start == nil {
		return nil
	}
	s.sent++
	return r
}

// requestLocked makes a start ask for tasks: for callers, for free slots, and to prefetch.
func (s *state) requestLocked(r *round, start *store.Start, q *Queue, free, room int) {
	for len(s.wants) > 0 && start.Wanted < store.RoundWeight {
		start.Wanted = min(start.Wanted+s.wants[0].n, store.RoundWeight)
		r.wants, s.wants = append(r.wants, s.wants[0]), s.wants[1:]
	}
	if !s.serves || s.closing || s.idle && !s.look {
		return
	}
	n := min(s.ask, store.RoundWeight-start.Wanted)
	if free > 0 {
		r.slots = q.reserveLocked(min(n, free))
	}
	start.Idle = len(r.slots) > 0
	start.Ahead = min(room, n-len(r.slots))
	start.Wanted += len(r.slots) + start.Ahead
	q.asked += start.Ahead
}

// maySolo reports whether a round may start a risky task: the peer has none, and no other round in flight may.
func (s *state) maySolo(e *Engine) bool {
	return !e.risk.Load() && !slices.ContainsFunc(s.flight, func(f *round) bool { return f.Start != nil && f.Start.Solo })
}

// gather moves as many ends into a round as fit. It reports whether the round must not ask for tasks: those that go
// back start before all others, and ends mustn't pile up.
func (s *state) gather(r *round) (back bool) {
	n := fitting(s.say)
	if n < len(s.say) {
		newestFirst(s.say)
		n = fitting(s.say) // the order has changed, and weights differ
	}
	rest := slices.Clone(s.say[n:])
	for _, end := range s.say[:n] {
		t := s.held[end.Attempt]
		if t != nil && t.away { // another round is ending it: one at a time
			rest = append(rest, end)
			continue
		}
		if end.held = t != nil; end.held {
			t.away = true
		}
		r.ends = append(r.ends, end)
	}
	s.say = rest
	// Plain ends come first, then the others; tasks to be returned are last, in the order of their starts.
	rank := func(end *ending) (kind int, token int64) {
		switch {
		case end.Plain():
			return 0, 0
		case end.Verb == store.Stop:
			return 2, end.Token
		}
		return 1, 0
	}
	slices.SortStableFunc(r.ends, func(a, b *ending) int {
		kindA, tokenA := rank(a)
		kindB, tokenB := rank(b)
		return cmp.Or(cmp.Compare(kindA, kindB), cmp.Compare(tokenA, tokenB))
	})
	return len(rest) > mostAhead || slices.ContainsFunc(rest, func(end *ending) bool { return end.Verb == store.Stop })
}

// fitting returns how many of the first ends fit into a round.
func fitting(ends []*ending) (n int) {
	weight, bytes := 0, 0
	for _, end := range ends {
		w, b := end.Weight()
		if n > 0 && (weight+w > store.RoundWeight || bytes+b > store.RoundBytes) {
			break
		}
		n, weight, bytes = n+1, weight+w, bytes+b
	}
	return n
}

// newestFirst reorders the tasks that go back among all ends, so that they do so newest first even if that takes several
// rounds: then the oldest ends up in front.
func newestFirst(ends []*ending) {
	var stops []*ending
	for _, end := range ends {
		if end.Verb == store.Stop {
			stops = append(stops, end)
		}
	}
	slices.SortStableFunc(stops, func(a, b *ending) int { return cmp.Compare(b.Token, a.Token) })
	for i, end := range ends {
		if end.Verb == store.Stop {
			ends[i], stops = stops[0], stops[1:]
		}
	}
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

// A want is a request for up to n tasks. If a round can't bring all, further rounds bring the rest.
// Session.mu protects all fields except got.
type want struct {
	n     int        // how many are missing
	have  []*Attempt // what earlier rounds have brought
	begun bool       // an answer came too late, so its tasks go back
	got   chan taken // gets one answer
	gone  bool       // nobody waits for it anymore
}

// A taken is the answer to a want.
type taken struct {
	tasks []*Attempt
	err   error // if there are none
}

// tellLocked answers the request unless it was answered. The caller gets err only if there are no
// tasks.
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

// loseLocked answers the request when the session has ended. Tasks that were started for it are lost, and other
// workers count a crash for each; so the error matches store.ErrUnknown then. asked reports that they may have been.
func (w *want) loseLocked(err error, asked bool) {
	if asked || w.begun || len(w.have) > 0 {
		err = &pair{err, store.ErrUnknown}
	}
	w.have = nil
	w.tellLocked(err)
}

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
	s.upset.Note(s.engine.Log, "can't start or finish tasks; retrying", o.err, "queue", s.queue.id)
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

// An outcome says what follows from the result of a round. It's decided without a lock, since the error of a Pool is
// user code, whose methods may use the peer.
type outcome struct {
	finish, start step
	err           error // the first one
	closed        bool  // there will be no more answers
}

func outcomeOf(r *round, res store.Result) outcome {
	err := cmp.Or(res.FinishErr, res.StartErr)
	return outcome{next(res.FinishErr, r.lost), next(res.StartErr, r.lost), err, errors.Is(err, store.ErrClosed)}
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
			begun = append(begun, newAttempt(s, &a.Tasks[i]))
		}
	}
	return begun
}

// failedLocked decides what follows after a round, or a half of it, has failed. The first loss of a reply is no reason to
// wait. If the replies to a round are lost again and again while Redis answers heartbeats, they are too large for
// something on the way, so the worker needs a new id: then others return its tasks.
func (s *Session) failedLocked(now time.Time, r *round, o outcome) {
	isLost := r.Finish != nil || r.Start != nil
	if isLost {
		if r.losses == 0 {
			r.since = now
		}
		r.lost, r.again, r.losses = true, true, r.losses+1
		s.lendLocked(r)
		if r.losses >= mostLosses && s.lease.pulsed.After(r.since) {
			s.evictedLocked()
			return
		}
	}
	if s.closing && (!isLost || r.losses > 1) || o.closed {
		s.abandonLocked()
		return
	}
	if isLost && r.losses == 1 {
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
			if s.settledLocked(end, res.Settled[i], r.lost) == store.OK && end.Verb == store.Fail && end.isUnbegun() {
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

var errRefused = errors.New("a key of the queue has the wrong type")

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
		if t := s.held[end.Attempt]; t != nil && !end.isUnbegun() {
			s.noteLocked(func() { s.engine.failures.final(t, end.Kind, logs.Printable(end.Reason)) })
		}
	case !end.isUnbegun():
		c.Stopped.Add(1)
	}
}

// failedUnbegunLocked reports tasks that failed without being begun. Expired tasks don't indicate a fault, and there may
// be many.
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

// learn draws conclusions from an answer that brought some tasks: whether the worker is idle now, whether more can start,
// and for how many to ask next.
func (s *state) learn(r *round, a *store.Answer, brought int, repeated bool) {
	if repeated { // whatever it asked for, a new start has to ask
		s.look, s.idle = true, false
		return
	}
	n := len(a.Tasks)
	s.more = a.More > 0
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

// fails returns how a task ends that must not be handled: it has expired, has crashed too often, or is too large. In a
// failed queue, no task expires.
func (s *Session) fails(t *store.Attempt, now int64, crashes int) (e store.End, fails bool) {
	e.Verb = store.Fail
	size := len(t.Record.Payload)
	switch expires, most := t.Record.Expires, s.engine.maxPayload(); {
	case t.Record.Failure == nil && !s.queue.isFailed() && expires > 0 && expires <= now:
		e.Kind, e.Reason = store.Expired, "its time was over before it started"
	case crashes > 0 && t.Crashes >= crashes:
		e.Kind, e.Reason = store.Crashed, fmt.Sprint(t.Crashes, " workers died holding it")
	case size > most:
		e.Kind, e.Reason = store.Malformed, errTooLarge{size, most}.Error()
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
