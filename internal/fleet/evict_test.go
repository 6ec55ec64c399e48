package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// When the server has changed, an idle peer finds out on which of its queues the new server lacks
// tokens that the old one had issued. It reports each loss once, and writes its registration and
// its list of queues again.
func TestChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	var mu sync.Mutex
	var lost []string
	place, err := store.Open(redistest.URL(), store.Access{})
	is.NoErr(err)
	f, q := newFleetIn(t, place, prefix, -1, func(queue, _ string) { // no beat notices anything
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, queue)
	})
	forgot := make(chan struct{}, 10)
	f.CameBack = func() { forgot <- struct{}{} }
	all := map[string]*Queue{"q": q}
	for _, name := range []string{"r", "s", "t"} {
		all[name] = queueOf(f, name)
	}
	for name := range all {
		redistest.Do(t, c, "SET", prefix+":token:{"+name+"}", 100)
	}
	f.Changed() // there is nothing to compare
	<-forgot
	is.NoErr(f.Start(t.Context()))
	for _, of := range all {
		is.NoErr(f.Join(t.Context(), of))
	}
	// looked waits until the worker has checked: it has written its registration again.
	looked := func() []string {
		t.Helper()
		until(t, "the worker looks", func() bool { return redistest.Do(t, c, "SISMEMBER", prefix+":workers", f.ID()) == int64(1) })
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(lost)
		return slices.Clone(lost)
	}
	change := func() {
		redistest.Do(t, c, "DEL", prefix+":workers", prefix+":registry", prefix+":worker:"+f.ID())
		f.Changed()
		<-forgot
	}
	change()
	is.Equal(looked(), nil)

	redistest.Do(t, c, "SET", prefix+":token:{q}", 99)
	redistest.Do(t, c, "SET", prefix+":token:{r}", 100)
	redistest.Do(t, c, "SET", prefix+":token:{s}", 101)
	redistest.Do(t, c, "DEL", prefix+":token:{t}")
	change()
	is.Equal(looked(), []string{"q", "t"})
	is.Equal(f.Engine.Counts().LostWrites.Load(), int64(2))
	change()
	is.Equal(looked(), []string{"q", "t"}) // the losses are already known
	redistest.Do(t, c, "SET", prefix+":token:{q}", 98)
	change()
	is.Equal(looked(), []string{"q", "q", "t"})

	redistest.Do(t, c, "DEL", prefix+":token:{q}")
	redistest.Do(t, c, "LPUSH", prefix+":token:{q}", "foreign")
	change()
	is.Equal(looked(), []string{"q", "q", "t"}) // Redis can't be asked
	redistest.Do(t, c, "DEL", prefix+":token:{q}")
	f.present().hurry() // as in the next turn
	until(t, "it asks again", func() bool { return f.Engine.Counts().LostWrites.Load() >= 4 })
	is.NoErr(f.Stop(t.Context()))
}

// An eviction is logged at once, with the worker's name: whatever killed it may kill this peer
// next. Later evictions share a line, and then the worker is removed from the roster.
func TestEvictionIsLoggedAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, _ := newFleet(t, prefix, time.Hour) // heartbeats are rare
	lines := make(chan string, 10)
	f.Log.Before = func(msg string, attrs []any) {
		if strings.Contains(msg, "evicted") {
			lines <- fmt.Sprint(msg, attrs)
		}
	}
	is.NoErr(f.Start(t.Context()))
	redistest.Do(t, c, "SADD", prefix+":workers", "dead")
	redistest.Do(t, c, "HSET", prefix+":worker:dead", "name", "api-7", "host", "node3", "pid", 4121)
	found := func(worker, queue string) evictions {
		dead := evictions{}
		dead.add(queue, store.Dead{Worker: worker, Tasks: 2})
		return dead
	}
	next := func() (line string) {
		t.Helper()
		until(t, "a line is logged", func() bool { return len(lines) > 0 })
		return <-lines
	}
	tells := func(line string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(line, want) {
				t.Errorf("%q lacks %q", line, want)
			}
		}
	}
	w := f.present()
	w.recordDead(found("dead", "b"))
	line := next()
	tells(line, "evicted a worker whose lease expired", "worker dead", "name api-7", "host node3", "pid 4121", "queues [b]", "tasks 2", "evicted_at")
	w.recordDead(found("dead", "c"))
	w.recordDead(found("dead", "a"))
	w.recordDead(found("unknown", "a"))
	line = next()
	is.True(strings.Contains(line, "worker unknown queues [a] tasks 2")) // it isn't registered
	is.Equal(redistest.Do(t, c, "EXISTS", prefix+":worker:dead"), int64(1))
	is.Equal(f.counts.Swept.Load(), int64(2))

	is.NoErr(f.Stop(t.Context())) // which logs the rest now
	line = next()
	tells(line, "an evicted worker's lease expired on more queues", "worker dead", "name api-7", "queues [a c]", "tasks 4")
	is.Equal(len(lines), 0)
	is.Equal(redistest.Do(t, c, "EXISTS", prefix+":worker:dead"), int64(0))
}

// The name of a worker whose lease has expired is read before it is evicted, so that nothing
// delays the log line: the worker's task may kill this peer at once.
func TestNameIsReadBeforeEviction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f, q := newFleet(t, prefix, 3*time.Second)
	lines := make(chan string, 10)
	var w *worker
	f.Log.Before = func(msg string, attrs []any) {
		if strings.Contains(msg, "evicted a worker") {
			w.mu.Lock()
			_, known := w.recalled["dead"]
			w.mu.Unlock()
			lines <- fmt.Sprint(known, msg, attrs)
		}
	}
	is.NoErr(f.Start(t.Context()))
	w = f.present()
	redistest.Do(t, c, "SADD", prefix+":workers", "dead")
	redistest.Do(t, c, "HSET", prefix+":worker:dead", "name", "api-7", "host", "node3", "pid", 4121)
	redistest.Do(t, c, "ZADD", prefix+":workers:{q}", 1, "dead")
	is.NoErr(f.Join(t.Context(), q))
	until(t, "a worker is evicted", func() bool { return len(lines) > 0 })
	line := <-lines
	is.True(strings.HasPrefix(line, "true") && strings.Contains(line, "name api-7 host node3"))
	is.NoErr(f.Stop(t.Context()))
}
