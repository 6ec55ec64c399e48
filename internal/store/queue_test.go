package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A paused queue starts nothing, and says who paused it and since when.
func TestPause(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.enqueue("a")
	b.is.NoErr(Pause(ctx, b.line, b.q, "ops: a:b"))
	b.is.Equal(len(b.start("w", 1)), 0)
	c := redistest.Sure(Count(ctx, b.line, b.q))(t)
	b.is.True(c.Paused && c.PausedBy == "ops: a:b")
	b.is.True(time.Since(Moment(c.PausedSince)).Abs() < time.Minute)
	b.is.NoErr(Resume(ctx, b.line, b.q))
	b.is.Equal(len(b.start("w", 1)), 1)
	b.is.True(!redistest.Sure(Count(ctx, b.line, b.q))(t).Paused)
}

// Delete drops everything that waits, page by page, and ends although tasks are added meanwhile.
func TestDelete(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.add(task("runs", "r"))
	b.start("w", 1)
	b.add(task("runs", "behind"))
	b.enqueue("a", "b")
	for some := range 3 {
		var tasks []Task
		for i := range 120 {
			one := task(fmt.Sprint(some, ".", i), "x")
			if some == 1 {
				one.At = 4e12
			}
			tasks = append(tasks, one)
		}
		b.add(tasks...)
	}
	b.is.NoErr(Delete(ctx, &during{b.line, 3, func() { b.enqueue("new") }}, b.q))
	b.is.Equal(redistest.Sure(Len(ctx, b.line, b.q))(t), 1)
	b.is.Equal(b.do("HLEN tasks"), int64(1))
	b.is.NoErr(Delete(ctx, b.line, b.q))
	b.is.Equal(redistest.Sure(Len(ctx, b.line, b.q))(t), 0)
}

// Delete fails if others add tasks as fast as it drops them.
func TestDeleteGivesUp(t *testing.T) {
	b := newBench(t)
	r, i := &during{Runner: b.line}, 0
	r.do = func() {
		var tasks []Task
		for range 60 {
			i++
			tasks = append(tasks, task(fmt.Sprint(i), "x"))
		}
		b.add(tasks...)
		r.nth = 1 // before the next one, too
	}
	r.nth = 1
	err := Delete(t.Context(), r, b.q)
	b.is.True(err != nil && strings.Contains(err.Error(), "added as fast"))
}

// Nonces that are forgotten end after the given time, unless they end before.
func TestForget(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.do("SET once:long 1 PX 100000")
	b.do("SET once:short 1 PX 5000")
	b.do("SET once:forever 1")
	b.is.NoErr(Forget(ctx, b.line, b.q, 10*time.Second))
	b.is.NoErr(Forget(ctx, b.line, b.q, 10*time.Second, "long", "short", "forever", "none"))
	ttl := func(nonce string) int64 { return b.do("PTTL once:" + nonce).(int64) }
	b.is.True(ttl("long") <= 10_000 && ttl("long") > 5000)
	b.is.True(ttl("short") <= 5000 && ttl("short") > 0)
	b.is.True(ttl("forever") > 0)
	b.is.Equal(ttl("none"), int64(-2))

	nonces := numbers(3 * perPage)
	for _, nonce := range nonces {
		b.do("SET once:" + nonce + " 1 PX 100000")
	}
	b.is.NoErr(Forget(ctx, b.line, b.q, 0, nonces...))
	b.is.Equal(ttl(nonces[0])+ttl(nonces[len(nonces)-1]), int64(-4))
}

// What waits, runs and has failed is counted.
func TestCount(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.is.Equal(redistest.Sure(Count(ctx, b.line, b.q))(t), Counts{})
	b.fail("x", "y")
	b.enqueue("a", "b", "c")
	later := task("later", "l")
	later.At = 4e12
	b.add(task("k", "K"), task("j", "J"), later)
	b.start("w", 2)
	b.add(task("k", "behind"))
	b.do("ZADD risky 1 k:risky")
	b.do("ZADD idle 1 w")
	c := redistest.Sure(Count(ctx, b.line, b.q))(t)
	c.Oldest = 0
	b.is.Equal(c, Counts{Listed: 2, Ready: 1, Scheduled: 1, Risky: 1, Behind: 1, Running: 2, Failed: 2, Workers: 1, IdleWorkers: 1, Tokens: 4})
	b.is.Equal(redistest.Sure(Len(ctx, b.line, b.q))(t), 6)
	b.do("ZADD workers 5 w")
	b.do("ZADD leaving 1 v")
	c = redistest.Sure(Count(ctx, b.line, b.q))(t)
	b.is.True(c.Silent && c.Returning)
}

// The longest wait is that of the front of the list, of the first named task, or of one that is late.
func TestOldest(t *testing.T) {
	b := newBench(t)
	oldest := func() time.Duration { return redistest.Sure(Count(t.Context(), b.line, b.q))(t).Oldest }
	ago := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(-d).UnixMilli()) }
	near := func(want time.Duration) {
		t.Helper()
		if got := oldest(); (got - want).Abs() > 20*time.Second {
			t.Errorf("%v, want %v", got, want)
		}
	}
	b.is.Equal(oldest(), time.Duration(0))
	b.enqueue("a", "b", "c")
	b.is.Equal(oldest(), time.Duration(0)) // no heartbeat has noted it yet
	b.do("ZADD ages 1 " + ago(time.Hour))
	b.do("ZADD ages 3 " + ago(time.Minute))
	near(time.Hour)
	b.start("w", 1)
	near(time.Minute) // the first one has left
	b.add(task("k", "K"))
	b.do("HSET tasks k:k " + ago(2*time.Hour) + ":0:0:0:0:0:K")
	near(2 * time.Hour)
	b.do("HSET tasks k:k " + ago(2*time.Hour) + ":" + ago(90*time.Minute) + ":0:0:0:0:K")
	near(90 * time.Minute) // it was scheduled for then
	b.do("ZADD schedule " + ago(3*time.Hour) + " k:late")
	near(3 * time.Hour)
	b.do("DEL ages")
	b.do("SET ages x")
	near(3 * time.Hour)
}
