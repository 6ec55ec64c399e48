package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("sweep",
	probe{seed: busy, call: sweeps},
	probe{what: "the schedule", seed: busyLane, call: sweeps},
)

func sweeps(e *env) string {
	l, err := Sweep(e.ctx, e.line, e.q, time.Hour)
	if err != nil {
		return refused(err)
	}
	var w words
	w.look(l)
	return w.String()
}

func TestSweep(t *testing.T) {
	one := state{"queues": "[z]", "workers": "(w2=-60m w1=+60m)", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "rounds": "{w2=1}", "token": "=2"}
	due := one.with("suspects", "(w2=-1m)")
	back := state{"queues": "[a b z]", "workers": "(w1=+60m)", "token": "=3", "ledger": "{#a=1 #b=1}"}
	order := state{"token": "=4", "working:w1": "(p1=1 p3=3)", "working:w2": "(p2=2 p4=4)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]", "process:p4": "[d]", "queues": "[z]",
		"workers": "(w1=-60m w2=-60m)", "suspects": "(w1=-2m w2=-1m)", "idle": "(w1=clock:-3m w2=-2m)"}
	run(t, []scenario{
		{name: "sweep", alive: []string{"w3"}, seed: due.with("idle", "(w2=-2m w3=-1m)"), steps: []when{
			{call: sweeps, want: "failed=w2/2 returned=2", state: back, heard: []string{"wake:w3 2"}}}},
		{name: "a beat since, then gone", seed: state{"workers": "(w2=+60m)", "suspects": "(w2=-1m w9=-1m)"}, steps: []when{{call: sweeps, want: "", state: state{"workers": "(w2=+60m)"}}}},
		{name: "two that die together", alive: []string{"w3"}, seed: order, steps: []when{
			{call: sweeps, want: "failed=w1/2,w2/2 returned=4", state: state{"token": "=5", "queues": "[a b c d z]", "ledger": "{#a=1 #b=1 #c=1 #d=1}"}}}},
	})
}

// Foreign members among the suspects hide no worker.
func TestForeignSuspects(t *testing.T) {
	e := beside(t, nil)
	e.crowd(300, 0, 1)
	for i := range 200 {
		e.must(e.conn.Do("ZADD", e.q.Suspects(), int64(1<<50), fmt.Sprint("nobody", i)))
	}
	for range 40 {
		sure(Sweep(e.ctx, e.line, e.q, 0))(e.t)
	}
	if n := e.count("ZCARD", "workers"); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// crowd makes n members whose leases expire at the given time. Each holds the given number of
// tasks, dealt out in turn. The payload of a task is its token.
func (e *env) crowd(n, tasks int, lapse int64) {
	e.t.Helper()
	for i := range n {
		w := fmt.Sprintf("w%05d", i)
		e.must(nil, e.conn.Send("ZADD", e.q.Workers(), lapse, w))
		e.must(nil, e.conn.Send("HSET", e.q.Rounds(), w, 1))
		for j := range tasks {
			token := j*n + i + 1
			id := fmt.Sprintf("p%07d", token)
			e.must(nil, e.conn.Send("ZADD", e.q.Working(w), token, id))
			e.must(nil, e.conn.Send("LPUSH", e.q.Process(id), token))
		}
	}
	e.must(nil, e.conn.Send("SET", e.q.Token(), n*tasks))
	e.must(e.conn.Do(""))
}

// longest returns the duration of the longest script since the last call.
func (e *env) longest() (longest time.Duration) {
	e.t.Helper()
	for _, entry := range sure(redis.Values(e.conn.Do("SLOWLOG", "GET", -1)))(e.t) {
		fields := entry.([]any)
		if command, err := redis.ByteSlices(fields[3], nil); err == nil && strings.HasPrefix(string(command[0]), "EVAL") {
			longest = max(longest, time.Duration(fields[2].(int64))*time.Microsecond)
		}
	}
	e.must(e.conn.Do("SLOWLOG", "RESET"))
	return longest
}

// One look suspects a thousand workers that die at the same time. After the grace, a few more looks
// evict all of them and return their tasks, in order for up to 500 workers. No look does much work:
// the test counts commands, since measuring milliseconds is for benchmarks.
func TestManyDie(t *testing.T) {
	t.Parallel()
	const (
		tasks    = 2
		commands = 2000 // of a look: one for each of 500 workers, and a dozen for each of 100 tasks
	)
	for _, workers := range []int{500, 1000} {
		url := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100").URL()
		e := newEnv(t, url, nil)
		e.crowd(workers, tasks, 1)
		m := &meter{Runner: e.line, e: e}
		dead, back := 0, 0
		for again := true; again; {
			l := sure(Sweep(e.ctx, m, e.q, 0))(e.t)
			if n := e.count("ZCARD", "suspects"); m.calls == 1 && n != workers {
				t.Fatalf("one look has suspected %d of %d", n, workers)
			}
			if len(l.Failed) > 200 || l.Returned > 100 {
				t.Errorf("one look has failed %d, and returned %d tasks", len(l.Failed), l.Returned)
			}
			dead, back, again = dead+len(l.Failed), back+l.Returned, l.Again || m.calls == 1
		}
		if dead != workers || back != workers*tasks || m.calls > 2+workers/200+workers*tasks/100 {
			t.Fatalf("%d of %d were failed, %d of %d tasks are back, with %d looks", dead, workers, back, workers*tasks, m.calls)
		}
		waiting := sure(redis.Ints(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(e.t) // the tail is the front
		for i, token := range waiting {
			if token != workers*tasks-i && workers <= 500 {
				t.Fatalf("at index %d from the back is task %d", i, token)
			}
		}
		if t.Log(m.calls, m.commands, m.took); m.commands > commands {
			t.Errorf("a look ran %d commands", m.commands)
		}
	}
}
