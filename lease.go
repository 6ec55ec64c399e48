package worqr

import (
	"maps"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/script"
)

// pulse takes in the answer to a beat that was sent at the given time.
func (r *rounds) pulse(p *script.Pulse, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew(sent)
	if p.Rank == 0 {
		r.listens = time.Now().Add(2 * r.queue.peer.opts.beat())
	}
	r.look = r.look || p.Canceled > r.seen || p.Waiting > 0 && r.free() > 0
	r.kick()
	if p.Held == len(r.held) {
		r.strays = 0
		return
	}
	if r.strays++; r.strays == 2 {
		r.strays = 0
		known := r.applied
		r.queue.peer.background.Go(func() { r.reconcile(known) })
	}
}

// renew notes that the lease was renewed by something sent at the given time.
// r.mu is held.
func (r *rounds) renew(sent time.Time) {
	if sent.After(r.renewed) {
		r.renewed = sent
		if r.fence != nil && r.ended == nil {
			r.fence.Reset(time.Until(sent.Add(r.queue.peer.exclusive())))
		}
	}
}

// unsure ends the contexts of what an exclusive handler runs: from now on
// others may be running it.
func (r *rounds) unsure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.renewed) < r.queue.peer.exclusive() {
		return // renewed meanwhile
	}
	for _, t := range r.held {
		t.cancel(ErrEvicted)
	}
}

// reconcile compares what Redis believes this worker to hold with what it
// holds, after two beats found that the numbers differ: what we do not know of
// goes back to the front, what is no longer ours ends. Rounds are under way
// meanwhile; only starts up to the token known, which were taken in before,
// are looked at.
func (r *rounds) reconcile(known int64) {
	theirs := map[string]int64{}
	for from := 0; ; from += page {
		pairs, err := redis.Int64Map(r.queue.read(r.ctx, "ZRANGE", r.queue.keys.Working(r.worker), from, from+page-1, "WITHSCORES"))
		if err != nil {
			return // the next beats will find the same
		}
		maps.Copy(theirs, pairs)
		if len(pairs) < page {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.queue.peer.log
	for id, token := range theirs {
		if r.held[id] == nil && token <= known {
			log.Warn("worqr: putting back a task whose start we do not know of", "queue", r.queue.name, "process", id)
			stray := &Task{ID: id, Queue: r.queue.name, Token: token, rounds: r}
			r.outcomes = append(r.outcomes, &settlement{stray, script.Stop, make(chan settled, 1)})
		}
	}
	for id, t := range r.held {
		if _, ok := theirs[id]; !ok && t.Token <= known {
			log.Warn("worqr: stopping a task whose start Redis has lost", "queue", r.queue.name, "process", id)
			r.queue.peer.counts.lost.Add(1)
			delete(r.held, id)
			t.cancel(ErrEvicted)
		}
	}
	r.kick()
}
