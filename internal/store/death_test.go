package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// crowd makes n members whose leases lapse at the given time, and which hold as many
// tasks each, dealt out in turn. The token of a task is its payload, too.
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

// longest is the time of the longest script since the last call.
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

// A thousand workers that die at once are suspected by one look. Once a grace is over a
// few more fail all of them and return their tasks: of up to 500 workers, in order. No
// look does much: that is counted, since a time of some milliseconds is for the bench to
// measure.
func TestManyDie(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{500, 1000} {
		manyDie(t, workers)
	}
}

func manyDie(t *testing.T, workers int) {
	const (
		tasks    = 2
		commands = 2000 // of a look: one for each of 500 workers, and a dozen for each of 100 tasks
	)
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
			t.Fatalf("%d. from the back is the task %d", i, token)
		}
	}
	if t.Log(m.calls, m.commands, m.took); m.commands > commands {
		t.Errorf("a look ran %d commands", m.commands)
	}
}
