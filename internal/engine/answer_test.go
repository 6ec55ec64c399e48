package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// asks makes the session look, and returns the round that it sends.
func (r *Session) asks() *exchange {
	r.look = true
	e := r.composeLocked(noon)
	e.sent = noon
	return e
}

// brings returns an answer to a round, with n tasks from the list, and their attempts.
func (r *Session) brings(e *exchange, n int) (*store.Answer, []*Attempt) {
	a := &store.Answer{Rank: -1, Due: -1, Last: e.Number - 1, Token: r.token + int64(n)}
	for range e.outcomes {
		a.Settled = append(a.Settled, store.OK)
	}
	var begun []*Attempt
	for i := range n {
		a.Started = append(a.Started, store.Start{Payload: []byte("x"), Token: r.token + 1 + int64(i)})
		begun = append(begun, newAttempt(r, e.Start[i], a.Started[i]))
	}
	return a, begun
}

// The result of an ending depends on Redis's answer, on who requested it, and on whether it was
// repeated.
func TestAnswerSettles(t *testing.T) {
	t.Parallel()
	const ours, caller = true, false
	for name, c := range map[string]struct {
		what     store.Settled
		said     store.Ending
		kind     store.Kind
		ours     bool
		repeated bool
		strange  bool // the task wasn't held
		held     bool // the task is still held afterwards
		told     store.Settled
		err      bool
		again    bool // the next beat returns it
		count    func(c *Counts) int64
	}{
		"finished":                   {what: store.OK, said: store.Finish, told: store.OK, count: func(c *Counts) int64 { return c.Finished.Load() }},
		"stopped":                    {what: store.OK, said: store.Stop, told: store.OK, count: func(c *Counts) int64 { return c.Stopped.Load() }},
		"stopped, not begun":         {what: store.OK, said: store.Stop, ours: ours, count: func(c *Counts) int64 { return 1 - c.Stopped.Load() }},
		"snoozed":                    {what: store.OK, said: store.Snooze, told: store.OK, count: func(c *Counts) int64 { return c.Snoozed.Load() }},
		"retried":                    {what: store.OK, said: store.Retry, told: store.OK, count: func(c *Counts) int64 { return c.Retried.Load() }},
		"failed":                     {what: store.OK, said: store.Fail, told: store.OK, count: func(c *Counts) int64 { return c.Failed.Load() }},
		"failed, not begun":          {what: store.OK, said: store.Fail, ours: ours, count: func(c *Counts) int64 { return c.Failed.Load() }},
		"expired, not begun":         {what: store.OK, said: store.Fail, kind: store.Expired, ours: ours, count: func(c *Counts) int64 { return c.Expired.Load() }},
		"expired, and canceled":      {what: store.Canceled, said: store.Fail, kind: store.Expired, ours: ours, count: func(c *Counts) int64 { return c.Canceled.Load() - c.Expired.Load() }},
		"expired, by the first copy": {what: store.Gone, said: store.Fail, kind: store.Expired, ours: ours, repeated: true, count: func(c *Counts) int64 { return c.Expired.Load() }},
		"expired, refused":           {what: store.Refused, said: store.Fail, kind: store.Expired, ours: ours, held: true, again: true, count: func(c *Counts) int64 { return 1 - c.Expired.Load() - c.Failed.Load() }},
		"canceled in the meantime":   {what: store.Canceled, said: store.Stop, told: store.Canceled, count: func(c *Counts) int64 { return c.Canceled.Load() }},
		"dropped":                    {what: store.OK, said: store.Drop, ours: ours, count: func(c *Counts) int64 { return c.Canceled.Load() }},
		"gone":                       {what: store.Gone, said: store.Finish, told: store.Gone},
		"gone by the first copy":     {what: store.Gone, said: store.Finish, repeated: true, told: store.OK, count: func(c *Counts) int64 { return c.Finished.Load() }},
		"gone, and it wasn't ours":   {what: store.Gone, said: store.Finish, repeated: true, strange: true, told: store.Gone},
		"refused":                    {what: store.Refused, said: store.Finish, held: true, err: true},
		"refused, not begun":         {what: store.Refused, said: store.Stop, ours: ours, held: true, again: true},
		"finished, its token is old": {what: store.OK, said: store.Finish, told: store.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			task := r.holds("a", 5, "")
			if c.strange {
				delete(r.held, "a")
			}
			s := r.says(task, c.said)
			s.Kind = c.kind
			if s.ours = c.ours; c.ours {
				s.done = nil
			}
			e := r.asks()
			e.repeated = c.repeated
			a, _ := r.brings(e, 0)
			a.Settled[0], a.Trouble = c.what, "trouble"
			if !r.answerLocked(noon, e, a, nil) {
				t.Fatal("it has ended")
			}
			if got := r.held["a"] != nil; got != c.held || c.held && task.round != 0 {
				t.Error("held:", got, task.round)
			}
			if got := task.ctx.Err() != nil; got == (c.held || c.strange) {
				t.Error("its context has ended:", got)
			}
			if !c.ours {
				if d := <-s.done; d.what != c.told || (d.err != nil) != c.err {
					t.Errorf("the caller gets %q, %v", d.what, d.err)
				}
			}
			if got := len(r.refused) > 0; got != c.again {
				t.Error("refused:", got)
			}
			if c.count != nil && c.count(r.queue.counts) != 1 {
				t.Error("it isn't counted")
			}
		})
	}
}

// A task that has expired or crashed too often fails in the next round, and its handler isn't called. In a failed
// queue, no task expires.
func TestAnswerFails(t *testing.T) {
	t.Parallel()
	const now int64 = 2_000_000_000_000
	for name, c := range map[string]struct {
		start   store.Start
		crashes int // MaxCrashes
		kind    store.Kind
		reason  string
	}{
		"neither":                    {start: store.Start{Crashes: 1}, crashes: 3},
		"expired":                    {start: store.Start{Entry: "k:x", Card: "1000" + fmt.Sprint(now)}, crashes: 3, kind: store.Expired, reason: "its time was over before it started"},
		"expires a ms later":         {start: store.Start{Entry: "k:x", Card: "1000" + fmt.Sprint(now+1)}, crashes: 3},
		"expired, and was added":     {start: store.Start{Entry: "k:x", Added: true, Card: "1000" + fmt.Sprint(now)}, crashes: 3, kind: store.Expired, reason: "its time was over before it started"},
		"expired, in a failed queue": {start: store.Start{Entry: "k:x", Card: "1000" + fmt.Sprint(now), Failure: &store.FailedTask{}}, crashes: 3},
		"crashed":                    {start: store.Start{Crashes: 3}, crashes: 3, kind: store.Crashed, reason: "3 workers died holding it"},
		"crashed more often":         {start: store.Start{Crashes: 5}, crashes: 3, kind: store.Crashed, reason: "5 workers died holding it"},
		"crashed, at the only limit": {start: store.Start{Crashes: 1}, crashes: 1, kind: store.Crashed, reason: "1 workers died holding it"},
		"crashed, without a limit":   {start: store.Start{Crashes: 9}},
		"crashed, in a failed queue": {start: store.Start{Entry: "k:x", Crashes: 3, Failure: &store.FailedTask{}}, crashes: 3, kind: store.Crashed, reason: "3 workers died holding it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, func(o *Options) { o.MaxCrashes = c.crashes })
			e := r.asks()
			a, _ := r.brings(e, 1)
			c.start.Token = a.Started[0].Token
			a.Started[0], a.Now = c.start, now
			r.engine.risk.Store(true) // what fails needs no turn among the risky ones
			defer r.engine.risk.Store(false)
			if !r.answerLocked(noon, e, a, []*Attempt{newAttempt(r, e.Start[0], c.start)}) {
				t.Fatal("it has ended")
			}
			if fails := c.kind != ""; r.queue.handling == 0 != fails {
				t.Fatalf("%d handlers run", r.queue.handling)
			} else if fails {
				next := r.composeLocked(noon)
				if len(next.Outcomes) != 1 || next.Outcomes[0].Verb != store.Fail || next.Outcomes[0].Kind != c.kind || next.Outcomes[0].Reason != c.reason {
					t.Error("the next round says", *next.Outcomes[0])
				}
			}
		})
	}
}

// The answer decides what happens to started tasks, and how many the next round asks for.
func TestAnswerHandsOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n       int // of four
		setup   func(r *Session, e *exchange, a *store.Answer)
		handled int
		back    int
		ask     int
		flowing bool
		look    bool
	}{
		"all that was asked for":  {n: 4, handled: 4, ask: 8, flowing: true},
		"fewer":                   {n: 2, handled: 2, ask: 4},
		"none":                    {n: 0, ask: 4},
		"none, and more is there": {n: 0, setup: func(_ *Session, _ *exchange, a *store.Answer) { a.Again = true }, ask: 4, look: true},
		"as many as a round may":  {n: 2, setup: func(_ *Session, _ *exchange, a *store.Answer) { a.More = true }, handled: 2, ask: 4, flowing: true, look: true},
		"too late": {n: 4, setup: func(r *Session, e *exchange, _ *store.Answer) {
			e.sent, r.renewed = noon.Add(-24*time.Hour), noon.Add(-24*time.Hour)
		}, back: 4, ask: 8, flowing: true, look: true},
		"recalled in the meantime":      {n: 4, setup: func(r *Session, _ *exchange, _ *store.Answer) { r.recalls++ }, back: 4, ask: 8, flowing: true, look: true},
		"draining":                      {n: 4, setup: func(r *Session, _ *exchange, _ *store.Answer) { r.queue.draining = true }, back: 4, ask: 8, flowing: true},
		"closing":                       {n: 4, setup: func(r *Session, _ *exchange, _ *store.Answer) { r.closing = true }, back: 4, ask: 8, flowing: true},
		"fewer slots since":             {n: 4, setup: func(r *Session, _ *exchange, _ *store.Answer) { r.queue.opts.Concurrency = 2 }, handled: 4, ask: 8, flowing: true},
		"overtaken":                     {n: 0, setup: func(r *Session, e *exchange, a *store.Answer) { a.Last, r.flowing, r.ask = e.Number+1, true, 16 }, ask: 16, flowing: true},
		"a risky one":                   {n: 1, setup: func(_ *Session, _ *exchange, a *store.Answer) { a.Started[0].Crashes = 2 }, handled: 1, ask: 4},
		"two risky ones":                {n: 2, setup: func(_ *Session, _ *exchange, a *store.Answer) { a.Started[0].Crashes, a.Started[1].Crashes = 2, 2 }, handled: 1, back: 1, ask: 4},
		"risky, while another one runs": {n: 1, setup: func(r *Session, _ *exchange, a *store.Answer) { a.Started[0].Crashes = 2; r.engine.risk.Store(true) }, back: 1, ask: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			e := r.asks()
			a, begun := r.brings(e, c.n)
			if c.setup != nil {
				c.setup(r, e, a)
			}
			if !r.answerLocked(noon, e, a, begun) {
				t.Fatal("it has ended")
			}
			if c.handled != r.queue.handling || c.back != len(r.outbox) || len(r.held) != c.n {
				t.Errorf("%d are handled, %d go back, %d are held", r.queue.handling, len(r.outbox), len(r.held))
			}
			if r.ask != c.ask || r.flowing != c.flowing || r.look != c.look {
				t.Errorf("ask %d, flowing %v, look %v", r.ask, r.flowing, r.look)
			}
			if r.queue.taken != r.queue.handling+len(r.queue.spare) || r.queue.asked != 0 {
				t.Errorf("%d slots are taken, and %d handlers run; %d are asked for ahead", r.queue.taken, r.queue.handling, r.queue.asked)
			}
			if r.answered != e.Number {
				t.Error("it isn't answered")
			}
			if recalled := r.recalls > e.recalls; recalled != (c.back > 0 && !strings.Contains(name, "risky")) {
				t.Error("what is under way is to go back, too:", recalled)
			}
		})
	}
}

// A session that has ended takes no tasks.
func TestAnswerAfterEnd(t *testing.T) {
	t.Parallel()
	r := seated(t, nil)
	e := r.asks()
	a, begun := r.brings(e, 2)
	r.endLocked(ErrEvicted)
	if r.answerLocked(noon, e, a, begun) || len(r.held) > 0 || begun[0].ctx.Err() == nil {
		t.Error("it takes tasks")
	}
}

// A caller that wants three tasks gets them from two rounds if the first one may not bring all.
func TestAnswerFillsWants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rounds []int // tasks in each round; after all but the last, more can start
		gone   bool
		got    int
		back   int
		err    error
	}{
		"at once":         {rounds: []int{3}, got: 3},
		"fewer":           {rounds: []int{1}, got: 1},
		"none":            {rounds: []int{0}, err: ErrNoTask},
		"by two rounds":   {rounds: []int{2, 1}, got: 3},
		"gone since":      {rounds: []int{3}, gone: true, back: 3},
		"none in the end": {rounds: []int{2, 0}, got: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := byHand(t)
			w := &want{n: 3, got: make(chan taken, 1)}
			r.wants = []*want{w}
			for i, n := range c.rounds {
				e := r.asks()
				a, begun := r.brings(e, n)
				a.More = i+1 < len(c.rounds)
				w.gone = c.gone
				r.answerLocked(noon, e, a, begun)
			}
			if len(r.outbox) != c.back {
				t.Error(len(r.outbox), "go back")
			}
			if c.gone {
				return
			}
			if got := <-w.got; len(got.tasks) != c.got || !errors.Is(got.err, c.err) {
				t.Errorf("got %d tasks, %v", len(got.tasks), got.err)
			}
		})
	}
}

// An answer stops the tasks whose cancels it contains, and the next round reports those that still
// run.
func TestAnswerCancels(t *testing.T) {
	t.Parallel()
	r := seated(t, func(o *Options) { o.Prefetch = 10 })
	before, after, other := r.holds("a", 3, ""), r.holds("b", 9, ""), r.holds("c", 3, "")
	after.digest = before.digest
	keyed := r.holds("d", 3, "k:key")
	ready := r.holds("e", 2, "")
	r.queue.ready, r.queue.bytes, r.queue.taken = []*Attempt{ready}, ready.size, 4
	e := r.asks()
	a, _ := r.brings(e, 0)
	a.Seen = 7
	a.Cancels = []store.Cancellation{{Name: before.digest.String(), Token: 5}, {Name: "k:key", Token: 6}, {Name: ready.digest.String(), Token: 7}}
	r.answerLocked(noon, e, a, nil)
	for task, canceled := range map[*Attempt]bool{before: true, after: false, other: false, keyed: true, ready: true} {
		if got := task.ctx.Err() != nil; got != canceled {
			t.Errorf("%s is stopped: %v", task.ID, got)
		}
	}
	if len(r.queue.ready) != 0 || len(r.outbox) != 1 || r.outbox[0].Verb != store.Drop {
		t.Error("the prefetched task isn't dropped:", r.outbox)
	}
	e = r.composeLocked(noon)
	var runs []string
	for _, s := range e.Stopping {
		runs = append(runs, s.Process)
	}
	if slices.Sort(runs); fmt.Sprint(runs) != "[a d e]" || e.Said != 7 {
		t.Error(runs, e.Said)
	}
	e.sent = noon
	a, _ = r.brings(e, 0)
	a.Seen = 7
	r.answerLocked(noon, e, a, nil)
	if r.said != 7 || len(before.covered) != 0 {
		t.Error("it is reported again:", r.said, before.covered)
	}
}

// After Redis has lost writes, a cancel may have a lower token than one already reported. The session
// asks for all cancels again, and reports the tasks that they stop, so that Wait doesn't return
// early.
func TestAnswerCancelsAfterLostWrites(t *testing.T) {
	t.Parallel()
	r := seated(t, nil)
	task := r.holds("a", 3, "")
	r.token, r.seen, r.said = 12, 12, 12
	for range 2 {
		e := r.asks()
		a, _ := r.brings(e, 0)
		a.Token, a.Seen, a.Cancels = 5, 5, []store.Cancellation{{Name: task.digest.String(), Token: 5}}
		r.answerLocked(noon, e, a, nil)
	}
	if e := r.composeLocked(noon); task.ctx.Err() == nil || e == nil || len(e.Stopping) != 1 || e.Said != 5 {
		t.Fatal(task.ctx.Err(), e)
	}
}

// A loss of tokens is reported once, in whatever order the answers come that show it. Then the
// session asks for all cancels again.
func TestLossOfTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(r *Session, asked Mark, one, two *exchange)
		losses  int64
	}{
		"nothing": {func(r *Session, asked Mark, one, two *exchange) {
			r.shows(one, 12)
			r.shows(two, 12)
			r.compareLastLocked(12, asked)
		}, 0},
		"two rounds, then the check": {func(r *Session, asked Mark, one, two *exchange) {
			r.shows(one, 5)
			r.shows(two, 5)
			r.compareLastLocked(5, asked)
		}, 1},
		"the check, then two rounds": {func(r *Session, asked Mark, one, two *exchange) {
			r.compareLastLocked(5, asked)
			r.shows(one, 5)
			r.shows(two, 5)
		}, 1},
		"answers that come in another order": {func(r *Session, asked Mark, one, two *exchange) {
			r.shows(one, 9)
			r.shows(two, 6)
			r.compareLastLocked(5, asked)
		}, 1},
		"other workers have started tasks since": {func(r *Session, asked Mark, one, two *exchange) {
			r.compareLastLocked(11, asked)
			r.shows(one, 12)
		}, 1},
		"the round starts tasks": {func(r *Session, asked Mark, one, two *exchange) { r.shows(one, 13, 11, 12, 13) }, 1},
		"an answer from before it": {func(r *Session, asked Mark, one, two *exchange) {
			r.compareLastLocked(5, asked)
			r.shows(one, 14, 13, 14)
		}, 1},
		"two losses": {func(r *Session, asked Mark, one, two *exchange) {
			r.shows(one, 5)
			r.compareLastLocked(3, r.markLocked())
		}, 2},
		"another loss of what a round has started": {func(r *Session, asked Mark, one, two *exchange) {
			r.shows(one, 13, 11, 12, 13)
			r.compareLastLocked(12, r.markLocked())
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := seated(t, nil)
			r.token, r.seen, r.said = 12, 12, 12
			c.happens(r, r.markLocked(), r.asks(), r.asks())
			if c.losses > 0 && (r.seen != 0 || r.said != 0) {
				t.Errorf("seen %d, said %d", r.seen, r.said)
			}
			r.shows(r.asks(), r.token)
			if got := r.queue.counts.LostWrites.Load(); got != c.losses {
				t.Errorf("%d losses are reported, want %d", got, c.losses)
			}
		})
	}
}

// shows is the answer to a round that started tasks with these tokens, and then saw the last one.
func (r *Session) shows(e *exchange, last int64, tokens ...int64) {
	a, begun := r.brings(e, len(tokens))
	for i, token := range tokens {
		a.Started[i].Token, begun[i].Token = token, token
	}
	if a.Token = last; e.Seen <= last {
		a.Seen = e.Seen
	}
	r.answerLocked(noon, e, a, begun)
}

// A round that wasn't carried out is undone. One that may have been isn't.
func TestUndoAndRelease(t *testing.T) {
	t.Parallel()
	r := seated(t, nil)
	away := errors.New("away")
	task := r.holds("a", 1, "")
	mine, theirs := r.says(task, store.Finish), r.says(r.holds("b", 2, ""), store.Finish)
	mine.ours = true
	w := &want{n: 1, got: make(chan taken, 1)}
	r.wants, r.look = []*want{w}, true
	e := r.composeLocked(noon)
	if r.queue.taken != 4 || task.round != e.Number {
		t.Fatal(r.queue.taken, task.round)
	}
	r.undoneLocked(e, mishapOf(away))
	if r.queue.taken != 0 || task.round != 0 || len(r.outbox) != 1 || r.outbox[0] != mine {
		t.Error(r.queue.taken, task.round, len(r.outbox))
	}
	if d := <-theirs.done; !errors.Is(d.err, away) || d.unknown {
		t.Error(d)
	}
	if got := <-w.got; !errors.Is(got.err, away) {
		t.Error(got)
	}
}

// The step after a round depends on its error.
func TestNext(t *testing.T) {
	t.Parallel()
	unknown := fmt.Errorf("%w: cut", store.ErrUnknown)
	const first, again = false, true
	for _, c := range []struct {
		err      error
		repeated bool
		lane     int
		next     step
	}{
		{nil, first, 0, take}, {nil, again, 0, take}, {nil, first, 1, take},
		{store.ErrEvicted, first, 0, evict}, {store.ErrEvicted, again, 0, evict}, {store.ErrEvicted, first, 1, evict},
		{store.ErrStale, first, 0, evict}, {store.ErrStale, again, 0, evict}, {store.ErrStale, first, 1, evict},
		{unknown, first, 0, repeat}, {unknown, again, 0, release}, {unknown, first, 1, repeat}, {unknown, again, 1, release},
		{errors.New("away"), first, 0, undo}, {errors.New("away"), again, 0, release}, {errors.New("away"), first, 1, otherLane}, {errors.New("away"), again, 1, release},
	} {
		if got := next(c.err, false, c.repeated, c.lane); got != c.next {
			t.Errorf("%v, repeated %v, lane %d: %d", c.err, c.repeated, c.lane, got)
		}
		if got := next(c.err, true, c.repeated, c.lane); got != giveUp {
			t.Errorf("%v, and the session has ended: %d", c.err, got)
		}
	}
}
