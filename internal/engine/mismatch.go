package engine

import (
	"maps"
	"time"
)

// A mismatch estimates how likely it is that Redis and the worker disagree about what the
// worker holds, for example because Redis has lost writes.
type mismatch struct {
	weight    int
	looking   bool             // Redis is being asked what the worker holds
	strangers map[string]int64 // process → token: held only according to Redis, at the last comparison
}

const (
	certain = 10 // time to compare
	differs = 5  // two numbers of tasks differ
	busy    = 1  // rounds are in flight, so the numbers are not comparable
)

// compareLocked handles the number of processes that the worker held, according to Redis, when a
// beat arrived. The beat was sent at the given time.
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

// reconcile compares the tasks that Redis assigns to this worker with those that it holds. Tasks
// unknown to the worker in two comparisons go back to the front. Tasks that Redis no longer assigns
// to it end.
func (s *Session) reconcile() {
	s.mu.Lock()
	ours := maps.Clone(s.held)
	s.mu.Unlock()
	theirs, err := s.view.Held(s.ctx, s.member.Worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.mismatch.looking = false }()
	if err != nil {
		return // later beats will differ again
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
				if !s.engine.failures.strange.Allow(s.queue.id) {
					return
				}
				log.Warn("worqr: returning a task that Redis assigns to this worker but the worker doesn't hold", "queue", s.queue.id, "attempt_id", id)
			})
			s.giveBackLocked(&Attempt{ID: id, Token: token})
		default:
			strangers[id] = token // it may also have ended since
		}
	}
	if s.mismatch.strangers = strangers; len(strangers) > 0 {
		s.mismatch.weight = certain - busy // after the next beat
	}
	for id, t := range ours {
		if _, ok := theirs[id]; !ok && s.held[id] == t {
			s.mu.laterLocked(func() {
				log.Warn("worqr: stopping a task whose start Redis has lost", t.named()...)
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
