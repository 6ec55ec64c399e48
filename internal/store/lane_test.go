package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// h is a hash by its fields, in any order; a field given again replaces the
// first.
func h(fields ...string) string {
	all := map[string]string{}
	for _, f := range fields {
		for f = strings.Trim(f, "{}"); f != ""; {
			one := f
			if end := strings.IndexAny(f, " \""); end >= 0 && f[end] == '"' { // till the closing one
				one = f[:end+2+strings.IndexByte(f[end+1:], '"')]
			} else if end >= 0 {
				one = f[:end]
			}
			name, _, _ := strings.Cut(one, "=")
			all[name] = one
			f = strings.TrimLeft(f[len(one):], " ")
		}
	}
	return "{" + strings.Join(slices.Sorted(maps.Values(all)), " ") + "}"
}

func waits(payload, due string, retries, crashes int) string {
	return h("payload="+payload, "due="+due, fmt.Sprint("retries=", retries), fmt.Sprint("crashes=", crashes))
}

func runs(process string, tried, died int) string {
	return h("process="+process, fmt.Sprint("tried=", tried), fmt.Sprint("died=", died))
}

// rule is what a blocked put does to what runs, should that come back.
func rule(keep, counts int, low, high string) string {
	return h(fmt.Sprint("keep=", keep), fmt.Sprint("counts=", counts), "low="+low, "high="+high)
}

// ends is a round with outcomes of one process.
func ends(n int64, id string, token int64, v Ending, o Outcome) func(*env) string {
	o.Process, o.Token, o.Verb = id, token, v
	return steps(Round{Worker: "w1", Number: n, Outcomes: []*Outcome{&o}})
}

func begins(n int64, ids ...string) func(*env) string {
	return steps(Round{Worker: "w1", Number: n, Start: ids})
}

var (
	member = state{"workers": "(w1=+60m)"}
	// keyX waits under x, and is due.
	keyX = member.with("schedule", "(k:x=-1m)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "-1m", 2, 1))
	// runX is what runs under x.
	runX = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]",
		"entries", "{p1=k:x}", "keyed:k:x", runs("p1", 2, 1))
	// doneX is when that has ended.
	doneX = member.with("rounds", "{w1=2}", "token", "=1")
	// backX is when it waits again.
	backX = doneX.with("contents", "(#a:k:x=0)")
	// blockedX is runX with b blocked by it.
	blockedX = runX.with("contents", "(#b:k:x=0)", "keyed:k:x", h(runs("p1", 2, 1), waits("b", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")))
	// rawP is a raw task that runs.
	rawP = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]")
	// retryR is what it becomes when it is tried again.
	retryR = doneX.with("schedule", "(r:p1=+60m)", "contents", "(#a:r:p1=0)", "keyed:r:p1", waits("a", "+60m", 1, 0))
)

func TestPut(t *testing.T) {
	t.Parallel()
	x := state{"schedule": "(k:x=+60m)", "contents": "(#a:k:x=0)", "keyed:k:x": waits("a", "+60m", 0, 0)}
	idle := state{"idle": "(w2=-1m w3=clock:-2m)"}
	y := func(due string) state {
		return state{"contents": "(#a:k:x=0 #b:k:y=0)", "keyed:k:y": waits("b", due, 0, 0)}
	}
	run(t, []scenario{
		{name: "nobody idle", steps: []when{
			{call: sets("x", "a", "+60m"), want: "ok", heard: []string{"enqueue 1"}, state: x},
			{call: sets("x", "a", "+60m"), want: "ok"},
			{call: sets("x", "c", ""), want: "ok", state: x.with("schedule", "(k:x=now)", "contents", "(#c:k:x=0)", "keyed:k:x", waits("c", "now", 0, 0))}}},
		{name: "due: who waits for work is woken", alive: []string{"w2", "w3"}, seed: idle, steps: []when{
			{call: sets("x", "a", "-5m"), want: "ok", heard: []string{"wake:w2 1", "enqueue 1"},
				state: state{"idle": "(w3=clock:-2m)", "schedule": "(k:x=-5m)", "contents": "(#a:k:x=0)", "keyed:k:x": waits("a", "-5m", 0, 0)}}}},
		{name: "the first: who keeps the time is told", alive: []string{"w2", "w3"}, seed: idle, steps: []when{
			{call: sets("x", "a", "+60m"), want: "ok", heard: []string{"wake:w3 0", "enqueue 1"}, state: x.with("idle", "(w2=-1m)")},
			{call: sets("y", "b", "+70m"), want: "ok", heard: []string{"enqueue 1"}, // not the first
				state: x.with("idle", "(w2=-1m)", "schedule", "(k:x=+60m k:y=+70m)", "contents", y("+70m")["contents"], "keyed:k:y", waits("b", "+70m", 0, 0))},
			{call: sets("y", "b", "+50m"), want: "ok", heard: []string{"wake:w2 0"},
				state: x.with("schedule", "(k:y=+50m k:x=+60m)", "contents", y("+50m")["contents"], "keyed:k:y", waits("b", "+50m", 0, 0))}}},
		{name: "who keeps the time is gone", alive: []string{"w2"}, seed: idle, steps: []when{
			{call: sets("x", "a", "+60m"), want: "ok", heard: []string{"wake:w2 0", "enqueue 1"}, state: x}}},
		{name: "paused: told when it is resumed", alive: []string{"w2", "w3"}, seed: idle.with("paused", "=1"), steps: []when{
			{call: sets("x", "a", "+60m"), want: "ok", heard: []string{"enqueue 1"}, state: x.with("idle", idle["idle"], "paused", "=1")},
			{call: resumes, want: "ok", heard: []string{"wake:w3 0"}, state: x.with("idle", "(w2=-1m)")}}},
		{name: "resume: what is due wakes", alive: []string{"w2", "w3"}, seed: idle.with("paused", "=1", "queues", "[z]", "schedule", "(k:x=-1m k:y=+9m)"), steps: []when{
			{call: resumes, want: "ok", heard: []string{"wake:w2 2", "wake:w3 2"}, state: state{"queues": "[z]", "schedule": "(k:x=-1m k:y=+9m)"}}}},
		{name: "blocked", alive: []string{"w2"}, seed: runX.with("idle", "(w2=-1m)"), steps: []when{
			{call: sets("x", "b", "+20m"), want: "ok", heard: []string{"enqueue 1"}, state: blockedX.with("idle", "(w2=-1m)")},
			{call: sets("x", "c", "", "keep"), want: "ok", state: blockedX.with("idle", "(w2=-1m)", "keyed:k:x",
				h(runs("p1", 2, 1), waits("b", "now", 0, 0), rule(0, 0, "now", "now")))}}},
		{name: "any bytes", seed: member, steps: []when{
			{call: sets("\x00{} \xff:", "\x00\r\n\"", "-1m"), want: "ok", heard: []string{"enqueue 1"}, state: member.with(
				"schedule", `("k:\x00{} \xff:"=-1m)`, "contents", `("`+digest("\x00\r\n\"")+`:k:\x00{} \xff:"=0)`,
				`keyed:"k:\x00{} \xff:"`, `{crashes=0 due=-1m payload="\x00\r\n\"" retries=0}`)},
			{call: begins(1, "p1"), want: `started="\x00\r\n\""/1@"k:\x00{} \xff:"`, state: rawP.with("process:p1", `["\x00\r\n\""]`,
				"entries", `{p1="k:\x00{} \xff:"}`, `keyed:"k:\x00{} \xff:"`, runs("p1", 0, 0))},
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX}}},
		{name: "empty payload", seed: member, steps: []when{
			{call: sets("x", "", "-1m"), want: "ok", heard: []string{"enqueue 1"}, state: keyX.with("contents", "("+digest("")+":k:x=0)", "keyed:k:x", waits("", "-1m", 0, 0))},
			{call: begins(1, "p1"), want: `started=""/1@k:x`, state: runX.with("process:p1", `[""]`, "keyed:k:x", runs("p1", 0, 0))},
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
				state: backX.with("contents", "("+digest("")+":k:x=0)", "schedule", "(k:x=+60m)", "keyed:k:x", waits("", "+60m", 1, 0))}}},
	})
}

func TestRemove(t *testing.T) {
	t.Parallel()
	run(t, []scenario{
		{name: "nothing", seed: runX, steps: []when{{call: removes("k:x"), want: "removed=false"}, {call: removes("k:y"), want: "removed=false"}}},
		{name: "waits", seed: keyX, steps: []when{{call: removes("k:x"), want: "removed=true", state: member}}},
		{name: "blocked", seed: blockedX, steps: []when{{call: removes("k:x"), want: "removed=true", state: runX},
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX}}},
	})
}

func TestCancelKey(t *testing.T) {
	t.Parallel()
	told := runX.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", "{finished=0 stopped=0 token=2} +1440m", "stopping", "("+stoppedKey("k:x", 1, "p1")+"=0)")
	over := doneX.with("token", "=2", "cancel:k:x", "{finished=0 stopped=1 token=2} +1m")
	finished := doneX.with("token", "=2", "cancel:k:x", "{finished=1 stopped=0 token=2} +1m")
	acked := func(v Ending) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Seen: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: v, Kind: Failed}}, Said: 2})
	}
	all := []scenario{
		{name: "nothing", seed: member, steps: []when{{call: cancelsKey("x"), want: "removed=0 token=0"}}},
		{name: "waits", seed: keyX, steps: []when{{call: cancelsKey("x"), want: "removed=1 token=0", state: member}}},
		{name: "runs", alive: []string{"w1"}, seed: runX, steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", heard: []string{"wake:w1 0"}, state: told},
			{call: steps(Round{Worker: "w1", Number: 2}), want: "cancels=k:x/2 seen=2", state: told.with("rounds", "{w1=2}")}}},
		{name: "another worker holds something else", alive: []string{"w1", "w2"}, seed: runX.with("working:w2", "(p2=7)", "process:p2", "[a]", "workers", "(w1=+60m w2=+60m)"), steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", heard: []string{"wake:w1 0"}, state: told.with("working:w2", "(p2=7)", "process:p2", "[a]", "workers", "(w1=+60m w2=+60m)")}}},
		{name: "blocked", seed: blockedX, steps: []when{{call: cancelsKey("x"), want: "removed=1 token=2", state: told}}},
		{name: "put again afterwards", seed: told, steps: []when{
			{call: sets("x", "b", "+20m"), want: "ok", heard: []string{"enqueue 1"}, state: blockedX.with("token", "=2", "canceled", told["canceled"], "stopping", told["stopping"], "cancel:k:x", told["cancel:k:x"])},
			{call: acked(Stop), want: "settled=canceled seen=2", state: over.with("schedule", "(k:x=+20m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+20m", 0, 0))}}},
		{name: "its worker dies", seed: told, steps: []when{{call: fails("w1"), want: "known=true returned=0", state: over.with("workers", "", "rounds", "", "token", "=3")}}},
		{name: "it is being returned", seed: runX.with("suspects", "(w1=0)", "workers", "(w2=+60m)"), steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", state: told.with("suspects", "(w1=0)", "workers", "(w2=+60m)")},
			{call: beats("w2", false), want: "", state: over.with("rounds", "{w1=1}", "workers", "(w2=+60m)")}}},
		{name: "the payload as well", seed: told, steps: []when{
			{call: cancels("a"), want: "removed=0 token=3", heard: []string{"cancel a"}, state: told.with("token", "=3", "canceled", "(k:x=2 #a=3)", "cancel:#a", "{finished=0 stopped=0 token=3} +1440m")},
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}, Said: 3}),
				want: "settled=canceled seen=3", state: over.with("token", "=3", "cancel:#a", "{finished=0 stopped=1 token=3} +1m")}}},
		{name: "a raw task of the name is not meant", seed: member.with("queues", "[k:x]"), steps: []when{{call: cancelsKey("x"), want: "removed=0 token=0"}}},
		{name: "what starts afterwards is not meant", seed: told.with("contents", "(#b:k:y=0)", "schedule", "(k:y=-1m)", "keyed:k:y", waits("b", "-1m", 0, 0)), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 2, Start: []string{"p2"}}), want: "started=b/3@k:y seen=2",
				state: told.with("rounds", "{w1=2}", "token", "=3", "working:w1", "(p1=1 p2=3)", "process:p2", "[b]", "entries", "{p1=k:x p2=k:y}", "keyed:k:y", runs("p2", 0, 0))}}},
	}
	for _, v := range []Ending{Stop, Retry, Fail} {
		all = append(all, scenario{name: "then " + string(v), seed: told, steps: []when{{call: acked(v), want: "settled=canceled seen=2", state: over}}})
	}
	all = append(all, scenario{name: "finished first", seed: told, steps: []when{{call: acked(Finish), want: "settled=ok seen=2", heard: []string{"done w1 a"}, state: finished}}})
	run(t, all)
}

// Cancel finds its payload in both lanes.
func TestCancelContent(t *testing.T) {
	t.Parallel()
	waiting := state{"queues": "[a b]", "schedule": "(k:x=+1m k:y=+2m r:p9=+3m)", "contents": "(#a:k:x=0 #a:r:p9=0 #b:k:y=0)",
		"keyed:k:x": waits("a", "+1m", 0, 0), "keyed:k:y": waits("b", "+2m", 0, 0), "keyed:r:p9": waits("a", "+3m", 1, 0),
		"ledger": "{#a=2 #b=1}", "unique": "{#a=e:r:p9 #b=w:1 offset=0}"}
	record := func(token string) []string { return []string{"token", "=" + token, "canceled", "(#a=" + token + ")"} }
	run(t, []scenario{
		{name: "waits", seed: waiting, steps: []when{{call: cancels("a"), want: "removed=3 token=0", heard: []string{"cancel a"},
			state: state{"queues": "[b]", "schedule": "(k:y=+2m)", "contents": "(#b:k:y=0)", "keyed:k:y": waits("b", "+2m", 0, 0),
				"ledger": "{#b=1}", "unique": "{#b=w:1 offset=1}", "cancel:#a": "{finished=0 stopped=0 token=1} +1m"}}}},
		{name: "is blocked", seed: blockedX, steps: []when{{call: cancels("b"), want: "removed=1 token=2", heard: []string{"cancel b"},
			state: runX.with("token", "=2", "canceled", "(#b=2)", "cancel:#b", "{finished=0 stopped=0 token=2} +1440m")}}},
		{name: "runs, and something else is blocked", seed: blockedX, steps: []when{
			{call: cancels("a"), want: "removed=0 token=2", heard: []string{"cancel a"}, state: blockedX.with(record("2")...).with("cancel:#a", "{finished=0 stopped=0 token=2} +1440m")},
			{call: fails("w1"), want: "known=true returned=0", state: state{"token": "=3", "cancel:#a": "{finished=0 stopped=1 token=2} +1m",
				"schedule": "(k:x=+20m)", "contents": "(#b:k:x=0)", "keyed:k:x": waits("b", "+20m", 0, 0)}}}},
		{name: "what Redis has lost is not mistaken for what is there", seed: keyX.with("contents", "(#a:k:x=0 #b:k:x=0)"), steps: []when{
			{call: cancels("b"), want: "removed=0 token=0", heard: []string{"cancel b"}, state: keyX.with("token", "=1", "cancel:#b", "{finished=0 stopped=0 token=1} +1m")}}},
	})
}

// A key runs out of the schedule, and what ends it.
func TestKeyed(t *testing.T) {
	t.Parallel()
	grave := func(kind string, fields ...string) []string {
		return []string{"failed:schedule", "(k:p1=now)", "failed:contents", "(#a:k:p1=0)", "failed:keyed:k:p1",
			h(append([]string{waits("a", "now", 0, 0), "kind=" + kind, "reason=r", "tries=2", "deaths=1", "worker=w1", "at=now", "from=k:x"}, fields...)...)}
	}
	gone := func(s state) state { return s.with("workers", "", "rounds", "", "token", "=2") }
	fail := Outcome{Kind: Malformed, Reason: "r"}
	run(t, []scenario{
		{name: "start, repeat, and before the list", seed: keyX.with("queues", "[z]"), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX.with("queues", "[z]")},
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1 again"}}},
		{name: "both lanes in one round, and repeated", seed: keyX.with("queues", "[z]", "ledger", "{#z=2}"), steps: []when{
			{call: begins(1, "p1", "p2", "p3"), want: "started=a/1@k:x~2!1,z/2!2", state: runX.with("token", "=2", "working:w1", "(p1=1 p2=2)", "process:p2", "[z]", "ledger", "{#z=2}")},
			{call: begins(1, "p1", "p2", "p3"), want: "started=a/1@k:x~2!1,z/2!2"},
			{call: steps(Round{Worker: "w1", Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Stop}}}), want: "settled=ok,ok",
				state: backX.with("token", "=2", "schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 1), "queues", "[z]", "ledger", "{#z=2}")}}},
		{name: "a late copy starts nothing that is due", seed: keyX.with("rounds", "{w1=1}"), steps: []when{{call: begins(1, "p1"), want: "again"}}},
		{name: "not before its time, nor while paused", seed: keyX.with("paused", "=1"), steps: []when{
			{call: begins(1, "p1"), state: keyX.with("paused", "=1", "rounds", "{w1=1}")},
			{call: does("DEL", "paused"), state: keyX.with("rounds", "{w1=1}")},
			{call: sets("x", "a", "+1m", "counts"), want: "ok", state: keyX.with("rounds", "{w1=1}", "schedule", "(k:x=+1m)", "keyed:k:x", waits("a", "+1m", 2, 1))},
			{call: begins(2, "p1"), state: keyX.with("rounds", "{w1=2}", "schedule", "(k:x=+1m)", "keyed:k:x", waits("a", "+1m", 2, 1))}}},
		{name: "in the order of their times", seed: member.with("schedule", "(k:a=7 k:b=-2m k:c=-1m)", "contents", "(#a:k:a=0 #b:k:b=0 #c:k:c=0)",
			"keyed:k:a", waits("a", "7", 0, 0), "keyed:k:b", waits("b", "-2m", 0, 0), "keyed:k:c", waits("c", "-1m", 0, 0)), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=a/1@k:a,b/2@k:b", state: member.with("rounds", "{w1=1}", "token", "=2", "working:w1", "(p1=1 p2=2)",
				"process:p1", "[a]", "process:p2", "[b]", "entries", "{p1=k:a p2=k:b}", "keyed:k:a", runs("p1", 0, 0), "keyed:k:b", runs("p2", 0, 0),
				"schedule", "(k:c=-1m)", "contents", "(#c:k:c=0)", "keyed:k:c", waits("c", "-1m", 0, 0))}}},
		{name: "finish", seed: runX, steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX},
			{call: ends(3, "p1", 1, Retry, Outcome{}), want: "settled=gone", state: doneX.with("rounds", "{w1=3}")}}},
		{name: "drop", seed: runX, steps: []when{{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX}}},
		{name: "stop", seed: runX, steps: []when{{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: backX.with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 1))}}},
		{name: "retry", seed: runX, steps: []when{
			{call: ends(2, "p1", 9, Retry, Outcome{}), want: "settled=gone", state: runX.with("rounds", "{w1=2}")},
			{call: ends(3, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
				state: backX.with("rounds", "{w1=3}", "schedule", "(k:x=+60m)", "keyed:k:x", waits("a", "+60m", 3, 1))}}},
		{name: "fail", seed: runX, steps: []when{{call: ends(2, "p1", 1, Fail, fail), want: "settled=ok", state: doneX.with(grave("malformed")...)}}},
		{name: "leave", seed: runX, steps: []when{{call: leaves("w1"), want: "returned=1", state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 1))}}},
		{name: "its worker is failed", seed: runX, steps: []when{{call: fails("w1"), want: "known=true returned=1", state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))}}},
		{name: "its worker dies", alive: []string{"w2"}, seed: runX.with("workers", "(w1=-60m)", "suspects", "(w1=-1m)", "idle", "(w2=-1m)"), steps: []when{
			{call: sweeps, want: "failed=w1/1 returned=1", heard: []string{"wake:w2 1"}, state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))}}},
		{name: "many, of both lanes, in the order of their starts", seed: member.with("working:w1", "(p1=1 p2=2 p3=3)", "process:p1", "[a]", "process:p2", "[b]", "process:p3", "[c]",
			"entries", "{p1=k:x p3=k:y}", "keyed:k:x", runs("p1", 0, 0), "keyed:k:y", runs("p3", 0, 0), "queues", "[z]"), steps: []when{
			{call: leaves("w1"), want: "returned=3", state: state{"queues": "[b z]", "token": "=1", "schedule": "(k:x=1 k:y=3)", "contents": "(#a:k:x=0 #c:k:y=0)", "keyed:k:x": waits("a", "1", 0, 0), "keyed:k:y": waits("c", "3", 0, 0)}}}},
		{name: "crashes count over stops", seed: keyX, steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX},
			{call: fails("w1"), want: "known=true returned=1", state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))},
			{call: joins("w1", 2), want: "ok", state: backX.with("rounds", "{fence=2 w1=1}", "token", "=2", "schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))},
			{call: begins(2, "p2"), want: "started=a/3@k:x~2!2", state: doneX.with("rounds", "{fence=2 w1=2}", "token", "=3", "working:w1", "(p2=3)", "process:p2", "[a]", "entries", "{p2=k:x}", "keyed:k:x", runs("p2", 2, 2))}}},
	})
}

// A raw task that is retried gets an entry; the ledger counts its crashes, and
// a lock follows it.
func TestRetriedRaw(t *testing.T) {
	t.Parallel()
	locked := func(s state, where string) state { return s.with("unique", "{#a="+where+" offset=1}") }
	running := doneX.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p2", "[a]", "entries", "{p2=r:p1}", "keyed:r:p1", runs("p2", 1, 0))
	due := retryR.with("schedule", "(r:p1=-1m)", "keyed:r:p1", waits("a", "-1m", 1, 0))
	over := doneX.with("token", "=2", "rounds", "{w1=4}")
	first := locked(due, "e:r:p1")
	grave := state{"failed:schedule": "(k:p2=now)", "failed:contents": "(#a:k:p2=0)",
		"failed:keyed:k:p2": h(waits("a", "now", 0, 0), "kind=failed", "reason=", "tries=1", "deaths=0", "worker=w1", "at=now", "from=")}
	buried := func(s state) state {
		for k, v := range grave {
			s = s.with(k, v)
		}
		return s
	}
	crash := due.with("ledger", "{#a=2}", "unique", "{#a=e:r:p1 offset=1}")
	run(t, []scenario{
		{name: "retry and retry", seed: locked(rawP, "p:p1"), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok", state: locked(retryR, "e:r:p1")},
			{call: enqueuesUnique("a"), want: "DUPLICATE"}}},
		{name: "start, finish", seed: first, steps: []when{
			{call: begins(3, "p2"), want: "started=a/2@r:p1~1", state: locked(running, "p:p2")},
			{call: begins(3, "p2"), want: "started=a/2@r:p1~1"},
			{call: enqueuesUnique("a"), want: "DUPLICATE"},
			{call: ends(4, "p2", 2, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: over}}},
		{name: "retry again", seed: locked(running, "p:p2"), steps: []when{{call: ends(4, "p2", 2, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: locked(retryR, "e:r:p1").with("rounds", "{w1=4}", "token", "=2", "keyed:r:p1", waits("a", "+60m", 2, 0))}}},
		{name: "stop", seed: locked(running, "p:p2"), steps: []when{{call: ends(4, "p2", 2, Stop, Outcome{}), want: "settled=ok",
			state: locked(retryR, "e:r:p1").with("rounds", "{w1=4}", "token", "=2", "schedule", "(r:p1=2)", "keyed:r:p1", waits("a", "2", 1, 0))}}},
		{name: "fail", seed: locked(running, "p:p2"), steps: []when{{call: ends(4, "p2", 2, Fail, Outcome{Kind: Failed}), want: "settled=ok", state: buried(over)}}},
		{name: "its worker dies", seed: locked(running, "p:p2"), steps: []when{{call: fails("w1"), want: "known=true returned=1",
			state: locked(retryR, "e:r:p1").with("workers", "", "rounds", "", "token", "=3", "schedule", "(r:p1=2)", "keyed:r:p1", waits("a", "2", 1, 0), "ledger", "{#a=1}")}}},
		{name: "a plain twin's end does not release", seed: first.with("working:w1", "(p5=1)", "process:p5", "[a]"), steps: []when{
			{call: ends(3, "p5", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: first.with("rounds", "{w1=3}")},
			{call: enqueuesUnique("a"), want: "DUPLICATE"}}},
		{name: "nor that of a key", seed: locked(runX, "w:5").with("queues", "[z]"), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: locked(doneX, "w:5").with("queues", "[z]")}}},
		{name: "cancel", seed: first.with("ledger", "{#a=2}"), steps: []when{{call: cancels("a"), want: "removed=1 token=0", heard: []string{"cancel a"},
			state: doneX.with("token", "=2", "cancel:#a", "{finished=0 stopped=0 token=2} +1m")}}},
		{name: "delete", seed: first.with("ledger", "{#a=2}", "queues", "[z]"), steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: doneX}}},
		{name: "too many crashes", seed: crash, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Crashes: 2, Start: []string{"p2"}}), want: "again buried=1", state: buried(doneX).with("rounds", "{w1=3}",
				"failed:schedule", "(k:p2.001=now)", "failed:contents", "(#a:k:p2.001=0)", "failed:keyed:k:p2", "",
				"failed:keyed:k:p2.001", h(grave["failed:keyed:k:p2"], "kind=crashed", "deaths=2", `reason="2 workers died holding it"`))}}},
		{name: "not too many", seed: crash, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Crashes: 4, Start: []string{"p2"}}), want: "started=a/2@r:p1~1!2", state: locked(running, "p:p2").with("ledger", "{#a=2}", "keyed:r:p1", runs("p2", 1, 2))}}},
		{name: "the ledger goes with a finish, stays with a stop and a retry", seed: rawP.with("ledger", "{#a=1 #b=1}"), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: doneX.with("queues", "[a]", "ledger", "{#a=1 #b=1}")},
			{call: begins(3, "p2"), want: "started=a/2!1", state: rawP.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p1", "", "process:p2", "[a]", "ledger", "{#a=1 #b=1}")},
			{call: ends(4, "p2", 2, Retry, Outcome{}), want: "settled=ok", state: over.with("schedule", "(r:p2=now)", "contents", "(#a:r:p2=0)", "keyed:r:p2", waits("a", "now", 1, 0), "ledger", "{#a=1 #b=1}")},
			{call: begins(5, "p3"), want: "started=a/3@r:p2~1!1", state: over.with("rounds", "{w1=5}", "token", "=3", "working:w1", "(p3=3)", "process:p3", "[a]", "entries", "{p3=r:p2}", "keyed:r:p2", runs("p3", 1, 1), "ledger", "{#a=1 #b=1}")},
			{call: ends(6, "p3", 3, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: over.with("rounds", "{w1=6}", "token", "=3", "ledger", "{#b=1}")}}},
	})
}

// A change is a put of the matrix below, with its time in minutes.
type change struct {
	at           int
	rule         string
	keep, counts bool
}

func (c change) String() string { return fmt.Sprintf("%d %s %t %t", c.at, c.rule, c.keep, c.counts) }

// A task is what waits under a key, by the plain meaning of Put.
type task struct {
	payload          string
	due              int // minutes, or a token below zero
	retries, crashes int
}

func (w *task) put(payload string, c change) *task {
	if w == nil {
		return &task{payload: payload, due: c.at}
	}
	n := *w
	if !c.keep {
		n.payload = payload
	}
	if !c.keep && !c.counts {
		n.retries, n.crashes = 0, 0
	}
	if c.rule == "always" || c.rule == "later" && c.at > n.due || c.rule == "earlier" && c.at < n.due {
		n.due = c.at
	}
	return &n
}

// Whatever is put under a key while it runs does the same as if it had been put
// after that has ended or come back: with every rule, one, two or three of them,
// and every end.
func TestRules(t *testing.T) {
	t.Parallel()
	var all []change
	for _, at := range []int{10, 20, 30} {
		for _, rule := range []string{"always", "never", "later", "earlier"} {
			for b := range 4 {
				all = append(all, change{at, rule, b&1 > 0, b&2 > 0})
			}
		}
	}
	var puts [][]change
	for _, a := range all {
		puts = append(puts, []change{a})
	}
	r := rand.New(rand.NewPCG(1, 2)) // some of the many, and always the same
	some := func() change { return all[r.IntN(len(all))] }
	for range 60 {
		puts = append(puts, []change{some(), some()}, []change{some(), some(), some()})
	}
	ran := task{payload: "a", retries: 2, crashes: 1}
	back := func(due, retries, crashes int) *task { return &task{"a", due, retries, crashes} }
	gone := state{"workers": "", "rounds": "", "token": "=2"}
	for _, end := range []struct {
		name  string
		call  func(*env) string
		back  *task
		extra state
	}{
		{"waits", removes("k:none"), back(25, 2, 1), runX},
		{"finish", ends(2, "p1", 1, Finish, Outcome{}), nil, nil},
		{"drop", ends(2, "p1", 1, Drop, Outcome{}), nil, nil},
		{"fail", ends(2, "p1", 1, Fail, Outcome{Kind: Failed}), nil, state{"failed:schedule": "(k:p1=now)", "failed:contents": "(#a:k:p1=0)",
			"failed:keyed:k:p1": h(waits("a", "now", 0, 0), "kind=failed", "reason=", "tries=2", "deaths=1", "worker=w1", "at=now", "from=k:x")}},
		{"retry", ends(2, "p1", 1, Retry, Outcome{Delay: 25 * time.Minute}), back(25, 3, 1), nil},
		{"retry late", ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), back(60, 3, 1), nil},
		{"stop", ends(2, "p1", 1, Stop, Outcome{}), back(-1, ran.retries, ran.crashes), nil},
		{"leave", leaves("w1"), back(-1, ran.retries, ran.crashes), gone},
		{"death", fails("w1"), back(-1, ran.retries, ran.crashes+1), gone},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, redistest.URL(), nil)
			for _, changes := range puts {
				for _, k := range redistest.Keys(t, e.conn, e.prefix) {
					e.must(e.conn.Do("DEL", k))
				}
				seed := runX
				if end.name == "waits" {
					seed = doneX.with("schedule", "(k:x=+25m)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "+25m", 2, 1))
				}
				e.seed(seed)
				want := end.back
				for i, c := range changes {
					payload := string(rune('b' + i))
					how := []string{c.rule}
					if c.keep {
						how = append(how, "keep")
					}
					if c.counts {
						how = append(how, "counts")
					}
					if got := sets("x", payload, fmt.Sprintf("+%dm", c.at), how...)(e); got != "ok" {
						t.Fatal(got)
					}
					want = want.put(payload, c)
				}
				end.call(e)
				due := fmt.Sprintf("+%dm", want.due)
				if want.due < 0 {
					due = "1"
				}
				after := doneX.with("schedule", "(k:x="+due+")", "contents", "(#"+want.payload+":k:x=0)", "keyed:k:x", waits(want.payload, due, want.retries, want.crashes))
				if end.name != "waits" {
					for k, v := range end.extra {
						after = after.with(k, v)
					}
				}
				e.compare(1, after)
				if t.Failed() {
					t.Fatal("after ", changes)
				}
			}
		})
	}
}

// Delete drops entries a page at a time, spares what runs, and releases locks.
func TestDeleteEntries(t *testing.T) {
	t.Parallel()
	many := blockedX.with("queues", "[z]", "ledger", "{#z=1}")
	var schedule, contents []string
	for i := range 1200 {
		entry := fmt.Sprint("k:t", i)
		schedule = append(schedule, entry+"=+60m")
		contents = append(contents, fmt.Sprintf("#t%d:%s=0", i, entry))
		many["keyed:"+entry] = waits(fmt.Sprint("t", i), "+60m", 0, 0)
	}
	many["schedule"] = "(" + strings.Join(schedule, " ") + ")"
	many["contents"] = "(#b:k:x=0 " + strings.Join(contents, " ") + ")"
	run(t, []scenario{
		{name: "many", seed: many, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: runX}}},
		{name: "many and locks", seed: many.with("queues", "["+strings.Join(seq("t", 0, 3000), " ")+"]", "unique", "{"+strings.Join(locks(3000), " ")+" #a=p:p9 offset=0}"), steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: runX.with("unique", "{#a=p:p9 offset="+deleted(3000)+"}")}}},
		{name: "what Redis has lost", seed: member.with("contents", "(#a:k:x=0)"), steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: member}}},
	})
}
