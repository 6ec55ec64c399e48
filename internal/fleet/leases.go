package fleet

import (
	"context"
	"maps"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// Peers of a queue should have the same lease. If they don't, either each judges the others by its
// own lease, or two services share the queue by accident.

// compareLeases warns once per queue of a peer with a different lease. It checks two members of
// each queue: those whose leases end first and last.
func (w *worker) compareLeases(ctx context.Context) {
	w.mu.Lock()
	self := w.id
	var served []*Queue
	for _, m := range w.members {
		if !w.warned[m.queue.ID] {
			served = append(served, m.queue)
		}
	}
	w.mu.Unlock()
	for queues := range slices.Chunk(served, page) {
		members := store.Some(ctx, w.fleet.Lines.Calls, keysOf(queues)) // only a hint
		others := map[string]bool{}
		for _, ids := range members {
			for _, id := range ids {
				others[id] = true
			}
		}
		delete(others, self)
		known := w.fleet.registered(ctx, slices.Sorted(maps.Keys(others)))
		for i, q := range queues {
			w.compareLease(q, members[i], known)
		}
	}
}

// compareLease warns of the first member of a queue that has a different lease.
func (w *worker) compareLease(q *Queue, members []string, known map[string]store.Worker) {
	lease := w.fleet.Lease
	for _, id := range members {
		other := known[id]
		if other.Lease == 0 || other.Lease == lease {
			continue
		}
		w.mu.Lock()
		w.warned[q.ID] = true
		w.mu.Unlock()
		w.fleet.Log.Warn("worqr: peers of a queue have different leases; do two services share it?",
			"queue", q.ID, "lease", lease, "other", other.Lease, "worker", id, "name", other.Name, "host", other.Host)
		return
	}
}
