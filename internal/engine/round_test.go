package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/counts"
	"github.com/worqr/worqr/internal/invoke"
	"github.com/worqr/worqr/internal/store"
)

// noon is the time in table tests.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// seated returns a session with a handler and no Redis. Its lock is held until the test ends, and nothing sends
// its rounds. Nothing that is deferred until Unlock runs, so the test sees the decisions.
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

func sitting(t *testing.T, q *world) *Session {
	s := newSession(q.Queue, q.view, Membership{Worker: "w", Round: 2, Evicted: func() { q.evicted <- struct{}{} }})
	s.mu.Lock()
	q.session = s
	s.woken, s.lease.renewed = false, noon
	t.Cleanup(func() {
		s.endLocked(ErrShutdown, false)
		s.mu.after, s.mu.pass = nil, false
		s.mu.Unlock()
	})
	return s
}

// holds makes the session hold an attempt.
func (s *Session) holds(id string, token int64, name string) *Attempt {
	t := newAttempt(s, &store.Attempt{ID: id, Token: token, Name: name, Record: store.Record{Payload: []byte(id)}}, 0)
	s.held[id] = t
	return t
}

// says adds the end of an attempt to what the next round says.
func (s *Session) says(t *Attempt, verb store.Ending) *ending {
	e := store.End{Verb: verb}
	if verb == store.Fail {
		e.Kind, e.Reason = store.Failed, "no"
	}
	end := &ending{End: t.endOf(e, true), task: t, done: make(chan error, 1)}
	s.say = append(s.say, end)
	return end
}

// sends returns the next round.
func (s *Session) sends() *round { return s.nextRoundLocked(noon) }

// brings returns the result of a round that starts n raw tasks, of which more are left.
func (s *Session) brings(r *round, n, more int) (res store.Result) {
	if r.Finish != nil {
		res.Settled = slices.Repeat([]store.Settled{store.OK}, len(r.Finish.Ends))
	}
	if r.Start == nil {
		return res
	}
	res.Answer = &store.Answer{Last: s.marks.token + int64(n), Before: s.marks.round, More: more, Due: -1}
	for i := range n {
		res.Answer.Tasks = append(res.Answer.Tasks, store.Attempt{
			ID: fmt.Sprintf("w.%d.9.%d", r.Start.Round, i+1), Token: s.marks.token + int64(i) + 1, Record: store.Record{Payload: []byte("x")},
		})
	}
	return res
}

// gets handles the result of a round under the lock.
func (s *Session) gets(r *round, res store.Result) {
	var started []*Attempt
	if res.Answer != nil {
		started = s.attemptsOf(res.Answer)
	}
	s.handleLocked(noon, r, res, s.outcomeOf(noon, r, res), started)
}

// A round says as much as fits: plain ends first; the tasks that go back last, in the order of their
// starts, the newest in the first round.
func TestRoundSays(t *testing.T) {
	t.Parallel()
	many := func(n int, verb store.Ending) (all []store.Ending) { return slices.Repeat([]store.Ending{verb}, n) }
	for name, c := range map[string]struct {
		says  []store.Ending
		size  int // of each payload
		first string
		left  int
		asks  bool // it asks for tasks, too
	}{
		"nothing":                           {first: ""},
		"in order":                          {says: []store.Ending{store.Stop, store.Retry, store.Done, store.Stop, store.Done}, first: "done 3, done 5, retry 2, stop 1, stop 4", asks: true},
		"512 plain ones":                    {says: many(600, store.Done), first: "512 of done", left: 88, asks: true},
		"a quarter of others":               {says: many(200, store.Retry), first: "128 of retry", left: 72, asks: true},
		"the newest go back first":          {says: many(130, store.Stop), first: "128 of stop from 3", left: 2},
		"1 MiB":                             {says: many(3, store.Done), size: 600 << 10, first: "done 1", left: 2, asks: true},
		"one that is larger":                {says: many(2, store.Done), size: 2 << 20, first: "done 1", left: 1, asks: true},
		"no tasks while there are too many": {says: many(2000, store.Done), first: "512 of done", left: 1488},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seated(t, nil)
			for i, verb := range c.says {
				a := s.holds(fmt.Sprint("w.1.9.", i+1), int64(i+1), "")
				a.size = max(a.size, c.size)
				s.says(a, verb)
			}
			s.woken = true
			r := s.sends()
			var all []string
			for _, end := range r.ends {
				all = append(all, fmt.Sprint(end.Verb, " ", end.Token))
			}
			got := strings.Join(all, ", ")
			if n := len(all); n > 9 {
				got = fmt.Sprint(n, " of ", r.ends[0].Verb)
				if r.ends[0].Verb == store.Stop && slices.IsSortedFunc(r.ends, func(a, b *ending) int { return int(a.Token - b.Token) }) {
					got += fmt.Sprint(" from ", r.ends[0].Token)
				}
			}
			if got != c.first || len(s.say) != c.left {
				t.Errorf("it says %q, and %d are left", got, len(s.say))
			}
			if asks := r.Start != nil && r.Start.Wanted > 0; asks != (c.asks || name == "nothing") {
				t.Error("it asks for tasks:", asks)
			}
		})
	}
}

// An attempt that a round in flight ends isn't ended by another one.
func TestOneEndAtATime(t *testing.T) {
	t.Parallel()
	s := byHand(t)
	a := s.holds("a", 1, "")
	s.says(a, store.Done)
	s.sends()
	s.says(a, store.Stop)
	s.woken = true
	if r := s.sends(); r != nil && r.Finish != nil || len(s.say) != 1 {
		t.Error("both are in flight")
	}
}

// When a round is sent, and for how many tasks it asks.
func TestRoundAsks(t *testing.T) {
	t.Parallel()
	const none = -1 // no round, or none with a start
	for name, c := range map[string]struct {
		setup         func(s *Session)
		wanted, ahead int
		idle, ends    bool
	}{
		"a free slot":               {func(*Session) {}, 4, 0, true, false},
		"idle":                      {func(s *Session) { s.idle = true }, none, 0, false, false},
		"idle, with an end":         {func(s *Session) { s.idle = true; s.says(s.holds("a", 1, ""), store.Done) }, none, 0, false, true},
		"woken":                     {func(s *Session) { s.idle, s.woken = true, true }, 4, 0, true, false},
		"woken, and all are busy":   {func(s *Session) { s.queue.taken, s.woken = 4, true }, 0, 0, false, false},
		"all are busy":              {func(s *Session) { s.queue.taken = 4 }, none, 0, false, false},
		"draining":                  {func(s *Session) { s.queue.draining, s.woken = true, true }, 0, 0, false, false},
		"prefetch":                  {func(s *Session) { s.queue.opts.Prefetch, s.ask = 100, 50 }, 50, 46, true, false},
		"only prefetch":             {func(s *Session) { s.queue.opts.Prefetch, s.ask, s.queue.taken, s.plenty = 100, 50, 4, true }, 50, 50, false, false},
		"as many as the user wants": {func(s *Session) { s.queue.opts.Prefetch, s.ask, s.queue.taken, s.plenty = 9, 50, 4, true }, 9, 9, false, false},
		"too little to prefetch":    {func(s *Session) { s.paced(400 * time.Microsecond); s.ask, s.queue.taken, s.plenty = 50, 4, true }, none, 0, false, false},
		"none came to prefetch":     {func(s *Session) { s.queue.opts.Prefetch, s.ask, s.queue.taken, s.more = 100, 50, 4, true }, none, 0, false, false},
		"fast handlers":             {func(s *Session) { s.paced(10 * time.Microsecond); s.ask = 50 }, 50, 46, true, false},
		"fast ones, after a lull":   {func(s *Session) { s.paced(10 * time.Microsecond); s.queue.pace.Lull(); s.ask = 50 }, 4, 0, true, false},
		"fast ones, woken":          {func(s *Session) { s.paced(10 * time.Microsecond); s.ask, s.idle, s.woken = 50, true, true }, 4, 0, true, false},
		"woken, with a Prefetch":    {func(s *Session) { s.queue.opts.Prefetch, s.ask, s.idle, s.woken = 100, 50, true, true }, 4, 0, true, false},
		"nothing more to prefetch":  {func(s *Session) { s.queue.opts.Prefetch, s.queue.taken = 100, 4 }, none, 0, false, false},
		"another worker is idle":    {func(s *Session) { s.queue.opts.Prefetch, s.ask, s.crowded = 100, 50, true }, 4, 0, true, false},
		"a caller":                  {func(s *Session) { s.idle = true; s.wants = []*want{{n: 7}} }, 7, 0, false, false},
		"callers, at most 512":      {func(s *Session) { s.idle = true; s.wants = []*want{{n: 500}, {n: 500}, {n: 1}} }, 512, 0, false, false},
		"after a failure":           {func(s *Session) { s.resting = true }, none, 0, false, false},
		"silent":                    {func(s *Session) { s.silent = true }, none, 0, false, false},
		"behind a start":            {func(s *Session) { s.sends(); s.woken = true }, none, 0, false, false},
		"behind a start, with ends": {func(s *Session) { s.sends(); s.sayMany(32) }, none, 0, false, true},
		"behind a start, more":      {func(s *Session) { s.sends(); s.more, s.queue.opts.Prefetch, s.ask = true, 100, 50 }, 50, 50, false, false},
		"behind a finish":           {func(s *Session) { s.idle = true; s.sayMany(1); s.sends(); s.woken = true }, 4, 0, true, false},
		"behind two": {func(s *Session) {
			s.idle = true
			s.sayMany(1)
			s.sends()
			s.woken = true
			s.sends()
			s.sayMany(99)
		}, none, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seated(t, nil)
			c.setup(s)
			wanted, ahead, idle, ends := none, 0, false, false
			if r := s.sends(); r != nil {
				ends = r.Finish != nil
				if r.Start != nil {
					wanted, ahead, idle = r.Start.Wanted, r.Start.Ahead, r.Start.Idle
				}
			}
			if wanted != c.wanted || ahead != c.ahead || idle != c.idle || ends != c.ends {
				t.Error("wanted", wanted, "ahead", ahead, "idle", idle, "ends", ends)
			}
		})
	}
}

// paced makes it known how long handlers run.
func (s *Session) paced(run time.Duration) { s.queue.pace.Returned(noon, run, 4) }

// A worker that was woken prefetches only once a handler has returned since: others may have free slots.
func TestPrefetchAfterALull(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, nil)
	s.paced(10 * time.Microsecond)
	s.ask, s.idle, s.woken = 50, true, true
	r := s.sends()
	s.gets(r, s.brings(r, 4, 99))
	is.Equal(s.sends(), nil) // all handlers are busy
	s.queue.pace.Returned(noon, 10*time.Microsecond, 4)
	is.True(s.sends().Start.Ahead > 0)
}

// Nothing is prefetched beside a task that has crashed before.
func TestNoPrefetchBesideCrashed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, func(o *Options) { o.Prefetch = 100 })
	s.ask = 2
	r := s.sends()
	res := s.brings(r, 2, 99)
	res.Answer.Tasks[0].Crashes = 1
	s.gets(r, res)
	r = s.sends()
	is.Equal(r.Start.Ahead, 0)
	s.gets(r, s.brings(r, 2, 99))
	s.says(s.held["w.3.9.1"], store.Done)
	r = s.sends()
	s.gets(r, s.brings(r, 0, 99))
	s.woken = true
	is.True(s.sends().Start.Ahead > 0)
}

// sayMany adds the ends of several tasks.
func (s *Session) sayMany(n int) {
	for range n {
		id := fmt.Sprint("many", len(s.held))
		s.says(s.holds(id, int64(len(s.held)), ""), store.Done)
	}
}

// Only one round in flight may start a risky task, and none while the peer has one.
func TestSolo(t *testing.T) {
	t.Parallel()
	s := seated(t, func(o *Options) { o.Prefetch = 100 })
	first := s.sends()
	s.more, s.ask = true, 50
	second := s.sends()
	if !first.Start.Solo || second.Start.Solo {
		t.Error("solo is", first.Start.Solo, second.Start.Solo)
	}
	res := s.brings(first, 2, 5)
	res.Answer.Tasks[0].Crashes, res.Answer.Tasks[1].Crashes = 2, 2
	s.gets(first, res)
	if !s.engine.risk.Load() || len(s.say) != 1 || s.say[0].Verb != store.Stop {
		t.Error("both risky tasks are kept")
	}
	s.gets(second, s.brings(second, 0, 0))
	s.idle = false
	if r := s.sends(); r.Start != nil && r.Start.Solo {
		t.Error("there's another one")
	}
}

// What follows from an answer to a half of a round.
func TestNext(t *testing.T) {
	t.Parallel()
	unknown := fmt.Errorf("%w: no", store.ErrUnknown)
	for name, c := range map[string]struct {
		err  error
		lost bool
		step step
	}{
		"answered":              {nil, false, take},
		"answered, a repeat":    {nil, true, take},
		"refused":               {errors.New("OOM"), false, undo},
		"refused, a repeat":     {errors.New("OOM"), true, repeat},
		"the reply was lost":    {unknown, false, repeat},
		"no member":             {store.ErrNoMember, false, evicted},
		"no member, a repeat":   {store.ErrNoMember, true, evicted},
		"lost, again and again": {unknown, true, repeat},
	} {
		if got := next(c.err, c.lost); got != c.step {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// A round whose reply was lost is repeated unchanged, and before anything else; so is the one behind it.
// Only the half that wasn't answered is repeated.
func TestRepeats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, func(o *Options) { o.Prefetch = 100 })
	s.sayMany(3)
	first := s.sends()
	s.more, s.ask = true, 50
	second := s.sends()
	is.Equal(s.sends(), nil) // two are in flight
	number, wanted, slots := first.Start.Round, first.Start.Wanted, s.queue.taken
	is.Equal(slots, 4)

	res := s.brings(first, 0, 0)
	res.Answer, res.StartErr = nil, store.ErrUnknown
	s.gets(first, res)
	is.Equal(len(s.held), 0)   // the finish was answered
	is.Equal(s.queue.taken, 0) // others may use the slots
	is.Equal(s.sends(), nil)   // the second one is about to fail
	s.gets(second, store.Result{StartErr: store.ErrUnknown})
	s.woken = true
	is.True(s.sends() == first)
	is.True(s.sends() == second)
	is.Equal(s.sends(), nil)
	is.True(first.Finish == nil)
	is.Equal(first.Start.Round, number)
	is.Equal(first.Start.Wanted, wanted)

	res = s.brings(first, 2, 0) // what the first copy had started
	res.Answer.Before = number + 1
	s.gets(first, res)
	is.Equal(len(s.held), 2)
	is.Equal(s.queue.handling, 2)
	is.True(s.woken) // a new start has to ask
	is.Equal(s.sends(), nil)
	res = s.brings(second, 0, 0)
	res.Answer.Before = second.Start.Round
	s.gets(second, res)
	is.True(s.sends().Start.Round > number+1)
}

// A half that Redis has refused isn't repeated: its ends are said again, and callers get the error.
func TestUndone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, nil)
	ours, caller := s.holds("a", 1, ""), s.holds("b", 2, "")
	s.say = append(s.say, ours.unbegun(store.End{Verb: store.Done}))
	end := s.says(caller, store.Done)
	w := &want{n: 1, got: make(chan supply, 1)}
	s.wants = append(s.wants, w)
	r := s.sends()
	number := r.Start.Round
	oom := errors.New("OOM")
	s.gets(r, store.Result{FinishErr: oom, StartErr: oom})
	is.Equal(<-end.done, oom)
	is.Equal((<-w.got).err, oom)
	is.Equal(len(s.say), 1)
	is.Equal(len(s.flight), 0)
	is.Equal(s.queue.taken, 0)
	is.Equal(s.sends(), nil) // it rests
	s.resting = false
	next := s.sends()
	is.Equal(len(next.ends), 1)
	is.True(next.Start.Round > number)
}

// If Redis refuses all rounds in flight while the worker leaves, each is given up once: the queue outlives the session.
func TestGivenUpOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, func(o *Options) { o.Prefetch = 100 })
	q := s.queue
	runs := func(n int) {
		s.sayMany(n)
		for _, end := range s.say {
			end.by, end.done = &run{queue: q}, nil
		}
		q.ending += n
	}
	s.more, s.ask = true, 50
	runs(3)
	first := s.sends()
	runs(50)
	second := s.sends()
	is.True(first.Start.Ahead > 0 && second.Start.Ahead > 0)
	is.True(len(first.ends) > 0 && len(second.ends) > 0)
	s.closing = true
	denied := redis.Error("NOPERM no")
	for _, r := range []*round{first, second} {
		s.gets(r, store.Result{FinishErr: denied, StartErr: denied})
	}
	is.True(s.silent)
	s.endLocked(ErrNotWorking, true)
	is.Equal([]int{q.coming, q.ending, q.taken}, []int{0, 0, 0})
}

// If replies to a round are lost again and again while Redis answers heartbeats, the worker needs a new id.
// If it answers none, or doesn't get the repeats, as after an outage, the worker keeps trying. Callers learn that the
// outcome is unknown.
func TestRepliesAreLostAgainAndAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		repeats error
		heard   bool // heartbeats are answered
		ends    bool
	}{
		"lost":                             {store.ErrUnknown, true, true},
		"lost, and so are heartbeats":      {store.ErrUnknown, false, false},
		"refused":                          {redis.Error("ERR a key is broken"), true, true},
		"Redis couldn't be reached before": {errors.New("connection refused"), true, false},
		"Redis was loading its file":       {redis.Error("LOADING Redis is loading the dataset in memory"), true, false},
	} {
		s := byHand(t)
		w := &want{n: 1, got: make(chan supply, 1)}
		s.wants = append(s.wants, w)
		r := s.sends()
		failure := store.ErrUnknown
		for range mostUnanswered {
			s.gets(r, store.Result{StartErr: failure})
			s.resting = false
			s.sends()
			if failure = c.repeats; c.heard {
				s.lease.pulsed = noon.Add(time.Second)
			}
		}
		if (s.ended != nil) != c.ends {
			t.Errorf("%s: it has ended: %v", name, s.ended)
		}
		if got := <-w.got; !errors.Is(got.err, store.ErrUnknown) {
			t.Errorf("%s: the caller gets %v", name, got.err)
		}
	}
}

// A worker whose last round another program has raised needs a new id: it would send rounds forever, and start nothing.
func TestRaisedRound(t *testing.T) {
	t.Parallel()
	for name, isLost := range map[string]bool{"a repeat": true, "no repeat": false} {
		s := byHand(t)
		s.woken = true
		r := s.sends()
		if isLost {
			s.gets(r, store.Result{StartErr: store.ErrUnknown})
			s.sends()
		}
		res := s.brings(r, 0, 0)
		res.Answer.Before = r.Start.Round
		s.gets(r, res)
		if ended := s.ended == ErrEvicted; ended == isLost {
			t.Errorf("%s: it has ended: %v", name, s.ended)
		}
	}
}

// A handler may change what it has returned as the result.
func TestResultIsCopied(t *testing.T) {
	t.Parallel()
	result := []byte("a")
	end := byHand(t).holds("a", 1, "k:a").endOf(store.End{Verb: store.Done, Result: result}, true)
	result[0] = 'b'
	is.New(t).Equal(string(end.Result), "a")
}

// The result of an ending depends on Redis's answer, on who requested it, and on whether it was repeated.
func TestSettles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what                    store.Settled
		said                    store.Ending
		ours, repeated, strange bool // strange: the task wasn't held
		held                    bool // the task is still held afterwards
		told                    error
		again                   bool // the next heartbeat returns it
		soon                    bool // the next round does
		count                   func(c *counts.Counts) int64
	}{
		"done":                     {what: store.OK, said: store.Done, count: func(c *counts.Counts) int64 { return c.Finished.Load() }},
		"stopped":                  {what: store.OK, said: store.Stop, count: func(c *counts.Counts) int64 { return c.Stopped.Load() }},
		"stopped, not begun":       {what: store.OK, said: store.Stop, ours: true, count: func(c *counts.Counts) int64 { return 1 - c.Stopped.Load() }},
		"snoozed":                  {what: store.OK, said: store.Snooze, count: func(c *counts.Counts) int64 { return c.Snoozed.Load() }},
		"retried":                  {what: store.OK, said: store.Retry, count: func(c *counts.Counts) int64 { return c.Retried.Load() }},
		"failed":                   {what: store.OK, said: store.Fail, count: func(c *counts.Counts) int64 { return c.Failed.Load() }},
		"canceled in the meantime": {what: store.Canceled, said: store.Stop, count: func(c *counts.Counts) int64 { return c.Canceled.Load() }},
		"dropped":                  {what: store.OK, said: store.Drop, ours: true, count: func(c *counts.Counts) int64 { return c.Canceled.Load() }},
		"gone":                     {what: store.Gone, said: store.Done, told: ErrNotOwner, count: func(c *counts.Counts) int64 { return c.Lost.Load() }},
		"gone by the first copy":   {what: store.Gone, said: store.Done, repeated: true, count: func(c *counts.Counts) int64 { return c.Finished.Load() }},
		"gone, and it wasn't ours": {what: store.Gone, said: store.Done, repeated: true, strange: true, told: ErrNotOwner},
		"postponed":                {what: store.Postponed, said: store.Stop, ours: true, held: true, soon: true},
		"refused":                  {what: store.Refused, said: store.Done, held: true, told: errRefused},
		"refused, not begun":       {what: store.Refused, said: store.Stop, ours: true, held: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := byHand(t)
			task := s.holds("a", 5, "")
			if c.strange {
				delete(s.held, "a")
			}
			end := s.says(task, c.said)
			if c.ours {
				end.done = nil
			}
			r := s.sends()
			if c.repeated {
				r.failures = 1
			}
			s.gets(r, store.Result{Settled: []store.Settled{c.what}})
			if got := s.held["a"] != nil; got != c.held || c.held && task.away {
				t.Error("held:", got, task.away)
			}
			if got := task.ctx.Err() != nil; got == (c.held || c.strange) {
				t.Error("its context has ended:", got)
			}
			if !c.ours {
				if err := <-end.done; err != c.told {
					t.Error("the caller gets", err)
				}
			}
			if again, soon := len(s.refused) > 0, len(s.say) > 0; again != c.again || soon != c.soon {
				t.Error("it's said again with the next heartbeat:", again, "or round:", soon)
			}
			if c.count != nil && c.count(s.queue.counts) != 1 {
				t.Error("it isn't counted")
			}
		})
	}
}

// What a session learns from an answer.
func TestLearn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots, ahead, got, more int
		repeated                bool
		idle, woken, plenty     bool
		ask                     int
	}{
		"nothing":                   {slots: 4, idle: true, ask: 4},
		"less than wanted":          {slots: 4, got: 2, idle: true, ask: 4},
		"all":                       {slots: 4, got: 4, ask: 16},
		"all, and more":             {slots: 4, got: 4, more: 9, plenty: true, ask: 16},
		"all slots, none ahead":     {slots: 4, ahead: 4, got: 4, ask: 4},
		"none ahead, though more":   {ahead: 4, more: 9, ask: 4},
		"limited":                   {slots: 4, ahead: 96, got: 40, more: 9, ask: 50},
		"some can't start":          {slots: 4, got: 2, more: 9, ask: 4},
		"none can start":            {slots: 4, more: 9, idle: true, ask: 4},
		"in a pause":                {slots: 4, more: store.InPause, idle: true, ask: 4},
		"in a return":               {slots: 4, more: store.InReturn, idle: true, ask: 4},
		"a wake that was passed on": {more: 9, plenty: true, ask: 8},
		"a repeat":                  {slots: 4, got: 1, repeated: true, woken: true, ask: 8},
	} {
		s := newState(0, true)
		s.ask, s.woken = 8, false
		r := &round{Round: store.Round{Start: &store.Start{Wanted: c.slots + c.ahead, Ahead: c.ahead, Idle: c.slots > 0}}}
		s.learn(r, &store.Answer{Tasks: make([]store.Attempt, c.got), More: c.more}, c.got, c.repeated)
		if s.idle != c.idle || s.woken != c.woken || s.plenty != c.plenty || s.ask != c.ask {
			t.Errorf("%s: idle %v, woken %v, plenty %v, ask %d", name, s.idle, s.woken, s.plenty, s.ask)
		}
	}
}

// A late answer's tasks go back, since others may have them; so do those that would overtake recalled ones.
func TestTasksGoBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup func(s *Session)
		stops int
	}{
		"in time":        {func(*Session) {}, 0},
		"late":           {func(s *Session) { s.lease.renewed = noon.Add(-time.Hour) }, 3},
		"draining":       {func(s *Session) { s.queue.draining = true }, 3},
		"leaving":        {func(s *Session) { s.closing = true }, 3},
		"after a recall": {func(s *Session) { s.recallLocked() }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seated(t, nil)
			r := s.sends()
			r.at = noon.Add(-2 * time.Hour)
			c.setup(s)
			s.gets(r, s.brings(r, 3, 0))
			if len(s.say) != c.stops || s.queue.handling != 3-c.stops || s.queue.taken != s.queue.handling {
				t.Errorf("%d go back, %d run in %d slots", len(s.say), s.queue.handling, s.queue.taken)
			}
		})
	}
}

// After a recall, the tasks of rounds in flight go back. What is asked for afterwards is handled, even if there are always two
// rounds in flight.
func TestRecallEnds(t *testing.T) {
	t.Parallel()
	s := seated(t, func(o *Options) { o.Concurrency, o.Prefetch = 200, -1 })
	s.ask, s.more = 64, true
	flight := []*round{s.sends(), s.sends()}
	s.recallLocked()
	for n := 0; s.queue.handling == 0; n++ {
		if n == 20 {
			t.Fatalf("no task is handled after %d rounds", n)
		}
		r, wanted := flight[0], 0
		if r.Start != nil {
			wanted = r.Start.Wanted
		}
		s.gets(r, s.brings(r, wanted, 1000))
		flight = flight[1:]
		for next := s.sends(); next != nil; next = s.sends() {
			flight = append(flight, next)
		}
	}
}

// A caller gets what one round brings. The rest goes back, and so does what a caller that has gone would get.
func TestWants(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := byHand(t)
	w, gone := &want{n: 600, got: make(chan supply, 1)}, &want{n: 3, got: make(chan supply, 1), gone: true}
	s.wants = []*want{gone, w}
	r := s.sends()
	is.Equal(r.Start.Wanted, 512)
	s.gets(r, s.brings(r, 512, 100))
	is.Equal(len((<-w.got).tasks), 512)
	is.Equal(len(s.wants)+len(s.say), 0)

	for name, c := range map[string]struct {
		setup    func(r *round, res *store.Result)
		waits    bool
		restless bool
	}{
		"nothing":                         {func(*round, *store.Result) {}, false, true},
		"a return":                        {func(_ *round, res *store.Result) { res.Answer.More = store.InReturn }, true, false},
		"only risky ones, and more":       {func(_ *round, res *store.Result) { res.Answer.More = 9 }, true, false},
		"the reply was lost":              {func(r *round, _ *store.Result) { r.failures = 1 }, true, true},
		"only expired ones, and more":     {func(_ *round, res *store.Result) { s.expires(res, 9) }, true, true},
		"only expired ones, but no other": {func(_ *round, res *store.Result) { s.expires(res, 0) }, false, true},
	} {
		s.wants, s.resting = []*want{{n: 1, got: make(chan supply, 1)}}, false
		r := s.sends()
		res := s.brings(r, 0, 0)
		c.setup(r, &res)
		s.gets(r, res)
		if waits := len(s.wants) == 1; waits != c.waits || s.resting == c.restless {
			t.Errorf("%s: it waits: %v, it rests: %v", name, waits, s.resting)
		}
	}
}

// expires makes an answer bring a task that has expired, of which more are left.
func (s *Session) expires(res *store.Result, more int) {
	s.marks.token++
	res.Answer.Last, res.Answer.More = s.marks.token, more
	res.Answer.Tasks = []store.Attempt{{ID: fmt.Sprint("w.9.9.", s.marks.token), Token: s.marks.token, Record: store.Record{Expires: 1}}}
	res.Answer.Now = 2
}

// What must stop but isn't known yet stops when a round in flight brings it, and is forgotten when all are answered.
func TestStopsAreKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := seated(t, nil)
	r := s.sends()
	s.stopNamedLocked([]string{"w.3.9.2"})
	is.Equal(len(s.stops.attempts), 1)
	s.gets(r, s.brings(r, 3, 0))
	is.Equal(context.Cause(s.held["w.3.9.2"].ctx), ErrCanceled)
	is.NoErr(s.held["w.3.9.3"].ctx.Err())
	is.Equal(len(s.stops.attempts), 0)
	s.stopNamedLocked([]string{"w.3.9.9"})
	is.Equal(len(s.stops.attempts), 0) // no round can bring it
}

// Which attempts a cancel of a payload covers.
func TestCovers(t *testing.T) {
	t.Parallel()
	digest := store.SumOf([]byte("a"))
	old, young, other := &Attempt{Token: 5, digest: digest}, &Attempt{Token: 7, digest: digest}, &Attempt{Token: 5}
	c := canceled{digest: digest, held: []*Attempt{old, other}}
	for token, want := range map[int64][2]bool{-1: {true, false}, 4: {false, false}, 6: {true, false}, 7: {true, true}} {
		if got := [2]bool{c.covers(old, token), c.covers(young, token)}; got != want || c.covers(other, token) {
			t.Errorf("token %d: %v", token, got)
		}
	}
}

// In any order of events, each held task is ready, being handled, or on its way back; each slot
// belongs to a handler or a round in flight; and all units are given back.
func TestSlotsBalance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := seated(t, func(o *Options) { o.Prefetch, o.MaxCrashes, o.Concurrency = 40, 0, 1+random.IntN(5) })
		q := s.queue
		q.share = capacity.New(1<<20).Share(1, 0, func() {}) // counts without limiting
		var running []*run
		begin := func() { // starts what would begin once the lock is released
			for _, a := range s.held {
				if !a.away && a.run.Load() == nil && !slices.Contains(q.ahead, a) && !slices.ContainsFunc(s.say, func(e *ending) bool { return e.Attempt == a.ID }) {
					x := &run{queue: q, task: a, slot: 1, call: invoke.New(a.ctx, invoke.Limits{Grace: time.Hour}, "", nil), opts: q.opts, began: noon, ended: noon}
					a.run.Store(x)
					running = append(running, x)
				}
			}
		}
		for range 150 {
			s.lease.renewed, s.resting = noon, false
			switch random.IntN(9) {
			case 0, 1:
				s.woken = s.woken || random.IntN(2) == 0
				s.sends()
			case 2, 3:
				if len(s.flight) > 0 {
					r := s.flight[0]
					n := 0
					if r.Start != nil {
						n = random.IntN(r.Start.Wanted + 1)
					}
					s.gets(r, s.brings(r, n, random.IntN(2)))
				}
			case 4, 5:
				if len(running) > 0 {
					i := random.IntN(len(running))
					x := running[i]
					running = slices.Delete(running, i, i+1)
					x.next = q.vacantLocked(time.Now(), x)
					q.storedLocked()
					s.say = append(s.say, x.task.unbegun(store.End{Verb: store.Done}))
				}
			case 6:
				s.recallLocked()
			case 7, 8:
				if len(s.flight) > 0 {
					err := []error{errors.New("OOM"), store.ErrUnknown}[random.IntN(2)]
					s.gets(s.flight[0], store.Result{FinishErr: err, StartErr: err})
				}
			}
			begin()
			reserved, asked := 0, 0
			for _, r := range s.flight {
				reserved += len(r.slots)
				asked += r.ahead()
			}
			if len(running) != q.handling || q.taken != q.handling+reserved+len(q.spare) {
				t.Fatalf("seed %d: %d tasks in %d of %d slots; %d reserved, %d spare", seed, len(running), q.handling, q.taken, reserved, len(q.spare))
			}
			bytes := 0
			for _, a := range q.ahead {
				bytes += a.size
			}
			if bytes != q.bytes || asked != q.coming || len(q.ahead)+q.coming > 40 {
				t.Fatalf("seed %d: %d are ready and %d (%d) asked for; %d bytes of %d", seed, len(q.ahead), q.coming, asked, q.bytes, bytes)
			}
		}
		for range q.handling {
			q.handlers.Done()
		}
		q.handling = 0
	}
}
