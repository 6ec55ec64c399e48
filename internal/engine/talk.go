package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// runRounds makes rounds until there is nothing more to say.
func (r *Session) runRounds() {
	t := &talk{Session: r, retry: store.NewBackoff()}
	for t.goOn() {
	}
}

// A talk is rounds that follow one another.
type talk struct {
	*Session
	retry  *store.Backoff
	flight []*exchange // under way, oldest first: as many as may be, and one more while an answer is taken in
}

// goOn has a round be under way, and takes in what becomes of the oldest. It is false when
// the talk is over.
func (t *talk) goOn() bool {
	if len(t.flight) == 0 {
		t.rest()
		e := t.compose()
		if e == nil {
			return false
		}
		e.lane = t.queue.store.Lane()
		t.flight = append(t.flight, t.send(e))
	}
	e := t.flight[0]
	for next := t.beside(t.flight); next != nil; next = t.beside(t.flight) {
		t.flight = append(t.flight, t.send(next))
	}
	answer, err := e.pending.Wait(t.ctx)
	if err == nil && e.Brief {
		err = t.fetch(e, answer)
	}
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
		e.lostReply()
		e.repeated = true
		t.send(e)
		return true
	case release:
		if errors.Is(err, store.ErrUnknown) {
			e.lostReply()
		} else {
			err = fmt.Errorf("%w, and repeating the call failed: %w", store.ErrUnknown, err)
		}
		t.release(e, err)
	case undo:
		t.restore(e, err)
		t.flight = t.flight[1:]
	}
	return t.pause(e, err)
}

// take takes in an answer, and sends what may follow it before.
func (t *talk) take(e *exchange, a *store.Answer) bool {
	t.upset.Note(t.engine.log, "cannot start or finish tasks; retrying", nil, "queue", t.queue.id)
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
		t.Wake() // it had no slots to ask for, and now there are
	}
	return true
}

// pause waits for a while after a round has failed, and repeats it if it may have been
// carried out. It is false when the talk is over.
func (t *talk) pause(e *exchange, err error) bool {
	t.upset.Note(t.engine.log, "cannot start or finish tasks; retrying", err, "queue", t.queue.id)
	if t.isClosing() {
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

// A step is what a talk does when the oldest of its rounds was answered, or has failed.
type step int

const (
	take      step = iota // take in the answer
	giveUp                // the session has ended: nobody knows what was carried out
	evict                 // the worker is no member any more
	repeat                // at once: all of it may be repeated. The callers hear nothing of it
	otherLane             // it was not sent, and the other connection may do
	release               // let the callers go, since it may have been carried out, and repeat it later
	undo                  // it was certainly not carried out
)

// next is the step after a round that failed with err, or was answered if that is nil. Over
// tells that the session has ended; repeated, that it is no longer the first time that it
// was sent, and so may have been carried out, whatever the error.
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

// lostReply notes that a reply was lost. After some, the payloads are asked for one by one.
func (e *exchange) lostReply() {
	e.lost++
	e.Brief = e.lost >= often
}

// often is how many replies in a row have to be lost before it is asked whether one task
// is too large for the connection.
const often = 3

// fetch reads the payloads that a brief answer has left out, each alone. One that cannot
// be read while other replies come stays without it, and fails: else it would be asked
// for forever, and nothing behind it would start.
func (r *Session) fetch(e *exchange, a *store.Answer) error {
	retry := store.NewBackoff()
	for i := range a.Started {
		s := &a.Started[i]
		for lost := 0; s.Bytes > 0 && lost < often; {
			payload, err := r.queue.store.Payload(r.ctx, e.lane, e.Start[i])
			switch {
			case r.ctx.Err() != nil:
				return err
			case err == nil:
				s.Payload, s.Bytes = payload, 0
				continue
			case errors.Is(err, store.ErrGone):
				lost = often
				continue
			case errors.Is(err, store.ErrUnknown):
				if lost++; lost == often {
					r.engine.log.Error("worqr: a payload did not arrive; its task moves to the failed queue; check the connection's limits and timeouts",
						"queue", r.queue.id, "attempt_id", e.Start[i], "bytes", s.Bytes, "err", err)
				}
			}
			select {
			case <-time.After(retry.Next()):
			case <-r.ctx.Done():
			}
		}
	}
	return nil
}

// distant is from which trip on the way to Redis takes longer than what is done at its ends, so
// that no connection is to rest; from farther on, more rounds may be under way.
const (
	distant = time.Millisecond
	farther = time.Millisecond
)

// lanes is how many rounds may be under way at once: near Redis one beside another, so that
// neither side waits; far away more, since each brings no more than Redis may do at once.
func (s *Queue) lanes(trip time.Duration) int { return min(2+int(trip/farther), s.store.Lanes) }

// lane is a connection on which none of the rounds is under way. There is one if there are
// fewer of them than lanes.
func lane(flight []*exchange) int {
	for i := range store.Lanes {
		if !slices.ContainsFunc(flight, func(e *exchange) bool { return e.lane == i }) {
			return i
		}
	}
	return 0
}

// follow returns the round to be sent before what the first of those in flight has brought
// is taken in. It returns nil where that has to come first.
func (r *Session) follow(flight []*exchange, a *store.Answer) *exchange {
	now := time.Now()
	r.mu.Lock()
	may := r.mayFollowLocked(now, flight, a)
	r.mu.Unlock()
	if !may {
		return nil
	}
	next := r.compose(flight...)
	if next != nil && len(flight) > 1 {
		next.lane = lane(flight[1:])
	}
	return next
}

// mayFollowLocked reports whether another round may be sent before the answer to the first of
// those in flight is taken in: that has brought all it was to bring, so there will be more,
// and nobody is to wait to be woken; and what was recalled meanwhile need not go back first.
// Where Redis is far away, others may be under way beside it.
func (r *Session) mayFollowLocked(now time.Time, flight []*exchange, a *store.Answer) bool {
	e := flight[0]
	full := len(e.Start) > 0 && (len(a.Started) == len(e.Start) || a.Cut)
	if !r.queue.serves() || !full || e.recalls != r.queue.recalls || r.flow.held(now) > 0 {
		return false
	}
	if len(flight) == 1 {
		return true
	}
	return r.far.shortest() >= distant && r.mayLocked(flight[1:]) && len(r.outbox) >= r.worthLocked(now, flight) && r.earlyLocked(now, flight) <= 0
}

// mayLocked reports whether another round may be sent beside those that are under way: all are
// likely to bring what they ask for.
func (r *Session) mayLocked(flight []*exchange) bool {
	back := func(e *exchange) bool { return goBack(e.outcomes) || e.recalls != r.queue.recalls }
	return len(flight) < r.queue.lanes(r.far.shortest()) && r.flowing && r.flow.alone() && !slices.ContainsFunc(flight, back) && r.queue.store.Ready(lane(flight))
}

// worthLocked is for how many ends another round is sent. Where Redis is far away, a small one
// would keep its connection for a whole trip; and where there is room for as many tasks, none
// waits for ends, or no more rounds would ever be under way.
func (r *Session) worthLocked(now time.Time, flight []*exchange) int {
	if r.far.shortest() < distant {
		return max(worthwhile, len(flight[len(flight)-1].Start)/2)
	}
	most, room := r.queue.roomLocked(now)
	worth := max(worthwhile, min(most/4, MaxStarts/4))
	if room >= worth {
		return 0
	}
	return worth
}

// earlyLocked is for how long the next round has to wait: before, it might overtake the last one
// in flight, which then brings nothing.
func (r *Session) earlyLocked(now time.Time, flight []*exchange) time.Duration {
	trip := r.far.shortest()
	return flight[len(flight)-1].sent.Add(trip / time.Duration(2*r.queue.lanes(trip))).Sub(now)
}

// beside returns the round to be sent while others are under way, once there is enough
// to say: if these are likely to bring all they ask for, as the last did. It
// returns nil when the first answer comes before.
func (r *Session) beside(flight []*exchange) *exchange {
	for {
		r.mu.Lock()
		may, wait := r.besideLocked(time.Now(), flight)
		r.mu.Unlock()
		switch {
		case !may:
			return nil
		case wait == 0:
			next := r.compose(flight...)
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
		case <-r.gathered:
		case <-soon:
		case <-flight[0].pending.Done():
			return nil
		case <-r.ctx.Done():
			return nil
		}
	}
}

// besideLocked reports whether another round may be sent beside those that are under way, and
// how long that is to wait: until something has gathered, if that is negative.
func (r *Session) besideLocked(now time.Time, flight []*exchange) (may bool, wait time.Duration) {
	r.enough = 0
	if !r.mayLocked(flight) {
		return false, 0
	}
	if worth := r.worthLocked(now, flight); len(r.outbox) < worth {
		r.enough = worth
		return true, -1
	}
	if goBack(r.outbox) {
		return true, -1
	}
	if early := r.earlyLocked(now, flight); early > briefly {
		return true, early
	}
	return true, 0
}

// briefly is for how long nobody waits: a timer may take as long.
const briefly = 200 * time.Microsecond

// goBack reports whether a task is to go back: it does so before anything else is
// asked for.
func goBack(outcomes []*ending) bool {
	return slices.ContainsFunc(outcomes, func(s *ending) bool { return s.Verb == store.Stop })
}

// send sends a round, and returns it.
func (r *Session) send(e *exchange) *exchange {
	e.complete()
	e.sent = time.Now()
	e.pending = r.queue.store.Send(e.lane, &e.Round)
	return e
}

// arrived notes how long an answer took and what it tells of others, and has the next
// round wait if there are many.
func (r *Session) arrived(e *exchange, a *store.Answer) {
	took := e.pending.Took()
	far := r.engine.link.measured(took, e.work)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.far = far
	if n := len(a.Started); n > 0 {
		r.flow.started(n, int(a.Started[n-1].Token-r.token))
		r.flow.list = !slices.ContainsFunc(a.Started, func(s store.Start) bool { return s.Entry != "" })
	}
	rest := time.Duration(0)
	if r.queue.serves() {
		r.queue.foreseeLocked(far.shortest(), max(far.trip-far.shortest(), 0))
		more := len(a.Started) == len(e.Start) || a.Cut // else the worker is to be idle soon, and be woken
		if more && !r.closing && len(r.wants) == 0 && !goBack(r.outbox) {
			rest = r.flow.rest(took, far.way(), e.work)
		}
	}
	r.flow.hold(time.Now(), rest)
}

// rest waits until the next round may be sent.
func (r *Session) rest() {
	for {
		d := r.delay()
		if d <= 0 {
			return
		}
		select {
		case <-time.After(d):
		case <-r.gathered: // perhaps it does not have to wait any more
		case <-r.ctx.Done():
			return
		}
	}
}

// delay is how long the next round has to wait.
func (r *Session) delay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flow.held(time.Now())
}

// hurryLocked has the next round not wait: somebody waits for it.
func (r *Session) hurryLocked() {
	if r.flow.next.IsZero() {
		return
	}
	r.flow.next = time.Time{}
	r.nudge()
}

// nudge has who waits to send a round look whether he may now.
func (r *Session) nudge() {
	select {
	case r.gathered <- struct{}{}:
	default:
	}
}

func (r *Session) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// abandon ends a talk whose rounds have ended, or are to: nobody knows whether
// the last ones were carried out. There is no other, which would acknowledge the
// cancels of what they may have started.
func (r *Session) abandon(flight []*exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.stopLocked()
	r.silent = true
	for _, e := range flight {
		r.vacateLocked(e)
		r.tellFailedLocked(e, mishapOf(fmt.Errorf("%w: %w", cmp.Or(r.ended, ErrNotWorking), store.ErrUnknown)))
	}
}

// evicted ends the session: the worker is no member any more.
func (r *Session) evicted(flight []*exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why := ErrEvicted
	if r.closing {
		why = ErrNotWorking
	}
	for i, e := range flight {
		r.vacateLocked(e)
		err := why
		if e.repeated || i > 0 { // not it was refused, but its repetition or the round before it
			err = fmt.Errorf("%w: %w", why, store.ErrUnknown)
		}
		r.tellFailedLocked(e, mishapOf(err))
	}
	r.stopLocked()
	first := r.ended == nil // else the worker knows
	r.endLocked(why)
	if first && why == ErrEvicted {
		r.mu.laterLocked(r.member.Evicted)
	}
}

// persist reports whether to try again after a failure: a round is still to be
// answered, or somebody wants something. Otherwise it ends the talk; the next
// beat looks again.
func (r *Session) persist(flight []*exchange) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(flight) > 0 || len(r.outbox) > 0 || len(r.wants) > 0 || len(r.cancels.received) > 0 || r.acknowledgesLocked() {
		return true
	}
	r.stopLocked()
	return false
}
