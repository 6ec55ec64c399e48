package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A Lease is how long a worker may be silent.
type Lease struct {
	Beat  time.Duration // between two heartbeats
	Grant time.Duration // how long a heartbeat extends the lease; 0 is forever
	Sure  time.Duration // how long after a renewal the lease certainly holds
}

// LeaseOf returns the lease for a duration. If d is negative, the lease never expires, and the
// worker sends heartbeats as often as with a lease of 3 s.
func LeaseOf(d time.Duration) Lease {
	if d < 0 {
		return Lease{Beat: time.Second, Sure: 1<<63 - 1}
	}
	return Lease{Beat: d / 3, Grant: d * 2 / 3, Sure: d / 10 * 9}
}

// Pulse handles the answer to a heartbeat that was sent at the given time. In a cluster, the
// answers of two nodes may come at the same time when the queue has moved from one to the other.
func (s *Session) Pulse(p *store.Pulse, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulseLocked(time.Now(), p, sent)
	s.wakeLocked()
}

// overlapsLocked reports whether a beat was sent before the last one was answered. It's unknown
// which of them reached Redis first.
func (s *Session) overlapsLocked(sent time.Time) bool { return sent.Before(s.pulsed) }

func (s *Session) pulseLocked(now time.Time, p *store.Pulse, sent time.Time) {
	s.renewLocked(now, sent)
	granted := p.Now + s.engine.Lease.Grant.Milliseconds()
	switch {
	case s.overlapsLocked(sent):
		granted = min(granted, s.granted)
	case p.Deadline < s.granted:
		s.lostLocked("Redis no longer has a heartbeat that it had acknowledged")
	}
	s.granted, s.pulsed = granted, now
	if p.Rank == 0 {
		s.listens = now.Add(2 * s.engine.Lease.Beat)
	}
	s.look = s.look || p.Canceled > 0 || p.Waiting > 0 && s.freeLocked()
	if p.Waiting == 0 {
		s.doubtLocked() // other workers have taken the tasks
	}
	if p.Canceled > 0 && p.Canceled < s.seen {
		s.seen, s.said = 0, 0 // Redis has lost some of our acknowledgements and will ask for them again
	}
	for _, t := range s.refused {
		if s.held[t.ID] == t {
			s.giveBackLocked(t)
		}
	}
	s.refused = nil
	s.compareLocked(p.Held, sent)
}

// Unheard records that a heartbeat failed, so it's unknown whether tasks wait.
func (s *Session) Unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtLocked()
}

// doubtLocked stops reserving capacity for the queue: it may have no tasks, or be unreachable. The
// next answer decides.
func (s *Session) doubtLocked() {
	if s.queue.serves() && s.ended == nil {
		s.queue.needsLocked(false)
	}
}

// lostLocked records that Redis, or the server that replaced it, has lost something that it had
// acknowledged. Everything acknowledged since is lost, too: enqueued tasks, and the outcomes of
// tasks, which then run again. Setting back Redis's clock looks the same.
func (s *Session) lostLocked(sign string) {
	s.queue.counts.LostWrites.Add(1)
	s.mu.laterLocked(func() {
		if s.engine.LostWrites != nil {
			s.engine.LostWrites(s.view.Name, sign)
		}
		s.engine.losses.note(s.view.Name, sign)
	})
}

// A Mark is what a session knew when it sent something: the highest token, and how many times Redis
// had lost tokens. Many answers may show the same loss, and in any order. It's reported once, since
// only answers to what was sent after the last loss was noticed can show another one.
type Mark struct {
	token  int64
	losses int
}

// Mark returns what the session knows now.
func (s *Session) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markLocked()
}

func (s *Session) markLocked() Mark { return Mark{s.token, s.losses} }

// isLatestLocked reports whether no loss has been noticed since the mark.
func (s *Session) isLatestLocked(m Mark) bool { return m.losses == s.losses }

// Compare reports lost writes if the last token of the queue, which Redis was asked for after the
// mark, is lower than the mark's.
func (s *Session) Compare(last int64, since Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compareLastLocked(last, since)
}

// compareLastLocked does Compare's work, and reports whether there was a loss to report.
func (s *Session) compareLastLocked(last int64, since Mark) bool {
	if last >= since.token || !s.isLatestLocked(since) {
		return false
	}
	s.losses++
	s.token, s.seen, s.said = last, 0, 0 // Redis may have lost what was reported about cancels
	s.lostLocked("Redis no longer has a token that it had issued")
	return true
}

// renewLocked records that a request sent at the given time renewed the lease.
func (s *Session) renewLocked(now, sent time.Time) {
	if sent.After(s.renewed) {
		s.renewed = sent
	}
	if s.fence != nil && s.ended == nil && s.sureLocked(now) { // also if it has fired, but then only for new tasks
		s.fence.Reset(s.renewed.Add(s.engine.Lease.Sure).Sub(now))
	}
}

// sureLocked reports whether the held tasks certainly belong to this worker. Ask when an answer has
// come or a task begins: the lease may have expired by then.
func (s *Session) sureLocked(now time.Time) bool { return now.Sub(s.renewed) < s.engine.Lease.Sure }

// unsure ends the contexts of an exclusive handler's tasks: from now on, other workers may run
// them.
func (s *Session) unsure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sureLocked(time.Now()) {
		return // renewed in the meantime
	}
	ends := 0
	for _, t := range s.held {
		if t.Context().Err() == nil { // otherwise an earlier stall has ended it
			ends++
		}
		t.endLocked(ErrLeaseExpired)
	}
	if ends > 0 {
		s.mu.laterLocked(func() {
			s.engine.Log.Warn("worqr: lease expired: Redis didn't answer in time; stopping exclusive handlers; their tasks will be started again",
				"queue", s.queue.id, "tasks", ends)
		})
	}
}
