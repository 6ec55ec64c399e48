package fleet

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
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

// A message that asks for a heartbeat is answered at once.
func TestHeartbeatOnDemand(t *testing.T) {
	t.Parallel()
	f, c := newPeer(t, redistest.URL(), redistest.Prefix(t), time.Hour), redistest.Conn(t) // heartbeats are rare
	serve(t, f, "q")
	for range 3 {
		last := f.LastBeat()
		until(t, "it hears", func() bool {
			return redistest.Do(t, c, "PUBLISH", f.Space.Queue("q").Wake(f.ID()), store.AskHeartbeat) == int64(1)
		})
		until(t, "it sends a heartbeat", func() bool { return f.LastBeat() != last })
	}
}

// The error of a Pool is user code, whose methods may use the peer. They're called by Describe.
func TestDescribeUsesPeer(t *testing.T) {
	is := redistest.Parallel(t)
	f := newPeer(t, redistest.URL(), redistest.Prefix(t), time.Hour)
	f.Describe = func(_, _ string, err error) error {
		f.LastBeat()
		_, _ = f.Session("q")
		return err
	}
	serve(t, f, "q", "r")
	is.NoErr(f.Leave(t.Context(), "q")) // and doesn't hang
	is.NoErr(f.Stop(t.Context()))
}

// A worker learns that Redis has lost tokens when another server has replaced the previous one, and writes what may be
// lost again.
func TestChanged(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	var mu sync.Mutex
	lost := map[string]int{}
	servers, err := store.Open(redistest.URL(), store.Access{})
	is.NoErr(err)
	f := peerAt(servers, prefix, -1, func(queue, _ string) {
		mu.Lock()
		defer mu.Unlock()
		lost[queue]++
	})
	t.Cleanup(f.Lines.Close)
	came := make(chan struct{}, 10)
	f.CameBack = func() { came <- struct{}{} }
	state := func(name string) string { return prefix + ":state:{" + name + "}" }
	for _, name := range []string{"q", "r", "s", "t"} {
		redistest.Do(t, c, "HSET", state(name), "token", 100)
	}
	serve(t, f, "q", "r", "s", "t")
	redistest.Do(t, c, "HSET", state("q"), "token", 99)
	redistest.Do(t, c, "DEL", state("s"))
	change := func() { // and waits until the worker has looked, and written it
		f.Changed()
		<-came
		w := f.present()
		until(t, "it has", func() (has bool) {
			is.NoErr(w.await(t.Context())) // between two turns
			defer w.pass()
			f.with(func(w *worker) { has = !w.moved && !w.announced.IsZero() })
			return has
		})
		f.Engine.Flush()
	}
	losses := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(lost)
	}
	for range 2 { // the second time, the losses are known
		redistest.Do(t, c, "DEL", prefix+":workers", prefix+":registry")
		change()
		is.Equal(redistest.Do(t, c, "EXISTS", prefix+":workers", prefix+":registry"), int64(2))
		is.Equal(losses(), map[string]int{"q": 1, "s": 1})
	}
	redistest.Do(t, c, "DEL", state("s"))
	redistest.Do(t, c, "SET", state("s"), "foreign") // Redis can't be asked
	redistest.Do(t, c, "HSET", state("r"), "token", 98)
	f.Changed()
	until(t, "it asks for the others", func() bool { return maps.Equal(losses(), map[string]int{"q": 1, "r": 1, "s": 1}) })
	redistest.Do(t, c, "DEL", state("s"))
	redistest.Do(t, c, "HSET", state("t"), "token", 98)
	until(t, "it asks again", func() bool { return maps.Equal(losses(), map[string]int{"q": 1, "r": 1, "s": 1, "t": 1}) })
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
		is.True(errors.Is(f.Unfit(), engine.ErrLeaseExpired))
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

// What an eviction says about the next look doesn't delay a heartbeat that's due, as when an attempt must stop.
func TestLookDelaysNoHeartbeat(t *testing.T) {
	t.Parallel()
	f := newPeer(t, redistest.URL(), redistest.Prefix(t), time.Hour)
	for name, c := range map[string]struct{ due, most time.Duration }{
		"it's due": {-time.Second, 0}, "it's due later": {2 * time.Hour, time.Hour + time.Minute}, "none is due": {0, time.Hour + time.Minute},
	} {
		n := &node{worker: newWorker(f, "w"), due: make(chan struct{}, 1)}
		m := &member{queue: queueOf(f, "q"), node: n}
		if c.due != 0 {
			m.due = time.Now().Add(c.due)
		}
		n.looked([]*member{m}, []store.Look{{Wait: time.Hour}}, []error{nil})
		if in := time.Until(m.due); in > c.most {
			t.Errorf("%s: a heartbeat is due in %v", name, in)
		}
	}
}
