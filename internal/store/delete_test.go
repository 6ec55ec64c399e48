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

func TestDelete(t *testing.T) {
	run(t, []scenario{
		{name: "delete", seed: busy, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`},
			state: busy.with("queues", "")}}},
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
			a := deleteQueue.ask(e.ctx, e.line, e.q, "list", 1)
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

// Delete drops entries a page at a time, spares what runs, and releases locks.
func TestDeleteEntries(t *testing.T) {
	all := series(1200, func(i int) waiting { return waiting{fmt.Sprint("k:t", i), fmt.Sprint("t", i), "+60m", 0} })
	many := blockedX.waiting(all...).with("queues", "[z]", "ledger", "{#z=1}")
	many["contents"] = "(#b:k:x=0 " + many["contents"][1:]
	run(t, []scenario{
		{name: "many", seed: many, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: runX}}},
		{name: "lost keys", seed: member.with("contents", "(#a:k:x=0)"), steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: member}}},
	})
}
