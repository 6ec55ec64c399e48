package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

func (s *Session) runRounds() {
	t := &talk{Session: s, retry: store.NewBackoff()}
	for t.goOn() {
	}
}

// A talk makes consecutive rounds, on a goroutine.
type talk struct {
	*Session
	retry  *store.Backoff
	flight []*exchange // in flight, oldest first: at most the allowed number, and one more while an answer is handled
}

// goOn keeps a round in flight, and handles the result of the oldest. It returns false when the
// talk has ended.
func (t *talk) goOn() bool {
	if len(t.flight) == 0 {
		t.rest()
		e := t.compose()
		if e == nil {
			return false
		}
		e.lane = t.view.Lane()
		t.flight = append(t.flight, t.send(e))
	}
	e := t.flight[0]
	for next := t.beside(t.flight); next != nil; next = t.beside(t.flight) {
		t.flight = append(t.flight, t.send(next))
	}
	answer, err := e.pending.Wait(t.ctx)
	switch next(err, t.ctx.Err() != nil, e.repeated, e.lane) {
	case take:
		return t.take(e, answer)
	case giveUp:
		t.abandon(t.flight)
		return false
	case evict:
		t.evicted(t.flight)
		return false
	case otherLane:
		e.lane = 0
		t.send(e)
		return true
	case repeat:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.lend(e) // the connection isn't the problem
		}
		e.repeated = true
		t.send(e)
		return true
	case release:
		if !errors.Is(err, store.ErrUnknown) {
			err = fmt.Errorf("%w, and repeating the call failed: %w", store.ErrUnknown, err)
		}
		t.release(e, err)
	case undo:
		t.restore(e, err)
		t.flight = t.flight[1:]
	}
	return t.pause(e, err)
}

// take handles an answer. First, it sends the round that may follow it.
func (t *talk) take(e *exchange, a *store.Answer) bool {
	t.upset.Note(t.engine.Log, "can't start or finish tasks; retrying", nil, "queue", t.queue.id)
	t.retry.Reset()
	t.arrived(e, a)
	if next := t.follow(t.flight, a); next != nil {
		t.flight = append(t.flight, t.send(next))
	}
	if !t.apply(e, a) {
		t.abandon(t.flight)
		return false
	}
	t.flight = t.flight[1:]
	if len(t.flight) > 0 && !t.flowing && !t.flight[0].Idle {
		t.mu.Lock()
		t.lookLocked() // it had no slots before, and now there are some
		t.mu.Unlock()
	}
	return true
}

// pause waits for a while after a round has failed, and repeats the round if Redis may have carried
// it out. It returns false when the talk has ended.
func (t *talk) pause(e *exchange, err error) bool {
	t.upset.Note(t.engine.Log, "can't start or finish tasks; retrying", err, "queue", t.queue.id)
	t.mu.Lock()
	closing := t.closing
	t.mu.Unlock()
	if closing {
		t.abandon(t.flight)
		return false
	}
	if !t.persist(t.flight) {
		return false
	}
	select {
	case <-t.ctx.Done():
		t.abandon(t.flight)
		return false
	case <-time.After(t.retry.Next()):
	}
	if e.repeated {
		t.send(e)
	}
	return true
}

// A step is what a talk does after its oldest round was answered or failed.
type step int

const (
	take      step = iota // handle the answer
	giveUp                // the session has ended: it's unknown what Redis has carried out
	evict                 // the worker is no longer a member
	repeat                // immediately, since a round may be repeated; the callers don't notice
	otherLane             // it wasn't sent, and the other connection may work
	release               // return an error to the callers, since it may have been carried out, and repeat it later
	undo                  // it definitely wasn't carried out
)

// next returns the step after a round that failed with err, or was answered if err is nil. over
// reports that the session has ended. repeated reports that this wasn't the first time the round
// was sent, so Redis may have carried it out, whatever the error.
func next(err error, over, repeated bool, lane int) step {
	switch {
	case over:
		return giveUp
	case err == nil:
		return take
	case errors.Is(err, store.ErrEvicted), errors.Is(err, store.ErrStale):
		return evict
	case repeated:
		return release
	case errors.Is(err, store.ErrUnknown):
		return repeat
	case lane > 0:
		return otherLane
	}
	return undo
}

// At a round trip of distant or more, the network takes longer than the work at both ends, so
// connections shouldn't sit idle. Each additional farther allows one more round in flight.
const (
	distant = time.Millisecond
	farther = time.Millisecond
)

// lanes returns how many rounds may be in flight at a time: two near Redis, so that neither side
// waits; more if it's far away, since Redis limits the size of each.
func (s *Session) lanes(trip time.Duration) int { return min(2+int(trip/farther), s.view.Lanes) }

// lane returns a connection that none of the rounds in flight uses. There is one if there are fewer
// of them than lanes.
func lane(flight []*exchange) int {
	for i := range store.Lanes {
		if !slices.ContainsFunc(flight, func(e *exchange) bool { return e.lane == i }) {
			return i
		}
	}
	return 0
}

// follow returns the round to send before the answer to the first of those in flight
// is handled. It returns nil if the answer has to come first.
func (s *Session) follow(flight []*exchange, a *store.Answer) *exchange {
	now := time.Now()
	s.mu.Lock()
	may := s.mayFollowLocked(now, flight, a)
	s.mu.Unlock()
	if !may {
		return nil
	}
	next := s.compose(flight...)
	if next != nil && len(flight) > 1 {
		next.lane = lane(flight[1:])
	}
	return next
}

// mayFollowLocked decides for follow. The answer must have brought all that its round asked for, so
// that there will be more and the worker doesn't need to wait to be woken, and there must be no
// recalled tasks to return first. If Redis is far away, other rounds may be in flight next to it.
func (s *Session) mayFollowLocked(now time.Time, flight []*exchange, a *store.Answer) bool {
	e := flight[0]
	if !s.queue.serves() || len(e.Start) == 0 || !e.full(a) || e.recalls != s.recalls || s.flow.held(now) > 0 {
		return false
	}
	if len(flight) == 1 {
		return true
	}
	return s.far.shortest() >= distant && s.mayLocked(flight[1:]) && s.sentLocked(flight) && len(s.outbox) >= s.worthLocked(now, flight) && s.earlyLocked(now, flight) <= 0
}

// mayLocked reports whether another round may be sent while rounds are in flight: all must be
// likely to bring what they ask for.
func (s *Session) mayLocked(flight []*exchange) bool {
	back := func(e *exchange) bool { return goBack(e.outcomes) || e.recalls != s.recalls }
	return len(flight) < s.lanes(s.far.shortest()) && s.flowing && s.flow.alone() && !slices.ContainsFunc(flight, back) && s.view.Ready(lane(flight))
}

// sentLocked reports whether the last round in flight has been sent: otherwise one on another
// connection might overtake it. If it still waits for rounds of other queues, the talk is nudged
// once it's sent.
func (s *Session) sentLocked(flight []*exchange) bool {
	return flight[len(flight)-1].pending.IsSent(s.nudge)
}

// worthLocked returns how many outcomes justify another round. If Redis is far away, a small round
// would occupy its connection for a whole trip. If there is room for that many tasks, no outcome is
// needed: otherwise no more rounds would ever be in flight.
func (s *Session) worthLocked(now time.Time, flight []*exchange) int {
	if s.far.shortest() < distant {
		return max(worthwhile, len(flight[len(flight)-1].Start)/2)
	}
	most, room := s.queue.roomLocked(now)
	worth := max(worthwhile, min(most/4, store.RoundWeight/4))
	if room >= worth {
		return 0
	}
	return worth
}

// earlyLocked returns how long the next round has to wait. If it were sent earlier, it might overtake
// the last one in flight, which would then bring nothing.
func (s *Session) earlyLocked(now time.Time, flight []*exchange) time.Duration {
	trip := s.far.shortest()
	return flight[len(flight)-1].sent.Add(trip / time.Duration(s.lanes(trip))).Sub(now)
}

// beside returns the round to send while other rounds are in flight, once enough outcomes have
// gathered, if those rounds are likely to bring all they ask for, as the last one did. It returns
// nil if the first answer comes before that.
func (s *Session) beside(flight []*exchange) *exchange {
	for {
		s.mu.Lock()
		may, wait := s.besideLocked(time.Now(), flight)
		s.mu.Unlock()
		switch {
		case !may:
			return nil
		case wait == 0:
			next := s.compose(flight...)
			if next != nil {
				next.lane = lane(flight)
			}
			return next
		}
		var soon <-chan time.Time
		if wait > 0 {
			soon = time.After(wait)
		}
		select {
		case <-s.gathered:
		case <-soon:
		case <-flight[0].pending.Done():
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// besideLocked reports whether another round may be sent while rounds are in flight, and how long
// to wait before that; if negative, until enough outcomes have gathered.
func (s *Session) besideLocked(now time.Time, flight []*exchange) (may bool, wait time.Duration) {
	s.enough = 0
	if !s.mayLocked(flight) {
		return false, 0
	}
	if worth := s.worthLocked(now, flight); len(s.outbox) < worth {
		s.enough = worth
		return true, -1
	}
	if goBack(s.outbox) || !s.sentLocked(flight) {
		return true, -1
	}
	if early := s.earlyLocked(now, flight); early > briefly {
		return true, early
	}
	return true, 0
}

// briefly is the shortest wait worth a timer.
const briefly = 200 * time.Microsecond

// goBack reports whether a task has to go back, which happens before the session asks for anything
// else.
func goBack(outcomes []*ending) bool {
	return slices.ContainsFunc(outcomes, func(end *ending) bool { return end.Verb == store.Stop })
}

func (s *Session) send(e *exchange) *exchange {
	e.sent = time.Now()
	e.pending = s.view.Send(e.lane, &e.Round)
	return e
}

// arrived records how long an answer took and what it shows about other peers. It delays the next
// round if there are many.
func (s *Session) arrived(e *exchange, a *store.Answer) {
	took := e.pending.Took()
	work := roundTime + time.Duration(e.weight+len(a.Started))*unitTime
	far := s.engine.link.measured(took, work)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.far = far
	if n := len(a.Started); n > 0 {
		s.flow.started(n, int(a.Started[n-1].Token-s.token))
	}
	rest := time.Duration(0)
	if s.queue.serves() {
		s.queue.pace.trip = far.shortest()
		// Otherwise the worker soon waits to be woken.
		if e.full(a) && !s.closing && len(s.wants) == 0 && !goBack(s.outbox) {
			rest = s.flow.rest(took, far.way(), work)
		}
	}
	s.flow.hold(time.Now(), rest)
}

// rest waits until the next round may be sent.
func (s *Session) rest() {
	for {
		s.mu.Lock()
		d := s.flow.held(time.Now())
		s.mu.Unlock()
		if d <= 0 {
			return
		}
		select {
		case <-time.After(d):
		case <-s.gathered: // the round may no longer have to wait
		case <-s.ctx.Done():
			return
		}
	}
}

// hurryLocked sends the next round without delay: a caller waits for it.
func (s *Session) hurryLocked() {
	if s.flow.next.IsZero() {
		return
	}
	s.flow.next = time.Time{}
	s.nudge()
}

// nudge wakes a talk that is waiting to send a round, so that it checks again.
func (s *Session) nudge() {
	select {
	case s.gathered <- struct{}{}:
	default:
	}
}

// abandon ends a talk whose rounds have ended or must end. It's unknown whether the last ones were
// carried out. No other talk acknowledges the cancels of tasks that they may have started.
func (s *Session) abandon(flight []*exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.stopLocked()
	s.silent = true
	for _, e := range flight {
		s.vacateLocked(e)
		s.tellFailedLocked(e, mishapOf(fmt.Errorf("%w: %w", cmp.Or(s.ended, ErrNotWorking), store.ErrUnknown)))
	}
}

// evicted ends the session: the worker is no longer a member.
func (s *Session) evicted(flight []*exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := ErrEvicted
	if s.closing {
		why = ErrNotWorking
	}
	for i, e := range flight {
		s.vacateLocked(e)
		err := why
		if e.repeated || i > 0 { // Redis may have refused a repetition or the round before it
			err = fmt.Errorf("%w: %w", why, store.ErrUnknown)
		}
		s.tellFailedLocked(e, mishapOf(err))
	}
	s.stopLocked()
	first := s.ended == nil // otherwise the worker knows already
	s.endLocked(why)
	if first && why == ErrEvicted {
		s.mu.laterLocked(s.member.Evicted)
	}
}

// persist reports whether to try again after a failure, because a round hasn't been answered or a
// caller waits. Otherwise it ends the talk; the next beat tries again.
func (s *Session) persist(flight []*exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(flight) > 0 || len(s.outbox) > 0 || len(s.wants) > 0 || len(s.cancels.received) > 0 || s.acknowledgesLocked() {
		return true
	}
	s.stopLocked()
	return false
}
