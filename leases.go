package worqr

import (
	"context"
	"fmt"
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

// leases reports that members of a queue have different leases.
func (c *checkup) leases(pt *patient) error {
	for ids := range slices.Chunk(pt.members, page) {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, known := c.known[id]; return known })
		calls := make([]redisconn.Call, len(ids))
		for i, id := range ids {
			calls[i] = redisconn.Command("HGET", c.peer.space.Worker(id), "lease")
		}
		for i, reply := range c.peer.calls.Do(c.ctx, calls...) {
			ms, err := redis.Int64(reply.Value, reply.Err)
			if _, refused := reply.Err.(redis.Error); err != nil && reply.Err != nil && !refused {
				return err
			}
			c.known[ids[i]] = time.Duration(ms) * time.Millisecond // 0: not known
		}
	}
	var first string
	for _, id := range pt.members {
		switch lease := c.known[id]; {
		case lease == 0:
		case first == "":
			first = id
		case lease != c.known[first]:
			c.found(Finding{Kind: findingLeases, Severity: SeverityWarning, Queue: pt.queue.id, Key: pt.queue.keys.Workers(), Subject: clip(id),
				Text: fmt.Sprintf("Its lease is %v, and that of %s is %v. Give all workers of a queue the same lease. If they belong to two services, give each a prefix.", lease, clip(first), c.known[first])})
			return nil
		}
	}
	return nil
}
