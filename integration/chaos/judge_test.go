package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/integration/spec/lane"
)

// A history is a hand-made record: what the server did, and what was reported. A checker that
// accepts a wrong history proves nothing.
type history struct {
	commits []string // the commands of one commit, separated by " ; "
	events  []event
	alive   bool
	forgets bool
	strict  bool
	said    []time.Time
}

const second = int64(time.Second)

// good returns a history without violations: a, b and k are enqueued, k under a key. p1 starts a
// and b, and is killed. p2 evicts it, starts both again, and finishes them and k.
func good() history {
	one, two := event{Peer: "p1", Worker: "w1"}, event{Peer: "p2", Worker: "w2"}
	at := int64(0)
	by := func(who event, op string, p load.Phase, process string, token int64, tasks ...string) event {
		at += second / 10
		who.Mono, who.Wall, who.Op, who.Phase, who.Process, who.Token, who.Tasks = at, time.Unix(0, at), op, p, process, token, tasks
		return who
	}
	return history{
		commits: []string{
			"HSET chaos:worker:w1 name p1", "HSET chaos:worker:w2 name p2",
			"ZADD chaos:workers:{q} 1000 w1", "ZADD chaos:workers:{q} 1000 w2",
			"LPUSH chaos:queues:{q} a b",
			"HSET chaos:keyed:{q}:k:x payload k due 1 ; ZADD chaos:schedule:{q} 1 k:x ; ZADD chaos:contents:{q} 0 " + lane.Digest("k") + ":k:x",
			"RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i1 ; RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i2 ; " +
				"ZADD chaos:working:{q}:w1 1 i1 2 i2 ; SET chaos:token:{q} 2 ; ZADD chaos:holders:{q} NX 0 w1",
			"ZADD chaos:suspects:{q} NX 900 w1", "ZADD chaos:ages:{q} -4503599627370496 drift 2 1000",
			"ZADD chaos:suspects:{q} 0 w1 ; ZREM chaos:workers:{q} w1 ; " +
				"LMOVE chaos:process:{q}:i2 chaos:queues:{q} RIGHT RIGHT ; LMOVE chaos:process:{q}:i1 chaos:queues:{q} RIGHT RIGHT ; " +
				"ZREM chaos:working:{q}:w1 i2 i1 ; ZREM chaos:holders:{q} w1 ; ZREM chaos:suspects:{q} w1 ; " +
				"ZADD chaos:ages:{q} XX INCR 2 drift",
			"HDEL chaos:keyed:{q}:k:x payload due ; ZREM chaos:schedule:{q} k:x ; ZREM chaos:contents:{q} " + lane.Digest("k") + ":k:x ; " +
				"HSET chaos:keyed:{q}:k:x process i3 ; HSET chaos:entries:{q} i3 k:x ; LPUSH chaos:process:{q}:i3 k ; " +
				"RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i4 ; RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i5 ; " +
				"ZADD chaos:working:{q}:w2 3 i3 4 i4 5 i5 ; SET chaos:token:{q} 5 ; ZADD chaos:holders:{q} NX 2 w2",
			"RPOP chaos:process:{q}:i3 ; ZREM chaos:working:{q}:w2 i3 ; DEL chaos:keyed:{q}:k:x ; HDEL chaos:entries:{q} i3",
			"DEL chaos:process:{q}:i4 chaos:process:{q}:i5 ; ZREM chaos:working:{q}:w2 i4 i5 ; ZREM chaos:holders:{q} w2",
		},
		events: []event{
			by(one, load.OpEnqueue, load.Invoke, "", 0, "a", "b"), by(one, load.OpEnqueue, load.Okay, "", 0, "a", "b"),
			by(one, load.OpEnqueue, load.Invoke, "", 0, "k"), by(one, load.OpEnqueue, load.Okay, "", 0, "k"),
			by(one, load.OpRun, load.Invoke, "i1", 1, "a"), by(one, load.OpRun, load.Invoke, "i2", 2, "b"),
			by(event{Peer: "p1"}, opKill, "", "", 0),
			by(two, load.OpRun, load.Invoke, "i3", 3, "k"), by(two, load.OpRun, load.Invoke, "i4", 4, "a"), by(two, load.OpRun, load.Invoke, "i5", 5, "b"),
			by(two, load.OpFinish, load.Invoke, "i4", 4, "a"), by(two, load.OpFinish, load.Okay, "i4", 4, "a"),
			by(two, load.OpRun, load.Okay, "i3", 3, "k"), by(two, load.OpRun, load.Okay, "i4", 4, "a"), by(two, load.OpRun, load.Okay, "i5", 5, "b"),
		},
	}
}

func (h history) judge(t *testing.T) *report {
	t.Helper()
	e := &evidence{
		arena:  &arena{options: options{lease: time.Second, strict: h.strict}, setup: setup{alive: h.alive, forgets: h.forgets, tail: 5 * time.Second}},
		events: h.events, order: newReplay(prefix), lossTimes: h.said,
	}
	for _, c := range h.commits {
		var commands []command
		for one := range strings.SplitSeq(c, " ; ") {
			commands = append(commands, strings.Fields(one))
		}
		if err := e.order.apply(commands); err != nil {
			t.Fatal(err)
		}
	}
	r := &report{}
	e.judge(r)
	return r
}

func TestGoodHistory(t *testing.T) {
	r := good().judge(t)
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Enqueued != 3 || r.Finished != 3 || r.Kills != 1 || r.Extra != 2 || r.InFlight != 2 || len(r.Recoveries) != 2 {
		t.Errorf("it counts %+v", *r)
	}
	if got := percentile(r.Recoveries, 100); got != 300*time.Millisecond {
		t.Errorf("the second task was back after %v", got)
	}
}

// A killed worker's eviction is accepted even if its registration never arrived.
func TestUnregistered(t *testing.T) {
	h := good()
	h.commits = h.commits[1:]
	if r := h.judge(t); len(r.Violations) > 0 || len(r.Recoveries) != 2 {
		t.Errorf("%d recoveries, %q", len(r.Recoveries), r.Violations)
	}
}

// If the machine didn't let a peer run, its eviction isn't a false death, except in strict runs.
func TestLate(t *testing.T) {
	for name, c := range map[string]struct {
		late   event
		strict bool
		alarms int
	}{
		"of the peer":            {late: event{Peer: "p1", Waited: second}},
		"of the driver":          {late: event{Waited: second}},
		"of another peer":        {late: event{Peer: "p2", Waited: second}, alarms: 2},
		"of the peer, if strict": {late: event{Peer: "p1", Waited: second}, strict: true, alarms: 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			h.strict = c.strict
			h.events[6].Op, h.events[6].Peer, h.events[6].Waited = load.OpLate, c.late.Peer, c.late.Waited // instead of the kill
			r := h.judge(t)
			if len(r.Violations) != c.alarms || r.Late != 1-c.alarms/2 {
				t.Errorf("%d late, %q", r.Late, r.Violations)
			}
		})
	}
}

// replace replaces a text in one commit.
func (h *history) replace(t *testing.T, from, to string) {
	t.Helper()
	for i, c := range h.commits {
		if strings.Contains(c, from) {
			h.commits[i] = strings.Replace(c, from, to, 1)
			return
		}
	}
	t.Fatalf("no commit has %q", from)
}

func (h *history) commit(c string) { h.commits = append(h.commits, c) }

// happen adds an event at the end, some time later.
func (h *history) happen(e event) {
	e.Mono = h.events[len(h.events)-1].Mono + 3*second
	e.Wall = time.Unix(0, e.Mono)
	h.events = append(h.events, e)
}

// Package integration/invariants tests the rules that hold between any two commits. These are some
// of them, and the other checks.
func TestWrongHistories(t *testing.T) {
	without := func(h *history, gone func(event) bool) { h.events = slices.DeleteFunc(h.events, gone) }
	for name, c := range map[string]struct {
		spoil func(t *testing.T, h *history)
		want  string
	}{
		"a task is in two places": {func(t *testing.T, h *history) {
			h.replace(t, "queues:{q} a b", "queues:{q} a b a")
		}, "a is in 2 places"},
		"a process has no owner": {func(t *testing.T, h *history) {
			h.replace(t, "ZADD chaos:working:{q}:w1 1 i1 2 i2", "ZADD chaos:working:{q}:w1 1 i1")
		}, "q has 2 processes, but workers hold 1"},
		"a failed worker is a member again": {func(t *testing.T, h *history) {
			h.commit("ZADD chaos:workers:{q} 2000 w1")
		}, "w1 is a member again"},
		"a failed worker starts something": {func(t *testing.T, h *history) {
			h.replace(t, "ZADD chaos:working:{q}:w2 3 i3 4 i4 5 i5", "ZADD chaos:working:{q}:w1 3 i3 4 i4 5 i5")
		}, "w1 starts something"},
		"a leaving worker is a member again": {func(t *testing.T, h *history) {
			h.replace(t, "ZADD chaos:suspects:{q} 0 w1", "ZADD chaos:suspects:{q} -1 w1")
			h.replace(t, "ZREM chaos:suspects:{q} w1", "ZADD chaos:workers:{q} 2000 w1")
		}, "w1 is a member again"},
		"tokens go back": {func(t *testing.T, h *history) {
			h.replace(t, "SET chaos:token:{q} 5", "SET chaos:token:{q} 1")
		}, "the token of q falls from 2 to 1"},
		"tasks go back in the wrong order": {func(t *testing.T, h *history) {
			h.replace(t, "LMOVE chaos:process:{q}:i2 chaos:queues:{q} RIGHT RIGHT ; LMOVE chaos:process:{q}:i1", "LMOVE chaos:process:{q}:i1 chaos:queues:{q} RIGHT RIGHT ; LMOVE chaos:process:{q}:i2")
		}, "goes back after 1"},
		"tasks start in the wrong order": {func(t *testing.T, h *history) {
			h.replace(t, "LPUSH chaos:queues:{q} a b", "LPUSH chaos:queues:{q} a b ; LREM chaos:queues:{q} 0 a ; LPUSH chaos:queues:{q} a")
		}, "a, number 1, starts after number 2"},
		"a finished task is back": {func(t *testing.T, h *history) {
			h.commit("LPUSH chaos:queues:{q} a")
		}, "a is back, after it had ended"},
		"a waiting task vanishes": {func(t *testing.T, h *history) {
			h.commit("LPUSH chaos:queues:{q} z")
			h.commit("RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i9 ; DEL chaos:process:{q}:i9")
			h.happen(event{Op: load.OpEnqueue, Phase: load.Invoke, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
			h.happen(event{Op: load.OpEnqueue, Phase: load.Okay, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
		}, "lost: z: it no longer waits"},
		"a task was never there": {func(t *testing.T, h *history) {
			h.happen(event{Op: load.OpEnqueue, Phase: load.Invoke, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
			h.happen(event{Op: load.OpEnqueue, Phase: load.Okay, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
		}, "lost: z: its enqueue was acknowledged"},
		"a task is still there": {func(t *testing.T, h *history) {
			h.replace(t, "DEL chaos:process:{q}:i4 chaos:process:{q}:i5 ; ZREM chaos:working:{q}:w2 i4 i5", "DEL chaos:process:{q}:i4 ; ZREM chaos:working:{q}:w2 i4")
		}, "lost: b: it is still there"},
		"what was refused is there": {func(t *testing.T, h *history) {
			h.events[3].Phase = load.Refused
		}, "k was enqueued, though"},
		"a task is finished twice, as the handlers see it": {func(t *testing.T, h *history) {
			for _, p := range []load.Phase{load.Invoke, load.Okay} {
				h.happen(event{Op: load.OpFinish, Phase: p, Peer: "p1", Worker: "w1", Process: "i1", Token: 1, Tasks: []string{"a"}})
			}
		}, "2 handlers were told that they had finished a"},
		"Wait returns another end": {func(t *testing.T, h *history) {
			h.happen(event{Op: load.OpWait, Phase: load.Okay, Note: "canceled", Tasks: []string{"a"}})
		}, `Wait for a returned "canceled"`},
		"Wait returns an end, and the task still runs": {func(t *testing.T, h *history) {
			h.replace(t, "DEL chaos:process:{q}:i4 chaos:process:{q}:i5 ; ZREM chaos:working:{q}:w2 i4 i5", "DEL chaos:process:{q}:i4 ; ZREM chaos:working:{q}:w2 i4")
			h.happen(event{Op: load.OpWait, Phase: load.Okay, Note: "finished", Tasks: []string{"b"}})
		}, `Wait for b returned "finished"`},
		"Wait finds no result": {func(t *testing.T, h *history) {
			h.happen(event{Op: load.OpWait, Phase: load.Refused, Note: "no result", Tasks: []string{"a"}})
		}, `Wait for a returned "no result"`},
		"a handler gets the header of another task": {func(t *testing.T, h *history) {
			h.happen(event{Op: load.OpRun, Phase: load.Invoke, Peer: "p2", Worker: "w2", Process: "i9", Note: load.NoteOther + "b", Tasks: []string{"a"}})
		}, "a handler of a was given the header of another task: b"},
		"added tasks start in the wrong order": {func(t *testing.T, h *history) {
			h.commit("XADD chaos:added:{q} 5-7 0123456789abc0 x ; XADD chaos:added:{q} 5-8 0123456789abc0 y")
			h.commit("LPUSH chaos:process:{q}:i9 y ; XDEL chaos:added:{q} 5-8 ; ZADD chaos:working:{q}:w2 9 i9 ; " +
				"HSET chaos:entries:{q} i9 a:5-8-0123456789abc0 a:5-8-0123456789abc i9:w2")
		}, "y starts, but x was added before it"},
		"a stale finish is accepted": {func(t *testing.T, h *history) {
			without(h, func(e event) bool { return e.Op == load.OpFinish })
			for _, p := range []load.Phase{load.Invoke, load.Okay} {
				h.happen(event{Op: load.OpFinish, Phase: p, Peer: "p1", Worker: "w1", Process: "i1", Token: 1, Tasks: []string{"a"}})
			}
		}, `it has finished a (process i1), which was "returned"`},
		"a handler runs what was not started": {func(t *testing.T, h *history) {
			h.happen(event{Op: load.OpRun, Phase: load.Invoke, Peer: "p2", Worker: "w2", Process: "i9", Token: 9, Tasks: []string{"a"}})
		}, "which the server had not started"},
		"a live worker is evicted": {func(t *testing.T, h *history) {
			without(h, func(e event) bool { return e.Op == opKill })
		}, "worker w1 of peer p1 was evicted, but nothing was wrong"},
		"no worker may be evicted": {func(t *testing.T, h *history) {
			h.alive = true
		}, "worker w1 of peer p1 was evicted, but nothing was wrong"},
		"more starts than deaths explain": {func(t *testing.T, h *history) {
			without(h, func(e event) bool { return e.Op == opKill })
		}, "2 extra starts, but only 0 tasks were in flight"},
		"a zombie does not come back": {func(t *testing.T, h *history) {
			h.events[6].Op = opStop
			h.happen(event{Op: opCont, Peer: "p1"})
			h.happen(event{Op: load.OpUp, Peer: "p3"})
			h.happen(event{Op: opTerm, Peer: "p1"})
		}, "p1, worker w1, has done no work since it was woken"},
		"a canceled task goes on": {func(t *testing.T, h *history) {
			h.events = slices.Insert(h.events, 4,
				event{Op: load.OpCancel, Phase: load.Invoke, Tasks: []string{"b"}, Mono: h.events[3].Mono},
				event{Op: load.OpCancel, Phase: load.Okay, Tasks: []string{"b"}, Mono: h.events[3].Mono})
			h.events[len(h.events)-1].Mono += 3 * second
		}, "after it had been canceled"},
		"a finish is out of turn": {func(t *testing.T, h *history) {
			h.replace(t, "ZADD chaos:suspects:{q} 0 w1", "ZADD chaos:suspects:{q} -1 w1") // it has left
			for i, e := range h.events {
				if e.Op == load.OpFinish {
					h.events[i].Process, h.events[i].Token, h.events[i].Peer = "i1", 1, "p1"
				}
			}
		}, `it has finished a (process i1), which was "stopped"`},
		"a task runs that nobody enqueued": {func(t *testing.T, h *history) {
			without(h, func(e event) bool { return e.Op == load.OpEnqueue && slices.Contains(e.Tasks, "k") })
		}, "k is in Redis, but nobody enqueued it"},
		"a loss is not reported": {func(t *testing.T, h *history) {
			h.forgets = true
			h.happen(event{Op: load.OpEnqueue, Phase: load.Invoke, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
			h.happen(event{Op: load.OpEnqueue, Phase: load.Okay, Peer: "p2", Worker: "w2", Tasks: []string{"z"}})
			h.happen(event{Op: opServer, Note: noteKill})
			h.events[len(h.events)-1].Mono -= 2 * second
		}, "no peer reported it"},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.spoil(t, &h)
			r := h.judge(t)
			if !slices.ContainsFunc(r.Violations, func(v string) bool { return strings.Contains(v, c.want) }) {
				t.Errorf("no violation with %q among %q", c.want, r.Violations)
			}
		})
	}
}

// A peer that was evicted while it was stopped must work again, if it had time to. A peer evicted
// later, for another reason, doesn't need to.
func TestNaps(t *testing.T) {
	at := func(seconds float64, op, peer, note string) event {
		return event{Mono: int64(seconds * float64(second)), Op: op, Peer: peer, Note: note}
	}
	for name, c := range map[string]struct {
		later  bool // it's evicted after another peer enqueues something, 9 s after it woke up
		more   []event
		alarms int
	}{
		"it does not come back":                        {alarms: 1},
		"it does not come back, and others are cut":    {more: []event{at(2, opCut, "p2", "")}, alarms: 1},
		"it does not come back from the second nap":    {more: []event{at(1.1, opStop, "p1", ""), at(4, opCont, "p1", "")}, alarms: 1},
		"it does not come back, and Redis was away":    {more: []event{at(2, opServer, "", noteKill), at(3, opServer, "", noteBack)}, alarms: 1},
		"it comes back late":                           {more: []event{{Mono: 15 * second, Op: load.OpRun, Phase: load.Invoke, Peer: "p1", Worker: "w3"}}},
		"it went on, and was killed later":             {later: true},
		"it was killed soon":                           {more: []event{at(2, opKill, "p1", "")}},
		"it was asked to end soon":                     {more: []event{at(2, opTerm, "p1", "")}},
		"Redis was killed, and away for long":          {more: []event{at(1.1, opServer, "", noteKill), at(19, opServer, "", noteBack)}},
		"Redis stood still for long":                   {more: []event{at(0.8, opServer, "", noteStop), at(19, opServer, "", noteCont)}},
		"all were cut off for long":                    {more: []event{at(1.1, opCut, "", "read-only"), at(19, opHeal, "", "")}},
		"it had been cut off, and was so for long":     {more: []event{at(0.5, opCut, "p1", "half-open"), at(19, opHeal, "p1", "")}},
		"its place was cut off, and another is healed": {more: []event{at(0.5, opCut, "p1", "half-open"), at(19, opHeal, "p1.7", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			for i := range h.events[6:] { // from the kill on
				h.events[6+i].Mono += 20 * second
			}
			h.events = append(h.events, at(0.65, opStop, "p1", ""), at(1, opCont, "p1", ""))
			h.events = append(h.events, c.more...)
			for i, p := range []load.Phase{load.Invoke, load.Okay} {
				h.events = append(h.events, event{Mono: int64(10+i) * second, Op: load.OpEnqueue, Phase: p, Peer: "p2", Worker: "w2", Tasks: []string{"c"}})
			}
			slices.SortStableFunc(h.events, func(a, b event) int { return cmp.Compare(a.Mono, b.Mono) })
			before := len(h.commits)
			if c.later {
				before = slices.IndexFunc(h.commits, func(c string) bool { return strings.Contains(c, "NX 900 w1") })
			}
			h.commits = slices.Insert(h.commits, before, "LPUSH chaos:queues:{q} c")
			h.commit("RPOPLPUSH chaos:queues:{q} chaos:process:{q}:i6 ; ZADD chaos:working:{q}:w2 6 i6 ; SET chaos:token:{q} 6 ; ZADD chaos:holders:{q} 5 w2")
			h.commit("DEL chaos:process:{q}:i6 ; ZREM chaos:working:{q}:w2 i6 ; ZREM chaos:holders:{q} w2")
			r := h.judge(t)
			alarms := 0
			for _, v := range r.Violations {
				if strings.Contains(v, "p1, worker w1, has done no work since it was woken") {
					alarms++
				}
			}
			if alarms != c.alarms {
				t.Errorf("%d alarms, want %d: %q", alarms, c.alarms, r.Violations)
			}
		})
	}
}

// Times above the bounds are reported, and so are leftover keys.
func TestWrongFigures(t *testing.T) {
	r := &report{Recoveries: []time.Duration{time.Second, 2 * time.Second}}
	if r.bound("recovery", r.Recoveries, 99, time.Second); len(r.Violations) != 1 {
		t.Errorf("%q", r.Violations)
	}
	for key, ok := range map[string]bool{
		"chaos:registry": true, "chaos:token:{q}": true, "chaos:once:{q}:x": false, "chaos:process:{q}:x": false,
		"chaos:working:{q}:x": false, "chaos:workers:{q}": false, "chaos:failed:keyed:{q}:k:x": true, "chaos:keyed:{q}:k:x": false,
		"chaos:unique:{q}": false, "chaos:ledger:{q}": false, "other": false,
	} {
		if load.Stays(prefix, key, false) != ok {
			t.Errorf("%s may stay: %v", key, !ok)
		}
	}
	if !load.Stays(prefix, "chaos:once:{q}:x", true) {
		t.Error("a nonce may stay until it expires")
	}
}

// Without the server's history, a task is lost if no handler has run it to its end, unless a peer
// was killed while finishing it.
func TestSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  load.Run
		lost int
	}{
		"done":                  {load.Run{Finishing: 1, Finish: load.Okay, Over: 2}, 0},
		"killed at its finish":  {load.Run{Finishing: 1}, 0},
		"killed before":         {load.Run{}, 1},
		"it was retried":        {load.Run{Over: 2, Note: load.NoteRetry}, 1},
		"its handler is at end": {load.Run{Over: 2}, 0},
	} {
		lost := 0
		(&evidence{}).seen(&load.Account{Enqueue: load.Okay, Runs: []*load.Run{&c.run}}, func(*load.Account, string) { lost++ })
		if lost != c.lost {
			t.Errorf("%s: %d lost, want %d", name, lost, c.lost)
		}
	}
}
