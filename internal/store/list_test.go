package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// during is a Runner that does something before its nth call.
type during struct {
	Runner
	nth int
	do  func()
}

func (d *during) note() {
	if d.nth--; d.nth == 0 {
		d.do()
	}
}

func (d *during) One(ctx context.Context, c redisconn.Call) (any, error) {
	d.note()
	return d.Runner.One(ctx, c)
}

func (d *during) Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	d.note()
	return d.Runner.Do(ctx, calls...)
}

// atEachCall tests what happens when something changes before each of the first calls.
func atEachCall(t *testing.T, calls int, test func(b *bench, call int)) {
	for i := range calls {
		t.Run(fmt.Sprint("call ", i+1), func(t *testing.T) { test(newBench(t), i+1) })
	}
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%07d", i)
	}
	return all
}

// Tasks start while they are listed, others are added, and some come back. Those that wait all the time come
// in order, and once.
func TestTasksWhileTheyChange(t *testing.T) {
	const n = 3 * perPage
	atEachCall(t, 18, func(b *bench, call int) {
		b.enqueue(numbers(n)...)
		first := b.start("w", 40)
		r := &during{b.line, call, func() {
			b.start("w", 300)
			b.finish("w", End{Verb: Stop}, first...)
			b.enqueue("new", "new")
		}}
		var got []string
		for payload := range redistest.Each(b, Tasks(b.Context(), r, b.q)) {
			got = append(got, string(payload))
		}
		got = slices.DeleteFunc(got, func(p string) bool { return p < "0000340" || p == "new" })
		if want := numbers(n)[340:]; !slices.Equal(got, want) {
			b.Errorf("%d instead of %d tasks: %s", len(got), len(want), got)
		}
	})
}

// A task that becomes ready while others are listed comes, and comes once.
func TestNamedWhileTheyChange(t *testing.T) {
	atEachCall(t, 12, func(b *bench, moment int) {
		tasks := []Task{task("ready", "r"), task("soon", "s")}
		tasks[1].At = 4e12
		b.add(tasks...)
		r := &during{b.line, moment, func() {
			b.do("ZREM schedule k:soon")
			b.do("ZADD ready 99 k:soon")
		}}
		got := all(b, Named(b.Context(), r, b.q), func(n NamedTask) string { return n.Name })
		b.is.Equal(got, "k:ready k:soon")
	})
}

// Attempts that are canceled while a worker's are listed, come once.
func TestRunningWhileTheyAreCanceled(t *testing.T) {
	atEachCall(t, 20, func(b *bench, moment int) {
		b.enqueue(numbers(600)...)
		for range 2 {
			b.start("w", 512)
		}
		r := &during{b.line, moment, func() {
			for _, m := range redistest.Sure(redis.Strings(b.conn.Do("ZRANGE", b.q.Working("w"), 0, -1)))(b)[100:400] {
				token := redistest.Sure(redis.Int64(b.conn.Do("ZSCORE", b.q.Working("w"), m)))(b)
				redistest.Do(b, b.conn, "ZADD", b.q.Working("w"), -token, m)
			}
		}}
		got := all(b, Running(b.Context(), r, b.q), func(r RunningTask) string { return string(r.Record.Payload) })
		if want := strings.Join(numbers(600), " "); got != want {
			b.Fatalf("at call %d: %s", moment, got)
		}
	})
}

// What other programs have written is listed as far as it can be read; keys of the wrong type are an error.
func TestHostileListings(t *testing.T) {
	b := newBench(t)
	damaged := []string{"", ":", "x", "1:2", "9:9:9:9:9:9:", "1:1:1:1:1:999:x", "0:0:0:0:0:3:h9:y", "-1:0:0:0:0:0:x", "99999999999999999999:0:0:0:0:0:x"}
	for i, text := range damaged {
		redistest.Do(t, b.conn, "HSET", b.key("tasks"), fmt.Sprint(i), text)
		redistest.Do(t, b.conn, "HSET", b.key("runs"), fmt.Sprint(i), ":"+text)
		redistest.Do(t, b.conn, "HSET", b.key("next"), fmt.Sprint(i), text)
		redistest.Do(t, b.conn, "HSET", b.key("failed.tasks"), fmt.Sprint(i), text)
		redistest.Do(t, b.conn, "ZADD", b.key("ready"), []string{"-inf", "inf", "1e300", "0.5", "-0.5"}[i%5], i)
		redistest.Do(t, b.conn, "ZADD", b.key("failed.ready"), i, i)
		redistest.Do(t, b.conn, "ZADD", b.key("working:w"), []string{"-inf", "inf", "1e300", "0.5", "-5"}[i%5], fmt.Sprint(i, "n"))
		redistest.Do(t, b.conn, "RPUSH", b.key("process:"+fmt.Sprint(i, "n")), i)
	}
	redistest.Do(t, b.conn, "ZADD", b.key("schedule"), "inf", "x", "-inf", "y")
	redistest.Do(t, b.conn, "ZADD", b.key("workers"), "inf", "w")
	redistest.Do(t, b.conn, "HSET", b.key("state"), "token", "x", "taken", "y", "paused", "z")
	ctx := t.Context()
	b.is.Equal(all(t, Named(ctx, b.line, b.q), func(n NamedTask) string { return n.Name }) != "", true)
	b.is.Equal(len(strings.Fields(all(t, FailedTasks(ctx, b.line, b.q), func(f FailedTask) string { return f.Name }))), len(damaged))
	all(t, Running(ctx, b.line, b.q), func(r RunningTask) string { return r.Name })
	c, err := Count(ctx, b.line, b.q)
	b.is.NoErr(err)
	b.is.Equal(fmt.Sprint(c.Paused, " ", c.PausedBy, " ", c.PausedSince.IsZero(), " ", c.Tokens, c.Silent), "true z true 0 false")

	b.do("DEL state")
	for _, kind := range []string{"tasks", "ready", "schedule", "risky", "next", "runs", "queues"} {
		redistest.Do(t, b.conn, "DEL", b.key(kind))
		redistest.Do(t, b.conn, "SET", b.key(kind), "x")
		b.enqueueUnless(kind == "queues")
		var failed error
		for _, err := range Named(ctx, b.line, b.q) {
			failed = errors.Join(failed, err)
		}
		for _, err := range Tasks(ctx, b.line, b.q) {
			failed = errors.Join(failed, err)
		}
		_, err := Len(ctx, b.line, b.q)
		if !IsWrongType(errors.Join(failed, err)) {
			t.Errorf("%s: %v", kind, failed)
		}
		redistest.Do(t, b.conn, "DEL", b.key(kind))
		b.add(task("a", "a"))
	}
}

// enqueueUnless keeps something on the list.
func (b *bench) enqueueUnless(not bool) {
	if !not {
		b.enqueue("a")
	}
}
