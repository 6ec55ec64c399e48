package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
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

// heartbeats waits until so many heartbeats of each peer have been answered.
func heartbeats(t *testing.T, all []*Fleet, n int) {
	t.Helper()
	last, left := map[*Fleet]time.Time{}, map[*Fleet]int{}
	for _, f := range all {
		last[f], left[f] = f.LastBeat(), n
	}
	until(t, "heartbeats are answered", func() bool {
		done := true
		for _, f := range all {
			if at := f.LastBeat(); at != last[f] {
				last[f] = at
				left[f]--
			}
			done = done && left[f] <= 0
		}
		return done
	})
}

// Many peers that start at once evict no living one.
func TestManyStartAtOnce(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	all := peers(t, 50, redistest.URL(), prefix, 3*time.Second)
	before := idsOf(all)
	heartbeats(t, all, 8) // some leases
	is.Equal(idsOf(all), before)
	is.Equal(slices.Sorted(slices.Values(members(t, c, all[0].Space.Queue("q")))), before)
	for _, f := range all {
		is.Equal(f.Counts().WorkersEvicted.Load(), int64(0))
	}
}

// A stall of Redis that is longer than the lease evicts nobody, whoever comes back first.
func TestStallEvictsNobody(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	const lease = 2 * time.Second
	all := peers(t, 10, server.URL(), redistest.Prefix(t), lease)
	q := all[0].Space.Queue("q")
	enqueue(t, c, q, 10)
	var held []*engine.Attempt
	for _, f := range all {
		held = append(held, start(t, f, "q", 1)...)
	}
	before := idsOf(all)
	heartbeats(t, all, 5) // so that they may evict others
	server.Pause(t)
	time.Sleep(2 * lease) // the stall
	server.Resume(t)
	heartbeats(t, all, 5)
	is.Equal(idsOf(all), before)
	is.Equal(len(members(t, c, q)), len(all))
	is.Equal(waiting(t, c, q), 0)
	n, err := finish(t.Context(), held)
	is.NoErr(err)
	is.Equal(n, len(all))
}

// One survivor of many returns all tasks of the others within a lease and two thirds, on every queue.
func TestOneSurvivor(t *testing.T) {
	is := redistest.Parallel(t)
	const lease, others, each, queues = 9 * time.Second, 15, 40, 3 // a lease that is long for a busy machine's delays
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
			start(t, f, name, each)
		}
		is.Equal(waiting(t, c, q), 0)
	}
	until(t, "the survivor may evict others", func() bool {
		n := survivor.present().nodes[store.Somewhere]
		n.worker.mu.Lock()
		defer n.worker.mu.Unlock()
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
	is.Equal(survivor.Counts().WorkersEvicted.Load(), int64(others))
	until(t, "they are counted", func() bool { return survivor.Counts().TasksReturned.Load() == others*each*queues })
	until(t, "they are off the roster", func() bool {
		return redistest.Do(t, c, "SCARD", survivor.Space.Workers()) == int64(1)
	})
	for _, id := range dead {
		is.Equal(redistest.Do(t, c, "EXISTS", survivor.Space.Worker(id)), int64(0))
	}
}

// A worker that dies between two pages of its leave is taken over, also if nobody may evict others yet.
func TestDeathBetweenPagesOfLeave(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, g := newPeer(t, redistest.URL(), prefix, time.Second), newPeer(t, redistest.URL(), prefix, time.Second)
	serve(t, f, "q")
	q := f.Space.Queue("q")
	enqueue(t, c, q, 350)
	start(t, f, "q", 350)
	id := f.ID()
	s, err := f.Session("q")
	is.NoErr(err)
	die(f)
	is.True(leaveOnce(t, g, q, id, s.Last()))
	is.Equal(waiting(t, c, q), 100)
	serve(t, g, "q")
	until(t, "all tasks are back", func() bool { return waiting(t, c, q) == 350 })
	is.Equal(redistest.Sure(redis.String(c.Do("LINDEX", q.Waiting(), -1)))(t), "task 0")
	start(t, g, "q", 1)
}

// leaveOnce makes one call of leave, and reports whether it's to be repeated.
func leaveOnce(t *testing.T, f *Fleet, q store.Keys, worker string, round int64) (more bool) {
	t.Helper()
	_, more, err := store.ReadLeave(f.Lines.Control.Do(t.Context(), store.LeaveCall(store.SharedOf(q), worker, round))[0])
	redistest.Must(t, err)
	return more
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
	until(t, "a reply is lost", func() bool { // a busy machine may not send the first try
		is.True(f.Join(t.Context(), queueOf(f, "r")) != nil)
		select {
		case <-lost:
			return true
		default:
			return false
		}
	})
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
		start(t, f, "q", 350)
		w := f.present()
		is.NoErr(w.await(t.Context()))
		pass := sync.OnceFunc(w.pass)
		t.Cleanup(pass) // if the test fails, the peer still stops
		w.mu.Lock()
		m := w.members["q"]
		delete(w.members, "q")
		w.mu.Unlock()
		w.forsake(m, engine.ErrNotWorking) // as if the reply to its leave had been lost
		is.True(leaveOnce(t, f, q, m.id, m.session.Last()))
		pass()
		is.NoErr(f.Join(t.Context(), queueOf(f, "q")))
		is.Equal(members(t, c, q), []string{f.ID()})
		is.Equal(waiting(t, c, q), 350)
		is.True(!leaveOnce(t, f, q, m.id, m.session.Last())) // a late copy
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

// A worker that stops while Redis refuses its writes for a while, as after a failover or while its disk is full, repeats
// the leave, too.
func TestLeaveWhileWritesAreRefused(t *testing.T) {
	t.Parallel()
	for word, c := range map[string]struct{ begin, end []any }{
		"NOREPLICAS": {[]any{"min-replicas-to-write", 1}, []any{"min-replicas-to-write", 0}},
		"MISCONF":    {[]any{"stop-writes-on-bgsave-error", "yes"}, []any{"stop-writes-on-bgsave-error", "no"}},
	} {
		t.Run(word, func(t *testing.T) {
			is := redistest.Parallel(t)
			server := redistest.Start(t, "--save", "3600 1", "--dbfilename", "blocked", "--stop-writes-on-bgsave-error", "no")
			is.NoErr(os.Mkdir(filepath.Join(filepath.Dir(server.Socket()), "blocked"), 0o700)) // the snapshot can't replace it
			conn := redistest.Dial(t, server.URL())
			info := func(section string) string { return redistest.Sure(redis.String(conn.Do("INFO", section)))(t) }
			redistest.Do(t, conn, "BGSAVE")
			until(t, "saving has failed", func() bool { return strings.Contains(info("persistence"), "rdb_last_bgsave_status:err") })
			f := newPeer(t, server.URL(), "p", time.Hour)
			serve(t, f, "q")
			redistest.Do(t, conn, "CONFIG", append([]any{"SET"}, c.begin...)...)
			stopped := make(chan error, 1)
			go func() { stopped <- f.Stop(context.Background()) }()
			const once = 6 // refusals of the leaves and the commands that are sent before the first pause, or fewer
			until(t, "it's refused again, or gives up", func() bool {
				n := 0
				_, count, _ := strings.Cut(info("errorstats"), "errorstat_"+word+":count=")
				_, _ = fmt.Sscan(count, &n) // absent at first
				return n > once || len(stopped) > 0
			})
			redistest.Do(t, conn, "CONFIG", append([]any{"SET"}, c.end...)...)
			is.NoErr(<-stopped)
			is.Equal(redistest.Do(t, conn, "EXISTS", f.Space.Queue("q").Workers(), f.Space.Worker(f.ID())), int64(0))
		})
	}
}

// If evictions fail, the log says so, and heartbeats go on. They're tried again, and then the log says who was evicted.
func TestEvictionFails(t *testing.T) {
	is := redistest.Parallel(t)
	const lease = 600 * time.Millisecond
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, g := newPeer(t, redistest.URL(), prefix, lease), newPeer(t, redistest.URL(), prefix, lease)
	said := hear(f, "")
	serve(t, f, "q")
	serve(t, g, "q")
	q := f.Space.Queue("q")
	redistest.Do(t, c, "SET", prefix+":leaving:{q}", "foreign")
	dead := g.ID()
	die(g)
	until(t, "it says so", func() bool { return heard(said, "can't evict workers or return their tasks; retrying") })
	heartbeats(t, []*Fleet{f}, 5)
	redistest.Do(t, c, "DEL", prefix+":leaving:{q}")
	until(t, "it's evicted", func() bool { return slices.Equal(members(t, c, q), []string{f.ID()}) })
	left := []string{"recovered", "evicted a worker whose lease expired[worker " + dead}
	until(t, "it says so", func() bool {
		select {
		case line := <-said:
			left = slices.DeleteFunc(left, func(text string) bool { return strings.Contains(line, text) })
		default:
		}
		return len(left) == 0
	})
	is.Equal(f.Counts().TimesEvicted.Load(), int64(0))
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
	start(t, g, "q", 1)
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
		is.Equal(f.Counts().TimesEvicted.Load(), int64(0))
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
	at := func(queue string) (home string, spared time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		m := w.members[queue]
		return m.node.home, m.spared
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
	id, moved := f.ID(), time.Now()
	c.Move(t, slot, other)
	until(t, "it is at its new node", func() bool { h, _ := at("q"); return h == other.Addr() })
	_, spared := at("q")
	is.True(spared.After(moved.Add(f.times.Grant)))
	_, spared = at(staying)
	is.True(spared.Before(moved.Add(f.times.Grant)))
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
