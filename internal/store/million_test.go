package store

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/redistest"
)

// fill makes a tenth of a queue with a million tasks on the list, a million ready ones, and 10,000 workers.
const fill = `
local part, payloads = tonumber(ARGV[1]), {}
for i = 1, 4000 do
  payloads[i] = 'payload'
end
for _ = 1, 25 do
  redis.call('LPUSH', KEYS[1], unpack(payloads))
end
for chunk = 0, 49 do
  local tasks, ready = {}, {}
  for i = 1, 2000 do
    local number = part * 100000 + chunk * 2000 + i
    local name = 'k:' .. number
    tasks[2 * i - 1], tasks[2 * i] = name, '0:0:0:0:0:0:payload'
    ready[2 * i - 1], ready[2 * i] = number, name
  end
  redis.call('HSET', KEYS[2], unpack(tasks))
  redis.call('ZADD', KEYS[3], unpack(ready))
end
for i = 1, 1000 do
  local worker = 'w' .. part * 1000 + i
  redis.call('ZADD', KEYS[4], 1e14, worker)
  redis.call('HSET', KEYS[5], worker, 1)
end
return 1`

// On a queue of millions, a call that examines it takes a few milliseconds, and so does a repeated start. The bound is wide, since other
// tests run at the same time.
func TestExamineMillions(t *testing.T) {
	is := redistest.Parallel(t)
	b := benchAt(t, is, redistest.Start(t).URL(), "p")
	script := redis.NewScript(5, fill)
	for part := range 10 {
		redistest.Sure(script.Do(b.conn, b.key("queues"), b.key("tasks"), b.key("ready"), b.key("workers"), b.key("rounds"), part))(t)
	}
	for _, kind := range []string{"schedule", "risky", "copies", "working:w1", "failed.ready", "failed.copies"} {
		redistest.Do(t, b.conn, "COPY", b.key("ready"), b.key(kind))
	}
	b.plant("HSET state token 9 place 9999999 lease 60000")
	usage := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)
	typical := func(what string, calls int, call func() (over bool)) { // the median, since Redis may have to wait for a processor
		t.Helper()
		var took []int
		for over := false; len(took) < calls && !over; {
			redistest.Do(t, b.conn, "CONFIG", "RESETSTAT")
			over = call()
			used := usage.FindStringSubmatch(redistest.Sure(redis.String(b.conn.Do("INFO", "commandstats")))(t))
			took = append(took, redistest.Sure(strconv.Atoi(used[1]))(t))
		}
		slices.Sort(took)
		t.Logf("%s: %d µs", what, took[len(took)/2])
		if took[len(took)/2] > 25_000 {
			t.Errorf("%s takes %d µs", what, took)
		}
	}
	for _, kind := range Examined {
		cursor := "0"
		typical("check "+kind, 20, func() bool {
			var err error
			_, cursor, err = Check(t.Context(), b.line, b.q, kind, cursor, nil)
			is.NoErr(err)
			return cursor == "0"
		})
	}
	for _, of := range []struct{ name, payload string }{{"", "payload"}, {"", "none"}, {"k:500000", ""}} {
		typical("explain "+of.name+of.payload, 5, func() bool {
			_, err := Explain(t.Context(), b.line, b.q, of.name, []byte(of.payload), 10, 100_000)
			is.NoErr(err)
			return false
		})
	}
	typical("a repeated start", 5, func() bool {
		start := Start{Worker: "w1", Round: 1, Lease: time.Minute, Wanted: 9}
		redistest.Sure(start.Read(b.q, reply(b.line.One(t.Context(), start.Call(SharedOf(b.q))))))(t)
		return false
	})
	for _, f := range []invariants.Found{{Flaw: invariants.Stuck, Name: "k:1"}, {Flaw: invariants.Dead, Name: "w1", Detail: "100000000000000"}} {
		typical("repair "+string(f.Flaw), 1, func() bool {
			_, err := Repair(t.Context(), b.line, b.q, f)
			is.NoErr(err)
			return false
		})
	}
}
