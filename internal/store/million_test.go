package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/redistest"
)

// fill makes a tenth of a queue with a million tasks on the list, a million ready ones, and 10,000 workers; and on request
// with a million each of due, later and failed tasks, and crash counts.
const fill = `
local part, more, record, failure = tonumber(ARGV[1]), ARGV[2] == '1', ARGV[3], ARGV[4]
for chunk = 0, 99 do
  local payloads, tasks, ready, schedule, names, failed, crashes = {}, {}, {}, {}, {}, {}, {}
  local function add(list, first, second)
    list[#list + 1], list[#list + 2] = first, second
  end
  for number = part * 100000 + chunk * 1000 + 1, part * 100000 + chunk * 1000 + 1000 do
    payloads[#payloads + 1] = 'payload' .. number
    local name, due, later, lost = 'k:' .. number, 'k:due' .. number, 'k:later' .. number, 'k:f' .. number
    add(ready, number, name)
    add(tasks, name, record)
    if more then
      add(schedule, 1e12 + number, due)
      add(schedule, 1e14 + number, later)
      add(tasks, due, record)
      add(tasks, later, record)
      add(names, number, lost)
      add(failed, lost, failure)
      add(crashes, redis.sha1hex('crashed' .. number), 1)
    end
  end
  redis.call('LPUSH', KEYS[1], unpack(payloads))
  redis.call('HSET', KEYS[2], unpack(tasks))
  redis.call('ZADD', KEYS[3], unpack(ready))
  if more then
    redis.call('ZADD', KEYS[4], unpack(schedule))
    redis.call('ZADD', KEYS[5], unpack(names))
    redis.call('HSET', KEYS[6], unpack(failed))
    redis.call('HSET', KEYS[7], unpack(crashes))
  end
end
for i = 1, 1000 do
  local worker = 'w' .. part * 1000 + i
  redis.call('ZADD', KEYS[8], 1e14, worker)
  redis.call('HSET', KEYS[9], worker, 1)
end
return 1`

// newMillions returns a bench with such a queue.
func newMillions(t testing.TB, more bool) *bench {
	b := benchAt(t, is.New(t), redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000").URL(), "p")
	var all []any
	for _, kind := range strings.Fields("queues tasks ready schedule failed.ready failed.tasks crashes workers rounds") {
		all = append(all, b.key(kind))
	}
	record := Record{Payload: []byte("payload")}
	failure := "failed:1:w:w.1.1.1:0:0:0:0:"
	failure = fmt.Sprintf("0:0:0:0:0:%d:%spayload", len(failure), failure)
	script := redis.NewScript(len(all), fill)
	for part := range 10 {
		redistest.Sure(script.Do(b.conn, slices.Concat(all, []any{part, flag(more), record.Append(nil), failure})...))(t)
	}
	b.plant("HSET state token 9 place 9999999 lease 60000", "HSET failed.state place 9999999")
	return b
}

// forget has typical ignore what was called before.
func (b *bench) forget() { redistest.Do(b, b.conn, "SLOWLOG", "RESET") }

// typical makes some calls, or until they're over, and logs what the slowest kind of command of one takes, a script or not:
// medians, since Redis may have to wait for a processor. The bound is wide, since other tests run at the same time.
func (b *bench) typical(what string, bound time.Duration, calls int, call func() (over bool)) {
	b.Helper()
	var took []int64
	for over := false; len(took) < calls && !over; {
		b.forget()
		over = call()
		kinds := map[string][]int64{} // by command, and script
		for _, entry := range redistest.Sure(redis.Values(b.conn.Do("SLOWLOG", "GET", 100_000)))(b) {
			row := entry.([]any)
			words := redistest.Sure(redis.Strings(row[3], nil))(b)
			if words[0] != "SLOWLOG" {
				kind := strings.Join(words[:min(len(words), 2)], " ")
				kinds[kind] = append(kinds[kind], row[2].(int64))
			}
		}
		var slowest int64
		for _, all := range kinds {
			slowest = max(slowest, median(all))
		}
		took = append(took, slowest)
	}
	b.Logf("%-40s %6d µs", what, median(took))
	if median(took) > bound.Microseconds() {
		b.Errorf("%s takes %d µs", what, took)
	}
}

func median(all []int64) int64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// On a queue of millions, calls take a few milliseconds, or what their size takes on any queue; but a cancel of a payload
// goes through the list.
func TestMillions(t *testing.T) {
	t.Parallel()
	b := newMillions(t, false)
	b.examineMillions()
	b.workOnMillions("queues", "ready")
}

// The same with a million of each. It prints each call, and takes a minute:
//
//	go test ./internal/store -v -run none -bench Millions -benchtime 1x
func BenchmarkMillions(b *testing.B) {
	newMillions(b, true).workOnMillions("queues", "ready", "schedule")
}

func (b *bench) examineMillions() {
	is, ctx, some := b.is, b.Context(), 25*time.Millisecond
	for _, kind := range []string{"schedule", "risky", "copies", "working:w1", "failed.ready", "failed.copies"} {
		redistest.Do(b, b.conn, "COPY", b.key("ready"), b.key(kind))
		defer redistest.Do(b, b.conn, "DEL", b.key(kind))
	}
	for _, kind := range Examined {
		cursor := "0"
		b.typical("check "+kind, some, 20, func() bool {
			var err error
			_, cursor, err = Check(ctx, b.line, b.q, kind, cursor, nil)
			is.NoErr(err)
			return cursor == "0"
		})
	}
	for _, of := range []struct{ name, payload string }{{"", "payload500000"}, {"", "none"}, {"k:500000", ""}} {
		b.typical("explain "+of.name+of.payload, some, 5, func() bool {
			_, err := Explain(ctx, b.line, b.q, of.name, []byte(of.payload), 10, 100_000)
			is.NoErr(err)
			return false
		})
	}
	b.typical("a repeated start", some, 5, func() bool {
		start := Start{Worker: "w1", Round: 1, Lease: time.Minute, Wanted: 9}
		redistest.Sure(start.Read(b.q, reply(b.line.One(ctx, start.Call(SharedOf(b.q))))))(b)
		return false
	})
	for _, f := range []invariants.Found{{Flaw: invariants.Stuck, Name: "k:1"}, {Flaw: invariants.Dead, Name: "w1", Detail: "100000000000000"}} {
		b.typical("repair "+string(f.Flaw), some, 1, func() bool {
			_, err := Repair(ctx, b.line, b.q, f)
			is.NoErr(err)
			return false
		})
	}
	firsts(b, "named", Named(ctx, b.line, b.q))
	firsts(b, "tasks", Tasks(ctx, b.line, b.q))
	firsts(b, "failed", FailedTasks(ctx, b.line, b.q))
	b.typical("count", some, 5, func() bool {
		_, err := Count(ctx, b.line, b.q)
		is.NoErr(err)
		return false
	})
}

// firsts lists the first 10,000.
func firsts[T any](b *bench, what string, all func(func(T, error) bool)) {
	b.Helper()
	next, stop := iter.Pull2(all)
	defer stop()
	b.typical("list "+what, 25*time.Millisecond, 10, func() bool {
		for range 1000 {
			_, err, _ := next()
			b.is.NoErr(err)
		}
		return false
	})
}

func (b *bench) workOnMillions(kinds ...string) {
	is, ctx := b.is, b.Context()
	within := func(bound time.Duration) func(string, func(int)) {
		return func(what string, call func(n int)) {
			b.Helper()
			n := 0
			b.typical(what, bound, 7, func() bool { call(n); n++; return false })
		}
	}
	each, large := within(50*time.Millisecond), within(250*time.Millisecond) // large: of 1,000 tasks or 1 MiB, and more
	only := func(kind string, of func()) {                                   // kind is all that waits
		for _, other := range kinds {
			if other != kind {
				redistest.Do(b, b.conn, "RENAME", b.key(other), b.key("hidden:"+other))
				defer redistest.Do(b, b.conn, "RENAME", b.key("hidden:"+other), b.key(other))
			}
		}
		of()
	}
	payloads := slices.Repeat([]string{strings.Repeat("x", 400)}, 5000)
	large("enqueue 5,000, 2 MB", func(int) { b.enqueue(payloads...) })
	large("enqueue 1 MiB", func(int) { b.enqueue(strings.Repeat("x", 1<<20)) })
	redistest.Do(b, b.conn, "LTRIM", b.key("queues"), -1_000_000, -1)
	for _, how := range []struct {
		what string
		of   func(n int) Task
	}{
		{"new", func(n int) Task { return task(fmt.Sprint("new", n), "new") }},
		{"with nonces", func(n int) Task {
			one := task(fmt.Sprint("once", n), "new")
			one.Nonce, one.Window = fmt.Sprint(n), time.Minute
			return one
		}},
		{"unique", func(n int) Task {
			payload := fmt.Sprint("unique", n)
			return Task{Name: UniqueName([]byte(payload)), Rule: Unique, Record: Record{Payload: []byte(payload)}}
		}},
		{"later", func(n int) Task { one := task(fmt.Sprint("other", n), "new"); one.At = 4e12; return one }},
		{"replacing", func(n int) Task { return task(fmt.Sprint(n*37), "replaces") }},
		{"replacing later", func(n int) Task { return task(fmt.Sprint("later", n*37), "replaces") }},
		{"of 2 KB", func(n int) Task { return task(fmt.Sprint("large", n), strings.Repeat("x", 2000)) }},
	} {
		large("add 1,000 "+how.what, func(n int) {
			all := make([]Task, MaxTasks)
			for i := range all {
				all[i] = how.of(n*MaxTasks + i)
			}
			b.add(all...)
		})
	}

	const worker = "worker"
	held := b.start(worker, 1) // joins
	finish := func() {
		b.finish(worker, End{Verb: Done}, held...)
		held = nil
	}
	finish()
	start := func(n int) []Attempt {
		var all []Attempt
		for left := n; left > 0; left = n - len(all) {
			more := b.start(worker, left)
			is.True(len(more) > 0)
			all = append(all, more...)
		}
		return all
	}
	ends := map[string]End{
		"done": {Verb: Done}, "done, with 2 KB": {Verb: Done, Delay: time.Minute, Result: make([]byte, 2000)}, "drop": {Verb: Drop, Reason: EndExpired},
		"retry": {Verb: Retry, Delay: time.Hour, Reason: "reason"}, "stop": {Verb: Stop}, "fail": {Verb: Fail, Kind: Failed, Reason: "reason"},
	}
	work := func(kind string) {
		b.Helper()
		each("start 512 of "+kind, func(int) {
			finish()
			b.forget()
			held = b.start(worker, 512)
		})
		finish()
		for _, what := range slices.Sorted(maps.Keys(ends)) {
			how := ends[what]
			how.Name = map[bool]string{true: "named"}[kind != "queues"] // for the weight
			weight, _ := how.Weight()
			each(fmt.Sprint("finish ", RoundWeight/weight, " of ", kind, " ", what), func(int) {
				held = start(RoundWeight / weight)
				b.forget()
				b.finish(worker, how, held...)
			})
		}
	}
	for _, kind := range kinds {
		only(kind, func() { work(kind) })
	}
	work("all")

	behind := func() { // starts 256, and puts a task behind each
		var all []Task
		for _, a := range start(256) {
			held = append(held, a)
			all = append(all, Task{Name: a.Name, Rule: Always, Record: Record{Payload: []byte("behind")}})
		}
		b.forget()
		b.add(all...)
	}
	only("ready", func() {
		each("add 256 behind running ones", func(int) { finish(); behind() })
		each("finish 256 with one behind each", func(int) { finish(); behind(); b.forget(); finish() })
	})
	each("heartbeat", func(int) {
		_, err := ReadHeartbeat(reply(b.line.One(ctx, HeartbeatCall(SharedOf(b.q), worker, time.Minute, true))))
		is.NoErr(err)
	})
	each("join", func(n int) {
		_, err := ReadJoin(reply(b.line.One(ctx, JoinCall(SharedOf(b.q), fmt.Sprint("x", n), time.Minute, 1<<40, 0))))
		is.NoErr(err)
	})
	each("leave with 512 attempts", func(n int) {
		leaver := fmt.Sprint("leaver", n)
		b.start(leaver, 512)
		b.forget()
		_, err := Leave(ctx, b.line, SharedOf(b.q), leaver, 9)
		is.NoErr(err)
	})
	each("start what was returned", func(int) {
		finish()
		b.forget()
		held = b.start(worker, 512)
	})
	each("evict with 512 attempts", func(n int) {
		dead := fmt.Sprint("dead", n)
		b.start(dead, 512)
		b.forget()
		_, err := EvictAll(ctx, b.line, b.q, dead, 0, time.Second)
		is.NoErr(err)
	})
	each("look for the dead", func(int) {
		now := redistest.Sure(NowAt(ctx, b.line, b.q))(b)
		_, err := Evict(ctx, b.line, b.q, "", now+1000, time.Second)
		is.NoErr(err)
	})
	each("pause and resume", func(int) {
		is.NoErr(Pause(ctx, b.line, b.q, "test"))
		is.NoErr(Resume(ctx, b.line, b.q))
	})
	each("remove", func(n int) { redistest.Sure(Remove(ctx, b.line, b.q, fmt.Sprint("k:later", 500_000+n)))(b) })
	each("cancel a key", func(n int) { redistest.Sure(CancelKey(ctx, b.line, b.q, fmt.Sprint("k:later", 600_000+n)))(b) })
	large("cancel a payload", func(int) { redistest.Sure(Cancel(ctx, b.line, b.q, []byte("payload")))(b) })
	names := func(n, from int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("k:f", from+i*37))
		}
		return all
	}
	each("requeue 1,000", func(n int) { redistest.Sure(Requeue(ctx, b.line, b.q, names(1000, n+1)))(b) })
	each("delete 1,000 failed", func(n int) { redistest.Sure(DeleteFailed(ctx, b.line, b.q, names(1000, n+11)))(b) })
	each("results of 100", func(n int) { redistest.Sure(Ends(ctx, b.line, b.q, names(100, n)))(b) })
	each("record", func(int) { is.NoErr(b.record(Recorded{1})) })
	each("recur 50", func(n int) {
		now := redistest.Sure(NowAt(ctx, b.line, b.q))(b)
		all := make([]Schedule, 50)
		for i := range all {
			s := &all[i]
			s.Name, s.Prints = fmt.Sprint("k:cron", n, ".", i), []string{fmt.Sprint(now, ":aa")}
			s.Since, s.Record = JustNow, (&Record{Payload: []byte("payload")}).Append(nil)
			for j := range 10 {
				s.Times = append(s.Times, now+int64(j+1)*60_000)
			}
		}
		_, _, _, err := Recur(ctx, b.line, b.q, 10_000, 0, all)
		is.NoErr(err)
	})
	ctx, cancel := context.WithTimeout(ctx, time.Second) // of all the time it would take
	defer cancel()
	b.typical("delete", 50*time.Millisecond, 1, func() bool { _ = Delete(ctx, b.line, b.q); return true })
}
