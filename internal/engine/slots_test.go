package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/store"
)

// In any order of events, each held task is ready, being handled, or on its way back; each slot
// belongs to a handler or a round in flight; and all units are given back.
func TestSlotsBalance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := seated(t, func(o *Options) { o.Prefetch, o.MaxCrashes, o.Concurrency = 6, 0, 1+random.IntN(5) })
		s := r.queue
		units := capacity.New(1 << 20) // counts without limiting
		s.share = units.Share(1, 0, func() {})
		var running []*run
		var under *exchange
		runs := func() { // starts what would begin once the lock is released
			for _, a := range r.held {
				if a.round == 0 && a.run.Load() == nil && !slices.Contains(s.ready, a) && !isSaid(r, a) {
					x := &run{queue: s, task: a, slot: 1, ctx: a.ctx, opts: s.opts, returned: true, began: noon, ended: noon}
					a.run.Store(x)
					running = append(running, x)
				}
			}
		}
		now := noon
		for range 150 {
			now = now.Add(time.Millisecond)
			r.renewed = now
			switch random.IntN(8) {
			case 0, 1:
				if under == nil {
					r.look = true
					under = r.composeLocked(now)
				}
			case 2, 3:
				if under != nil {
					under.sent = now
					a, begun := r.brings(under, random.IntN(len(under.Start)+1))
					r.answerLocked(now, under, a, begun)
					under = nil
				}
			case 4, 5:
				if len(running) > 0 {
					i := random.IntN(len(running))
					x := running[i]
					running = append(running[:i], running[i+1:]...)
					x.next = s.freedLocked(x)
					s.storedLocked()
					r.outbox = append(r.outbox, &ending{Outcome: x.task.outcome(store.Outcome{Verb: store.Finish}), ours: true})
				}
			case 6:
				s.recallLocked()
			case 7:
				if under != nil && random.IntN(3) == 0 {
					r.undoneLocked(under, mishap{err: ErrNoTask})
					under = nil
				}
			}
			runs()
			if len(running) != s.handling {
				t.Fatalf("seed %d: %d tasks are handled in %d slots", seed, len(running), s.handling)
			}
			reserved := 0
			if under != nil {
				reserved = len(under.slots)
			}
			if s.taken != s.handling+reserved+len(s.spare) {
				t.Fatalf("seed %d: %d slots are taken; %d handlers, %d reserved, %d spare", seed, s.taken, s.handling, reserved, len(s.spare))
			}
			bytes := 0
			for _, a := range s.ready {
				bytes += a.size
			}
			if bytes != s.bytes || len(s.ready)+s.asked > 6 {
				t.Fatalf("seed %d: %d are ready and %d asked for; %d bytes of %d", seed, len(s.ready), s.asked, s.bytes, bytes)
			}
		}
		for range s.handling {
			s.handlers.Done()
		}
		s.handling = 0
	}
}

// isSaid reports whether an attempt or its end is on its way to Redis.
func isSaid(r *Session, a *Attempt) bool {
	for _, s := range r.outbox {
		if s.Process == a.ID {
			return true
		}
	}
	return false
}
