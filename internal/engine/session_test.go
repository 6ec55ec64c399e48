package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/worqr/worqr/internal/store"
)

// TestSessionEnds checks what happens to held tasks and to waiting callers when a session ends.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why   error
		cause error
		lost  int64
	}{
		"left":    {ErrNotWorking, ErrShutdown, 0},
		"evicted": {ErrEvicted, ErrEvicted, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			task, risky, ready := r.holds("a", 1, ""), r.holds("b", 2, ""), r.holds("c", 3, "")
			risky.risky = true
			r.engine.risk.Store(true)
			r.queue.ready, r.queue.bytes = []*Attempt{ready}, ready.size
			r.queue.spare = r.queue.grabLocked(2)
			s := r.says(task, store.Finish)
			empty, begun := &want{n: 1, got: make(chan taken, 1)}, &want{n: 2, begun: true, got: make(chan taken, 1)}
			r.wants = []*want{empty, begun}
			r.endLocked(c.why)
			for _, a := range []*Attempt{task, risky, ready} {
				if got := context.Cause(a.ctx); got != c.cause {
					t.Errorf("the context of %s ends with %v", a.ID, got)
				}
			}
			if got := r.queue.counts.Lost.Load(); got != c.lost {
				t.Error(got, "are lost")
			}
			if r.engine.risk.Load() || len(r.held) > 0 || len(r.queue.ready) > 0 || r.queue.bytes != 0 || r.queue.taken != 0 || r.queue.session != nil || r.ctx.Err() == nil {
				t.Error("something is left")
			}
			if d := <-s.done; !errors.Is(d.err, ErrNotOwner) || !errors.Is(d.err, c.why) {
				t.Error("a caller that ends a task gets", d.err)
			}
			if got := <-empty.got; got.err != c.why {
				t.Error("a caller that wants a task gets", got.err)
			}
			if got := <-begun.got; !errors.Is(got.err, c.why) || !errors.Is(got.err, store.ErrUnknown) {
				t.Error("a caller whose task had begun gets", got.err)
			}
			if r.lookLocked(); r.refuseLocked() != c.why {
				t.Error("later callers get", r.refuseLocked())
			}
			other := &ending{Outcome: task.outcome(store.Outcome{Verb: store.Stop}), done: make(chan settled, 1)}
			if r.sayLocked(other); len(r.outbox) > 0 || (<-other.done).err == nil {
				t.Error("an ending is accepted")
			}
		})
	}
}

// Membership.Evicted is called once, however often the eviction is noticed.
func TestEvictedOnce(t *testing.T) {
	t.Parallel()
	beat, round := (*Session).Refused, func(r *Session) {
		r.idle = make(chan struct{}) // a talk is running
		r.evicted(nil)
	}
	for name, found := range map[string][]func(*Session){
		"by beats":           {beat, beat},
		"by a beat, a round": {beat, round},
		"by a round, a beat": {round, beat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := 0
			r := lonely(t).newSession(Membership{Worker: "w", Evicted: func() { told++ }})
			for _, find := range found {
				find(r)
			}
			if told != 1 {
				t.Error("Evicted was called", told, "times")
			}
		})
	}
}
