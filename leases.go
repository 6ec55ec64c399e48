package worqr

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// Peers of one queue should have the same lease. Else each judges the others by its own,
// or two services share a queue that don't know of each other.

// isToCompare reports once that it is time to compare leases: some time after a join.
func (w *worker) isToCompare() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.compare.IsZero() || time.Now().Before(w.compare) {
		return false
	}
	w.compare = time.Time{}
	return true
}

// compareLeases warns, once for each queue, of a peer with another lease. It looks at
// two members of each queue: those whose leases end first and last.
func (w *worker) compareLeases(ctx context.Context) {
	p := w.peer
	w.mu.Lock()
	self := w.id
	var served []*Queue
	for _, r := range w.members {
		if !w.warned[r.queue.id] {
			served = append(served, r.queue)
		}
	}
	w.mu.Unlock()
	for queues := range slices.Chunk(served, page) {
		var calls []redisconn.Call
		for _, q := range queues {
			calls = append(calls, redisconn.Command("ZRANGE", q.keys.Workers(), 0, 0), redisconn.Command("ZRANGE", q.keys.Workers(), -1, -1))
		}
		of := map[*Queue][]string{}
		others := map[string]bool{}
		for i, reply := range p.calls.Do(ctx, calls...) {
			ids, _ := redis.Strings(reply.Value, reply.Err) // it is only a hint
			for _, id := range ids {
				if id != self {
					of[queues[i/2]] = append(of[queues[i/2]], id)
					others[id] = true
				}
			}
		}
		known := map[string]store.Worker{}
		for ids := range slices.Chunk(slices.Sorted(maps.Keys(others)), page) {
			maps.Copy(known, p.were(ctx, ids))
		}
		for _, q := range queues {
			for _, id := range of[q] {
				other := known[id]
				if other.Lease == 0 || other.Lease == p.opts.Lease {
					continue
				}
				w.mu.Lock()
				w.warned[q.id] = true
				w.mu.Unlock()
				p.log.Warn("worqr: peers of a queue have different leases; is it two services that use one queue?",
					"queue", q.id, "lease", p.opts.Lease, "other", other.Lease, "worker", id, "name", other.Name, "host", other.Host)
				break
			}
		}
	}
}
