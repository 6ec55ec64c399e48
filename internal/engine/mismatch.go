package engine

import (
	"maps"
	"time"
)

// A mismatch tells how likely it is that Redis believes a worker to hold something else
// than it holds, as when Redis has lost writes.
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

// compareLocked takes in how many processes Redis believed the worker to hold when a beat
// came that was sent at the given time.
func (r *Session) compareLocked(held int, sent time.Time) {
	d := &r.mismatch
	switch quiet := r.idle == nil && r.talked.Before(sent); {
	case d.looking || r.ended != nil:
		return
	case !quiet:
		d.weight += busy
	case held != len(r.held):
		d.weight += differs
	default:
		d.weight, d.strangers = 0, nil
	}
	if d.weight >= certain {
		d.weight, d.looking = 0, true
		r.engine.background.Go(r.reconcile)
	}
}

// reconcile compares what Redis believes this worker to hold with what it holds: what
// we do not know of, on two looks, goes back to the front, and what is no longer ours
// ends.
func (r *Session) reconcile() {
	r.mu.Lock()
	ours := maps.Clone(r.held)
	r.mu.Unlock()
	theirs, err := r.queue.store.Held(r.ctx, r.member.Worker)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.mismatch.looking = false }()
	if err != nil {
		return // the beats go on to differ
	}
	// What is under way may have started some of these, or ended them.
	for said := r.number; r.ended == nil && r.idle != nil && r.answered < said; {
		r.turned.Wait()
	}
	if r.ended != nil {
		return
	}
	log := r.engine.log
	strangers := map[string]int64{}
	for id, token := range theirs {
		_, again := r.mismatch.strangers[id]
		switch {
		case r.held[id] != nil:
		case again:
			r.mu.laterLocked(func() {
				log.Warn("worqr: returning a task that Redis assigns to this worker, but that it does not hold", "queue", r.queue.id, "attempt_id", id)
			})
			r.giveBackLocked(&Attempt{ID: id, Token: token})
		default:
			strangers[id] = token // or it has ended since
		}
	}
	if r.mismatch.strangers = strangers; len(strangers) > 0 {
		r.mismatch.weight = certain - busy // with the next beat
	}
	for id, t := range ours {
		if _, ok := theirs[id]; !ok && r.held[id] == t {
			r.mu.laterLocked(func() {
				log.Warn("worqr: stopping a task: Redis has lost its start", t.named()...)
			})
			r.engine.counts.Lost.Add(1)
			delete(r.held, id)
			t.endLocked(ErrEvicted)
			r.safeLocked(t)
		}
	}
	r.wakeLocked()
}
