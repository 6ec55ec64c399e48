package engine

import (
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Stops are what must stop. A heartbeat names attempts; a message has a canceled payload. A round in flight may bring
// what isn't known yet, so each is kept until all rounds that were in flight then are answered.
type stops struct {
	attempts map[string]int64 // → the index of the last round that may bring it
	payloads []canceled
}

// A canceled is a message that a payload was canceled.
type canceled struct {
	digest store.Digest
	held   []*Attempt // the copies that the worker held when it came
	until  int64      // the index of the last round that may bring another copy
}

// covers reports whether an attempt must stop. token is the last token when the payload was canceled: what isn't newer
// stops. If Redis knows none, another program has canceled, and what the worker held when the message came stops.
func (c *canceled) covers(t *Attempt, token int64) bool {
	if !t.isNamed(c.digest) {
		return false
	}
	if token < 0 {
		return slices.Contains(c.held, t)
	}
	return t.Token <= token
}

// stopNamedLocked stops the attempts that a heartbeat has named.
func (s *Session) stopNamedLocked(ids []string) {
	for _, id := range ids {
		s.stops.attempts[id] = s.index
	}
	s.stopLocked()
}

// stopPayload handles a message that a payload was canceled.
func (s *Session) stopPayload(message []byte) {
	c := canceled{digest: store.CanceledBy(message)}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.held, c.until = s.copiesLocked(c.digest), s.index
	s.stops.payloads = append(s.stops.payloads, c)
	s.stopLocked()
}

// copiesLocked returns the attempts that it holds to which a cancel of a payload applies.
func (s *Session) copiesLocked(d store.Digest) (copies []*Attempt) {
	for _, t := range s.held {
		if t.isNamed(d) {
			copies = append(copies, t)
		}
	}
	return copies
}

// stopLocked stops what is known by now. Call it after each answer.
func (s *Session) stopLocked() {
	answered := s.index // up to this one, all rounds are answered
	for _, r := range s.flight {
		answered = min(answered, r.index-1)
	}
	for id, until := range s.stops.attempts {
		t := s.held[id]
		if t != nil {
			s.cancelLocked(t)
		}
		if t != nil || until <= answered {
			delete(s.stops.attempts, id)
		}
	}
	s.stops.payloads = slices.DeleteFunc(s.stops.payloads, func(c canceled) bool {
		if c.until > answered {
			return false
		}
		if len(s.copiesLocked(c.digest)) > 0 {
			s.engine.background.Go(func() { s.stopCopies(c) })
		}
		return true
	})
}

// stopCopies stops the copies of a canceled payload. It asks Redis which of them until that answers.
func (s *Session) stopCopies(c canceled) {
	for retry := (&store.Backoff{}); s.ctx.Err() == nil; {
		token, err := s.view.CanceledAt(s.ctx, c.digest)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, t := range s.held {
				if c.covers(t, token) {
					s.cancelLocked(t)
				}
			}
			return
		}
		select {
		case <-time.After(retry.Next()):
		case <-s.ctx.Done():
		}
	}
}

// cancelLocked stops an attempt. If no handler has begun it, it ends at once.
func (s *Session) cancelLocked(t *Attempt) {
	t.interruptLocked(ErrCanceled)
	for _, t := range s.queue.withdrawLocked(func(other *Attempt) bool { return other == t }) {
		s.sayLocked(t.unbegun(store.End{Verb: store.Drop, Reason: canceledWord}))
	}
}

// canceledWord is in the result of a task that was canceled.
const canceledWord = "canceled"
