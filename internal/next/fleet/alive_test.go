package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/next/store"
	"github.com/worqr/worqr/internal/redistest"
)

// peers starts n peers at once, each of which serves the queue q.
func peers(t *testing.T, n int, url, prefix string, lease time.Duration) []*Fleet {
	t.Helper()
	all := make([]*Fleet, n)
	var starting sync.WaitGroup
	for i := range all {
		all[i] = newPeer(t, url, prefix, lease)
		starting.Go(func() { serve(t, all[i], "q") })
	}
	starting.Wait()
	return all
}

func idsOf(all []*Fleet) []string {
	ids := make([]string, len(all))
	for i, f := range all {
		ids[i] = f.ID()
	}
	slices.Sort(ids)
	return ids
}

// heartbeats waits until all peers have sent so many heartbeats on the queue.
func heartbeats(t *testing.T, all []*Fleet, n int) {
	t.Helper()
	sent := func(s *session) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pulses
	}
	wants := map[*session]int{}
	for _, f := range all {
		s := on(t, f, "q")
		wants[s] = sent(s) + n
	}
	for s, want := range wants {
		until(t, "heartbeats are answered", func() bool { return sent(s) >= want })
	}
}

// Many peers that start at once evict no living one.
func TestManyStartAtOnce(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	all := peers(t, 50, redistest.URL(), prefix, time.Second)
	before := idsOf(all)
	heartbeats(t, all, 15) // some leases
	is.Equal(idsOf(all), before)
	is.Equal(slices.Sorted(slices.Values(members(t, c, all[0].Space.Queue("q")))), before)
	for _, f := range all {
		is.Equal(f.Counts().Swept.Load(), int64(0))
	}
}

// A stall of Redis that is longer than the lease evicts nobody, whoever comes back first.
func TestStallEvictsNobody(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	const lease = time.Second
	all := peers(t, 10, server.URL(), redistest.Prefix(t), lease)
	q := all[0].Space.Queue("q")
	enqueue(t, c, q, 10)
	for _, f := range all {
		n, err := on(t, f, "q").start(t.Context(), 1)
		is.NoErr(err)
		is.Equal(n, 1)
	}
	before := idsOf(all)
	for range 2 {
		heartbeats(t, all, 5) // so that they may evict others
		server.Pause(t)
		time.Sleep(2 * lease) // the stall
		server.Resume(t)
		heartbeats(t, all, 5)
		is.Equal(idsOf(all), before)
		is.Equal(len(members(t, c, q)), len(all))
		is.Equal(waiting(t, c, q), 0)
	}
	for _, f := range all {
		n, err := on(t, f, "q").finish(t.Context())
		is.NoErr(err)
		is.Equal(n, 1)
	}
}

// One survivor of many returns all tasks of the others within a lease and two thirds, on every queue.
func TestOneSurvivor(t *testing.T) {
	is := redistest.Parallel(t)
	const lease, others, each, queues = 3 * time.Second, 15, 40, 3
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	var names []string
	for i := range queues {
		names = append(names, fmt.Sprint("q", i))
	}
	dying := make([]*Fleet, others)
	for i := range dying {
		dying[i] = newPeer(t, redistest.URL(), prefix, lease)
		serve(t, dying[i], names...)
	}
	survivor := newPeer(t, redistest.URL(), prefix, lease)
	survivor.Name = "survivor"
	serve(t, survivor, names...)
	for _, name := range names {
		q := survivor.Space.Queue(name)
		enqueue(t, c, q, others*each)
		for _, f := range dying {
			n, err := on(t, f, name).start(t.Context(), each)
			is.NoErr(err)
			is.Equal(n, each)
		}
		is.Equal(waiting(t, c, q), 0)
	}
	until(t, "the survivor may evict others", func() bool {
		n := survivor.present().nodes[store.Somewhere]
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.witness.judges(time.Now(), n.made()) != 0
	})
	var dead []string
	began := time.Now()
	for _, f := range dying {
		dead = append(dead, f.ID())
		die(f)
	}
	for _, name := range names {
		q := survivor.Space.Queue(name)
		until(t, "all tasks are back", func() bool { return waiting(t, c, q) == others*each })
		is.Equal(members(t, c, q), []string{survivor.ID()})
	}
	if took := time.Since(began); took > lease*5/3 {
		t.Errorf("it took %v", took)
	}
	is.Equal(survivor.Counts().Swept.Load(), int64(others))
	until(t, "they are counted", func() bool { return survivor.Counts().Returned.Load() == others*each*queues })
	until(t, "they are off the roster", func() bool {
		return redistest.Do(t, c, "SCARD", survivor.Space.Workers()) == int64(1)
	})
	for _, id := range dead {
		is.Equal(redistest.Do(t, c, "EXISTS", survivor.Space.Worker(id)), int64(0))
	}
}

// A peer that was stopped beyond its lease is evicted. When it goes on, it comes back under a new id, and its late
// calls change nothing.
func TestStoppedProcess(t *testing.T) {
	is := redistest.Parallel(t)
	const lease = time.Second
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, lease)
	var mu sync.Mutex
	var lines []string
	f.Log.Before = func(msg string, attrs []any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprint(msg, attrs))
	}
	serve(t, f, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 3)
	p, err := child.Start[report](t.Context(), child.Options{Config: config{redistest.URL(), prefix, lease}})
	is.NoErr(err)
	t.Cleanup(p.Kill)
	ask := func(what string) report {
		t.Helper()
		is.NoErr(p.Tell(what))
		return <-p.Reports
	}
	first := <-p.Reports
	is.Equal(first.Err, "")
	is.Equal(ask("start 3").N, 3)

	process, err := os.FindProcess(p.PID())
	is.NoErr(err)
	is.NoErr(redistest.Pause(process))
	until(t, "its tasks are back", func() bool { return waiting(t, c, q) == 3 })
	is.Equal(members(t, c, q), []string{f.ID()})
	is.NoErr(p.Tell("finish")) // a late call: the process finds it when it goes on
	is.NoErr(redistest.Resume(process))
	late := <-p.Reports
	is.Equal(late.N, 0)
	is.True(late.Err != "" || late.ID != first.ID)
	is.Equal(waiting(t, c, q), 3)
	until(t, "it serves again under a new id", func() bool {
		r := ask("id")
		return r.Err == "" && r.ID != first.ID && slices.Contains(members(t, c, q), r.ID)
	})
	is.Equal(ask("start 1").N, 1)
	is.Equal(ask("finish").N, 1)
	is.Equal(f.Counts().Evicted.Load(), int64(0)) // to it, all others were silent
	mu.Lock()
	defer mu.Unlock()
	said := strings.Join(lines, "\n")
	is.True(strings.Contains(said, "evicted a worker whose lease expired[worker "+first.ID))
	is.True(strings.Contains(said, fmt.Sprint("pid ", p.PID(), " queues [q] tasks 3")))
}

// A worker that dies between two pages of its leave is taken over, also if nobody may evict others yet.
func TestDeathBetweenPagesOfLeave(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, g := newPeer(t, redistest.URL(), prefix, time.Second), newPeer(t, redistest.URL(), prefix, time.Second)
	serve(t, f, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 350)
	s := on(t, f, "q")
	n, err := s.start(t.Context(), 350)
	is.NoErr(err)
	is.Equal(n, 350)
	returned, more, err := store.ReadLeave(f.Lines.Control.Do(t.Context(), store.LeaveCall(s.view.Shared, s.m.Worker, s.Last()))[0])
	is.NoErr(err)
	is.True(more)
	is.Equal(returned, 100)
	die(f)
	serve(t, g, "q")
	until(t, "all tasks are back", func() bool { return waiting(t, c, q) == 350 })
	is.Equal(redistest.Sure(redis.String(c.Do("LINDEX", q.Waiting(), -1)))(t), "task 0")
	n, err = on(t, g, "q").start(t.Context(), 1)
	is.NoErr(err)
	is.Equal(n, 1)
}

// A worker whose replies to joins are lost joins all the same, and leaves what it doesn't serve in the end.
func TestLostJoins(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	link := redistest.NewLink(t, strings.TrimPrefix(redistest.URL(), "redis://"))
	f := newPeer(t, link.URL(), prefix, time.Second)
	serve(t, f, "other")
	id, q := f.ID(), f.Space.Queue("q")
	lost := link.LoseRepliesTo(digest("join"), 3)
	f.Want(queueOf(f, "q"))
	<-lost
	until(t, "it joins", func() bool { _, err := f.Session("q"); return err == nil })
	is.Equal(members(t, c, q), []string{id})
	heartbeats(t, []*Fleet{f}, 3)
	is.Equal(f.ID(), id)

	lost = link.LoseReplyTo(digest("join"))
	is.True(f.Join(t.Context(), queueOf(f, "r")) != nil)
	<-lost
	until(t, "what it doesn't want is left", func() bool { return len(members(t, c, f.Space.Queue("r"))) == 0 })
	is.NoErr(f.Stop(t.Context()))
	is.Equal(members(t, c, q), []string{})
}

// A worker joins a queue that it has left under the same id, also if the leave is still unfinished.
func TestJoinAgain(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, time.Second)
	serve(t, f, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 350)
	for range 3 {
		s := on(t, f, "q")
		_, err := s.start(t.Context(), 350)
		is.NoErr(err)
		_, more, err := store.ReadLeave(f.Lines.Control.Do(t.Context(), store.LeaveCall(s.view.Shared, s.m.Worker, s.Last()))[0])
		is.NoErr(err)
		is.True(more)
		w := f.present()
		is.NoErr(w.await(t.Context()))
		w.mu.Lock()
		delete(w.members, "q") // as if the reply to the leave had been lost
		w.owed[membership{q, f.ID()}] = s.Last()
		w.mu.Unlock()
		w.pass()
		is.NoErr(f.Join(t.Context(), queueOf(f, "q")))
		is.Equal(members(t, c, q), []string{f.ID()})
		is.Equal(waiting(t, c, q), 350)
		_, _, err = store.ReadLeave(f.Lines.Control.Do(t.Context(), store.LeaveCall(s.view.Shared, s.m.Worker, s.Last()))[0])
		is.NoErr(err) // a late copy
		is.Equal(members(t, c, q), []string{f.ID()})
	}
}

// A worker that stops while Redis restarts repeats the leave until Redis has confirmed it.
func TestLeaveWhileRedisRestarts(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	link := redistest.NewLink(t, strings.TrimPrefix(redistest.URL(), "redis://"))
	f := newPeer(t, link.URL(), prefix, time.Hour)
	serve(t, f, "q")
	lost := link.LoseRepliesTo(digest("leave"), 3)
	is.NoErr(f.Stop(t.Context()))
	<-lost
	is.Equal(redistest.Do(t, c, "EXISTS", f.Space.Queue("q").Workers(), f.Space.Worker(f.ID())), int64(0))
}

// FailWorker evicts a living worker, which comes back. Sweep evicts dead ones in two calls.
func TestByHand(t *testing.T) {
	is := redistest.Parallel(t)
	const lease = 600 * time.Millisecond
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	user := newPeer(t, redistest.URL(), prefix, lease) // isn't started
	f := newPeer(t, redistest.URL(), prefix, lease)
	serve(t, f, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 2)
	n, err := on(t, f, "q").start(t.Context(), 2)
	is.NoErr(err)
	is.Equal(n, 2)
	id := f.ID()
	n, err = user.Fail(t.Context(), id)
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(waiting(t, c, q), 2)
	until(t, "it comes back", func() bool {
		s, err := f.Session("q")
		return err == nil && f.ID() != id && slices.Equal(members(t, c, q), []string{s.(*session).m.Worker})
	})
	is.Equal(f.Counts().Evicted.Load(), int64(1))

	_, err = on(t, f, "q").start(t.Context(), 2)
	is.NoErr(err)
	die(f)
	dead := []string{f.ID()}
	until(t, "it's evicted", func() bool {
		failed, err := user.Sweep(t.Context())
		is.NoErr(err)
		return slices.Equal(failed, dead)
	})
	is.Equal(waiting(t, c, q), 2)
	is.Equal(user.Counts().Returned.Load(), int64(4))
	failed, err := user.Sweep(t.Context())
	is.NoErr(err)
	is.Equal(len(failed), 0)
}

// Living peers call evict about once in a third of a lease for each queue, however many they are.
func TestNoStorm(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	const n, lease = 30, time.Second
	all := peers(t, n, server.URL(), redistest.Prefix(t), lease)
	heartbeats(t, all, 5) // so that they may evict others
	redistest.Do(t, c, "CONFIG", "RESETSTAT")
	began := time.Now()
	heartbeats(t, all, 10)
	thirds := int(time.Since(began)/(lease/3)) + 1
	const commands = 2 // ZRANGE in evict; others have none
	evicts := redistest.Calls(t, c, "zrange") / commands
	is.True(evicts > 0)
	if evicts > 4*thirds {
		t.Errorf("%d calls in %d thirds of a lease", evicts, thirds)
	}
}

// Deadlines that Redis's clock has set while it was ahead, by a day, keep nobody from being evicted, nor alive.
func TestClockWasAhead(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, g := newPeer(t, redistest.URL(), prefix, time.Second), newPeer(t, redistest.URL(), prefix, time.Second)
	serve(t, f, "q")
	serve(t, g, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 1)
	_, err := on(t, g, "q").start(t.Context(), 1)
	is.NoErr(err)
	die(g)
	far := time.Now().Add(24 * time.Hour).UnixMilli()
	redistest.Do(t, c, "ZADD", q.Workers(), "XX", far, f.ID(), far, g.ID())
	redistest.Do(t, c, "HSET", prefix+":state:{q}", "look", far)
	id := f.ID()
	until(t, "the dead one is evicted", func() bool { return waiting(t, c, q) == 1 })
	is.Equal(members(t, c, q), []string{id})
	heartbeats(t, []*Fleet{f}, 1)
	deadline := redistest.Sure(redis.Int64(c.Do("ZSCORE", q.Workers(), id)))(t)
	is.True(time.Until(time.UnixMilli(deadline)) <= time.Second)
}

// While a node of a cluster is frozen, heartbeats go on at the others, and dead workers are evicted there. When it's
// back, no living worker is evicted.
func TestFrozenNode(t *testing.T) {
	is := redistest.Parallel(t)
	const lease = time.Second
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	queues := map[*redistest.Server]string{}
	for i := 0; len(queues) < len(c.Nodes); i++ {
		name := fmt.Sprint("q", i)
		queues[c.Owner(t, c.Slot(t, "{"+name+"}"))] = name
	}
	frozen := c.Nodes[0]
	for _, at := range c.Nodes { // the others can be listed
		if at != c.Owner(t, c.Slot(t, "p:registry")) {
			frozen = at
		}
	}
	var all []*Fleet
	for range 3 {
		f := newPeer(t, c.URL(), "p", lease)
		serve(t, f, slices.Collect(maps.Values(queues))...)
		all = append(all, f)
	}
	steady := func(at *redistest.Server) {
		t.Helper()
		for _, f := range all {
			until(t, "it may evict others", func() bool {
				w := f.present()
				w.mu.Lock()
				defer w.mu.Unlock()
				m := w.members[queues[at]]
				return m != nil && m.node.home == at.Addr() && m.node.judgesLocked(m, time.Now(), m.node.made()) > 0
			})
		}
	}
	for _, at := range c.Nodes {
		steady(at)
	}
	ids := idsOf(all)
	frozen.Pause(t)
	die(all[2])
	dead := all[2].ID()
	all = all[:2]
	gone := func(at *redistest.Server) {
		t.Helper()
		conn := redistest.Dial(t, at.URL())
		until(t, "the dead worker is evicted", func() bool {
			is := members(t, conn, all[0].Space.Queue(queues[at]))
			return len(is) == 2 && !slices.Contains(is, dead)
		})
	}
	for _, at := range c.Nodes {
		if at != frozen {
			gone(at)
			steady(at)
		}
	}
	frozen.Resume(t)
	gone(frozen)
	steady(frozen)
	for _, f := range all {
		is.True(slices.Contains(ids, f.ID()))
		is.Equal(f.Counts().Evicted.Load(), int64(0))
	}
}

// Each queue has its heartbeats at its own node, also when its slot moves. Only queues that have moved are spared
// from evictions. A node without queues gets no more heartbeats.
func TestNodes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const lease = 2 * time.Second
	c := redistest.StartCluster(t, 2, 0)
	f := newPeer(t, c.URL(), "p", lease)
	slot := c.Slot(t, "{q}")
	home := c.Owner(t, slot)
	other := c.Nodes[(slices.Index(c.Nodes, home)+1)%2]
	staying := ""
	for i := 0; staying == ""; i++ {
		if name := fmt.Sprint("q", i); c.Owner(t, c.Slot(t, "{"+name+"}")) == other {
			staying = name
		}
	}
	serve(t, f, "q", staying)
	w := f.present()
	at := func(queue string) (home string, spared bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		m := w.members[queue]
		return m.node.home, time.Now().Before(m.spared)
	}
	settled := func(queue string, node *redistest.Server) {
		t.Helper()
		until(t, "it is at its node", func() bool { h, _ := at(queue); return h == node.Addr() })
		conn := redistest.Dial(t, node.URL())
		deadline := func() string {
			s, _ := redis.String(conn.Do("ZSCORE", f.Space.Queue(queue).Workers(), f.ID()))
			return s
		}
		before := deadline()
		until(t, "its lease is renewed", func() bool { d := deadline(); return d != "" && d != before })
	}
	settled("q", home)
	settled(staying, other)
	until(t, "no slot has moved for long", func() bool { _, a := at("q"); _, b := at(staying); return !a && !b })
	id := f.ID()
	c.Move(t, slot, other)
	until(t, "it is spared", func() bool { h, s := at("q"); return h == other.Addr() && s })
	_, spared := at(staying)
	is.True(!spared)
	settled("q", other)
	until(t, "the empty node is gone", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.nodes) == 2 // and the one that renews the registration
	})
	c.Move(t, slot, home)
	settled("q", home)
	is.Equal(f.ID(), id)
	is.NoErr(f.Stop(context.Background()))
}
