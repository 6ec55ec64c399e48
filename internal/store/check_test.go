package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("check",
	probe{seed: busy.with("process:px", "[lost]"), call: checks(true, CheckProcesses, "px")},
)

// checks examines names, and repairs them if mend is true; "w1 p1" is a process of w1.
func checks(mend bool, what What, names ...string) func(*env) string {
	return func(e *env) string {
		worker, names := "", names // others use them at the same time
		if what == CheckHeld || what == CheckTwice {
			worker, names = names[0], names[1:]
		}
		full := series(len(names), func(i int) string { return undigest(spelled(names[i])) })
		v, err := Check(e.ctx, e.doctor(), e.q, what, worker, mend, full)
		if err != nil {
			return refused(err)
		}
		if v.Judged != len(names) {
			return fmt.Sprintf("judged %d", v.Judged)
		}
		var all []string
		for _, f := range v.Flaws {
			s := f.Kind + " " + name(f.Name)
			if f.Mended {
				s += " mended"
			}
			if f.Detail != "" && f.Kind != "expired-worker" {
				s += " " + f.Detail
			}
			all = append(all, s)
		}
		return e.short(strings.Join(all, ", "))
	}
}

// repair returns the steps for a damaged state: the damage is found, found again, since
// looking changes nothing, repaired, and gone.
func repair(what What, names []string, kind string, damaged, mended state, heard ...string) []when {
	found := kind
	fixed := kind + " mended"
	if before, detail, ok := strings.Cut(kind, "|"); ok {
		found, fixed = before+" "+detail, before+" mended "+detail
	}
	return []when{
		{call: checks(false, what, names...), want: found},
		{call: checks(false, what, names...), want: found, state: damaged},
		{call: checks(true, what, names...), want: fixed, state: mended, heard: heard},
		{call: checks(false, what, names...), state: mended},
		{call: checks(true, what, names...), state: mended},
	}
}

// healthy is a queue with everything in use, and no damage.
var healthy = state{
	"queues": "[x y z]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w5=-1 w3=0 w2=-30m)",
	"idle": "(w1=-1m)", "rounds": "{fence=5 w1=4 w2=7}", "token": "=7",
	"working:w1": "(p1=1 p2=2 p6=6)", "process:p1": "[a]", "process:p2": "[b]",
	"working:w2": "(p3=3)", "process:p3": "[c]", "working:w3": "(p4=4)", "process:p4": "[d]", "working:w5": "(p5=5)", "process:p5": "[e]",
	"canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m", "cancel:#b": "{finished=0 stopped=1 token=3} +1m",
	"paused": "=1", "once:n": "=1 +60m", "ledger": "{#x=1}",
	"process:p6": "[g]", "entries": "{p6=k:x}", "keyed:k:x": blocks(runs("p6", 1, 0), "h", "+20m"),
	"keyed:r:p9": h(waits("f", "+9m", 1, 0)), "schedule": "(r:p9=+9m)", "contents": "(#f:r:p9=0 #h:k:x=0)",
}

// Check reports nothing about a healthy queue, and changes nothing.
func TestCheckHealthy(t *testing.T) {
	var all []when
	for what, names := range map[What][]string{
		CheckProcesses: {"p1", "p2", "p3", "p4", "p5", "p6", "p7"}, CheckHeld: {"w1", "p1", "p2", "p6", "p7"},
		CheckTwice: {"w1", "p1:w2", "p3:w2", "p7:w9"}, CheckHolders: {"w1", "w2", "w3", "w5", "w9"},
		CheckMembers: {":w1", ":w2", ":w9"}, CheckSuspects: {"w2", "w3", "w5", "w9"}, CheckIdle: {"w1", "w9"}, CheckHolding: {"w1", "w2", "w3", "w9"},
		CheckRunning: {"p6", "p1", "p9"}, CheckEntries: {"k:x", "r:p9", "k:z"}, CheckScheduled: {"r:p9", "k:x", "k:z"},
		CheckContents: {"#f:r:p9", "#h:k:x", "#z:k:z"}, CheckCanceled: {"#a", "#b"},
	} {
		for _, mend := range []bool{false, true} {
			all = append(all, when{call: checks(mend, what, names...)})
		}
	}
	all = append(all, when{call: checks(true, CheckQueue, "q"), want: "paused q 3"})
	run(t, []scenario{{name: "all", seed: healthy, steps: all}})
}

// Tasks that no member holds are returned.
func TestCheckProcesses(t *testing.T) {
	w := member.with("token", "=9")
	orphan := w.with("process:p1", "[a]")
	two := w.with("workers", "(w1=+60m w2=+60m)")
	lists := seq("t", 1, 102) // one more than a call returns
	many := w.with("token", "=101").holding("w9", lists...)
	log := state{"canceled": "(#a=9)", "cancel:#a": "{finished=0 stopped=0 token=9} +1440m"}
	run(t, []scenario{
		{name: "orphan", alive: []string{"w1"}, seed: w.with("process:p1", "[a]", "queues", "[b]", "idle", "(w1=-1m)"), steps: repair(CheckProcesses, []string{"p1"}, "orphan p1",
			nil, w.with("queues", "[a b]"), "wake:w1 1")},
		{name: "orphans keep their order", seed: w.with("process:p1", "[a]", "process:p2", "[b]", "queues", "[c]"), steps: []when{
			{call: checks(true, CheckProcesses, "p2", "p1"), want: "orphan p2 mended, orphan p1 mended", state: w.with("queues", "[a b c]")}}},
		{name: "orphan of a key", seed: w.with("process:p1", "[a]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 2, 1))), steps: repair(CheckProcesses, []string{"p1"}, "orphan p1",
			nil, w.with("schedule", "(k:x=10)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "10", 2, 1)))},
		{name: "an orphan is not canceled", seed: two.with("process:p1", "[a]", "working:w2", "(p2=2)", "process:p2", "[a]").merged(log), steps: []when{
			{call: checks(true, CheckProcesses, "p1", "p2"), want: "orphan p1 mended", state: two.with("queues", "[a]", "working:w2", "(p2=2)", "process:p2", "[a]").merged(log)}}},
		mended("an orphan, the token is no number", orphan.with("token", "=x", "canceled", "(#a=5)"), "orphan p1", w.with("token", "=x", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan, Redis has lost the token", orphan.with("token", "", "canceled", "(#a=5 #b=9)"), "orphan p1", w.with("token", "", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan, what somebody holds is of another type", two.with("process:p1", "[a]", "working:w2", "=foreign"), "orphan p1",
			two.with("working:w2", "=foreign", "queues", "[a]"), CheckProcesses, "p1"),
		{name: "an orphan that stays wakes no worker", alive: []string{"w1"}, seed: orphan.with("queues", "=foreign", "idle", "(w1=-1m)"), steps: []when{
			{call: checks(true, CheckProcesses, "p1"), want: "orphan p1"}}},
		left("the schedule is of another type", orphan.with("schedule", "=foreign"), "WRONGTYPE", CheckProcesses, "p1"),
		unsaid("the process is of another type", w.with("process:p1", "=5"), CheckProcesses, "p1"),
		{name: "held by no member", seed: w.with("working:w9", "(p1=1 p2=2)", "process:p1", "[a]", "process:p2", "[b]", "holders", "(w9=0)"), steps: repair(CheckHolders, []string{"w9"}, "orphan w9",
			nil, w.with("queues", "[a b]"))},
		{name: "held by no member, more than one call gives back", seed: many.with("holders", "(w9=0)"), steps: []when{
			{call: checks(true, CheckHolders, "w9"), want: "orphan w9 mended", state: w.with("token", "=101", "suspects", "(w9=-1)", "holders", "(w9=0)", "working:w9", "(p1=1)", "process:p1", "[t1]",
				"queues", "["+strings.Join(lists[1:], " ")+"]")}}},
		unsaid("what it holds is of another type", w.with("working:w9", "=foreign"), CheckHolders, "w9"),
		{name: "a token that was never given", seed: w.with("working:w1", "(p1=12)", "process:p1", "[a]", "holders", "(w1=0)"), steps: repair(CheckHolders, []string{"w1"}, "token w1",
			nil, w.with("working:w1", "(p1=12)", "process:p1", "[a]", "holders", "(w1=0)", "token", "=12"))},
		left("its list is lost", w.with("working:w1", "(p1=1)"), "no-payload p1", CheckHeld, "w1", "p1"),
		left("twice", two.with("working:w1", "(p1=1)", "working:w2", "(p1=2)", "process:p1", "[a]"), "inconsistent p1 two workers hold the same attempt", CheckTwice, "w1", "p1:w2"),
		unsaid("twice, what the other holds is of another type", two.with("working:w1", "(p1=1)", "working:w2", "=foreign"), CheckTwice, "w1", "p1:w2"),
	})
}

// Members that nobody evicts are, and their tasks are returned.
func TestCheckWorkers(t *testing.T) {
	w := member.with("token", "=9")
	dead := state{"workers": "(w1=-60m)", "token": "=9", "working:w1": "(p1=1)", "process:p1": "[a]", "rounds": "{w1=3}"}
	log := state{"token": "=9", "canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m"}
	counted := state{"cancel:#a": "{finished=0 stopped=1 token=4} +1m"}
	judge := func(e *env) string { // with the deadline that was read
		return checks(true, CheckMembers, sure(Check(e.ctx, e.doctor(), e.q, CheckMembers, "", false, []string{":w1"}))(e.t).Flaws[0].Detail+":w1")(e)
	}
	gone := func(key string) string { return "inconsistent w9 a worker that is gone is in " + key }
	run(t, []scenario{
		{name: "dead, and no live member", seed: dead, steps: []when{
			{call: checks(false, CheckMembers, ":w1"), want: "expired-worker w1"},
			{call: checks(true, CheckMembers, ":w1"), want: "expired-worker w1"},
			{call: checks(true, CheckMembers, "123:w1"), want: "expired-worker w1"}, // it has renewed its lease since
			{call: judge, want: "expired-worker w1 mended", state: state{"token": "=10", "queues": "[a]", "ledger": "{#a=1}"}},
			{call: joins("w1", 9), want: "again"}}}, // a late copy
		{name: "dead, and others are", seed: dead.with("workers", "(w1=-60m w2=-30m)", "rounds", "{fence=4 w1=3 w2=7}"), steps: []when{
			{call: judge, want: "expired-worker w1 mended", state: state{"workers": "(w2=-30m)", "rounds": "{fence=10 w2=7}", "token": "=10", "queues": "[a]", "ledger": "{#a=1}"}},
			{call: joins("w1", 9), want: "again"}}},
		{name: "unfinished", seed: state{"suspects": "(w1=0)", "token": "=9", "working:w1": "(p1=1)", "process:p1": "[a]"}, steps: repair(CheckSuspects, []string{"w1"}, "expired-worker w1",
			nil, state{"token": "=9", "queues": "[a]", "ledger": "{#a=1}"})},
		mended("a cancel ends with who is dead", state{"workers": "(w1=5)", "working:w1": "(p1=1)", "process:p1": "[a]"}.merged(log), "expired-worker w1", state{"token": "=10"}.merged(counted), CheckMembers, "5:w1"),
		mended("a cancel ends with what is unfinished", state{"suspects": "(w1=0)", "working:w1": "(p1=1)", "process:p1": "[a]"}.merged(log), "expired-worker w1", state{"token": "=9"}.merged(counted), CheckSuspects, "w1"),
		unsaid("no member, and nobody is there to judge", state{"token": "=9"}, CheckMembers, ":w1"),
		unsaid("suspected, and nobody is there to judge", state{"workers": "(w1=-60m)", "suspects": "(w1=-30m)"}, CheckSuspects, "w1"),
		left("suspect", w.with("suspects", "(w9=+1m)"), gone("suspects"), CheckSuspects, "w9"),
		left("idle", w.with("idle", "(w9=-1m)"), gone("idle"), CheckIdle, "w9"),
		left("holder", w.with("holders", "(w1=4 w9=4)"), gone("holders"), CheckHolding, "w1", "w9"),
		unsaid("idle of another type", w.with("idle", "=foreign"), CheckIdle, "w1"),
		unsaid("holders of another type", w.with("working:w1", "(p1=1)", "process:p1", "[a]", "holders", "=foreign"), CheckHolders, "w1"),
	})
}

// What disagrees is reported, and stays. What is of another type isn't judged.
func TestCheckDisagreements(t *testing.T) {
	w := member.with("token", "=9")
	waiting := w.with("keyed:k:x", waits("a", "+9m", 1, 0), "schedule", "(k:x=+9m)", "contents", "(#a:k:x=0)")
	running := w.with("working:w1", "(p1=1)", "process:p1", "[a]", "holders", "(w1=0)", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 1, 0)))
	blocked := running.with("keyed:k:x", blocks(runs("p1", 1, 0), "b", "+9m"), "contents", "(#b:k:x=0)")
	apart := member.with("added", "|1-7-a/2= 1-8-a/0=y|")
	foreign := w.with("keyed:k:x", "=foreign", "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	odd := func(name string, seed state, says string, what What, names ...string) scenario {
		return left(name, seed, "inconsistent "+says, what, names...)
	}
	entry := func(name string, seed state) scenario {
		return odd(name, seed, "k:x the entry of a task disagrees with schedule or entries", CheckEntries, "k:x")
	}
	lost := "p1 entries has an attempt that is gone"
	run(t, []scenario{
		entry("not planned", waiting.with("schedule", "")),
		entry("planned for another time", waiting.with("schedule", "(k:x=+5m)")),
		entry("without a time", waiting.with("keyed:k:x", h("payload=a retries=1 crashes=0"))),
		entry("neither waits nor runs", w.with("keyed:k:x", "{junk=1}")),
		entry("planned while it runs", blocked.with("schedule", "(k:x=-1m)")),
		entry("runs, and entries do not say so", running.with("entries", "")),
		unsaid("an added task in the stream", line, CheckEntries, "k:@1-7-a"),
		odd("process without list", blocked.with("working:w1", "", "process:p1", ""), lost, CheckRunning, "p1"),
		odd("the entry is lost", running.with("keyed:k:x", ""), lost, CheckRunning, "p1"),
		unsaid("process without list, held", blocked.with("process:p1", ""), CheckRunning, "p1"),
		unsaid("runs, and nobody holds it", running.with("working:w1", ""), CheckRunning, "p1"),
		unsaid("an added task runs", runsA, CheckRunning, "p1", "a:1-7-a"),
		unsaid("its list is lost, and its worker will notice", runsA.with("process:p1", ""), CheckRunning, "p1", "a:1-7-a"),
		odd("an added task runs, and its name is lost", runsA.with("entries", "{p1=a:1-7-a0}"), lost, CheckRunning, "p1"),
		odd("an added task runs, and only its name is left", runsA.with("entries", "{a:1-7-a=p1:w1}"), "a:1-7-a entries has an attempt that is gone", CheckRunning, "a:1-7-a"),
		odd("planned, and lost", w.with("schedule", "(k:x=+1m)"), "k:x schedule has an entry that is gone", CheckScheduled, "k:x"),
		odd("in contents, and lost", w.with("contents", "(#a:k:x=0)"), "k:x contents has an entry that is gone", CheckContents, "#a:k:x"),
		unsaid("of another type", foreign, CheckEntries, "k:x"),
		unsaid("of another type, in schedule", foreign, CheckScheduled, "k:x"),
		unsaid("of another type, in contents", foreign, CheckContents, "#b:k:x"),
		unsaid("of another type, and runs", running.with("keyed:k:x", "=foreign"), CheckRunning, "p1"),
		{name: "the payload of an added task is lost", seed: apart, steps: []when{{call: checks(true, CheckAdded, "1-7", "1-8"), want: "no-payload 1-7", state: apart.with("added", `|1-7-a/2="" 1-8-a/0=y|`)}}},
		unsaid("added tasks", line, CheckAdded, "1-7", "1-8", "1-9", "odd"),
		odd("no holders", w.with("canceled", "(#a=4)"), "#a a cancel waits for workers that are gone", CheckCanceled, "#a"),
		odd("a cancel of the future", running.with("canceled", "(#a=10)"), "#a a cancel has a token that was never issued", CheckCanceled, "#a"),
		unsaid("the last token that was given", running.with("canceled", "(#a=9)"), CheckCanceled, "#a"),
		odd("a holder that isn't recorded", running.with("holders", "(w2=0)"), "w1 a worker holds tasks, and holders lacks it", CheckHolders, "w1"),
		{name: "entries that are tried again", steps: []when{{call: tried("k:x", "r:1"), want: "0"}}},
		{name: "of some entries", seed: state{}.planned("a", "k:x", "r:1", "r:2").with("keyed:r:1", waits("a", "+9m", 1, 0), "keyed:r:2", waits("a", "+9m", 2, 0)), steps: []when{
			{call: tried("k:x", "r:1", "r:2", "r:3"), want: "2"}, {call: tried("r:2"), want: "1"}}},
	})
}

func TestCheckQueue(t *testing.T) {
	w := member.with("token", "=9")
	run(t, []scenario{
		left("no workers", state{"queues": "[a b]", "workers": "(w1=-1m)", "schedule": "(k:x=-1m k:y=+1m)"}, "no-worker q 3", CheckQueue, "q"),
		left("no workers, and added tasks", line.with("workers", ""), "no-worker q 4", CheckQueue, "q"),
		left("paused", w.with("queues", "[a b]", "paused", "=1"), "paused q 2", CheckQueue, "q"),
		left("paused, no workers", state{"queues": "[a b]", "paused": "=1"}, "paused q 2, no-worker q 2", CheckQueue, "q"),
		left("the token is no number", w.with("token", "=x"), "token q", CheckQueue, "q"),
		unsaid("paused, and nothing waits", w.with("paused", "=1"), CheckQueue, "q"),
		unsaid("no workers, nothing waits", state{}, CheckQueue, "q"),
		unsaid("a list of another type", w.with("queues", "=foreign"), CheckQueue, "q"),
	})
}

// stopped returns the name of a process that is stopping.
func stopped(payload string, token int, process string) string {
	return fmt.Sprintf("p%s:%016d:%s", digest(payload), token, process)
}

func stoppedKey(entry string, token int, process string) string {
	return "k" + stopped(entry, token, process)[1:]
}

// blocks returns an entry that runs and blocks another task.
func blocks(runs, payload, due string) string {
	return h(runs, waits(payload, due, 0, 0), rule(0, 0, due, due))
}

// unsaid is a scenario in which check reports nothing, and changes nothing.
func unsaid(name string, seed state, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...)}}}
}

// left is a scenario in which check reports a flaw that it can't repair.
func left(name string, seed state, flaw string, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...), want: flaw}}}
}

// mended is a scenario in which check repairs a flaw.
func mended(name string, seed state, flaw string, after state, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...), want: flaw + " mended", state: after}}}
}

// Looking doesn't write: a user without write permission can do it.
func TestGuardLook(t *testing.T) {
	e := beside(t, nil)
	e.ruled("~*", "+@all", "-@write", "resetchannels")
	e.doctor = func() *redisconn.Line { return e.line }
	e.play(scenario{seed: member.with("token", "=9", "process:p1", "[a]"), steps: []when{
		{call: checks(false, CheckProcesses, "p1"), want: "orphan p1"},
		{call: explains("", "a"), want: "workers=1"},
	}})
}

// tried counts the entries that wait for a retry.
func tried(entries ...string) func(*env) string {
	return func(e *env) string {
		v := sure(Check(e.ctx, e.doctor(), e.q, CheckScheduled, "", false, entries))(e.t)
		return itoa(v.Retries)
	}
}
