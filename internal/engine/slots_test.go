package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/store"
)

// at returns a queue with a handler, with its lock held as by seated.
func at(t *testing.T, change func(o *Options)) *Queue { return seated(t, change).queue }

// attempts returns n attempts that the current session holds.
func (s *Queue) attempts(n int) (all []*Attempt) {
	for range n {
		s.sessions[0].token++
		all = append(all, s.sessions[0].holds(fmt.Sprint("t", s.sessions[0].token), s.sessions[0].token, ""))
	}
	return all
}

// Slots are taken for a round, filled with ready tasks, and given back.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want string
		do   func(s *Queue) string
	}{
		"as many as there are": {"3 1 4", func(s *Queue) string {
			a, b := s.reserveLocked(s.sessions[0], 3), s.reserveLocked(s.sessions[0], 3)
			return fmt.Sprint(len(a), len(b), s.taken)
		}},
		"the spare ones first": {"1 1 2", func(s *Queue) string {
			s.spare, s.taken = s.grabLocked(2), 2
			got := s.reserveLocked(s.sessions[0], 1)
			return fmt.Sprint(len(got), len(s.spare), s.taken)
		}},
		"none while it drains": {"0 0", func(s *Queue) string {
			s.draining = true
			return fmt.Sprint(len(s.reserveLocked(s.sessions[0], 3)), s.taken)
		}},
		"filled with what is ready": {"1 3 0 4", func(s *Queue) string {
			slots := s.reserveLocked(s.sessions[0], 4)
			s.ready = s.attempts(3)
			left := s.fillLocked(s.sessions[0], slots)
			return fmt.Sprint(len(left), s.handling, len(s.ready), s.taken)
		}},
		"not beyond a lower Concurrency": {"4 0 3", func(s *Queue) string {
			slots := s.reserveLocked(s.sessions[0], 4)
			s.ready = s.attempts(3)
			s.opts.Concurrency = 2
			left := s.fillLocked(s.sessions[0], slots)
			return fmt.Sprint(len(left), s.handling, len(s.ready))
		}},
		"given back": {"0 true", func(s *Queue) string {
			s.unreserveLocked(s.sessions[0], s.reserveLocked(s.sessions[0], 4), false)
			return fmt.Sprint(s.taken, s.mu.pass)
		}},
		"the spare ones, too": {"0 0", func(s *Queue) string {
			s.spare = s.grabLocked(2)
			s.unreserveLocked(s.sessions[0], s.reserveLocked(s.sessions[0], 1), true)
			return fmt.Sprint(s.taken, len(s.spare))
		}},
		"a slot goes on to the next task": {"t5 4 4 1", func(s *Queue) string {
			s.takeLocked(s.sessions[0], s.attempts(5), s.reserveLocked(s.sessions[0], 4))
			next := s.vacantLocked(time.Now(), &run{task: s.attempts(1)[0], slot: 1})
			return fmt.Sprintf("%s %d %d %d", next.ID, s.handling, s.taken, s.ending)
		}},
		"or is given back": {"true 3 3 1", func(s *Queue) string {
			s.takeLocked(s.sessions[0], s.attempts(4), s.reserveLocked(s.sessions[0], 4))
			next := s.vacantLocked(time.Now(), &run{task: s.attempts(1)[0], slot: 1})
			return fmt.Sprint(next == nil, s.handling, s.taken, s.ending)
		}},
		"or is given back where there are too many": {"true 3 3 1", func(s *Queue) string {
			s.takeLocked(s.sessions[0], s.attempts(5), s.reserveLocked(s.sessions[0], 4))
			s.opts.Concurrency = 3
			next := s.vacantLocked(time.Now(), &run{task: s.attempts(1)[0], slot: 1})
			return fmt.Sprint(next == nil, s.handling, s.taken, len(s.ready))
		}},
		"the oldest first": {"4 0", func(s *Queue) string {
			s.ready = s.attempts(2)
			s.takeLocked(s.sessions[0], s.attempts(2), s.reserveLocked(s.sessions[0], 2))
			return fmt.Sprint(s.handling, len(s.ready)) // both slots, and two that had become free
		}},
		"nothing is taken while it drains": {"false 0", func(s *Queue) string {
			slots := s.reserveLocked(s.sessions[0], 2)
			s.draining = true
			return fmt.Sprint(s.takeLocked(s.sessions[0], s.attempts(2), slots), s.handling)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := at(t, nil)
			got := c.do(s)
			for range s.handling {
				s.handlers.Done() // they don't begin
			}
			s.handling, s.taken, s.ending = 0, 0, 0
			if got != c.want {
				t.Errorf("%s, and it should be %s", got, c.want)
			}
		})
	}
}

// TestAhead checks how many tasks are prefetched.
func TestAhead(t *testing.T) {
	t.Parallel()
	quick := pace{run: time.Millisecond, calm: 1000, fast: 10_000, last: noon, busy: true}
	for name, c := range map[string]struct {
		options func(o *Options)
		state   func(s *Queue)
		n       int
	}{
		"a number":             {func(o *Options) { o.Prefetch = 10 }, nil, 5}, // the other half is for the concurrent round
		"some are there":       {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.ready = s.attempts(8) }, 2},
		"some are asked for":   {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.asked = 9 }, 1},
		"enough are there":     {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.asked, s.ready = 5, s.attempts(5) }, 0},
		"nothing is known yet": {nil, nil, 0},
		"one crash is all":     {func(o *Options) { o.Prefetch, o.MaxCrashes = 10, 1 }, nil, 0},
		"it drains":            {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.draining = true }, 0},
		"they are large":       {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.bytes = mostBytes }, 0},
		"capacity is shared":   {func(o *Options) { o.Prefetch = 10 }, func(s *Queue) { s.engine.Capacity.SetTotal(100) }, 0},
		"by the pace":          {nil, func(s *Queue) { s.pace = quick }, 6},
		"none":                 {func(o *Options) { o.Prefetch = -1 }, func(s *Queue) { s.pace = quick }, 0},
		"all are slow":         {nil, func(s *Queue) { s.pace, s.pace.last = quick, noon.Add(-time.Second) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := at(t, c.options)
			if c.state != nil {
				c.state(s)
			}
			if n, _ := s.aheadLocked(s.sessions[0], noon, 1000); n != c.n {
				t.Error(n)
			}
			s.draining = false
		})
	}
}

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
