package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A circle is the set of a worker's queues on one server or cluster node, its home. Each node has
// its own clock and may stall independently. That's why each circle has its own heartbeats, and
// decides on its own whether it may evict other workers.
type circle struct {
	*worker
	home      string
	registers bool // the registration is renewed with its heartbeats
	upset     logs.Outage

	due chan struct{} // triggers a beat; capacity 1

	redis    int64     // ms of Redis time when the last beat was answered; owned by keep
	witness  witness   // owned by keep
	beats    string    // the id of the last beat; owned by keep
	turned   time.Time // when its loop last began a turn; protected by worker.mu
	answered time.Time // when the last answered beat was sent, or the circle was made; protected by worker.mu
	empty    time.Time // since when it has no queue; zero if it has some; protected by worker.mu
}

// enter returns the circle at a home. It sends heartbeats until it has been empty for a while or
// the worker ends.
func (w *worker) enter(home string) *circle {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enterLocked(home)
}

func (w *worker) enterLocked(home string) *circle {
	c := w.circles[home]
	if c == nil {
		c = &circle{worker: w, home: home, registers: home == store.Somewhere, due: make(chan struct{}, 1), turned: time.Now(), answered: time.Now()}
		w.circles[home] = c
		w.loops.Go(c.keep)
	}
	return c
}

// errLeft ends the heartbeats of a circle that has no queues anymore.
var errLeft = errors.New("no queues are left on the node")

// emptyFor is how many heartbeats a circle outlasts its last queue: if slots move back and forth,
// the node's circle still knows its clock.
const emptyFor = 6

// isLeft reports whether the circle has had no queues for a while. If so, the worker removes it,
// and a queue that comes back to the node gets a new one. Otherwise, in a cluster whose nodes are
// replaced, circles would accumulate.
func (c *circle) isLeft(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.circle == c {
			c.empty = time.Time{}
			return false
		}
	}
	switch {
	case c.registers:
		return false
	case c.empty.IsZero():
		c.empty = now
	}
	if now.Sub(c.empty) < emptyFor*c.fleet.lease.Beat {
		return false
	}
	delete(c.circles, c.home)
	return true
}

// keep sends heartbeats until the circle is left or the worker ends.
func (c *circle) keep() {
	every := c.fleet.lease.Beat
	var where []any
	if c.home != store.Somewhere {
		where = []any{"node", c.home}
	}
	c.repeat(0, every/4, c.due, &c.upset, "heartbeats fail; retrying", func(ctx context.Context) (next time.Duration, err error) {
		c.noteTurn()
		at, err := c.beat(ctx)
		if c.isLeft(time.Now()) {
			return 0, errLeft
		}
		return min(store.Jitter(every/5)+every*4/5, at), err
	}, where...)
}

// gather moves each queue to the circle of the node that has it now. The new circle sends a
// heartbeat immediately, since the old one's last heartbeat may have been a while ago.
func (w *worker) gather() {
	if !w.fleet.Lines.InCluster() {
		return
	}
	w.mu.Lock()
	members := slices.Collect(maps.Values(w.members))
	w.mu.Unlock()
	for _, m := range members {
		home := w.fleet.Lines.Control.Home(m.queue.Keys)
		if home == store.Somewhere {
			continue // keep it in its circle
		}
		w.mu.Lock()
		c := w.enterLocked(home) // it doesn't end before the queue is in it
		moves := m.circle != c
		if now := time.Now(); moves {
			if m.circle.home != store.Somewhere || now.Sub(w.shifted) < w.fleet.lease.Grant {
				m.spared = now.Add(w.fleet.lease.Grant)
			}
			m.circle = c
		}
		w.mu.Unlock()
		if moves {
			c.beatSoon()
		}
	}
}

// beatSoon makes the circle send a heartbeat now.
func (c *circle) beatSoon() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// strangersLocked reports for each member whether its queue came from another node less than a
// lease ago; it returns nil if none did. Leases on such a queue were counted by the other node's
// clock, and the workers that hold them may still be looking for the queue.
func (c *circle) strangersLocked(members []*member, now time.Time) (spare []bool) {
	for i, m := range members {
		if now.Before(m.spared) {
			if spare == nil {
				spare = make([]bool, len(members))
			}
			spare[i] = true
		}
	}
	return spare
}

// isAt reports whether a queue is still at the circle's node.
func (c *circle) isAt(m *member) bool {
	return c.home == store.Somewhere || c.fleet.Lines.Control.Home(m.queue.Keys) == c.home
}

// isOne reports whether all queues of the circle are on one server, so that their leases can be
// compared.
func (c *circle) isOne() bool { return c.home != store.Somewhere || !c.fleet.Lines.InCluster() }

// made returns when the connection for the circle's heartbeats was created.
func (c *circle) made() time.Time { return c.fleet.Lines.Control.Made(c.home) }
