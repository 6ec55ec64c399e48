package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// Queues whose home isn't known stay where they are; those that have come from another node
// are spared for a lease, and no others.
func TestStrangers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Unix(1e9, 0)
	c := &circle{worker: &worker{}}
	is.Equal(c.strangersLocked([]*member{{}, {}}, now), nil)
	is.Equal(c.strangersLocked([]*member{{}, {spared: now.Add(1)}, {spared: now}}, now), []bool{false, true, false})
}

// Each queue is in the circle of the node that has it, and changes it with its slot; its lease is
// renewed all the while. Only such a queue is spared. Once in a while queues are listed again.
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
	stays := other
	var staying *Queue
	for i := 0; staying == nil; i++ {
		if name := fmt.Sprint("q", i); c.Owner(t, c.Slot(t, "{"+name+"}")) == stays {
			staying = queueOf(f, name)
		}
	}
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
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it never came about that ", what)
			}
		}
	}
	renewed := func(at *redistest.Server, q *Queue) {
		t.Helper()
		conn := redistest.Dial(t, at.URL())
		lease := func() string { s, _ := redis.String(conn.Do("ZSCORE", q.Keys.Workers(), f.ID())); return s }
		before := lease()
		until("the lease is renewed", func() bool { l := lease(); return l != "" && l != before })
	}
	settled := func(q *Queue, node *redistest.Server) {
		t.Helper()
		until("it is in the circle of its node", func() bool { h, _ := at(q); return h == node.Addr() })
		renewed(node, q)
	}
	settled(moving, home)
	settled(staying, stays)
	until("no slot has moved for long", func() bool { _, a := at(moving); _, b := at(staying); return !a && !b })
	for _, to := range []*redistest.Server{other, home, other} {
		c.Move(t, slot, to)
		until("it is spared", func() bool { h, s := at(moving); return h == to.Addr() && s })
		_, spared := at(staying)
		is.True(!spared)
		settled(moving, to)
	}
	until("it isn't spared any more", func() bool { _, s := at(moving); return !s })

	registry := redistest.Dial(t, c.Owner(t, c.Slot(t, "p:registry")).URL())
	listed := func() bool {
		n, err := redis.Int(registry.Do("SISMEMBER", "p:registry", "q"))
		return n == 1 && err == nil
	}
	until("the queue is listed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return listed() && !w.outdated
	})
	redistest.Do(t, registry, "SREM", "p:registry", "q") // as if who takes it off had died then
	w.mu.Lock()
	is.True(!w.list.IsZero())
	w.list = time.Now()
	w.mu.Unlock()
	until("the queue is listed again", listed)
	is.NoErr(f.Stop(t.Context()))
}

func queueOf(f *Fleet, name string) *Queue {
	of := &store.Served{Lines: f.Lines, Name: name, ID: name, Keys: f.Space.Queue(name)}
	return &Queue{Part: engine.Part{Served: of}, Engine: f.Engine.Queue(name, name, engine.Options{})}
}

// A circle ends some time after the last queue has left its node, and one that a queue is in doesn't. A
// node that comes back gets another.
func TestCirclesEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const lease = 150 * time.Millisecond // six heartbeats are two of these
	c := redistest.StartCluster(t, 3, 0)
	place, err := store.Open(c.URL(), store.Access{})
	is.NoErr(err)
	f, moving := newFleetIn(t, place, "p", lease, nil)
	place.OnChange(f.Changed)
	slot := c.Slot(t, "{q}")
	home := c.Owner(t, slot)
	var staying *Queue
	for i := 0; staying == nil; i++ {
		if name := fmt.Sprint("q", i); c.Owner(t, c.Slot(t, "{"+name+"}")) != home {
			staying = queueOf(f, name)
		}
	}
	stays := c.Owner(t, c.Slot(t, "{"+staying.ID+"}"))
	is.NoErr(f.Start(t.Context()))
	f.Want(moving)
	f.Want(staying)
	w := f.present()
	circles := func() (all []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Sorted(maps.Keys(w.circles))
	}
	are := func(nodes ...*redistest.Server) {
		t.Helper()
		want := []string{store.Somewhere}
		for _, n := range nodes {
			want = append(want, n.Addr())
		}
		slices.Sort(want)
		for end := time.Now().Add(time.Minute); !slices.Equal(circles(), want); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the circles are %q, want %q", circles(), want)
			}
		}
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
