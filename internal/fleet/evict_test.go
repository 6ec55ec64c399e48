package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// An eviction is logged with the worker's name, without waiting for more: whatever killed it may kill
// this peer next. Later evictions have lines of their own, and then the worker is removed from the roster.
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
	tells(next(), "evicted a worker whose lease expired", "worker dead", "name api-7", "queues [c]", "tasks 2")
	w.recordDead(found("unknown", "a"))
	is.True(strings.Contains(next(), "worker unknown queues [a] tasks 2")) // it isn't registered
	is.Equal(redistest.Do(t, c, "EXISTS", prefix+":worker:dead"), int64(1))
	is.Equal(f.counts.Swept.Load(), int64(2))

	is.NoErr(f.Stop(t.Context())) // which ends the wait for more
	is.Equal(len(lines), 0)
	is.Equal(redistest.Do(t, c, "EXISTS", prefix+":worker:dead"), int64(0))
}

// Whoever writes Redis's keys can add any number of members. The log doesn't grow as fast.
func TestForgedMembersAreLoggedWithinLimits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, _ := newFleet(t, redistest.Prefix(t), time.Hour)
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
