package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A Lease is how long a worker may be silent.
type Lease struct {
	Beat  time.Duration // between two heartbeats
	Grant time.Duration // a heartbeat keeps the lease from lapsing for so long; 0 is forever
	Sure  time.Duration // after it was renewed, it is certain to hold for so long
}

// LeaseOf returns the lease for a duration. A negative one never expires, and its worker
// beats as often as with a lease of 3 s.
func LeaseOf(d time.Duration) Lease {
	if d < 0 {
		return Lease{Beat: time.Second, Sure: 1<<63 - 1}
	}
	return Lease{Beat: d / 3, Grant: d * 2 / 3, Sure: d / 10 * 9}
}

// Pulse handles the answer to a heartbeat that was sent at the given time. In a cluster, the
// answers of two nodes may come at the same time when the queue has moved from one to the other.
func (s *Session) Pulse(p *store.Pulse, sent time.Time) {
	if s.pulse(p, sent) && !s.hauling.Swap(true) {
		s.engine.background.Go(s.haul) // it may take long, and the next beat not
	}
}

// pulse is Pulse, except that it only reports that a batch waits to be moved.
func (s *Session) pulse(p *store.Pulse, sent time.Time) (abandoned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	abandoned = !s.overlapsLocked(sent) && s.abandonedLocked(p.Batch)
	s.pulseLocked(time.Now(), p, sent)
	s.wakeLocked()
	return abandoned
}

// overlapsLocked reports whether a beat was sent before the last one was answered. Nobody knows which
// of them reached Redis first.
func (s *Session) overlapsLocked(sent time.Time) bool { return sent.Before(s.pulsed) }

// pulseLocked is Pulse without the batch.
func (s *Session) pulseLocked(now time.Time, p *store.Pulse, sent time.Time) {
	s.renewLocked(now, sent)
	granted := p.Now + s.engine.Lease.Grant.Milliseconds()
	switch {
	case s.overlapsLocked(sent):
		granted = min(granted, s.granted)
	case p.Deadline < s.granted:
		s.mu.laterLocked(func() { s.LostWrites("Redis no longer has a heartbeat that it had acknowledged") })
	}
	s.granted, s.pulsed = granted, now
	if p.Rank == 0 {
		s.listens = now.Add(2 * s.engine.Lease.Beat)
	}
	s.look = s.look || p.Canceled > 0 || p.Waiting > 0 && s.freeLocked()
	if p.Waiting == 0 {
		s.doubtLocked() // others have what was there
	}
	s.hungry = s.hungry || p.Waiting > 0 // its turn may come when a slot is free
	if p.Canceled > 0 && p.Canceled < s.seen {
		s.seen, s.said = 0, 0 // what Redis has lost of our acknowledgements it then asks for again
	}
	for _, t := range s.refused {
		if s.held[t.ID] == t {
			s.giveBackLocked(t)
		}
	}
	s.refused = nil
	s.compareLocked(p.Held, sent)
}

// Unheard records that a heartbeat failed, so it's unknown what the queue has.
func (s *Session) Unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtLocked()
}

// doubtLocked keeps no room for tasks of the queue: perhaps there are none, or they
// can't be reached. The next answer tells.
func (s *Session) doubtLocked() {
	if s.queue.serves() && s.ended == nil {
		s.queue.needsLocked(s, false)
	}
}

// abandonedLocked reports whether nobody moves the batch that a beat saw: it hasn't changed
// since the beat before. Otherwise all workers of the queue would move it beside its producer.
func (s *Session) abandonedLocked(batch string) bool {
	was := s.batch
	s.batch = batch
	return batch != "" && batch == was
}

// haul moves to the queue what a producer has enqueued in pages and not moved itself.
func (s *Session) haul() {
	defer s.hauling.Store(false)
	if s.part.Haul(s.ctx) == nil { // else that is logged, and the next beat begins again
		s.Wake() // what it publishes may not arrive
	}
}

// LostWrites records that Redis, or the server that replaced it, has forgotten something that it
// had acknowledged. Everything acknowledged since is gone as well: enqueued tasks, and ends of
// tasks, which then run again. This looks the same as a clock of Redis that was set back.
func (s *Session) LostWrites(sign string) {
	s.queue.counts.LostWrites.Add(1)
	if s.engine.LostWrites != nil {
		s.engine.LostWrites(s.part.Name, sign)
	}
	s.engine.losses.note(store.Whole(s.part.Name), sign)
}

// Missing reports whether Redis has lost a token: the last one is lower than one seen
// before Redis was asked. From then on the lower one counts, so the same loss is found once.
func (s *Session) Missing(token, seen int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token >= seen || token >= s.token {
		return false
	}
	s.token = token
	return true
}

// renewLocked notes that the lease was renewed by something sent at the given time.
func (s *Session) renewLocked(now, sent time.Time) {
	if sent.After(s.renewed) {
		s.renewed = sent
	}
	if s.fence != nil && s.ended == nil && s.sureLocked(now) { // also when it has fired; else it has for what we hold
		s.fence.Reset(s.renewed.Add(s.engine.Lease.Sure).Sub(now))
	}
}

// sureLocked reports whether what we hold is certain to be ours alone: an answer may come,
// or a task may begin, after the lease has expired.
func (s *Session) sureLocked(now time.Time) bool { return now.Sub(s.renewed) < s.engine.Lease.Sure }

// unsure ends the contexts of an exclusive handler's tasks: from now on others
// may run them.
func (s *Session) unsure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sureLocked(time.Now()) {
		return // renewed meanwhile
	}
	ends := 0
	for _, t := range s.held {
		if t.Context().Err() == nil { // else an earlier stall has ended it
			ends++
		}
		t.endLocked(ErrLeaseExpired)
	}
	if ends > 0 {
		s.mu.laterLocked(func() {
			s.engine.Log.Warn("worqr: lease expired: Redis did not answer in time; stopping exclusive handlers, whose tasks start again",
				"queue", s.queue.id, "tasks", ends)
		})
	}
}
