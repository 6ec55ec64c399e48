package engine

import (
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Stops are what must stop but isn't all known yet: a round in flight may bring it. Each is kept until all
// rounds that were in flight then are answered.
//
// A heartbeat names attempts. A message has a payload: Redis knows the token of that cancel, and what isn't newer
// stops. If it doesn't, another program has canceled, and what the worker held when the message came stops.
type stops struct {
	attempts map[string]int64 // → the last round that may bring it
	payloads map[store.Digest]*canceling
}

// A canceling is a payload that was canceled.
type canceling struct {
	held  []*Attempt // when the message came
	until int64      // the last round that may bring a copy
	known bool       // token is what Redis answered
	token int64      // negative: another program has canceled
	asked int        // how many messages came
	asks  bool       // Redis is being asked
}

func newStops() stops {
	return stops{map[string]int64{}, map[store.Digest]*canceling{}}
}

// covers reports whether an attempt must stop.
func (c *canceling) covers(t *Attempt) bool {
	switch {
	case !c.known:
		return false
	case c.token < 0:
		return slices.Contains(c.held, t)
	}
	return t.Token <= c.token
}

// forget drops what no round in flight can bring anymore. sent is how many rounds were sent.
func (s *stops) forget(flight []*round, sent int64) {
	answered := sent // up to this one, all are answered
	for _, r := range flight {
		answered = min(answered, r.index-1)
	}
	for id, until := range s.attempts {
		if until <= answered {
			delete(s.attempts, id)
		}
	}
	for d, c := range s.payloads {
		if c.until <= answered && !c.asks {
			delete(s.payloads, d)
		}
	}
}

// stopLocked stops the attempts that a heartbeat has named.
func (s *Session) stopLocked(ids []string) {
	for _, id := range ids {
		if t := s.held[id]; t != nil {
			s.cancelLocked(t)
		} else if len(s.flight) > 0 {
			s.stops.attempts[id] = s.sent
		}
	}
}

// cancelLocked stops an attempt. If no handler has begun it, it ends at once.
func (s *Session) cancelLocked(t *Attempt) {
	t.endLocked(ErrCanceled)
	for _, t := range s.queue.withdrawLocked(func(other *Attempt) bool { return other == t }) {
		s.sayLocked(t.unbegun(store.End{Verb: store.Drop, Reason: canceledWord}))
	}
}

// canceledWord is in the result of a task that was canceled.
const canceledWord = "canceled"

// canceled handles a message about a payload.
func (s *Session) canceled(message []byte) {
	s.mu.Lock()
	isQuiet := len(s.held)+len(s.flight) == 0
	s.mu.Unlock()
	if isQuiet {
		return
	}
	digest := store.CanceledBy(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	var copies []*Attempt
	for _, t := range s.held {
		if t.isNamed(digest) {
			copies = append(copies, t)
		}
	}
	if s.ended != nil || len(copies)+len(s.flight) == 0 {
		return
	}
	c := s.stops.payloads[digest]
	if c == nil {
		c = &canceling{}
		s.stops.payloads[digest] = c
	}
	c.until, c.known, c.held = s.sent, false, append(c.held, copies...)
	c.asked++
	if len(copies) > 0 {
		s.askLocked(digest, c)
	}
}

// meetLocked stops an attempt that has just become known, if it was to stop before.
func (s *Session) meetLocked(t *Attempt) {
	if _, named := s.stops.attempts[t.ID]; named {
		s.cancelLocked(t)
	}
	c := s.stops.payloads[t.digest]
	switch {
	case c == nil || !t.isNamed(t.digest):
	case !c.known:
		s.askLocked(t.digest, c)
	case c.covers(t):
		s.cancelLocked(t)
	}
}

// askLocked asks Redis for the token of a cancel, and stops what it covers.
func (s *Session) askLocked(d store.Digest, c *canceling) {
	if c.asks {
		return // it will be asked again if a message has come since
	}
	c.asks = true
	s.engine.background.Go(func() {
		for retry := (&store.Backoff{}); s.learnCancel(d, c); {
			select {
			case <-time.After(retry.Next()):
			case <-s.ctx.Done():
			}
		}
	})
}

// learnCancel asks once, and reports whether to ask again.
func (s *Session) learnCancel(d store.Digest, c *canceling) (again bool) {
	s.mu.Lock()
	asked := c.asked
	s.mu.Unlock()
	token, err := s.view.CanceledAt(s.ctx, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false
	}
	if err != nil || c.asked != asked {
		return true
	}
	c.asks, c.known, c.token = false, true, token
	for _, t := range s.held {
		if t.isNamed(d) && c.covers(t) {
			s.cancelLocked(t)
		}
	}
	s.stops.forget(s.flight, s.sent)
	return false
}
