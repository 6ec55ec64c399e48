package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// noon is the time in table tests.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// seated returns a session with a handler and no Redis. Its lock is held until the test ends, and
// a talk appears to be running. Nothing that is deferred until Unlock runs, so the test sees the
// decisions.
func seated(t *testing.T, change func(o *Options)) *Session {
	t.Helper()
	o := plain
	if change != nil {
		change(&o)
	}
	q := lonely(t)
	q.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, o)
	return sitting(t, q)
}

// byHand is seated without a handler.
func byHand(t *testing.T) *Session { return sitting(t, lonely(t)) }

func sitting(t *testing.T, q *viewed) *Session {
	r := q.newSession(Membership{Worker: "w", Round: 2, Evicted: func() {}})
	r.mu.Lock()
	q.session = r
	r.idle, r.look, r.renewed, r.passing, r.talked = make(chan struct{}), false, noon, noon, noon
	t.Cleanup(func() {
		r.silent = true
		r.endLocked(ErrShutdown)
		r.mu.after, r.mu.pass = nil, false
		r.mu.Unlock()
	})
	return r
}

// holds makes the session hold an attempt.
func (r *Session) holds(id string, token int64, entry string) *Attempt {
	t := newAttempt(r, id, store.Start{Payload: []byte(id), Token: token, Entry: entry})
	r.held[id] = t
	return t
}

// says puts an ending of an attempt into the outbox.
func (r *Session) says(t *Attempt, verb store.Ending) *ending {
	o := store.Outcome{Verb: verb}
	if verb == store.Fail {
		o.Kind, o.Reason = store.Failed, "no"
	}
	s := &ending{Outcome: t.outcome(o), done: make(chan settled, 1)}
	r.outbox = append(r.outbox, s)
	return s
}

// spoken returns the endings of a round, in order.
func spoken(e *exchange) string {
	var all []string
	for _, o := range e.Outcomes {
		all = append(all, fmt.Sprintf("%s %s", o.Verb, o.Process))
	}
	return strings.Join(all, ", ")
}

// A round contains everything to report, in the order that Redis needs, and asks for as many tasks
// as can be handled.
func TestComposeSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup  func(r *Session)
		nil    bool
		says   string
		some   int // how many endings it has, instead of says
		starts int
		check  func(r *Session, e *exchange) bool
	}{
		"nothing": {setup: func(*Session) {}, nil: true},
		"ended":   {setup: func(r *Session) { r.look, r.ended = true, ErrEvicted }, nil: true},
		"a look": {setup: func(r *Session) { r.look = true }, starts: 4,
			check: func(r *Session, e *exchange) bool { return e.Idle && !r.look && e.Number == 3 && r.number == 3 }},
		"closing": {setup: func(r *Session) { r.look, r.closing = true, true },
			check: func(r *Session, e *exchange) bool { return !e.Idle && len(e.slots) == 0 }},
		"what goes back, newest first": {setup: func(r *Session) {
			for i, id := range []string{"a", "b", "c"} {
				r.says(r.holds(id, int64(1+i), ""), store.Stop)
			}
			r.look = true
		}, says: "stop c, stop b, stop a", starts: 4},
		"of the schedule before the rest, simple ends last": {setup: func(r *Session) {
			r.says(r.holds("simple", 1, ""), store.Finish)
			r.says(r.holds("list", 2, ""), store.Fail)
			r.says(r.holds("key", 3, "k:a"), store.Finish)
			r.says(r.holds("back", 4, ""), store.Stop)
		}, says: "finish key, fail list, stop back, finish simple", starts: 4},
		"the second ending of an attempt waits for the first": {setup: func(r *Session) {
			a := r.holds("a", 1, "")
			r.says(a, store.Finish)
			r.says(a, store.Stop)
		}, says: "finish a", check: func(r *Session, e *exchange) bool { return len(r.outbox) == 1 && len(e.slots) == 0 }},
		"an ending of what is not held": {setup: func(r *Session) {
			r.says(newAttempt(r, "gone", store.Start{Token: 1}), store.Finish)
		}, says: "finish gone", starts: 4, check: func(_ *Session, e *exchange) bool { return !e.outcomes[0].held }},
		"wants come first": {setup: func(r *Session) {
			r.wants = []*want{{n: 3, got: make(chan taken, 1)}, {n: 2, got: make(chan taken, 1)}}
		}, starts: 9, check: func(r *Session, e *exchange) bool { return len(e.wants) == 2 && len(r.wants) == 0 }},
		"wants that are too many wait": {setup: func(r *Session) {
			r.wants = []*want{{n: store.RoundWeight + 10, got: make(chan taken, 1)}, {n: 20, got: make(chan taken, 1)}}
		}, starts: store.RoundWeight, check: func(r *Session, e *exchange) bool { return len(e.wants) == 1 && len(r.wants) == 1 }},
		"ends that weigh too much wait": {setup: func(r *Session) {
			for i := range 200 {
				r.says(r.holds(fmt.Sprint("simple", i), int64(1+i), ""), store.Finish)
			}
			for i := range 200 {
				r.says(r.holds(fmt.Sprint("key", i), int64(1000+i), "k:a"), store.Finish)
			}
		}, some: 200 + (store.RoundWeight-200)/4, starts: 4},
		"large tasks end alone": {setup: func(r *Session) {
			for i := range 3 {
				r.says(r.holds(strings.Repeat("x", store.RoundBytes+i), int64(1+i), ""), store.Finish)
			}
		}, some: 1, starts: 4},
		"fewer of them if observers listen": {setup: func(r *Session) {
			r.heard = true
			for i := range 3 {
				r.says(r.holds(strings.Repeat("x", store.EventBytes/2+i-1), int64(1+i), ""), store.Finish)
			}
		}, some: 2, starts: 4},
		"no more than the handlers take": {setup: func(r *Session) { r.look, r.queue.taken, r.ask = true, 3, 100 }, starts: 1},
		"none while they are busy": {setup: func(r *Session) { r.look, r.queue.taken = true, 4 },
			check: func(_ *Session, e *exchange) bool { return !e.Idle }},
		"not alone while a risky task runs": {setup: func(r *Session) { r.look = true; r.engine.risk.Store(true) }, starts: 4,
			check: func(_ *Session, e *exchange) bool { return !e.Solo }},
		"what is canceled and runs on": {setup: func(r *Session) {
			r.holds("a", 1, "").covered = []store.Cancellation{{Name: "x", Token: 5}}
			r.seen = 7
		}, starts: 4, check: func(_ *Session, e *exchange) bool {
			return len(e.Stopping) == 1 && e.Stopping[0] == store.Stopping{Name: "x", Process: "a"} && e.Said == 7
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			c.setup(r)
			e := r.composeLocked(noon)
			if c.nil || e == nil {
				if !c.nil || e != nil {
					t.Fatal("a round:", e != nil)
				}
				return
			}
			if got := spoken(e); c.some == 0 && got != c.says || c.some > 0 && len(e.Outcomes) != c.some || len(e.Start) != c.starts {
				t.Errorf("it says %.1000q (%d) and starts %d", got, len(e.Outcomes), len(e.Start))
			}
			if c.check != nil && !c.check(r, e) {
				t.Errorf("%+v", e.Round)
			}
		})
	}
}

// A round asks about a limited number of cancels, and reports a limited number of running tasks.
func TestComposeBoundsCancels(t *testing.T) {
	t.Parallel()
	r := seated(t, nil)
	for i := range maxStopping + 50 {
		a := r.holds(fmt.Sprint(i), int64(1+i), "")
		a.covered = []store.Cancellation{{Name: "x", Token: 9999}}
		r.cancels.receiveLocked([]hash{a.digest}, map[string]*Attempt{a.ID: a})
	}
	r.seen = 9999
	e := r.composeLocked(noon)
	if len(e.Heard) != maxHeard || len(e.Stopping) != maxStopping || e.Said >= 9999 {
		t.Error(len(e.Heard), len(e.Stopping), e.Said)
	}
	named := map[string]bool{}
	for _, s := range e.Stopping {
		named[s.Process] = true
	}
	for id, a := range r.held {
		if !named[id] && a.Token < e.Said {
			t.Errorf("it says that up to %d all is named, and the token %d isn't", e.Said, a.Token)
		}
	}
}
