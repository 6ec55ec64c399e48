package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

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
