package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// h returns a hash with these fields, in any order; a field given again replaces the first.
func h(fields ...string) string {
	all := map[string]string{}
	for _, f := range fields {
		for f = strings.Trim(f, "{}"); f != ""; {
			one := f
			if end := strings.IndexAny(f, " \""); end >= 0 && f[end] == '"' { // up to the closing quote
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

// A waiting is an entry in the schedule.
type waiting struct {
	entry, payload, due string
	crashes             int
}

// waiting returns a state with only these entries in the schedule.
func (s state) waiting(all ...waiting) state {
	s = s.with()
	var schedule, contents []string
	for _, w := range all {
		schedule = append(schedule, w.entry+"="+w.due)
		contents = append(contents, name(digest(w.payload)+":"+w.entry)+"=0")
		s["keyed:"+w.entry] = waits(w.payload, w.due, 0, w.crashes)
	}
	slices.Sort(contents)
	s["schedule"], s["contents"] = "("+strings.Join(schedule, " ")+")", "("+strings.Join(contents, " ")+")"
	return s
}

// holding returns a state in which a worker holds tasks, as p1, p2 and so on.
func (s state) holding(worker string, tasks ...string) state {
	s = s.with()
	for i, task := range tasks {
		s[fmt.Sprint("process:p", i+1)] = "[" + task + "]"
	}
	held := series(len(tasks), func(i int) string { return fmt.Sprintf("p%d=%d", i+1, i+1) })
	return s.with("working:"+worker, "("+strings.Join(held, " ")+")")
}

func runs(process string, tried, died int) string {
	return h("process="+process, fmt.Sprint("tried=", tried), fmt.Sprint("died=", died))
}

// rule returns the fields that say how a blocked put changes the running task if that comes back.
func rule(keep, counts int, low, high string) string {
	return h(fmt.Sprint("keep=", keep), fmt.Sprint("counts=", counts), "low="+low, "high="+high)
}

// ends makes a round with one outcome.
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
	// runX runs under x.
	runX = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]",
		"entries", "{p1=k:x}", "keyed:k:x", runs("p1", 2, 1))
	// doneX is runX after its task has ended.
	doneX = member.with("rounds", "{w1=2}", "token", "=1")
	// backX is doneX with the task waiting again. Tests add its schedule and hash.
	backX = doneX.with("contents", "(#a:k:x=0)")
	// blockedX is runX with b blocked by it.
	blockedX = runX.with("contents", "(#b:k:x=0)", "keyed:k:x", h(runs("p1", 2, 1), waits("b", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")))
	// rawP has a raw task that runs.
	rawP = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]")
	// retryR is rawP while its task waits for a retry.
	retryR = doneX.with("schedule", "(r:p1=+60m)", "contents", "(#a:r:p1=0)", "keyed:r:p1", waits("a", "+60m", 1, 0))
)

// Tasks with keys start from the schedule, and end in each way.
func TestKeyed(t *testing.T) {
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
		{name: "snooze", seed: runX, steps: []when{{call: ends(2, "p1", 1, Snooze, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: backX.with("schedule", "(k:x=+60m)", "keyed:k:x", waits("a", "+60m", 2, 1))}}},
		{name: "fail", seed: runX, steps: []when{{call: ends(2, "p1", 1, Fail, fail), want: "settled=ok", state: doneX.with("failed:schedule", "(k:p1=now)", "failed:contents", "(#a:k:p1=0)",
			"failed:keyed:k:p1", failedOf("a", "now", "kind=malformed", "tries=2", "deaths=1", "from=k:x"))}}},
		{name: "leave", seed: runX, steps: []when{{call: leaves("w1"), want: "returned=1", state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 1))}}},
		{name: "its worker dies", alive: []string{"w2"}, seed: runX.with("workers", "(w1=-60m)", "suspects", "(w1=-1m)", "idle", "(w2=-1m)"), steps: []when{
			{call: sweeps, want: "failed=w1/1 returned=1", heard: []string{"wake:w2 1"}, state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))}}},
		{name: "many, of both lanes, in the order of their starts", seed: member.with("working:w1", "(p1=1 p2=2 p3=3)", "process:p1", "[a]", "process:p2", "[b]", "process:p3", "[c]",
			"entries", "{p1=k:x p3=k:y}", "keyed:k:x", runs("p1", 0, 0), "keyed:k:y", runs("p3", 0, 0), "queues", "[z]"), steps: []when{
			{call: leaves("w1"), want: "returned=3", state: state{"queues": "[b z]", "token": "=1", "schedule": "(k:x=1 k:y=3)", "contents": "(#a:k:x=0 #c:k:y=0)", "keyed:k:x": waits("a", "1", 0, 0), "keyed:k:y": waits("c", "3", 0, 0)}}}},
		{name: "stops keep the crash count", seed: keyX, steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX},
			{call: fails("w1"), want: "known=true returned=1", state: gone(backX).with("schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))},
			{call: joins("w1", 2), want: "ok", state: backX.with("rounds", "{fence=2 lease=3600000 w1=1}", "token", "=2", "schedule", "(k:x=1)", "keyed:k:x", waits("a", "1", 2, 2))},
			{call: begins(2, "p2"), want: "started=a/3@k:x~2!2", state: doneX.with("rounds", "{fence=2 lease=3600000 w1=2}", "token", "=3", "working:w1", "(p2=3)", "process:p2", "[a]", "entries", "{p2=k:x}", "keyed:k:x", runs("p2", 2, 2))}}},
	})
}

// A raw task that is retried gets an entry; the ledger counts its crashes.
func TestRetriedRaw(t *testing.T) {
	running := doneX.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p2", "[a]", "entries", "{p2=r:p1}", "keyed:r:p1", runs("p2", 1, 0))
	due := retryR.with("schedule", "(r:p1=-1m)", "keyed:r:p1", waits("a", "-1m", 1, 0))
	over := doneX.with("token", "=2", "rounds", "{w1=4}")
	failedTask := state{"failed:schedule": "(k:p2=now)", "failed:contents": "(#a:k:p2=0)",
		"failed:keyed:k:p2": h(waits("a", "now", 0, 0), "kind=failed", "reason=", "tries=1", "deaths=0", "worker=w1", "at=now", "from=")}
	crash := due.with("ledger", "{#a=2}")
	run(t, []scenario{
		{name: "retry and retry", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok", state: retryR}}},
		{name: "snooze", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Snooze, Outcome{Delay: time.Hour}), want: "settled=ok", state: retryR.with("keyed:r:p1", waits("a", "+60m", 0, 0))}}},
		{name: "start, finish", seed: due, steps: []when{
			{call: begins(3, "p2"), want: "started=a/2@r:p1~1", state: running},
			{call: begins(3, "p2"), want: "started=a/2@r:p1~1"},
			{call: ends(4, "p2", 2, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: over}}},
		{name: "retry again", seed: running, steps: []when{{call: ends(4, "p2", 2, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: retryR.with("rounds", "{w1=4}", "token", "=2", "keyed:r:p1", waits("a", "+60m", 2, 0))}}},
		{name: "snooze after a retry", seed: running, steps: []when{{call: ends(4, "p2", 2, Snooze, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: retryR.with("rounds", "{w1=4}", "token", "=2")}}},
		{name: "stop", seed: running, steps: []when{{call: ends(4, "p2", 2, Stop, Outcome{}), want: "settled=ok",
			state: retryR.with("rounds", "{w1=4}", "token", "=2", "schedule", "(r:p1=2)", "keyed:r:p1", waits("a", "2", 1, 0))}}},
		{name: "fail", seed: running, steps: []when{{call: ends(4, "p2", 2, Fail, Outcome{Kind: Failed}), want: "settled=ok", state: over.merged(failedTask)}}},
		{name: "its worker dies", seed: running, steps: []when{{call: fails("w1"), want: "known=true returned=1",
			state: retryR.with("workers", "", "rounds", "", "token", "=3", "schedule", "(r:p1=2)", "keyed:r:p1", waits("a", "2", 1, 0), "ledger", "{#a=1}")}}},
		{name: "cancel", seed: due.with("ledger", "{#a=2}"), steps: []when{{call: cancels("a"), want: "removed=1 token=0", heard: []string{"cancel a"},
			state: doneX.with("token", "=2", "cancel:#a", "{finished=0 stopped=0 token=2} +1m")}}},
		{name: "delete", seed: due.with("ledger", "{#a=2}", "queues", "[z]"), steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: doneX}}},
		{name: "too many crashes", seed: crash, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Crashes: 2, Start: []string{"p2"}}), want: "again unstarted=1", state: doneX.merged(failedTask).with("rounds", "{w1=3}",
				"failed:schedule", "(k:p2.001=now)", "failed:contents", "(#a:k:p2.001=0)", "failed:keyed:k:p2", "",
				"failed:keyed:k:p2.001", h(failedTask["failed:keyed:k:p2"], "kind=crashed", "deaths=2", "planned=-1m", `reason="2 workers died holding it"`))}}},
		{name: "not too many", seed: crash, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Crashes: 4, Start: []string{"p2"}}), want: "started=a/2@r:p1~1!2", state: running.with("ledger", "{#a=2}", "keyed:r:p1", runs("p2", 1, 2))}}},
		{name: "the ledger goes with a finish, stays with a stop and a retry", seed: rawP.with("ledger", "{#a=1 #b=1}"), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: doneX.with("queues", "[a]", "ledger", "{#a=1 #b=1}")},
			{call: begins(3, "p2"), want: "started=a/2!1", state: rawP.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p1", "", "process:p2", "[a]", "ledger", "{#a=1 #b=1}")},
			{call: ends(4, "p2", 2, Retry, Outcome{}), want: "settled=ok", state: over.with("schedule", "(r:p2=now)", "contents", "(#a:r:p2=0)", "keyed:r:p2", waits("a", "now", 1, 0), "ledger", "{#a=1 #b=1}")},
			{call: begins(5, "p3"), want: "started=a/3@r:p2~1!1", state: over.with("rounds", "{w1=5}", "token", "=3", "working:w1", "(p3=3)", "process:p3", "[a]", "entries", "{p3=r:p2}", "keyed:r:p2", runs("p3", 1, 1), "ledger", "{#a=1 #b=1}")},
			{call: ends(6, "p3", 3, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: over.with("rounds", "{w1=6}", "token", "=3", "ledger", "{#b=1}")}}},
	})
}
