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
	retry := store.NewBackoff()
	var flight []*exchange // under way, oldest first: two at most
	for {
		if len(flight) == 0 {
			r.rest()
			e := r.compose()
			if e == nil {
				return
			}
			e.lane = r.queue.store.Lane()
			flight = append(flight, r.send(e))
		}
		e := flight[0]
		if len(flight) == 1 {
			if next := r.beside(e); next != nil {
				flight = append(flight, r.send(next))
			}
		}
		answer, err := e.pending.Wait(r.ctx)
		if err == nil && e.Brief {
			err = r.fetch(e, answer)
		}
		switch {
		case r.ctx.Err() != nil:
			r.abandon(flight)
			return
		case err == nil:
			r.upset.Note(r.engine.log, "cannot start or finish tasks; retrying", nil, "queue", r.queue.id)
			retry.Reset()
			r.arrived(e, answer)
			if next := r.follow(flight, answer); next != nil {
				flight = append(flight, r.send(next))
			}
			if !r.apply(e, answer) {
				r.abandon(flight)
				return
			}
			flight = flight[1:]
			if len(flight) > 0 && !r.flowing && !flight[0].Idle {
				r.Wake() // it had no slots to ask for, and now there are
			}
			continue
		case errors.Is(err, store.ErrEvicted), errors.Is(err, store.ErrStale):
			r.evicted(flight)
			return
		case errors.Is(err, store.ErrUnknown):
			// Once more at once: all of it may be repeated. The callers hear
			// of it when that does not help either.
			e.lost++
			e.Brief = e.lost >= often
			if !e.repeated {
				e.repeated = true
				r.send(e)
				continue
			}
			r.release(e, err)
		case e.repeated: // was carried out, or not, the first time
			r.release(e, fmt.Errorf("%w, and it could not be asked again: %w", store.ErrUnknown, err))
		case e.lane > 0: // the other connection may do
			e.lane = 0
			r.send(e)
			continue
		default:
			r.restore(e, err)
			flight = flight[1:]
		}
		r.upset.Note(r.engine.log, "cannot start or finish tasks; retrying", err, "queue", r.queue.id)
		if r.isClosing() {
			r.abandon(flight)
			return
		}
		if !r.persist(flight) {
			return
		}
		select {
		case <-r.ctx.Done():
			r.abandon(flight)
			return
		case <-time.After(retry.Next()):
		}
		if e.repeated {
			r.send(e)
		}
	}
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
					r.engine.log.Error("worqr: a payload does not arrive, and its task goes to the failed queue; look at the limits and timeouts of the connection",
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
// that no connection is to rest.
const distant = time.Millisecond

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
		next.lane = flight[0].lane
	}
	return next
}

// mayFollowLocked reports whether another round may be sent before the answer to the first of
// those in flight is taken in: that has brought all it was to bring, so there will be more,
// and nobody is to wait to be woken; and what was recalled meanwhile need not go back first.
// Where Redis is far away, another one may be under way beside it.
func (r *Session) mayFollowLocked(now time.Time, flight []*exchange, a *store.Answer) bool {
	e := flight[0]
	full := len(e.Start) > 0 && (len(a.Started) == len(e.Start) || a.Cut)
	if !r.queue.serves() || !full || e.recalls != r.queue.recalls || r.flow.held(now) > 0 {
		return false
	}
	if len(flight) == 1 {
		return true
	}
	beside, trip := flight[1], r.far.shortest()
	return trip >= distant && r.mayLocked(beside) && len(r.outbox) >= r.queue.worthLocked() && now.Sub(beside.sent) >= trip/4
}

// mayLocked reports whether another round may be sent beside one that is under way: both are
// likely to bring all they ask for.
func (r *Session) mayLocked(e *exchange) bool {
	return r.flowing && r.flow.alone() && !goBack(e.outcomes) && e.recalls == r.queue.recalls && r.queue.store.Ready(1-e.lane)
}

// beside returns the round to be sent while one is under way, once there is enough
// to say: if that one is likely to bring all it asks for, as the last did. It
// returns nil when the answer comes first.
func (r *Session) beside(e *exchange) *exchange {
	for {
		r.mu.Lock()
		may := r.mayLocked(e)
		worth := max(worthwhile, len(e.Start)/2)
		if may && r.far.shortest() >= distant {
			worth = r.queue.worthLocked()
		}
		r.enough = 0
		if may && len(r.outbox) < worth {
			r.enough = worth
		}
		now := may && r.enough == 0 && !goBack(r.outbox)
		early := time.Until(e.sent.Add(r.far.shortest() / 4))
		r.mu.Unlock()
		var soon <-chan time.Time
		switch {
		case now && early > briefly:
			soon = time.After(early) // before, it might overtake the first, which then brings nothing
		case now:
			next := r.compose(e)
			if next != nil {
				next.lane = 1 - e.lane
			}
			return next
		case !may:
			return nil
		}
		select {
		case <-r.gathered:
		case <-soon:
		case <-e.pending.Done():
			return nil
		case <-r.ctx.Done():
			return nil
		}
	}
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
	r.endLocked(why)
	if why == ErrEvicted {
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
