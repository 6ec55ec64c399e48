package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A Lease is how long a worker may be silent. Redis waits for Grant, and evict for one Beat more: in all, as long as
// the options say. Sure is less than that.
type Lease struct {
	Beat  time.Duration // between two heartbeats
	Grant time.Duration // how long a start or heartbeat extends the lease: it's the lease on the wire; 0 is forever
	Sure  time.Duration // how long after a renewal was sent the lease certainly holds
}

// LeaseOf returns the lease for the duration in the options. If d is negative, the lease never expires, and the
// worker sends heartbeats as often as with a lease of 3 s.
func LeaseOf(d time.Duration) Lease {
	if d < 0 {
		return Lease{Beat: time.Second, Sure: 1<<63 - 1}
	}
	return Lease{Beat: d / 3, Grant: d * 2 / 3, Sure: d / 10 * 9}
}

// A lease is what a session knows of its own.
type lease struct {
	sure    time.Duration // how long after a renewal it certainly holds
	renewed time.Time     // when the last answered start or heartbeat was sent
	pulsed  time.Time     // when the last heartbeat was answered
	granted int64         // ms of Redis time until which it holds, according to that answer
	ranked  time.Time     // when the heartbeat was sent whose answer had the worker's rank among the idle
	first   time.Time     // until then, this worker answers for producers that only publish
	expiry  *time.Timer   // fires when the handlers of an exclusive queue must end; nil for others
}

// renew records that a request sent at the given time renewed the lease.
func (l *lease) renew(now, sent time.Time) {
	if sent.After(l.renewed) {
		l.renewed = sent
	}
	if l.expiry != nil && l.isSure(now) { // also if it has fired, but then only for new tasks
		l.expiry.Reset(l.renewed.Add(l.sure).Sub(now))
	}
}

// isSure reports whether the held tasks certainly belong to this worker. Ask when an answer has
// come or a task begins: the lease may have expired by then.
func (l *lease) isSure(now time.Time) bool { return now.Sub(l.renewed) < l.sure }

// grant records a deadline, for a heartbeat sent at the given time. It reports whether Redis has lost the one before.
// If that was answered after this one was sent, it's unknown which of them reached Redis first.
func (l *lease) grant(now, sent time.Time, p *store.Pulse, grant time.Duration) (lost bool) {
	granted := p.Now + grant.Milliseconds()
	switch {
	case sent.Before(l.pulsed):
		granted = min(granted, l.granted)
	case p.Deadline < l.granted:
		lost = true
	}
	l.granted, l.pulsed = granted, now
	return lost
}

// unsure ends the contexts of an exclusive handler's tasks: from now on, other workers may run them.
func (s *Session) unsure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.lease.isSure(time.Now()) {
		return // renewed in the meantime
	}
	ends := 0
	for _, t := range s.held {
		if t.Context().Err() == nil { // otherwise an earlier stall has ended it
			ends++
		}
		t.interruptLocked(ErrLeaseExpired)
	}
	if ends > 0 {
		s.mu.laterLocked(func() {
			s.engine.Log.Warn("worqr: lease expired: Redis didn't answer in time; stopping exclusive handlers; their tasks will be started again",
				"queue", s.queue.id, "tasks", ends)
		})
	}
}

// Pulse handles the answer to a heartbeat that was sent at the given time. In a cluster, the
// answers of two nodes may come at the same time when the queue has moved from one to the other.
func (s *Session) Pulse(p *store.Pulse, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.pulseLocked(time.Now(), p, sent)
	}
}

func (s *Session) pulseLocked(now time.Time, p *store.Pulse, sent time.Time) {
	s.lease.renew(now, sent)
	if s.lease.grant(now, sent, p, s.engine.Lease.Grant) {
		s.lostLocked("Redis no longer has a heartbeat that it had acknowledged")
	}
	s.lease.ranked = sent
	if p.Rank == 0 {
		s.lease.first = now.Add(2 * s.engine.Lease.Beat)
	}
	s.stopNamedLocked(p.Stops)
	for _, end := range s.refused {
		s.sayLocked(end)
	}
	s.refused = nil
	s.compareHeldLocked(p.Held, sent)
	if !s.serves {
		return
	}
	if s.crowded = p.Idle > 1 || p.Idle == 1 && p.Rank < 0; s.crowded {
		s.recallLocked()
	}
	if s.queue.isStuckLocked(now, s.engine.Lease.Beat) {
		s.queue.pace.Lull()
		s.recallLocked()
	}
	s.queue.needsLocked(p.More > 0) // otherwise other workers have taken the tasks
	unwoken := s.idle && p.Rank < 0 && len(s.flight) == 0 && s.talked.Before(sent)
	if p.More > 0 && s.queue.freeLocked() > 0 || unwoken {
		s.wakeLocked()
	}
	s.nudge()
}

// Unheard records that a heartbeat failed, so it's unknown whether tasks wait: no capacity is reserved for the queue.
// The next answer decides.
func (s *Session) Unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.queue.needsLocked(false)
	}
}
