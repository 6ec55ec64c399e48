package engine

import (
	"maps"
	"time"
)

// A mismatch estimates how likely it is that Redis and the worker disagree about what the
// worker holds, as when Redis has lost writes.
type mismatch struct {
	weight    int
	looking   bool             // what Redis believes is being read
	strangers map[string]int64 // process → token: what we did not know of when we last looked
}

const (
	certain = 10 // time to look
	differs = 5  // two numbers of tasks differ
	busy    = 1  // the numbers cannot be compared, since rounds are under way
)

// compareLocked handles how many processes the worker held, according to Redis, when a beat
// arrived that was sent at the given time.
func (s *Session) compareLocked(held int, sent time.Time) {
	d := &s.mismatch
	switch quiet := s.idle == nil && s.talked.Before(sent); {
	case d.looking || s.ended != nil:
		return
	case !quiet:
		d.weight += busy
	case held != len(s.held):
		d.weight += differs
	default:
		d.weight, d.strangers = 0, nil
	}
	if d.weight >= certain {
		d.weight, d.looking = 0, true
		s.engine.background.Go(s.reconcile)
	}
}

// reconcile compares what Redis believes this worker to hold with what it holds. Tasks that
// we don't know, on two looks, go back to the front, and tasks that are no longer ours
// end.
func (s *Session) reconcile() {
	s.mu.Lock()
	ours := maps.Clone(s.held)
	s.mu.Unlock()
	theirs, err := s.part.Held(s.ctx, s.member.Worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.mismatch.looking = false }()
	if err != nil {
		return // the beats go on to differ
	}
	// Rounds in flight may have started some of these, or ended them.
	for said := s.number; s.ended == nil && s.idle != nil && s.answered < said; {
		s.turned.Wait()
	}
	if s.ended != nil {
		return
	}
	log := s.engine.Log
	strangers := map[string]int64{}
	for id, token := range theirs {
		_, again := s.mismatch.strangers[id]
		switch {
		case s.held[id] != nil:
		case again:
			s.mu.laterLocked(func() {
				log.Warn("worqr: returning a task that Redis assigns to this worker but this worker doesn't hold", "queue", s.queue.id, "attempt_id", id)
			})
			s.giveBackLocked(&Attempt{ID: id, Token: token})
		default:
			strangers[id] = token // or it has ended since
		}
	}
	if s.mismatch.strangers = strangers; len(strangers) > 0 {
		s.mismatch.weight = certain - busy // with the next beat
	}
	for id, t := range ours {
		if _, ok := theirs[id]; !ok && s.held[id] == t {
			s.mu.laterLocked(func() {
				log.Warn("worqr: stopping a task: Redis has lost its start", t.named()...)
			})
			s.queue.counts.Lost.Add(1)
			delete(s.held, id)
			t.lostLocked(ErrNotOwner)
			t.endLocked(ErrEvicted)
			s.safeLocked(t)
		}
	}
	s.wakeLocked()
}
