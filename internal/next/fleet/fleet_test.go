package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/worqr/worqr/internal/next/store"
	"github.com/worqr/worqr/internal/redistest"
)

// Heartbeats wait neither for a slow leave nor for a worker that comes back, nor for the log.
func TestHeartbeatsWaitForNobody(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, time.Second)
	blocked, free := make(chan struct{}, 100), make(chan struct{})
	f.Over = func(store.Target) {
		blocked <- struct{}{}
		<-free
	}
	serve(t, f, "q")
	q := f.Space.Queue("q")
	redistest.Do(t, c, "ZADD", q.Recurring(), 1, "k:a") // a schedule that nobody asserts
	<-blocked
	w := f.present()
	is.NoErr(w.await(t.Context())) // as in a leave
	deadlines := map[string]bool{}
	until(t, "ten heartbeats are sent", func() bool { // over much more than a lease
		deadlines[redistest.Sure(redis.String(c.Do("ZSCORE", q.Workers(), f.ID())))(t)] = true
		return len(deadlines) == 10
	})
	close(free)
	w.pass()
	is.NoErr(f.Stop(t.Context()))
	is.Equal(f.Stop(t.Context()), ErrNotStarted)
	is.Equal(members(t, c, q), []string{})
	is.Equal(redistest.Do(t, c, "EXISTS", f.Space.Worker(f.ID())), int64(0))
	f.Flush()
}

// Start refuses a Redis that would lose tasks, and a fleet that speaks another protocol.
func TestStartRefuses(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, time.Second)
	redistest.Do(t, c, "SET", f.Space.Protocol(), "99:98")
	is.True(errors.Is(f.Start(t.Context()), store.ErrProtocol))
	is.True(!f.IsStarted())
	is.True(errors.Is(f.Unfit(), ErrNotStarted))

	server, conn := redistest.StartAndDial(t)
	g := newPeer(t, server.URL(), prefix, time.Second)
	var warned []string
	g.Log.Before = func(msg string, _ []any) { warned = append(warned, msg) }
	redistest.Do(t, conn, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb")
	is.True(errors.Is(g.Start(t.Context()), ErrEvictionPolicy))
	redistest.Do(t, conn, "CONFIG", "SET", "maxmemory", "0")
	serve(t, g)
	is.NoErr(g.Stop(t.Context()))
	serve(t, g)
	is.Equal(strings.Count(strings.Join(warned, "\n"), "Redis would evict tasks if maxmemory were set"), 1) // once
}

// The worker and its queues are visible, and not after they have left.
func TestRosterOfAPeer(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, 3*time.Second)
	f.Name, f.Version = "api", "v1"
	serve(t, f, "a", "b")
	var workers []store.Worker
	for w := range redistest.Each(t, store.Workers(t.Context(), f.Lines.Calls, f.Space)) {
		workers = append(workers, w)
	}
	is.Equal(len(workers), 1)
	is.Equal(workers[0].Name+workers[0].Version, "apiv1")
	is.Equal(workers[0].Queues, []string{"a", "b"})
	is.Equal(redistest.Do(t, c, "SCARD", f.Space.Registry()), int64(2))
	is.NoErr(f.Leave(t.Context(), "a"))
	is.True(errors.Is(f.Leave(t.Context(), "a"), ErrNotWorking))
	is.Equal(redistest.Sure(redis.String(c.Do("HGET", f.Space.Worker(f.ID()), "queues")))(t), `["b"]`)
	is.NoErr(f.Unfit())

	redistest.Do(t, c, "DEL", f.Space.Worker(f.ID()), f.Space.Workers()) // as if Redis had lost them
	until(t, "it's registered again", func() bool {
		return redistest.Do(t, c, "SISMEMBER", f.Space.Workers(), f.ID()) == int64(1)
	})
	is.NoErr(f.Stop(t.Context()))
	is.Equal(redistest.Do(t, c, "EXISTS", f.Space.Worker(f.ID()), f.Space.Workers()), int64(0))
}

// A message that asks for a heartbeat is answered at once.
func TestHeartbeatOnDemand(t *testing.T) {
	is := redistest.Parallel(t)
	f := newPeer(t, redistest.URL(), redistest.Prefix(t), time.Hour) // heartbeats are rare
	serve(t, f, "q")
	s := on(t, f, "q")
	pulses := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pulses
	}
	for want := range 3 {
		is.Equal(pulses(), want)
		s.m.Beat()
		until(t, "it is answered", func() bool { return pulses() > want })
	}
}

// A worker learns that Redis has lost tokens when another server has replaced the previous one, and writes what may be
// lost again.
func TestChanged(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, -1)
	came := make(chan struct{}, 10)
	f.CameBack = func() { came <- struct{}{} }
	serve(t, f, "q", "r", "s")
	for _, name := range []string{"q", "r", "s"} {
		on(t, f, name).token = 100
	}
	state := func(name string) string { return prefix + ":state:{" + name + "}" }
	redistest.Do(t, c, "HSET", state("q"), "token", 99)
	redistest.Do(t, c, "HSET", state("r"), "token", 100)
	redistest.Do(t, c, "DEL", state("s"))
	change := func() {
		redistest.Do(t, c, "DEL", prefix+":workers", prefix+":registry", prefix+":worker:"+f.ID())
		f.Changed()
		<-came
		until(t, "it has looked", func() bool {
			return redistest.Do(t, c, "EXISTS", prefix+":workers", prefix+":registry", prefix+":worker:"+f.ID()) == int64(3)
		})
	}
	lost := func() string {
		all := ""
		for _, name := range []string{"q", "r", "s"} {
			s := on(t, f, name)
			s.mu.Lock()
			all += fmt.Sprint(s.lost)
			s.mu.Unlock()
		}
		return all
	}
	for range 2 { // the second time, the losses are known
		change()
		is.Equal(lost(), "101")
	}
	redistest.Do(t, c, "SET", prefix+":state:{s}", "foreign") // Redis can't be asked
	f.Changed()
	redistest.Do(t, c, "HSET", state("q"), "token", 98)
	until(t, "it asks again", func() bool { return lost() == "201" })
	redistest.Do(t, c, "DEL", prefix+":state:{s}")
}

// Only a loop that begins no turns is stuck; Redis may be silent for any time.
func TestStuck(t *testing.T) {
	is := redistest.Parallel(t)
	f := newPeer(t, redistest.URL(), redistest.Prefix(t), 3*time.Second)
	is.NoErr(f.Stuck()) // there is no worker
	synctest.Test(t, func(t *testing.T) {
		w := &worker{fleet: f, nodes: map[string]*node{}}
		n := &node{worker: w, turned: time.Now(), answered: time.Now()}
		w.nodes[""] = n
		f.worker = w
		time.Sleep(stuckAfter)
		is.NoErr(f.Stuck())
		is.True(errors.Is(f.Unfit(), ErrLeaseExpired))
		n.answered = time.Now()
		is.NoErr(f.Unfit())
		time.Sleep(time.Second)
		is.Equal(f.Stuck().Error(), "no heartbeat has been attempted for 31s")
		n.turned = time.Now()
		is.NoErr(f.Stuck())
		is.Equal(time.Since(f.LastBeat()), time.Second)
	})
	f.worker = nil
	is.True(f.LastBeat().IsZero())
}

// Whoever writes Redis's keys can add any number of members. The log doesn't grow as fast.
func TestForgedMembersAreLoggedWithinLimits(t *testing.T) {
	is := redistest.Parallel(t)
	f := newPeer(t, redistest.URL(), redistest.Prefix(t), time.Hour)
	lines, counted := 0, 0
	f.Log.Before = func(_ string, attrs []any) { // called only by report and Flush
		if lines++; attrs[0] == "count" {
			counted += attrs[1].(int)
		} else {
			counted++
		}
	}
	dead := evictions{}
	for i := range 20_000 {
		dead.add("q", store.Dead{Worker: fmt.Sprint("forged-", i)})
	}
	began := time.Now()
	f.report(dead, nil)
	f.Flush()
	is.Equal(counted, 20_000)
	is.True(lines <= (evictedLines+1)*(1+int(time.Since(began)/time.Second)+1))
}
