package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// After a queue has moved to another node, two heartbeats may be in flight. Whichever is answered first,
// neither suggests that writes were lost; later losses are noticed.
func TestPulsesOfTwoNodes(t *testing.T) {
	t.Parallel()
	var l lease
	for i, beat := range []struct {
		sent, answered time.Duration
		now, deadline  int64 // deadline without the grant
		lost           bool
	}{
		{2, 3, 1000, 990, false},
		{1, 4, 990, 500, false}, // from the previous node
		{5, 6, 2000, 1000, false},
		{7, 8, 3000, 1999, true},
	} {
		p := store.Pulse{Now: beat.now, Deadline: beat.deadline + 60_000}
		if i == 0 {
			p.Deadline = 0
		}
		if lost := l.grant(noon.Add(beat.answered), noon.Add(beat.sent), &p, time.Minute); lost != beat.lost {
			t.Errorf("heartbeat %d: lost %v", i, lost)
		}
	}
}

// How a session reacts to the answer to a heartbeat.
func TestPulse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup          func(s *Session)
		pulse          store.Pulse
		woken, crowded bool
		says, compares int // how many ends it says; whether it asks Redis what it holds
	}{
		"nothing":                          {pulse: store.Pulse{Rank: -1}},
		"tasks wait":                       {pulse: store.Pulse{Rank: -1, More: 1}, woken: true},
		"tasks wait, and all are busy":     {setup: func(s *Session) { s.queue.taken = 4 }, pulse: store.Pulse{Rank: -1, More: 1}},
		"in a pause":                       {pulse: store.Pulse{Rank: -1, More: store.InPause}},
		"idle, as Redis knows":             {setup: func(s *Session) { s.idle = true }, pulse: store.Pulse{Rank: 3}},
		"idle, and Redis doesn't know":     {setup: func(s *Session) { s.idle = true }, pulse: store.Pulse{Rank: -1}, woken: true},
		"idle since the heartbeat":         {setup: func(s *Session) { s.idle, s.talked = true, noon.Add(1) }, pulse: store.Pulse{Rank: -1}},
		"another worker is idle":           {setup: func(s *Session) { s.ready("a") }, pulse: store.Pulse{Rank: -1, Idle: 1, Held: 1}, crowded: true, says: 1},
		"only this one is idle":            {setup: func(s *Session) { s.idle = true; s.ready("a") }, pulse: store.Pulse{Rank: 0, Idle: 1, Held: 1}},
		"handlers hang":                    {setup: func(s *Session) { s.ready("a"); s.queue.pace.Lull() }, pulse: store.Pulse{Rank: -1, Held: 1}, says: 1},
		"they may hang: Prefetch is set":   {setup: func(s *Session) { s.ready("a"); s.queue.pace.Lull(); s.queue.opts.Prefetch = 3 }, pulse: store.Pulse{Rank: -1, Held: 1}},
		"a prefetched task must stop":      {setup: func(s *Session) { s.ready("a") }, pulse: store.Pulse{Rank: -1, Held: 1, Stops: []string{"a", "unknown"}}, says: 1},
		"what was refused goes back":       {setup: func(s *Session) { s.refused = []*ending{s.holds("a", 1, "").unbegun(store.End{Verb: store.Stop})} }, pulse: store.Pulse{Rank: -1, Held: 1}, says: 1},
		"as many as it holds":              {setup: func(s *Session) { s.holds("a", 1, "") }, pulse: store.Pulse{Rank: -1, Held: 1}},
		"more than it holds":               {pulse: store.Pulse{Rank: -1, Held: 1}, compares: 1},
		"more, while rounds are in flight": {setup: func(s *Session) { s.sends() }, pulse: store.Pulse{Rank: -1, Held: 1}},
		"for the tenth time":               {setup: func(s *Session) { s.sends(); s.uncompared = compareEach - 1 }, pulse: store.Pulse{Rank: -1, Held: 1}, compares: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seated(t, nil)
			s.talked = noon.Add(-time.Minute)
			if c.setup != nil {
				c.setup(s)
			}
			s.stop() // reconcile gets no answer
			s.pulseLocked(noon.Add(time.Millisecond), &c.pulse, noon)
			compares := 0
			if s.reconciling {
				compares = 1
			}
			if s.woken != c.woken || s.crowded != c.crowded || len(s.say) != c.says || compares != c.compares {
				t.Errorf("woken %v, crowded %v, says %d, compares %d", s.woken, s.crowded, len(s.say), compares)
			}
			if c.pulse.Rank == 0 && !s.lease.first.After(noon) || c.pulse.Rank != 0 && !s.lease.first.IsZero() {
				t.Error("it's the first of the idle ones until", s.lease.first)
			}
		})
	}
}

// ready makes the session hold a prefetched task, and a handler has just returned.
func (s *Session) ready(id string) {
	t := s.holds(id, 1, "")
	s.queue.ahead, s.queue.bytes, s.queue.taken = append(s.queue.ahead, t), s.queue.bytes+t.size, 4
	s.queue.pace.Returned(noon, time.Second, 4)
}

// A token or a round that goes back shows that Redis has lost writes.
func TestLossOfTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last, before int64 // according to the answer
		lost         int
	}{
		"as known":         {12, 7, 0},
		"others started":   {15, 7, 0},
		"a token is gone":  {11, 7, 1},
		"a round is gone":  {12, 6, 1},
		"both are gone":    {3, 0, 2},
		"Redis lost a lot": {0, -1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := seated(t, nil)
			s.marks = marks{token: 12, round: 7}
			s.mu.after = nil
			s.witnessLocked(&round{Round: store.Round{Start: &store.Start{Round: 8}}}, &store.Answer{Last: c.last, Before: c.before})
			is.Equal(len(s.mu.after), c.lost)
			is.Equal(s.marks, marks{token: c.last, round: 8}) // what is compared next
		})
	}
}

// Many signs of one loss are reported once.
func TestLossIsReportedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := lonely(t)
	s := newSession(w.Queue, w.view, Membership{Worker: "w", Asked: 9})
	mark := s.Mark()
	s.Compare(9, mark)
	is.Equal(w.counts.LostWrites.Load(), int64(0))
	for range 3 {
		s.Compare(5, mark)
	}
	is.Equal(w.counts.LostWrites.Load(), int64(1))
}

// The times that follow from a lease.
func TestLeaseOf(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]Lease{
		3 * time.Second:        {time.Second, 2 * time.Second, 2700 * time.Millisecond},
		150 * time.Millisecond: {50 * time.Millisecond, 100 * time.Millisecond, 135 * time.Millisecond},
		365 * 24 * time.Hour:   {2920 * time.Hour, 5840 * time.Hour, 7884 * time.Hour}, // the longest
		-1:                     {time.Second, 0, 1<<63 - 1},
	} {
		if got := LeaseOf(d); got != want {
			t.Errorf("%v: %v", d, got)
		}
	}
}

// If Redis has lost writes, tasks that only it assigns to the worker go back, and those whose start it has lost stop.
func TestReconcile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	began, cause := make(chan struct{}), make(chan error)
	w := served(t, redistest.URL(), nil, func(ctx context.Context, a *Attempt) ([]byte, error) {
		if string(a.Payload) == "a" {
			close(began)
			<-ctx.Done()
			cause <- context.Cause(ctx)
		}
		return nil, nil
	})
	s := w.join("w")
	w.enqueue("a")
	<-began
	w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
	w.do("DEL", w.keys.Working("w"))
	w.do("ZADD", w.keys.Working("w"), 1, "w.3.1.7", 2, "w.3.1.8n", 99, "w.9999.1.1")
	w.do("LPUSH", w.keys.Process("w.3.1.7"), "stranger")
	w.do("LPUSH", w.keys.Process("w.3.1.8n"), "k:x")
	w.do("HSET", strings.Replace(w.keys.Waiting(), ":queues:", ":tasks:", 1), "k:x", (&store.Record{Payload: []byte("x")}).Append(nil))
	w.do("HSET", strings.Replace(w.keys.Waiting(), ":queues:", ":runs:", 1), "k:x", "w.3.1.8n:0:0:")
	w.beat(s)
	is.Equal(<-cause, ErrEvicted)
	w.eventually("the strangers have run", func() bool { return w.counts.Finished.Load() == 2 })
	is.Equal(w.number("ZCARD", w.keys.Working("w")), 1) // a round that isn't answered yet may have started it
	is.True(w.counts.Lost.Load() >= 1)
}

// What happens to held tasks and to waiting callers when a session ends.
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
			s := seated(t, nil)
			asked := &want{n: 2, got: make(chan supply, 1)}
			s.wants = []*want{asked}
			s.sends()
			task, risky := s.holds("a", 1, ""), s.holds("b", 2, "")
			risky.risky = true
			s.engine.risk.Store(true)
			s.queue.taken = 0
			s.ready("c")
			s.queue.taken = 0
			s.queue.spare = s.queue.grabLocked(2)
			end, empty := s.says(task, store.Done), &want{n: 1, got: make(chan supply, 1)}
			s.wants = []*want{empty}
			s.flight[0].slots = nil
			s.endLocked(c.why, false)
			for _, a := range []*Attempt{task, risky} {
				if got := context.Cause(a.ctx); got != c.cause {
					t.Errorf("the context of %s ends with %v", a.ID, got)
				}
			}
			if got := s.queue.counts.Lost.Load(); got != c.lost {
				t.Error(got, "are lost")
			}
			if s.engine.risk.Load() || len(s.held) > 0 || len(s.queue.ahead) > 0 || s.queue.bytes != 0 || s.queue.taken != 0 || s.queue.session != nil || s.ctx.Err() == nil {
				t.Error("something is left")
			}
			if err := <-end.done; !errors.Is(err, ErrNotOwner) || !errors.Is(err, c.why) {
				t.Error("a caller that ends a task gets", err)
			}
			if got := <-empty.got; got.err != c.why {
				t.Error("a caller that wants a task gets", got.err)
			}
			if got := <-asked.got; !errors.Is(got.err, c.why) || !errors.Is(got.err, store.ErrUnknown) {
				t.Error("a caller whose task may have begun gets", got.err)
			}
			if s.wakeLocked() || s.ended != c.why {
				t.Error("later callers get", s.ended)
			}
			other := &ending{End: task.endOf(store.End{Verb: store.Stop}, true), task: task, done: make(chan error, 1)}
			if s.sayLocked(other); len(s.say) > 0 || <-other.done == nil {
				t.Error("an ending is accepted")
			}
		})
	}
}

// Membership.Evicted is called once, however often the eviction is noticed.
func TestEvictedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := lonely(t)
		s := newSession(w.Queue, w.view, Membership{Worker: "w", Evicted: func() { told++ }})
		r := &round{Round: store.Round{Start: &store.Start{}}}
		for range 2 {
			s.Evicted()
			s.handle(r, store.Result{StartErr: store.ErrNoMember})
		}
		synctest.Wait()
		is.New(t).Equal(told, 1)
	})
}

// The end of an exclusive handler's context is logged once for each handler: not again when an
// answer as old as the lease arrives, nor in the next stall.
func TestLeaseExpiredIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		w := lonely(t)
		w.engine.Lease = LeaseOf(time.Second)
		o := plain
		o.Exclusive = true
		w.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, o)
		s := newSession(w.Queue, w.view, Membership{Worker: "w"})
		defer s.lease.expiry.Stop()
		begin := time.Now()
		renew := func(sent time.Time) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lease.renew(time.Now(), sent)
		}
		says := func(lines int) {
			t.Helper()
			synctest.Wait()
			is.Equal(w.said.has("lease expired"), lines)
		}
		hold := func(id string) *Attempt {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.holds(id, 1, "")
		}
		first := hold("first")
		time.Sleep(950 * time.Millisecond)
		says(1)
		is.Equal(context.Cause(first.Context()), ErrLeaseExpired)
		renew(begin.Add(20 * time.Millisecond)) // sent before the stall, answered after it
		says(1)
		renew(time.Now())
		time.Sleep(time.Second)
		says(1) // the held tasks have ended already
		renew(time.Now())
		second := hold("second")
		time.Sleep(800 * time.Millisecond)
		renew(time.Now())
		time.Sleep(800 * time.Millisecond)
		says(1)
		is.NoErr(second.Context().Err())
		time.Sleep(200 * time.Millisecond)
		says(2)
		is.Equal(context.Cause(second.Context()), ErrLeaseExpired)
	})
}

// The last outcome wakes all that wait for it: Run and Unhandle may wait for the same queue.
func TestStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		q := lonely(t)
		q.ending = 2
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 3)
		for range cap(done) {
			go func() {
				q.Stored(ctx)
				done <- ctx.Err()
			}()
		}
		for range 2 {
			synctest.Wait()
			is.Equal(len(done), 0)
			q.mu.Lock()
			q.storedLocked()
			q.mu.Unlock()
		}
		for range cap(done) {
			is.NoErr(<-done)
		}
	})
}
