package engine

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// After a queue has moved to another node, two beats may be in flight. Whichever is answered first,
// neither suggests that writes were lost; later losses are noticed.
func TestPulsesOfTwoNodes(t *testing.T) {
	t.Parallel()
	r := seated(t, nil)
	grant := r.engine.Lease.Grant.Milliseconds()
	for i, beat := range []struct {
		sent, answered time.Duration
		now, deadline  int64 // deadline without the grant
		lines          int   // logged by then, that writes were lost
	}{
		{2, 3, 1000, 990, 0},
		{1, 4, 990, 500, 0}, // from the previous node
		{5, 6, 2000, 1000, 0},
		{7, 8, 3000, 1999, 1},
	} {
		p := store.Pulse{Now: beat.now, Deadline: beat.deadline + grant, Rank: -1}
		if r.pulseLocked(noon.Add(beat.answered), &p, noon.Add(beat.sent)); len(r.mu.after) != beat.lines {
			t.Errorf("beat %d: %d lines, want %d", i, len(r.mu.after), beat.lines)
		}
	}
}

// TestPulse checks how a session reacts to the answer to a heartbeat.
func TestPulse(t *testing.T) {
	t.Parallel()
	beat := time.Second // of a lease of 3 s
	for name, c := range map[string]struct {
		setup func(r *Session)
		pulse store.Pulse
		look  bool
		lines int // logged, that writes were lost
		check func(r *Session) bool
	}{
		"nothing":                      {},
		"tasks wait":                   {pulse: store.Pulse{Waiting: 1}, look: true},
		"tasks wait, and all are busy": {setup: func(r *Session) { r.queue.taken = 4 }, pulse: store.Pulse{Waiting: 1}},
		"tasks wait, and we leave":     {setup: func(r *Session) { r.closing = true }, pulse: store.Pulse{Waiting: 1}},
		"something was canceled":       {setup: func(r *Session) { r.queue.taken = 4 }, pulse: store.Pulse{Canceled: 5}, look: true},
		"an acknowledgement was lost": {setup: func(r *Session) { r.seen, r.said = 9, 9 }, pulse: store.Pulse{Canceled: 5}, look: true,
			check: func(r *Session) bool { return r.seen == 0 && r.said == 0 }},
		"the deadline went back": {setup: func(r *Session) { r.granted = 500 }, pulse: store.Pulse{Deadline: 400}, lines: 1},
		"longest idle":           {pulse: store.Pulse{Rank: 0}, check: func(r *Session) bool { return r.listens.Equal(noon.Add(2 * beat)) }},
		"among the idle":         {pulse: store.Pulse{Rank: 1}, check: func(r *Session) bool { return r.listens.IsZero() }},
		"what could not go back goes now": {setup: func(r *Session) {
			r.refused = []*Attempt{r.holds("a", 1, ""), newAttempt(r, "gone", store.Start{})}
		}, pulse: store.Pulse{Held: 1}, check: func(r *Session) bool { return len(r.outbox) == 1 && r.refused == nil }},
		"as many as we hold": {setup: func(r *Session) { r.idle, r.mismatch.weight = nil, 5; r.holds("a", 1, "") }, pulse: store.Pulse{Held: 1},
			check: func(r *Session) bool { return r.mismatch.weight == 0 }},
		"more than we hold": {setup: func(r *Session) { r.idle = nil }, pulse: store.Pulse{Held: 1},
			check: func(r *Session) bool { return r.mismatch.weight == differs }},
		"more, while rounds are under way": {pulse: store.Pulse{Held: 1}, check: func(r *Session) bool { return r.mismatch.weight == busy }},
		"an earlier heartbeat": {setup: func(r *Session) { r.renewed = noon.Add(time.Minute) },
			check: func(r *Session) bool { return r.renewed.Equal(noon.Add(time.Minute)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			r.engine.Lease = LeaseOf(3 * beat)
			r.talked = noon.Add(-time.Minute)
			if c.setup != nil {
				c.setup(r)
			}
			if name != "longest idle" && c.pulse.Rank == 0 {
				c.pulse.Rank = -1
			}
			c.pulse.Now = 1000
			r.pulseLocked(noon.Add(time.Millisecond), &c.pulse, noon)
			if name == "longest idle" {
				r.listens = r.listens.Add(-time.Millisecond)
			}
			if r.look != c.look || len(r.mu.after) != c.lines {
				t.Errorf("look %v, %d lines", r.look, len(r.mu.after))
			}
			if r.granted != 1000+2000 || r.renewed.Before(noon) {
				t.Error(r.granted, r.renewed)
			}
			if c.check != nil && !c.check(r) {
				t.Errorf("seen %d, said %d, listens %v, weight %d", r.seen, r.said, r.listens, r.mismatch.weight)
			}
			r.idle = make(chan struct{})
		})
	}
}

// TestLeaseOf checks the times that follow from a lease.
func TestLeaseOf(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]Lease{
		3 * time.Second:        {time.Second, 2 * time.Second, 2700 * time.Millisecond},
		150 * time.Millisecond: {50 * time.Millisecond, 100 * time.Millisecond, 135 * time.Millisecond},
		-1:                     {time.Second, 0, 1<<63 - 1},
	} {
		if got := LeaseOf(d); got != want {
			t.Errorf("%v: %v", d, got)
		}
	}
}
