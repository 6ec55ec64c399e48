package store

import (
	"fmt"
	"strings"
	"testing"
)

// kept is a seed in which z's task has ended and a newer one waits, y's task runs, and x's task has
// ended.
var kept = state{
	"entries": "{p1=k:y}", "working:w1": "(p1=1)", "process:p1": "[b]", "workers": "(w1=+60m)", "token": "=1",
	"keyed:k:z": h(waits("a", "+60m", 0, 0), "card=40000060000"), "schedule": "(k:z=+60m)", "contents": "(#a:k:z=0)",
	"keyed:k:y":  h(runs("p1", 0, 0), "held=5"+"0000000000000001"+"0000120000"),
	"result:k:z": "=failed:17:3:no!", "result:k:x": "=finished:18:0:=yes",
}

var _ = probed("outcome",
	probe{seed: kept, call: outcomes("k:x", "k:y", "k:z")},
)

// outcomes returns how the tasks of entries ended.
func outcomes(entries ...string) func(*env) string {
	return func(e *env) string {
		ends, err := Ends(e.ctx, e.line, e.q, series(len(entries), func(i int) string { return spelled(entries[i]) }))
		if err != nil {
			return refused(err)
		}
		var said []string
		for i, end := range ends {
			var w words
			if r := end.Record; r != nil {
				w.add(r.End, fmt.Sprint(r.At))
				if r.Error != "" {
					w.add("error", r.Error)
				}
				if r.Result != nil {
					w.add("result", string(r.Result))
				}
				w.num("bytes", int64(r.Size), 0)
			}
			w.num("waits", end.Waits.Milliseconds(), -1)
			w.num("runs", end.Runs.Milliseconds(), -1)
			said = append(said, entries[i]+" "+w.String())
		}
		return strings.Join(said, "; ")
	}
}

func TestOutcome(t *testing.T) {
	run(t, []scenario{
		{name: "nothing", steps: []when{{call: outcomes("k:x"), want: "k:x "}}},
		{name: "all there is", seed: kept, steps: []when{{call: outcomes("k:x", "k:y", "k:z", "k:u"),
			want: "k:x finished=18 result=yes bytes=3; k:y runs=120000; k:z failed=17 error=no! waits=60000; k:u "}}},
		{name: "both", seed: kept.with("keyed:k:y", h(runs("p1", 0, 0), waits("c", "+60m", 0, 0), "card=0")), steps: []when{
			{call: outcomes("k:y"), want: "k:y waits=0 runs=0"}}},
		{name: "foreign cards", seed: state{"keyed:k:a": h(waits("a", "+60m", 0, 0), "card=9000"), "keyed:k:b": h(waits("b", "+60m", 0, 0), "card=4x"),
			"keyed:k:c": h(waits("c", "+60m", 0, 0), "card=1000"), "keyed:k:d": h(waits("d", "+60m", 0, 0), "card="),
			"keyed:k:e": h(waits("e", "+60m", 0, 0), "card=00000060000"), "schedule": "=foreign"}, steps: []when{
			{call: outcomes("k:a", "k:b", "k:c", "k:d", "k:e"), want: "k:a waits=0; k:b waits=0; k:c waits=0; k:d waits=0; k:e waits=0"}}},
		{name: "without a card", seed: keyX, steps: []when{{call: outcomes("k:x"), want: "k:x waits=0"}}},
		{name: "of added tasks that wait", seed: state{"added": "|1-7-a/40000060000=x 1-8-a/0=y|"}, steps: []when{
			{call: outcomes("k:@1-7-a", "k:@1-7-b", "k:@1-8-a", "k:@1-9-a"), want: "k:@1-7-a waits=60000; k:@1-7-b ; k:@1-8-a waits=0; k:@1-9-a "}}},
		{name: "of added tasks that run", seed: state{"entries": "{a:1-7-a=p1:w1 a:1-8-a=p2:w1 a:1-9-a=p3:w1 a:1-9-b=p4:w1 p1=a:1-7-a40000060000 p2=a:1-8-a0 p3=odd}"}, steps: []when{
			{call: outcomes("k:@1-7-a", "k:@1-7-b", "k:@1-8-a", "k:@1-9-a", "k:@1-9-b"), want: "k:@1-7-a runs=60000; k:@1-7-b ; k:@1-8-a runs=0; k:@1-9-a runs=0; k:@1-9-b runs=0"}}},
		{name: "of an added task, and other types", seed: state{"added": "=foreign", "entries": "=foreign"}, steps: []when{{call: outcomes("k:@1-7-a"), want: "k:@1-7-a "}}},
		{name: "another type", seed: state{"keyed:k:x": "=foreign", "result:k:x": "[a]"}, steps: []when{{call: outcomes("k:x"), want: "k:x "}}},
	})
}

// keeps is the card of a task that keeps its result for an hour.
const keeps = "40003600000"

// A task replaced by one that keeps no result leaves a record, unless a running task leaves one later.
func TestOutcomeOfReplaced(t *testing.T) {
	kept, told, listens := "card="+keeps, []string{"end:k:x \"\""}, []string{"end:k:x"}
	later := keyX.with("schedule", "(k:x=+60m)", "keyed:k:x", h(waits("a", "+60m", 0, 0), kept))
	blocked := blockedX.with("keyed:k:x", h(runs("p1", 2, 1), waits("b", "now", 0, 0), rule(0, 0, "now", "now"), kept))
	held := blockedX.with("keyed:k:x", h(runs("p1", 2, 1), "held="+keeps, waits("b", "now", 0, 0), rule(0, 0, "now", "now")))
	over := func(s state) state { return s.with("result:k:x", "=replaced:now:0: +60m") }
	plan := planX.with("keyed:k:x", h(planX["keyed:k:x"], kept), "recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m", kept))
	run(t, []scenario{
		{name: "put", alive: listens, seed: later, steps: []when{{call: sets("x", "b", ""), want: "ok", heard: told,
			state: over(keyX.with("contents", "(#b:k:x=0)", "schedule", "(k:x=now)", "keyed:k:x", waits("b", "now", 0, 0)))}}},
		{name: "the payload stays", alive: listens, seed: later, steps: []when{{call: sets("x", "b", "+60m", "keep"), want: "ok", state: later}}},
		{name: "put behind a run", alive: listens, seed: blocked, steps: []when{{call: sets("x", "b", ""), want: "ok", heard: told,
			state: over(blocked.with("keyed:k:x", h(runs("p1", 2, 1), waits("b", "now", 0, 0), rule(0, 0, "now", "now"))))}}},
		{name: "put behind a run that leaves its own", alive: listens, seed: held.with("keyed:k:x", h(held["keyed:k:x"], kept)), steps: []when{
			{call: sets("x", "b", ""), want: "ok", state: held}}},
		{name: "tried again", alive: listens, seed: held, steps: []when{{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok", heard: told,
			state: over(backX.with("contents", "(#b:k:x=0)", "schedule", "(k:x=now)", "keyed:k:x", waits("b", "now", 0, 0)))}}},
		{name: "retried, and the waiting task keeps its own", alive: listens, seed: held.with("keyed:k:x", h(held["keyed:k:x"], kept)), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok",
				state: backX.with("contents", "(#b:k:x=0)", "schedule", "(k:x=now)", "keyed:k:x", h(waits("b", "now", 0, 0), kept))}}},
		{name: "a newer schedule", alive: listens, seed: plan, steps: []when{{call: recurs("x", "1:2b", "+6m"), want: "held", heard: told,
			state: over(plan.with("recurrence:k:x", course("1:2b", "+6m", "now", "since=now", "more=+3m", "before=1:1a:-9m"), "schedule", "(k:x=+6m)", "keyed:k:x", h(waits("a", "+6m", 0, 0), "turn=+6m", "card=0s13:now")))}}},
		{name: "a newer schedule that keeps them", alive: listens, seed: plan, steps: []when{{call: recurs("x", "1:2b", "+6m", kept), want: "held",
			state: plan.with("recurrence:k:x", course("1:2b", "+6m", "now", "since=now", "more=+3m", "before=1:1a:-9m", kept), "schedule", "(k:x=+6m)", "keyed:k:x", h(waits("a", "+6m", 0, 0), "turn=+6m", kept+"s13:now"))}}},
		{name: "a schedule that ends", alive: listens, seed: plan.with("recurring", "(k:x=-1m)"), steps: []when{{call: recurs("y", "1:1a", "", "judge"), want: "wanted ended=k:x", heard: told,
			state: member.with("result:k:x", "=removed:now:0: +60m")}}},
	})
}

// A page of results ends after a mebibyte, and has at least one result.
func TestOutcomeOfLargeResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes []int // of the records
		want  int
	}{
		{[]int{1 << 20, 20}, 1},
		{[]int{1<<20 - 1, 20, 20}, 2},
		{[]int{700_000, 700_000, 700_000}, 2},
		{[]int{2 << 20, 20}, 1},
	} {
		t.Run(fmt.Sprint(c.sizes), func(t *testing.T) {
			e := beside(t, nil)
			const head = "finished:1:0:="
			entries := seq("k:", 0, len(c.sizes))
			for i, size := range c.sizes {
				e.must(e.conn.Do("SET", e.q.Result(entries[i]), head+strings.Repeat("x", size-len(head))))
			}
			ends, err := Ends(e.ctx, e.line, e.q, entries)
			e.is.NoErr(err)
			e.is.Equal(len(ends), c.want)
			e.is.Equal(len(ends[0].Record.Result), c.sizes[0]-len(head))
		})
	}
}
