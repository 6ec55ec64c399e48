package store

import (
	"fmt"
	"strings"
	"testing"
)

var _ = probed("delete",
	probe{seed: busy, call: deletes},
	probe{what: "the schedule", seed: busyLane, call: deletes},
)

func deletes(e *env) string {
	return said(Delete(e.ctx, e.line, e.q), "ok")
}

// deleted returns the offset after a delete; without running tasks it would be n.
func deleted(n int) string { return itoa(n + 1<<24) }

func locks(n int) []string {
	return series(n, func(i int) string { return fmt.Sprintf("#t%d=w:%d", i, i) })
}

func TestDelete(t *testing.T) {
	twin := state{"schedule": "(r:p9=+9m)", "contents": "(#a:r:p9=0)", "keyed:r:p9": waits("a", "+9m", 1, 0), "unique": "{#a=p:p1 offset=0}"}
	run(t, []scenario{
		{name: "delete", seed: busy, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`},
			state: busy.with("queues", "", "unique", "{#b=p:p2 offset="+deleted(3)+"}")}}},
		{name: "delete many locks", seed: state{"queues": "[" + strings.Join(seq("t", 0, 3000), " ") + "]", "unique": "{" + strings.Join(locks(3000), " ") + " offset=0}"},
			steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
		{name: "the lock of a twin", seed: twin, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"unique": "{#a=p:p1 offset=" + deleted(0) + "}"}}}},
		{name: "gaps", seed: state{"queues": "[x b]", "unique": "{#b=w:2 #z=p:p1 offset=0}", "gaps": "(1=1)"}, steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"unique": "{#z=p:p1 offset=" + deleted(3) + "}"}}}},
	})
}

// Listeners to the end of an added task are notified that it's deleted. A payload stored apart is
// deleted, too.
func TestDeleteAdded(t *testing.T) {
	a, b := "k:@1-7-a", "k:@1-8-b"
	listens := []string{"end:" + spelled(a), "end:" + spelled(b)}
	kept := state{"added": "|1-7-a/" + keeps + "=x 1-8-b/0=y|"}
	run(t, []scenario{
		{name: "one keeps its result", alive: listens, seed: kept, steps: []when{{call: deletes, want: "ok", state: state{}, heard: []string{`delete ""`, "end:" + spelled(a) + ` ""`}}}},
		{name: "a foreign item, and a payload apart", seed: state{"added": `|1-7-a/2="" 2-0-foreign=z|`, "keyed:" + a: "{card=0 payload=a}"}, steps: []when{
			{call: deletes, want: "ok", state: state{}, heard: []string{`delete ""`}}}},
		{name: "of the last id of a stream", seed: state{"added": "|18446744073709551615-18446744073709551615-a/0=a|"}, steps: []when{
			{call: deletes, want: "ok", state: state{}, heard: []string{`delete ""`}}}},
		{name: "another task's entry stays", seed: state{"added": "|1-7-a/0=x|", "keyed:" + a: "{process=p1}"}, steps: []when{
			{call: deletes, want: "ok", state: state{"keyed:" + a: "{process=p1}"}, heard: []string{`delete ""`}}}},
	})
}

// A call deletes 50 entries or added tasks, or fewer if they have a mebibyte of payloads.
func TestDeleteIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tasks, size int
		added       bool
		left        int64
	}{
		"entries":        {450, 1, false, 400},
		"bytes":          {10, 300 << 10, false, 6},
		"exactly":        {10, 256<<10 - 1, false, 6}, // plus a digit each
		"almost":         {10, 349524, false, 6},
		"one":            {2, 2 << 20, false, 1},
		"added":          {60, 1, true, 10},
		"added, bytes":   {10, 300 << 10, true, 6},
		"added, exactly": {10, 256<<10 - 1, true, 6},
		"added, one":     {2, 2 << 20, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			for i := range c.tasks {
				payload := fmt.Sprint(strings.Repeat("x", c.size), i%10)
				if c.added {
					e.must(e.conn.Do("XADD", e.q.Added(), fmt.Sprint("1-", i+1), fullSalt+"a0", payload))
				} else {
					e.must(Put(e.ctx, e.line, e.q, fmt.Sprint("k:", i), Change{Payload: []byte(payload), When: Always}))
				}
			}
			a := deleteQueue.ask(e.ctx, e.line, e.q, "cursor", "0", "list", 1)
			if left := a.int("left"); a.err != nil || left != c.left {
				t.Errorf("%d tasks are left, not %d: %v", left, c.left, a.err)
			}
			e.must(nil, Delete(e.ctx, e.line, e.q))
			if n := e.count("ZCARD", "contents") + e.count("XLEN", "added"); n != 0 {
				t.Errorf("%d are left in the end", n)
			}
		})
	}
}

// Whatever other callers put in the meantime, all tasks that were waiting are deleted, or the call
// fails.
func TestDeleteWhileOthersPut(t *testing.T) {
	t.Parallel()
	const entries = 10
	put := func(e *env, entry string, size int) {
		e.must(Put(e.ctx, e.line, e.q, entry, Change{Payload: []byte(entry + strings.Repeat("x", size)), When: Always}))
	}
	for name, c := range map[string]struct {
		size        int // of what others put between two calls
		first, last int // the calls before which they put it
		gives       bool
	}{
		"once":                       {size: 1, first: 2, last: 2},
		"once, as much as a page":    {size: 1 << 20, first: 2, last: 2},
		"for a while, as it deletes": {size: 1 << 20, first: 3, last: 50},
		"for ever, as it deletes":    {size: 1 << 20, first: 2, last: 1000, gives: true},
		"for ever, less":             {size: 1, first: 2, last: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			for i := range entries {
				put(e, fmt.Sprint("k:before", i), 1<<20)
			}
			r := &hooked{Runner: e.line, before: func(call int) {
				if c.first <= call && call <= c.last {
					put(e, fmt.Sprint("k:new", call), c.size)
				}
			}}
			err := Delete(e.ctx, r, e.q)
			left := strings.Count(e.contents(), "k:before")
			if c.gives {
				if err == nil || !strings.Contains(err.Error(), "call Delete again") {
					t.Errorf("after %d calls it says %v", r.calls, err)
				}
			} else if err != nil || left > 0 {
				t.Errorf("after %d calls, %d are left that waited before: %v", r.calls, left, err)
			}
		})
	}
}

// A task that returns to the list between two calls keeps its lock, and doesn't get the position of
// a stale lock.
func TestDeleteBesideReturns(t *testing.T) {
	const unique, running = 2500, 50
	waiting, tasks := seq("waiting", 0, unique), seq("running", 0, running)
	locks := []string{"offset=" + itoa(running)}
	var outcomes []*Outcome
	for i, task := range tasks {
		id := fmt.Sprint("p", i+1)
		locks = append(locks, digest(task)+"=p:"+id)
		outcomes = append(outcomes, &Outcome{Process: id, Token: int64(i + 1), Verb: Stop})
	}
	for i, task := range waiting {
		locks = append(locks, fmt.Sprint(digest(task), "=w:", running+i))
	}
	e := beside(t, member.holding("w1", tasks...).with("token", "="+itoa(running), "queues", "["+strings.Join(waiting, " ")+"]", "unique", "{"+strings.Join(locks, " ")+"}"))
	round := func(n int64, r Round) *Answer {
		r.Number, r.Crashes, r.Keep = n, 3, 10
		return e.round(r)
	}
	r := &hooked{Runner: e.line, after: func(call int) {
		if call == 1 {
			round(1, Round{Outcomes: outcomes})
		}
	}}
	e.must(nil, Delete(e.ctx, r, e.q))
	if locks, waiting := e.count("HLEN", "unique")-1, e.count("LLEN", "queues"); locks != running || waiting != running {
		t.Errorf("after %d calls, %d have a lock and %d wait, not %d", r.calls, locks, waiting, running)
	}
	for i := range running {
		if _, err := EnqueueUnique(e.ctx, e.line, e.q, []byte(fmt.Sprint("running", i))); refused(err) != "DUPLICATE" {
			t.Errorf("task %d has lost its lock: %v", i, err)
		}
	}
	outcomes = nil
	for i, s := range round(2, Round{Start: seq("q", 0, running)}).Started {
		outcomes = append(outcomes, &Outcome{Process: fmt.Sprint("q", i), Token: s.Token, Verb: Finish})
	}
	round(3, Round{Outcomes: outcomes})
	if n := e.count("EXISTS", "unique"); n != 0 {
		t.Error("in the end locks are left")
	}
}

// Delete drops entries a page at a time, spares what runs, and releases locks.
func TestDeleteEntries(t *testing.T) {
	all := series(1200, func(i int) waiting { return waiting{fmt.Sprint("k:t", i), fmt.Sprint("t", i), "+60m", 0} })
	many := blockedX.waiting(all...).with("queues", "[z]", "ledger", "{#z=1}")
	many["contents"] = "(#b:k:x=0 " + many["contents"][1:]
	run(t, []scenario{
		{name: "many", seed: many, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: runX}}},
		{name: "many and locks", seed: many.with("queues", "["+strings.Join(seq("t", 0, 3000), " ")+"]", "unique", "{"+strings.Join(locks(3000), " ")+" #a=p:p9 offset=0}"), steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: runX.with("unique", "{#a=p:p9 offset="+deleted(3000)+"}")}}},
		{name: "lost keys", seed: member.with("contents", "(#a:k:x=0)"), steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: member}}},
	})
}
