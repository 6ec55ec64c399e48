package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// Queues whose home isn't known stay where they are. Only queues that have come from another
// node are spared for a lease.
func TestStrangers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Unix(1e9, 0)
	c := &circle{worker: &worker{}}
	is.Equal(c.strangersLocked([]*member{{}, {}}, now), nil)
	is.Equal(c.strangersLocked([]*member{{}, {spared: now.Add(1)}, {spared: now}}, now), []bool{false, true, false})
}

// Each queue is in the circle of its node, and changes circles when its slot moves. Its lease
// is renewed throughout. Only queues that have moved are spared. Queues are listed again once
// in a while.
func TestCircles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := redistest.StartCluster(t, 2, 0)
	place, err := store.Open(c.URL(), store.Access{})
	is.NoErr(err)
	f, moving := newFleetIn(t, place, "p", 2*time.Second, nil)
	place.OnChange(f.Changed)
	slot := c.Slot(t, "{q}")
	home := c.Owner(t, slot)
	other := c.Nodes[(slices.Index(c.Nodes, home)+1)%2]
	staying := queueOn(t, f, c, other)
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), moving))
	is.NoErr(f.Join(t.Context(), staying))
	w := f.present()
	at := func(q *Queue) (home string, spared bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		m := w.members[q.ID]
		return m.circle.home, time.Now().Before(m.spared)
	}
	renewed := func(at *redistest.Server, q *Queue) {
		t.Helper()
		conn := redistest.Dial(t, at.URL())
		lease := func() string { s, _ := redis.String(conn.Do("ZSCORE", q.Keys.Workers(), f.ID())); return s }
		before := lease()
		until(t, "the lease is renewed", func() bool { l := lease(); return l != "" && l != before })
	}
	settled := func(q *Queue, node *redistest.Server) {
		t.Helper()
		until(t, "it is in the circle of its node", func() bool { h, _ := at(q); return h == node.Addr() })
		renewed(node, q)
	}
	settled(moving, home)
	settled(staying, other)
	until(t, "no slot has moved for long", func() bool { _, a := at(moving); _, b := at(staying); return !a && !b })
	for _, to := range []*redistest.Server{other, home, other} {
		c.Move(t, slot, to)
		until(t, "it is spared", func() bool { h, s := at(moving); return h == to.Addr() && s })
		_, spared := at(staying)
		is.True(!spared)
		settled(moving, to)
	}
	until(t, "it isn't spared anymore", func() bool { _, s := at(moving); return !s })

	registry := redistest.Dial(t, c.Owner(t, c.Slot(t, "p:registry")).URL())
	listed := func() bool {
		n, err := redis.Int(registry.Do("SISMEMBER", "p:registry", "q"))
		return n == 1 && err == nil
	}
	until(t, "the queue is listed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return listed() && !w.outdated
	})
	redistest.Do(t, registry, "SREM", "p:registry", "q") // as if the peer that removes it from the list had died at this point
	w.mu.Lock()
	is.True(!w.list.IsZero())
	w.list = time.Now()
	w.mu.Unlock()
	until(t, "the queue is listed again", listed)
	is.NoErr(f.Stop(t.Context()))
}

// A circle ends some time after its last queue has left the node, and not while it has one. A node
// that comes back gets a new circle.
func TestCirclesEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const lease = 150 * time.Millisecond // six heartbeats are two leases
	c := redistest.StartCluster(t, 3, 0)
	place, err := store.Open(c.URL(), store.Access{})
	is.NoErr(err)
	f, moving := newFleetIn(t, place, "p", lease, nil)
	place.OnChange(f.Changed)
	slot := c.Slot(t, "{q}")
	home := c.Owner(t, slot)
	stays := c.Nodes[(slices.Index(c.Nodes, home)+1)%3]
	staying := queueOn(t, f, c, stays)
	is.NoErr(f.Start(t.Context()))
	f.Want(moving)
	f.Want(staying)
	w := f.present()
	are := func(nodes ...*redistest.Server) {
		t.Helper()
		want := []string{store.Somewhere}
		for _, n := range nodes {
			want = append(want, n.Addr())
		}
		slices.Sort(want)
		until(t, fmt.Sprintf("the circles are %q", want), func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Equal(slices.Sorted(maps.Keys(w.circles)), want)
		})
	}
	are(home, stays)
	for range 2 {
		for _, to := range c.Nodes {
			if to != c.Owner(t, slot) {
				c.Move(t, slot, to)
			}
			if to == stays {
				are(stays)
			} else {
				are(to, stays)
			}
		}
	}
	is.NoErr(f.Stop(t.Context()))
}
