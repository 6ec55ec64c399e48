package engine

import (
	"maps"
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

// A lease is what a session knows of its own.
type lease struct {
	sure    time.Duration // how long after a renewal it certainly holds
	renewed time.Time     // when the last answered start or heartbeat was sent
	pulsed  time.Time     // when the last heartbeat was answered
	granted int64         // ms of Redis time until which it holds, according to that answer
	ranked  time.Time     // when the heartbeat was sent whose answer had the worker's rank among the idle
	first   time.Time     // until then, this worker answers for producers that only publish
	fence   *time.Timer   // fires when the handlers of an exclusive queue must end; nil for others
}

// renew records that a request sent at the given time renewed the lease.
func (l *lease) renew(now, sent time.Time) {
	if sent.After(l.renewed) {
		l.renewed = sent
	}
	if l.fence != nil && l.isSure(now) { // also if it has fired, but then only for new tasks
		l.fence.Reset(l.renewed.Add(l.sure).Sub(now))
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

func (l *lease) stop() {
	if l.fence != nil {
		l.fence.Stop()
	}
}

// unsure ends the contexts of an exclusive handler's tasks: from now on, other workers may run
// them.
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
		t.endLocked(ErrLeaseExpired)
	}
	if ends > 0 {
		s.noteLocked(func() {
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
	s.stopLocked(p.Stops)
	s.refusedLocked()
	s.compareHeldLocked(p.Held, sent)
	if !s.serves {
		return
	}
	if s.crowded = p.Idle > 1 || p.Idle == 1 && p.Rank < 0; s.crowded {
		s.recallLocked()
	}
	if s.queue.isStuckLocked(now, s.engine.Lease.Beat) {
		s.queue.pace.lull()
		s.recallLocked()
	}
	s.queue.needsLocked(p.More > 0) // otherwise other workers have taken the tasks
	unwoken := s.idle && p.Rank < 0 && len(s.flight) == 0 && s.talked.Before(sent)
	if p.More > 0 && s.queue.freeLocked() > 0 || unwoken {
		s.lookLocked()
	}
	s.nudge()
}

// refusedLocked gives back the tasks that Redis has refused to take back.
func (s *Session) refusedLocked() {
	for _, t := range s.refused {
		if s.held[t.ID] == t {
			s.giveBackLocked(t)
		}
	}
	s.refused = nil
}

// Unheard records that a heartbeat failed, so it's unknown whether tasks wait: no capacity is reserved for the queue.
// The next answer decides.
func (s *Session) Unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serves && s.ended == nil {
		s.queue.needsLocked(false)
	}
}

// Marks are what a session knows of Redis's counters. A lower one shows that Redis has lost writes.
type marks struct {
	token  int64 // the highest token seen on the queue since Redis last lost some
	round  int64 // the last answered start
	losses int   // how many times Redis lost tokens
}

// A Mark is what a session knew when it sent something: the highest token, and how many times Redis
// had lost tokens. Many answers may show the same loss, and in any order. It's reported once, since
// only answers to what was sent after the last loss was noticed can show another one.
type Mark struct {
	token  int64
	losses int
	round  int64
}

func (m *marks) now() Mark { return Mark{m.token, m.losses, m.round} }

// isLost reports whether a last token shows a loss that isn't known yet, and takes note of it.
func (m *marks) isLost(last int64, since Mark) bool {
	if last >= since.token || since.losses != m.losses {
		return false
	}
	m.losses++
	m.token = last
	return true
}

// Mark returns what the session knows now.
func (s *Session) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.now()
}

// Compare reports lost writes if the last token of the queue, which Redis was asked for after the
// mark, is lower than the mark's.
func (s *Session) Compare(last int64, since Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compareLocked(last, since)
}

func (s *Session) compareLocked(last int64, since Mark) {
	if s.marks.isLost(last, since) {
		s.lostLocked("Redis no longer has a token that it had issued")
	}
}

// witnessLocked compares an answer with what was known when its round was sent.
func (s *Session) witnessLocked(r *round, a *store.Answer) {
	s.compareLocked(a.Last-int64(len(a.Tasks)), r.mark)
	if a.Before < r.mark.round {
		s.lostLocked("Redis no longer has a round that it had acknowledged")
	}
	if r.mark.losses == s.marks.losses || a.Last > s.marks.token {
		s.marks.token = max(s.marks.token, a.Last)
	}
	s.marks.round = max(s.marks.round, r.Start.Round)
}

// lostLocked records that Redis, or the server that replaced it, has lost something that it had
// acknowledged. Everything acknowledged since is lost, too: enqueued tasks, and the outcomes of
// tasks, which then run again. Setting back Redis's clock looks the same.
func (s *Session) lostLocked(sign string) {
	s.queue.counts.LostWrites.Add(1)
	s.noteLocked(func() {
		if s.engine.LostWrites != nil {
			s.engine.LostWrites(s.queue.name, sign)
		}
		s.engine.losses.note(s.queue.name, sign)
	})
}

// compareEach is how many heartbeats may pass while rounds are in flight, so that numbers can't be compared.
const compareEach = 10

// compareHeldLocked handles the number of attempts that the worker held, according to Redis, when a
// heartbeat arrived. The heartbeat was sent at the given time. If Redis and the worker may disagree, for
// example because Redis has lost writes, it's asked for them.
func (s *Session) compareHeldLocked(held int, sent time.Time) {
	isQuiet := len(s.flight) == 0 && s.talked.Before(sent)
	switch s.passes++; {
	case s.looking || isQuiet && held == len(s.held):
		s.passes = 0
	case isQuiet || s.passes >= compareEach:
		s.passes, s.looking = 0, true
		s.engine.background.Go(s.reconcile)
	}
}

// reconcile compares the tasks that Redis assigns to this worker with those that it holds. Tasks that it
// doesn't hold, although the rounds that started them were answered before, go back to the front. Tasks
// that Redis no longer assigns to it end, unless a round was about to end them.
func (s *Session) reconcile() {
	s.mu.Lock()
	ours, answered := maps.Clone(s.held), s.marks.round
	s.mu.Unlock()
	theirs, err := s.view.Held(s.ctx, s.member.Worker)
	var strangers []*Attempt
	for id, token := range theirs {
		if ours[id] == nil && store.RoundOf(id) <= answered {
			if task, err := s.view.Fetch(s.ctx, id); err == nil && task != nil { // otherwise later heartbeats differ again
				t := &Attempt{ID: id, Name: task.Name, Token: token, session: s}
				t.describe(&task.Record)
				strangers = append(strangers, t)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looking = false
	if err != nil || s.ended != nil {
		return
	}
	for _, t := range strangers {
		s.giveBackLocked(t)
		s.noteLocked(func() {
			if s.engine.failures.strange.Allow(s.queue.id) {
				s.engine.Log.Warn("worqr: returning a task that Redis assigns to this worker but the worker doesn't hold", t.named()...)
			}
		})
	}
	for id, t := range ours {
		if _, ok := theirs[id]; ok || s.held[id] != t || t.away {
			continue
		}
		s.noteLocked(func() { s.engine.Log.Warn("worqr: stopping a task whose start Redis has lost", t.named()...) })
		s.queue.counts.Lost.Add(1)
		delete(s.held, id)
		t.lostLocked(ErrNotOwner)
		t.endLocked(ErrEvicted)
		s.safeLocked(t)
	}
}
