package engine

import (
	"maps"
	"time"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// Marks are what a session knows of Redis's counters. A lower one shows that Redis has lost writes.
type marks struct {
	token int64 // the highest token seen on the queue since Redis last lost some
	round int64 // the last answered start
}

// Mark returns the highest token that the session knows of.
func (s *Session) Mark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.token
}

// Compare reports lost writes if the last token of the queue is lower than the mark. Redis must have been asked for it
// after the call of Mark.
func (s *Session) Compare(last, mark int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compareLocked(last, mark)
}

func (s *Session) compareLocked(last, mark int64) {
	if last < min(mark, s.marks.token) { // a lower mark shows that the loss is known
		s.marks.token = last
		s.lostLocked("Redis no longer has a token that it had issued")
	}
}

// witnessLocked compares an answer with those before it. It isn't a repeat's.
func (s *Session) witnessLocked(r *round, a *store.Answer) {
	s.compareLocked(a.Last-int64(len(a.Tasks)), s.marks.token)
	if a.Before < s.marks.round {
		s.lostLocked("Redis no longer has a round that it had acknowledged")
	}
	s.marks.token, s.marks.round = max(s.marks.token, a.Last), max(s.marks.round, r.Start.Round)
}

// lostLocked records that Redis, or the server that replaced it, has lost something that it had acknowledged.
// Everything acknowledged since is lost, too: enqueued tasks, and the outcomes of tasks, which then run again. Setting
// back Redis's clock looks the same. Many answers may show the same loss; it's reported once.
func (s *Session) lostLocked(sign string) {
	s.mu.laterLocked(func() {
		if !s.engine.losses.Note(s.queue.name, sign) {
			return
		}
		s.queue.counts.LostWrites.Add(1)
		if s.engine.LostWrites != nil {
			s.engine.LostWrites(s.queue.name, sign)
		}
	})
}

// compareEach is how many heartbeats may pass while rounds are in flight, so that numbers can't be compared.
const compareEach = 10

// compareHeldLocked handles the number of attempts that the worker held, according to Redis, when a
// heartbeat arrived. The heartbeat was sent at the given time. If Redis and the worker may disagree, for
// example because Redis has lost writes, it's asked for them.
func (s *Session) compareHeldLocked(held int, sent time.Time) {
	isComparable := len(s.flight) == 0 && s.talked.Before(sent)
	switch s.uncompared++; {
	case s.reconciling || isComparable && held == len(s.held):
		s.uncompared = 0
	case isComparable || s.uncompared >= compareEach:
		s.uncompared, s.reconciling = 0, true
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
	s.reconciling = false
	if err != nil || s.ended != nil {
		return
	}
	for _, t := range strangers {
		s.giveBackLocked(t)
		s.mu.laterLocked(func() {
			s.engine.failures.Warn("worqr: returning a task that Redis assigns to this worker but the worker doesn't hold", s.queue.id, 1, t.named()...)
		})
	}
	for id, t := range ours {
		if _, ok := theirs[id]; ok || s.held[id] != t || t.away {
			continue
		}
		attrs := t.named() // a fetch may be about to change what it reads
		s.mu.laterLocked(func() { s.engine.Log.Warn("worqr: stopping a task whose start Redis has lost", attrs...) })
		s.queue.counts.Lost.Add(1)
		t.overLocked(worqrtrace.Lost, ErrNotOwner)
		s.releaseLocked(t, ErrEvicted)
	}
}
