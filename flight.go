package worqr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// converse makes rounds until there is nothing more to say.
func (r *rounds) converse() {
	retry := newBackoff()
	var flight []*exchange // under way, oldest first: two at most
	for {
		if len(flight) == 0 {
			e := r.compose(nil)
			if e == nil {
				return
			}
			flight = append(flight, r.send(e))
		}
		e := flight[0]
		if len(flight) == 1 {
			if next := r.beside(e); next != nil {
				flight = append(flight, r.send(next))
			}
		}
		answer, err := script.ReadStep(e.pending.Wait(r.ctx)[0], &e.Round)
		switch {
		case r.ctx.Err() != nil:
			r.abandon(flight)
			return
		case err == nil:
			r.upset.about(r.queue.peer.log, "rounds fail", nil, "queue", r.queue.id)
			retry.reset()
			if len(flight) == 1 && r.flows(e, answer) {
				if next := r.compose(e); next != nil {
					flight = append(flight, r.send(next))
				}
			}
			if !r.apply(e, answer) {
				r.abandon(flight)
				return
			}
			r.queue.peer.capacity.Pass()
			flight = flight[1:]
			if len(flight) > 0 && !r.flowing && !flight[0].Idle {
				r.poke() // it had no slots to ask for, and now there are
			}
			continue
		case errors.Is(err, script.ErrEvicted), errors.Is(err, script.ErrStale):
			r.evicted(flight)
			return
		case errors.Is(err, redisconn.ErrUnknown):
			// Once more at once: all of it may be repeated. The callers hear
			// of it when that does not help either.
			if !e.repeated {
				e.repeated = true
				r.send(e)
				continue
			}
			r.release(e, err)
		case e.repeated: // was carried out, or not, the first time
			r.release(e, fmt.Errorf("%w, and it could not be asked again: %w", redisconn.ErrUnknown, err))
		case e.lane > 0: // the other connection may do
			e.lane = 0
			r.send(e)
			continue
		default:
			r.restore(e, err)
			r.queue.peer.capacity.Pass()
			flight = flight[1:]
		}
		r.upset.about(r.queue.peer.log, "rounds fail", err, "queue", r.queue.id)
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
		case <-time.After(retry.next()):
		}
		if e.repeated {
			r.send(e)
		}
	}
}

// beside returns the round to be sent while one is under way, once there is enough
// to say: if that one is likely to bring all it asks for, as the last did. It
// returns nil when the answer comes first.
func (r *rounds) beside(e *exchange) *exchange {
	for {
		r.mu.Lock()
		worth := max(worthwhile, len(e.Start)/2)
		may := r.flowing && !goBack(e.outcomes) && e.recalls == r.serve.recalls.Load() && r.queue.peer.work[1-e.lane].Ready()
		r.enough = 0
		if may && len(r.outcomes) < worth {
			r.enough = worth
		}
		now := may && r.enough == 0 && !goBack(r.outcomes)
		r.mu.Unlock()
		if now {
			next := r.compose(e)
			if next != nil {
				next.lane = 1 - e.lane
			}
			return next
		}
		if !may {
			return nil
		}
		select {
		case <-r.gathered:
		case <-e.pending.Done():
			return nil
		case <-r.ctx.Done():
			return nil
		}
	}
}

// goBack reports whether a task is to go back: it does so before anything else is
// asked for.
func goBack(outcomes []*settlement) bool {
	return slices.ContainsFunc(outcomes, func(s *settlement) bool { return s.Verb == script.Stop })
}

// flows reports whether the next round may be under way while we take in what this
// one has brought: that is all it asked for, so there will be more, and nobody is
// to wait to be woken; and what was recalled meanwhile need not go back first.
func (r *rounds) flows(e *exchange, a *script.Answer) bool {
	return r.serve != nil && len(e.Start) > 0 && len(a.Started) == len(e.Start) && e.recalls == r.serve.recalls.Load()
}

// send sends a round, and returns it.
func (r *rounds) send(e *exchange) *exchange {
	e.sent = time.Now()
	e.pending = r.queue.peer.work[e.lane].Start(script.StepCall(r.queue.keys, &e.Round))
	r.queue.peer.capacity.Pass()
	return e
}

func (r *rounds) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// abandon ends a talk whose rounds have ended, or are to: nobody knows whether
// the last ones were carried out. There is no other, which would acknowledge the
// cancels of what they may have started.
func (r *rounds) abandon(flight []*exchange) {
	defer r.queue.peer.capacity.Pass()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.hush()
	r.silent = true
	for _, e := range flight {
		r.vacate(e)
		r.answer(e, fmt.Errorf("%w: %w", cmp.Or(r.ended, ErrNotWorking), redisconn.ErrUnknown))
	}
}

// evicted ends the rounds: the worker is no member any more.
func (r *rounds) evicted(flight []*exchange) {
	r.mu.Lock()
	why := ErrEvicted
	if r.closing {
		why = ErrNotWorking
	}
	for i, e := range flight {
		r.vacate(e)
		err := why
		if e.repeated || i > 0 { // not it was refused, but its repetition or the round before it
			err = fmt.Errorf("%w: %w", why, redisconn.ErrUnknown)
		}
		r.answer(e, err)
	}
	r.hush()
	r.mu.Unlock()
	r.end(why)
	r.queue.peer.capacity.Pass()
	if why == ErrEvicted {
		r.queue.peer.evicted(r.worker)
	}
}

// persist reports whether to try again after a failure: a round is still to be
// answered, or somebody wants something. Otherwise it ends the talk; the next
// beat looks again.
func (r *rounds) persist(flight []*exchange) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(flight) > 0 || len(r.outcomes) > 0 || len(r.wants) > 0 || len(r.acks) > 0 {
		return true
	}
	r.hush()
	return false
}
