package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var _ = probed("fail",
	probe{seed: busy, call: fails("w1")},
	probe{what: "in the schedule", seed: busyLane, call: fails("w1")},
)

func fails(worker string) func(*env) string {
	return func(e *env) string {
		known, n, err := FailWorker(e.ctx, e.line, e.q, worker)
		return said(err, "known=%t returned=%d", known, n)
	}
}

func goesOn(worker string) func(*env) string {
	return func(e *env) string {
		n, err := GoOn(e.ctx, e.line, e.q, worker)
		return said(err, "returned=%d", n)
	}
}

func TestFail(t *testing.T) {
	one := state{"queues": "[z]", "workers": "(w2=-60m w1=+60m)", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "rounds": "{w2=1}", "token": "=2"}
	run(t, []scenario{
		{name: "unknown", seed: one, steps: []when{{call: fails("w9"), want: "known=false returned=0"}}},
	})
}

// One call returns 1 MiB of tasks, and at least one task, from the list or the schedule.
func TestReturnsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const size, each, tasks = RoundBytes / 2, 2, 10
	for name, c := range map[string]struct {
		keyed, named, canceled bool
	}{"of the list": {}, "keyed": {keyed: true}, "keyed, with digests": {keyed: true, named: true}, "canceled": {keyed: true, named: true, canceled: true}} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			deadline := e.now() + time.Hour.Milliseconds()
			for _, w := range []string{"dead", "alive"} {
				e.must(e.conn.Do("ZADD", e.q.Workers(), deadline, w))
			}
			payload := strings.Repeat("x", size)
			for i := range tasks {
				id := fmt.Sprint("p", i)
				e.must(e.conn.Do("ZADD", e.q.Working("dead"), i+1, id))
				e.must(e.conn.Do("LPUSH", e.q.Process(id), payload))
				if c.keyed {
					e.must(e.conn.Do("HSET", e.q.Entries(), id, fmt.Sprint("k:", i)))
					e.must(e.conn.Do("HSET", e.q.Keyed(fmt.Sprint("k:", i)), "process", id, "tried", 0, "died", 0))
				}
				if c.named {
					e.must(e.conn.Do("HSET", e.q.Keyed(fmt.Sprint("k:", i)), "sum", id+":"+digest(payload)))
				}
			}
			e.must(e.conn.Do("SET", e.q.Token(), tasks))
			if c.canceled {
				e.must(e.conn.Do("ZADD", e.q.Canceled(), tasks, digest(payload)))
				e.must(e.conn.Do("ZADD", e.q.Holders(), 0, "dead"))
			}
			held := func() int { return e.count("ZCARD", "working:dead") }
			call := func() int {
				before := held()
				e.must(e.line.One(e.ctx, fail.call(e.q, "worker", "dead", "begin", 1)))
				return before - held()
			}
			if n := call(); n != each {
				t.Errorf("one call returned %d, not %d", n, each)
			}
			// A round that returns tasks starts none until all have been returned.
			a := e.round(Round{Worker: "alive", Number: 1, Start: []string{"s"}})
			if len(a.Started) > 0 || !a.Again || held() != tasks-2*each {
				t.Errorf("%d started, %d are held", len(a.Started), held())
			}
			if _, n, err := FailWorker(e.ctx, e.line, e.q, "dead"); err != nil || held() != 0 {
				t.Error(n, err)
			}
		})
	}
}
