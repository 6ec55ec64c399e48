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
		CheckMembers: {":w1", ":w2", ":w9"}, CheckSuspects: {"w2", "w3", "w5", "w9"}, CheckIdle: {"w1", "w9"}, CheckRounds: {"w1", "fence", "w2", "w9"},
		CheckRunning: {"p6", "p1", "p9"}, CheckEntries: {"k:x", "r:p9", "k:z"}, CheckScheduled: {"r:p9", "k:x", "k:z"},
		CheckContents: {"#f:r:p9", "#h:k:x", "#z:k:z"},
		CheckCanceled: {"#a", "#b"}, CheckRecords: {"#a", "#b", "#z"},
	} {
		for _, mend := range []bool{false, true} {
			all = append(all, when{call: checks(mend, what, names...)})
		}
	}
	all = append(all, when{call: checks(true, CheckQueue, "q"), want: "paused q 3"})
	run(t, []scenario{{name: "all", seed: healthy, steps: all}})
}

func TestCheckProcesses(t *testing.T) {
	w := member.with("token", "=9")
	run(t, []scenario{
		{name: "orphan", alive: []string{"w1"}, seed: w.with("process:p1", "[a]", "queues", "[b]", "idle", "(w1=-1m)"), steps: repair(CheckProcesses, []string{"p1"}, "orphan p1",
			nil, w.with("queues", "[a b]"), "wake:w1 1")},
		{name: "orphans keep their order", seed: w.with("process:p1", "[a]", "process:p2", "[b]", "queues", "[c]"), steps: []when{
			{call: checks(true, CheckProcesses, "p2", "p1"), want: "orphan p2 mended, orphan p1 mended", state: w.with("queues", "[a b c]")}}},
		{name: "orphan of a key", seed: w.with("process:p1", "[a]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 2, 1))), steps: repair(CheckProcesses, []string{"p1"}, "orphan p1",
			nil, w.with("schedule", "(k:x=10)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "10", 2, 1)))},
		{name: "an orphan is not canceled", seed: w.with("workers", "(w1=+60m w2=+60m)", "process:p1", "[a]", "working:w2", "(p2=2)", "process:p2", "[a]", "canceled", "(#a=9)", "cancel:#a", "{finished=0 stopped=0 token=9} +1440m"),
			steps: []when{{call: checks(true, CheckProcesses, "p1", "p2"), want: "orphan p1 mended", state: w.with("workers", "(w1=+60m w2=+60m)", "queues", "[a]", "working:w2", "(p2=2)", "process:p2", "[a]", "canceled", "(#a=9)", "cancel:#a", "{finished=0 stopped=0 token=9} +1440m")}}},
		{name: "the list is of another type", seed: w.with("process:p1", "[a]", "queues", "=5"), steps: []when{
			{call: checks(true, CheckProcesses, "p1"), want: "orphan p1"}}},
		{name: "the process is of another type", seed: w.with("process:p1", "=5"), steps: []when{{call: checks(true, CheckProcesses, "p1")}}},
		{name: "its list is lost", seed: w.with("working:w1", "(p1=1)"), steps: []when{{call: checks(true, CheckHeld, "w1", "p1"), want: "no-payload p1"}}},
		{name: "twice", seed: w.with("workers", "(w1=+60m w2=+60m)", "working:w1", "(p1=1)", "working:w2", "(p1=2)", "process:p1", "[a]"), steps: repair(CheckTwice, []string{"w1", "p1:w2"}, "two-owners p1|w1",
			nil, w.with("workers", "(w1=+60m w2=+60m)", "working:w2", "(p1=2)", "process:p1", "[a]"))},
		{name: "twice, the later one is of no member", seed: w.with("working:w1", "(p1=1)", "working:w2", "(p1=2)", "process:p1", "[a]"), steps: repair(CheckTwice, []string{"w1", "p1:w2"}, "two-owners p1|w2",
			nil, w.with("working:w1", "(p1=1)", "process:p1", "[a]"))},
	})
}

func TestCheckWorkers(t *testing.T) {
	w := member.with("token", "=9")
	dead := state{"workers": "(w1=-60m)", "token": "=9", "working:w1": "(p1=1)", "process:p1": "[a]", "rounds": "{w1=3}"}
	judge := func(e *env) string { // with the deadline that was read
		return checks(true, CheckMembers, sure(Check(e.ctx, e.doctor(), e.q, CheckMembers, "", false, []string{":w1"}))(e.t).Flaws[0].Detail+":w1")(e)
	}
	run(t, []scenario{
		{name: "stray", seed: w.with("working:w9", "(p1=1 p2=2)", "process:p1", "[a]", "process:p2", "[b]"), steps: repair(CheckHolders, []string{"w9"}, "non-member w9",
			nil, w.with("queues", "[a b]"))},
		{name: "a token that was never given", seed: w.with("working:w1", "(p1=12)", "process:p1", "[a]"), steps: repair(CheckHolders, []string{"w1"}, "token w1",
			nil, w.with("working:w1", "(p1=12)", "process:p1", "[a]", "token", "=12"))},
		{name: "dead, and no live member", seed: dead, steps: []when{
			{call: checks(false, CheckMembers, ":w1"), want: "expired-worker w1"},
			{call: checks(true, CheckMembers, ":w1"), want: "expired-worker w1"},
			{call: checks(true, CheckMembers, "123:w1"), want: "expired-worker w1"}, // it has renewed its lease since
			{call: judge, want: "expired-worker w1 mended", state: state{"token": "=10", "queues": "[a]", "ledger": "{#a=1}"}},
			{call: joins("w1", 9), want: "again"}}}, // a late copy
		{name: "dead, and others are", seed: dead.with("workers", "(w1=-60m w2=-30m)", "rounds", "{fence=4 w1=3 w2=7}"), steps: []when{
			{call: judge, want: "expired-worker w1 mended", state: state{"workers": "(w2=-30m)", "rounds": "{fence=10 w2=7}", "token": "=10", "queues": "[a]", "ledger": "{#a=1}"}},
			{call: joins("w1", 9), want: "again"}}},
		{name: "unfinished", seed: state{"suspects": "(w1=0)", "token": "=9", "working:w1": "(p1=1)", "process:p1": "[a]"}, steps: repair(CheckSuspects, []string{"w1"}, "unfinished-return w1",
			nil, state{"token": "=9", "queues": "[a]", "ledger": "{#a=1}"})},
		{name: "suspect", seed: w.with("suspects", "(w9=+1m)"), steps: repair(CheckSuspects, []string{"w9"}, "leftover w9", nil, w)},
		{name: "idle", seed: w.with("idle", "(w9=-1m)"), steps: repair(CheckIdle, []string{"w9"}, "leftover w9", nil, w)},
		{name: "round", seed: w.with("rounds", "{w9=1}"), steps: repair(CheckRounds, []string{"w9"}, "leftover w9", nil, w.with("token", "=10"))},
		{name: "round, beside others", seed: w.with("rounds", "{fence=3 w1=4 w9=1}"), steps: repair(CheckRounds, []string{"fence", "w1", "w9"}, "leftover w9", nil, w.with("rounds", "{fence=10 w1=4}", "token", "=10"))},
		{name: "round, the last", seed: w.with("rounds", "{fence=3 w9=1}"), steps: repair(CheckRounds, []string{"fence", "w9"}, "leftover w9", nil, w.with("token", "=10"))},
		{name: "a fence without members", seed: w.with("rounds", "{fence=3}"), steps: repair(CheckRounds, []string{"fence"}, "leftover fence", nil, w.with("token", "=10"))},
	})
}

func TestCheckEntries(t *testing.T) {
	w := member.with("token", "=9")
	waiting := w.with("keyed:k:x", waits("a", "+9m", 1, 0), "schedule", "(k:x=+9m)", "contents", "(#a:k:x=0)")
	running := w.with("working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 1, 0)))
	blocked := running.with("keyed:k:x", blocks(runs("p1", 1, 0), "b", "+9m"), "contents", "(#b:k:x=0)")
	free := w.with("keyed:k:x", waits("b", "+9m", 0, 0), "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	entry := func(name string, damaged, mended state) scenario {
		return scenario{name: name, seed: damaged, steps: repair(CheckEntries, []string{"k:x"}, "schedule k:x", nil, mended)}
	}
	planned := running.with("keyed:k:x", waits("b", "+9m", 0, 0), "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	timeless := func(due ...string) string {
		fields := append([]string{runs("p1", 1, 0), rule(0, 0, "+9m", "+9m"), "payload=b", "retries=0", "crashes=0"}, due...)
		return h(fields...)
	}
	foreign := w.with("keyed:k:x", "=foreign", "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	run(t, []scenario{
		entry("not planned", waiting.with("schedule", ""), waiting),
		entry("planned for another time", waiting.with("schedule", "(k:x=+5m)"), waiting.with("schedule", "(k:x=+5m)", "keyed:k:x", waits("a", "+5m", 1, 0))),
		entry("without a time", waiting.with("keyed:k:x", h("payload=a retries=1 crashes=0")), waiting),
		entry("not in contents", waiting.with("contents", ""), waiting),
		entry("neither waits nor runs", w.with("keyed:k:x", "{junk=1}", "schedule", "(k:x=+5m)"), w),
		entry("planned while it runs", blocked.with("schedule", "(k:x=-1m)"), blocked),
		entry("runs, and entries do not say so", running.with("entries", ""), running),
		entry("runs no process", blocked.with("entries", "", "working:w1", "", "process:p1", ""), free),
		{name: "process without list, blocked without a time", seed: blocked.with("working:w1", "", "process:p1", "", "keyed:k:x", h(runs("p1", 1, 0), "payload=b retries=0 crashes=0")),
			steps: repair(CheckRunning, []string{"p1"}, "schedule p1", nil, free.with("keyed:k:x", waits("b", "now", 0, 0), "schedule", "(k:x=now)"))},
		{name: "process without list", seed: blocked.with("working:w1", "", "process:p1", ""), steps: repair(CheckRunning, []string{"p1"}, "schedule p1", nil, free)},
		{name: "process without list, held", seed: blocked.with("process:p1", ""), steps: []when{{call: checks(true, CheckRunning, "p1")}, {call: checks(true, CheckEntries, "k:x")}}},
		{name: "the entry is lost", seed: running.with("keyed:k:x", ""), steps: repair(CheckRunning, []string{"p1"}, "schedule p1", nil, running.with("keyed:k:x", h(runs("p1", 0, 0))))},
		{name: "the entry runs again", seed: running.with("entries", "{p0=k:x p1=k:x}", "process:p0", "[a]", "working:w1", "(p0=1 p1=2)"), steps: repair(CheckRunning, []string{"p0", "p1"}, "schedule p0",
			nil, running.with("process:p0", "[a]", "working:w1", "(p0=1 p1=2)"))},
		{name: "planned, and lost", seed: w.with("schedule", "(k:x=+1m)"), steps: repair(CheckScheduled, []string{"k:x"}, "schedule k:x", nil, w)},
		{name: "in contents, and lost", seed: w.with("contents", "(#a:k:x=0)"), steps: repair(CheckContents, []string{"#a:k:x"}, "schedule k:x", nil, w)},
		{name: "in contents with another payload", seed: waiting.with("contents", "(#a:k:x=0 #z:k:x=0)"), steps: repair(CheckContents, []string{"#a:k:x", "#z:k:x"}, "schedule k:x", nil, waiting)},
		// Fields of entries.
		unsaid("runs, and the entry is of another type", running.with("keyed:k:x", "=foreign"), CheckRunning, "p1"),
		unsaid("runs, and the process is of another type", running.with("process:p1", "=foreign", "working:w1", ""), CheckRunning, "p1"),
		unsaid("runs, and nobody holds it", running.with("working:w1", ""), CheckRunning, "p1"),
		mended("process without list, and nothing is blocked", running.with("working:w1", "", "process:p1", ""), "schedule p1", w, CheckRunning, "p1"),
		mended("the process and the entry are lost", w.with("entries", "{p1=k:x}"), "schedule p1", w, CheckRunning, "p1"),
		mended("the entry waits, and does not know what runs", planned, "schedule p1",
			planned.with("keyed:k:x", h(runs("p1", 0, 0), waits("b", "+9m", 0, 0)), "schedule", ""), CheckRunning, "p1"),
		// Hashes of entries.
		unsaid("of another type", foreign, CheckEntries, "k:x"),
		unsaid("of another type, in schedule", foreign, CheckScheduled, "k:x"),
		unsaid("of another type, in contents", foreign, CheckContents, "#b:k:x"),
		unsaid("in schedule, and runs", running.with("schedule", "(k:x=+9m)"), CheckScheduled, "k:x"),
		mended("blocked without a time", blocked.with("keyed:k:x", timeless()), "schedule k:x", blocked.with("keyed:k:x", timeless("due=now")), CheckEntries, "k:x"),
		mended("blocked without a time, and planned", blocked.with("keyed:k:x", timeless(), "schedule", "(k:x=+5m)"), "schedule k:x",
			blocked.with("keyed:k:x", timeless("due=+5m")), CheckEntries, "k:x"),
		mended("neither waits nor runs, but has a time", w.with("keyed:k:x", "{due=+5m}"), "schedule k:x", w, CheckEntries, "k:x"),
		left("runs what is of another type", running.with("entries", "", "process:p1", "=foreign", "working:w1", ""), "schedule k:x", CheckEntries, "k:x"),
		left("runs what is lost, and held", running.with("entries", "", "process:p1", ""), "schedule k:x", CheckEntries, "k:x"),
	})
}

// For a running added task, entries has two fields.
func TestCheckAddedRuns(t *testing.T) {
	const process, task = "p1", "a:1-7-a"
	has := func(s state, entries string) state { return s.with("entries", entries) }
	lost, free, unheld := runsA.with("process:p1", ""), runsA.with("process:p1", "", "working:w1", ""), runsA.with("working:w1", "")
	const alone, both = "{p1=a:1-7-a0}", "{a:1-7-a=p1:w1 p1=a:1-7-a0}"
	run(t, []scenario{
		unsaid("as it should be", runsA, CheckRunning, process, task),
		unsaid("its list is lost, and its worker will notice", lost, CheckRunning, process),
		unsaid("no holder: its list is returned", unheld, CheckRunning, process),
		unsaid("its list is of another type", has(unheld.with("process:p1", "=foreign"), alone), CheckRunning, process),
		unsaid("its list is of another type, by its name", has(unheld.with("process:p1", "=foreign"), "{a:1-7-a=p1:w1}"), CheckRunning, task),
		unsaid("nothing of it is there", member, CheckRunning, "p9", "a:1-9-a"),
		mended("its name is lost", has(runsA, alone), "schedule p1", runsA, CheckRunning, process),
		mended("its name and its list are lost", has(lost, alone), "schedule p1", lost, CheckRunning, process),
		mended("its name is lost, and nobody holds it", has(unheld, alone), "schedule p1", has(unheld, "{a:1-7-a=p1: p1=a:1-7-a0}"), CheckRunning, process),
		mended("its name says what is odd", has(runsA, "{a:1-7-a=odd p1=a:1-7-a0}"), "schedule p1", runsA, CheckRunning, process),
		mended("its name says that another one runs it", has(runsA, "{a:1-7-a=p2:w1 p1=a:1-7-a0}"), "schedule p1", runsA, CheckRunning, process),
		mended("nothing runs it", free, "schedule p1", has(free, "{a:1-7-a=p1:w1}"), CheckRunning, process),
		mended("nothing runs it, and its name is lost", has(free, alone), "schedule p1", has(free, ""), CheckRunning, process),
		mended("its process is lost", has(free, "{a:1-7-a=p1:w1}"), "schedule a:1-7-a", has(free, ""), CheckRunning, task),
		mended("its process runs another one", has(runsA, "{a:1-7-a=p1:w1 p1=a:1-8-a0}"), "schedule a:1-7-a", has(runsA, "{p1=a:1-8-a0}"), CheckRunning, task),
		mended("its process runs an entry", has(runsA, "{a:1-7-a=p1:w1 p1=k:x}"), "schedule a:1-7-a", has(runsA, "{p1=k:x}"), CheckRunning, task),
		mended("it says what is odd", has(runsA, "{a:1-7-a=odd p1=k:x}"), "schedule a:1-7-a", has(runsA, "{p1=k:x}"), CheckRunning, task),
		{name: "only looked at", seed: has(runsA, alone), steps: []when{{call: checks(false, CheckRunning, process), want: "schedule p1"}}},
		{name: "its process is lost, and that is only looked at", seed: has(free, "{a:1-7-a=p1:w1}"), steps: []when{{call: checks(false, CheckRunning, task), want: "schedule a:1-7-a"}}},
		{name: "its name is only looked at", seed: has(free, both), steps: []when{
			{call: checks(false, CheckRunning, process), want: "schedule p1"},
			{call: checks(true, CheckRunning, process, task), want: "schedule p1 mended, schedule a:1-7-a mended", state: has(free, "")}}},
	})
}

// Items of the stream have their payloads, and foreign items are reported.
func TestCheckAdded(t *testing.T) {
	apart := member.with("added", "|1-7-a/2= 1-8-a/0=y|", "keyed:k:@1-7-a", h("card=0", "payload=a"))
	apart = apart.with("added", `|1-7-a/2="" 1-8-a/0=y|`)
	seeded := func(s state) state { return s.with("added", strings.Replace(s["added"], `""`, "", 1)) }
	rest := member.with("added", "|1-8-a/0=y|")
	scheduled := member.with("added", "|1-7-a/0=x|", "keyed:k:@1-7-a", waits("b", "+9m", 0, 0), "contents", "(#b:k:@1-7-a=0)")
	runs1 := runX.with("added", "|1-7-a/0=x|", "entries", "{p1=k:@1-7-a}", "keyed:k:x", "", "contents", "(#b:k:@1-7-a=0)")
	run(t, []scenario{
		unsaid("as they should be", line, CheckAdded, "1-7", "1-8", "1-9", "odd"),
		{name: "a payload is apart", seed: seeded(apart), steps: []when{
			{call: checks(true, CheckAdded, "1-7", "1-8"), state: apart},
			{call: checks(true, CheckEntries, "k:@1-7-a"), state: apart}}},
		{name: "it is lost", seed: seeded(apart.with("keyed:k:@1-7-a", "")), steps: []when{
			{call: checks(false, CheckAdded, "1-7", "1-8"), want: "added 1-7", state: apart.with("keyed:k:@1-7-a", "")},
			{call: checks(true, CheckAdded, "1-7", "1-8"), want: "added 1-7 mended", state: rest}}},
		{name: "only its card is left", seed: seeded(apart.with("keyed:k:@1-7-a", "{card=0}")), steps: []when{
			{call: checks(true, CheckEntries, "k:@1-7-a"), want: "schedule k:@1-7-a mended", state: apart.with("keyed:k:@1-7-a", "")}}},
		{name: "another type is in its place", seed: seeded(apart.with("keyed:k:@1-7-a", "=foreign")), steps: []when{
			{call: checks(true, CheckAdded, "1-7"), state: apart.with("keyed:k:@1-7-a", "=foreign")}}},
		{name: "foreign items", seed: member.with("added", "|1-7-/foreign=x|"), steps: []when{
			{call: checks(true, CheckAdded, "1-7"), want: "added 1-7", state: member.with("added", "|1-7-/=x|")}}},
		{name: "with a time, it's an entry", seed: scheduled, steps: []when{
			{call: checks(true, CheckEntries, "k:@1-7-a"), want: "schedule k:@1-7-a mended", state: scheduled.with("schedule", "(k:@1-7-a=+9m)")}}},
		{name: "running, it's an entry", seed: runs1.with("keyed:k:@1-7-a", h(runs("p1", 0, 0), "payload=b")), steps: []when{
			{call: checks(true, CheckEntries, "k:@1-7-a"), want: "schedule k:@1-7-a mended", state: runs1.with("keyed:k:@1-7-a", h(runs("p1", 0, 0), "payload=b", "due=now"))}}},
		unsaid("they wait", line, CheckQueue, "q"),
		left("they wait, and nobody serves the queue", line.with("workers", ""), "no-worker q 4", CheckQueue, "q"),
		{name: "none waits", seed: member.with("token", "=9"), steps: []when{
			{call: does("XADD", "added", "1-7", fullSalt+"a0", "x"), state: member.with("token", "=9", "added", "|1-7-a/0=x|")},
			{call: does("XDEL", "added", "1-7"), state: member.with("token", "=9", "added", "||")},
			{call: checks(false, CheckQueue, "q"), want: "leftover added", state: member.with("token", "=9", "added", "||")},
			{call: checks(true, CheckQueue, "q"), want: "leftover added mended", state: member.with("token", "=9")}}},
	})
}

// An entry may have the digest of its key in place of its payload's: of its own key, or of the one
// before it failed. Contents must have the same one.
func TestCheckNamedDigests(t *testing.T) {
	own := digest("k:x")
	is := func(contents string, fields ...string) state {
		return member.with("token", "=9", "schedule", "(k:x=+9m)", "contents", contents, "keyed:k:x", h(append([]string{waits("a", "+9m", 0, 0)}, fields...)...))
	}
	failedTask := func(contents string, fields ...string) state {
		return member.with("failed:token", "=9", "failed:schedule", "(k:p1=-9m)", "failed:contents", contents, "failed:keyed:k:p1", failedOf("a", "-9m", fields...))
	}
	fails := func(what What, name, want string) []when {
		return []when{{call: inFailed(checks(false, what, name)), want: want}}
	}
	run(t, []scenario{
		unsaid("its own", is("(#@:k:x=0)", "digest="+own), CheckEntries, "k:x"),
		unsaid("its own, in contents", is("(#@:k:x=0)", "digest="+own), CheckContents, "#@:k:x"),
		unsaid("contents doesn't say so", is("(#a:k:x=0)", "digest="+own), CheckContents, "#a:k:x"),
		{name: "another one", seed: is("(#b:k:x=0)", "digest="+digest("b")), steps: []when{{call: checks(false, CheckContents, "#b:k:x"), want: "schedule k:x"}}},
		{name: "of before it failed", seed: failedTask("("+own+":k:p1=0)", "digest="+own, "from=k:x"), steps: fails(CheckContents, own+":k:p1", "")},
		{name: "of before it failed, and its turn", seed: failedTask("("+own+":k:p1=0)", "digest="+own, "from=k:x@17"), steps: fails(CheckContents, own+":k:p1", "")},
		{name: "of a key with a number", seed: failedTask("("+digest("k:x@17")+":k:p1=0)", "digest="+digest("k:x@17"), "from=k:x@17"), steps: fails(CheckContents, digest("k:x@17")+":k:p1", "")},
		{name: "another one than before it failed", seed: failedTask("(#b:k:p1=0)", "digest="+digest("b"), "from=k:x"), steps: fails(CheckContents, "#b:k:p1", "schedule k:p1")},
	})
}

// stopped returns the name of a process that is stopping.
func stopped(payload string, token int, process string) string {
	return fmt.Sprintf("p%s:%016d:%s", digest(payload), token, process)
}

func stoppedKey(entry string, token int, process string) string {
	return "k" + stopped(entry, token, process)[1:]
}

func TestCheckCancels(t *testing.T) {
	w := member.with("token", "=9")
	holds := w.with("working:w1", "(p1=1)", "process:p1", "[a]")
	over := "{finished=0 stopped=0 token=4} +1m"
	run(t, []scenario{
		{name: "no holders", seed: w.with("canceled", "(#a=4)", "cancel:#a", "{finished=0 stopped=0 token=4} +1440m"), steps: repair(CheckCanceled, []string{"#a"}, "cancel #a", nil, w.with("cancel:#a", over))},
		{name: "the last token that was given", seed: holds.with("canceled", "(#a=9)"), steps: []when{{call: checks(true, CheckCanceled, "#a")}}},
		{name: "a holder that isn't recorded", seed: holds.with("holders", "(w2=0)"), steps: repair(CheckHolders, []string{"w1"}, "cancel w1", nil, holds.with("holders", "(w1=0 w2=0)"))},
		{name: "a recorded holder that holds nothing", seed: w.with("holders", "(w1=4 w8=4)"), steps: repair(CheckHolding, []string{"w1", "w8", "w9"}, "leftover w8", nil, w.with("holders", "(w1=4)"))},
		{name: "acknowledged beyond the last token", seed: holds.with("holders", "(w1=10)"), steps: repair(CheckHolding, []string{"w1"}, "cancel w1", nil, holds.with("holders", "(w1=0)"))},
		{name: "stopping of another type", seed: holds.with("stopping", "=foreign"), steps: []when{{call: checks(true, CheckStopping, stopped("a", 1, "p2"))}}},
		{name: "acknowledged up to the last token", seed: holds.with("holders", "(w1=9)"), steps: []when{{call: checks(true, CheckHolding, "w1"), state: holds.with("holders", "(w1=9)")}}},
		{name: "a stopping process is gone", seed: holds.with("stopping", "("+stopped("a", 1, "p1")+"=0 "+stopped("a", 2, "p2")+"=0)"), steps: repair(CheckStopping, []string{stopped("a", 1, "p1"), stopped("a", 2, "p2"), stopped("a", 3, "p3")},
			"cancel p2", nil, holds.with("stopping", "("+stopped("a", 1, "p1")+"=0)"))},
		{name: "a return comes before an acknowledgement", seed: w.with("working:w9", "(p1=1)", "process:p1", "[a]", "canceled", "(#a=4)", "cancel:#a", "{finished=0 stopped=0 token=4} +1440m"), steps: []when{
			{call: checks(true, CheckCanceled, "#a")},
			{call: checks(true, CheckHolders, "w9"), want: "non-member w9 mended", state: w.with("cancel:#a", "{finished=0 stopped=1 token=4} +1m")}}},
		{name: "a token that was never given", seed: holds.with("canceled", "(#a=10)", "cancel:#a", "{finished=0 stopped=0 token=10} +1440m"), steps: repair(CheckCanceled, []string{"#a"}, "future-cancel #a",
			nil, holds.with("cancel:#a", "{finished=0 stopped=0 token=10} +1m"))},
		{name: "a token that was never given, and no record", seed: state{"token": "=9", "canceled": "(#a=9 #b=5000)"}, steps: repair(CheckCanceled, []string{"#b"}, "future-cancel #b",
			nil, state{"token": "=9", "canceled": "(#a=9)"})},
		{name: "the record is lost", seed: w.with("canceled", "(#a=4)"), steps: repair(CheckCanceled, []string{"#a"}, "cancel #a", nil, w)},
		{name: "a record for ever", seed: w.with("cancel:#a", "{finished=0 stopped=0 token=4}"), steps: repair(CheckRecords, []string{"#a"}, "ttl #a", nil, w.with("cancel:#a", over))},
		unsaid("the token is no number", holds.with("token", "=x", "canceled", "(#a=5)"), CheckCanceled, "#a"),
		mended("no token was given", holds.with("token", "", "canceled", "(#a=2)"), "future-cancel #a", holds.with("token", ""), CheckCanceled, "#a"),
		{name: "entries that are tried again", steps: []when{{call: tried("k:x", "r:1"), want: "0"}}},
		{name: "of some entries", seed: state{}.planned("a", "k:x", "r:1", "r:2").with("keyed:r:1", waits("a", "+9m", 1, 0), "keyed:r:2", waits("a", "+9m", 2, 0)), steps: []when{
			{call: tried("k:x", "r:1", "r:2", "r:3"), want: "2"}, {call: tried("r:2"), want: "1"}}},
	})
}

func TestCheckQueue(t *testing.T) {
	w := member.with("token", "=9")
	run(t, []scenario{
		{name: "counts of nothing", seed: w.with("ledger", "{#a=2}"), steps: repair(CheckQueue, []string{"q"}, "crash-counts q", nil, w)},
		{name: "counts of waiting tasks", seed: w.with("ledger", "{#a=2}", "queues", "[a]"), steps: []when{{call: checks(true, CheckQueue, "q")}}},
		{name: "counts of running tasks", seed: w.with("ledger", "{#a=2}", "working:w1", "(p1=1)", "process:p1", "[a]"), steps: []when{{call: checks(true, CheckQueue, "q")}}},
		{name: "no workers", seed: state{"queues": "[a b]", "workers": "(w1=-1m)", "schedule": "(k:x=-1m k:y=+1m)"}, steps: []when{{call: checks(true, CheckQueue, "q"), want: "no-worker q 3"}}},
		{name: "paused", seed: w.with("queues", "[a b]", "paused", "=1"), steps: []when{{call: checks(true, CheckQueue, "q"), want: "paused q 2"}}},
		{name: "paused, no workers", seed: state{"queues": "[a b]", "paused": "=1"}, steps: []when{{call: checks(true, CheckQueue, "q"), want: "paused q 2, no-worker q 2"}}},
		{name: "the token is no number", seed: w.with("token", "=x"), steps: []when{{call: checks(true, CheckQueue, "q"), want: "token q"}}},
	})
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

func TestGuardCheckWorkers(t *testing.T) {
	w := member.with("token", "=9")
	two := w.with("workers", "(w1=+60m w2=+60m)")
	orphan := w.with("process:p1", "[a]")
	log := state{"token": "=9", "canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m"}
	counted := state{"cancel:#a": "{finished=0 stopped=1 token=4} +1m"}
	lists := seq("t", 1, 102) // one more than a call returns
	many := w.with("token", "=101").holding("w9", lists...)
	run(t, []scenario{
		left("the schedule is of another type", orphan.with("schedule", "=foreign"), "WRONGTYPE", CheckProcesses, "p1"),
		mended("an orphan, what somebody holds is of another type", orphan.with("workers", "(w1=+60m w2=+60m)", "working:w2", "=foreign"), "orphan p1",
			w.with("workers", "(w1=+60m w2=+60m)", "working:w2", "=foreign", "queues", "[a]"), CheckProcesses, "p1"),
		// If no token is known, no cancel covers it either.
		mended("an orphan, the token is no number", orphan.with("token", "=x", "canceled", "(#a=5)"), "orphan p1",
			w.with("token", "=x", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan, Redis has lost the token", orphan.with("token", "", "canceled", "(#a=5 #b=9)"), "orphan p1",
			w.with("token", "", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan of a key counts as the last that started, whatever was canceled", orphan.with("canceled", "(#b=3)", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 2, 1))), "orphan p1",
			w.with("schedule", "(k:x=10)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "10", 2, 1)), CheckProcesses, "p1"),
		{name: "an orphan that stays wakes no worker", alive: []string{"w1"}, seed: orphan.with("queues", "=foreign", "idle", "(w1=-1m)"), steps: []when{
			{call: checks(true, CheckProcesses, "p1"), want: "orphan p1"}}},
		mended("twice, with the same token", two.with("working:w1", "(p1=1)", "working:w2", "(p1=1)"), "two-owners p1", nil, CheckTwice, "w1", "p1:w2").detail("w2",
			two.with("working:w1", "(p1=1)")),
		mended("twice, the first is of no member", w.with("working:w9", "(p1=2)", "working:w1", "(p1=1)"), "two-owners p1", nil, CheckTwice, "w9", "p1:w1").detail("w9",
			w.with("working:w1", "(p1=1)")),
		unsaid("twice, what the other holds is of another type", two.with("working:w1", "(p1=1)", "working:w2", "=foreign"), CheckTwice, "w1", "p1:w2"),
		unsaid("twice, what the first holds is of another type", two.with("working:w1", "=foreign", "working:w2", "(p1=1)"), CheckTwice, "w1", "p1:w2"),
		unsaid("what it holds is of another type", w.with("working:w9", "=foreign"), CheckHolders, "w9"),
		unsaid("what it holds, and the token is no number", w.with("token", "=x", "working:w1", "(p1=1)"), CheckHolders, "w1"),
		{name: "a stray with more than one call gives back", seed: many, steps: []when{
			{call: checks(true, CheckHolders, "w9"), want: "non-member w9 mended", state: w.with("token", "=101", "suspects", "(w9=-1)", "working:w9", "(p1=1)", "process:p1", "[t1]",
				"queues", "["+strings.Join(lists[1:], " ")+"]")}}},
		{name: "dead, and only looked at", seed: state{"workers": "(w1=5)", "token": "=9"}, steps: []when{{call: checks(false, CheckMembers, "5:w1"), want: "expired-worker w1"}}},
		mended("twice, and who loses it holds another", two.with("working:w1", "(p1=2)", "working:w2", "(p1=1 p2=1)"), "two-owners p1", nil, CheckTwice, "w1", "p1:w2").detail("w2",
			two.with("working:w1", "(p1=2)", "working:w2", "(p2=1)")),
		unsaid("holders of another type", w.with("working:w1", "(p1=1)", "process:p1", "[a]", "holders", "=foreign"), CheckHolders, "w1"),
		unsaid("recorded holders of another type", w.with("holders", "=foreign"), CheckHolding, "w1"),
		unsaid("what is known to hold something is being returned", w.with("holders", "(w9=4)", "working:w9", "(p1=1)", "process:p1", "[a]", "suspects", "(w9=0)"), CheckHolding, "w9"),
		unsaid("what it has said, and the token is no number", w.with("token", "=x", "holders", "(w1=4)"), CheckHolding, "w1"),
		mended("what it has said, and no token was given", w.with("token", "", "holders", "(w1=2)"), "cancel w1", w.with("token", "", "holders", "(w1=0)"), CheckHolding, "w1"),
		mended("a cancel ends with who is dead", state{"workers": "(w1=5)", "working:w1": "(p1=1)", "process:p1": "[a]"}.merged(log), "expired-worker w1", state{"token": "=10"}.merged(counted), CheckMembers, "5:w1"),
		mended("a cancel ends with what is unfinished", state{"suspects": "(w1=0)", "working:w1": "(p1=1)", "process:p1": "[a]"}.merged(log), "unfinished-return w1", state{"token": "=9"}.merged(counted), CheckSuspects, "w1"),
		unsaid("no member, and nobody is there to judge", state{"token": "=9"}, CheckMembers, ":w1"),
		unsaid("suspected, and nobody is there to judge", state{"workers": "(w1=-60m)", "suspects": "(w1=-30m)"}, CheckSuspects, "w1"),
		unsaid("idle of another type", w.with("idle", "=foreign"), CheckIdle, "w1"),
	})
}

// detail returns the scenario with a detail after the flaw, and a state after the repair.
func (s scenario) detail(d string, after state) scenario {
	s.steps[0].want += " " + d
	s.steps[0].state = after
	return s
}

func TestGuardCheckQueue(t *testing.T) {
	w := member.with("token", "=9")
	counts := w.with("ledger", "{#a=2}")
	run(t, []scenario{
		unsaid("the record of no cancel is of another type", w.with("cancel:#a", "=foreign"), CheckRecords, "#a"),
		unsaid("a list of another type", w.with("queues", "=foreign"), CheckQueue, "q"),
		unsaid("counts of what runs in the schedule", counts.with("entries", "{p1=r:p0}"), CheckQueue, "q"),
		unsaid("counts of what waits in the schedule", counts.with("schedule", "(r:p9=+9m)", "contents", "(#a:r:p9=0)", "keyed:r:p9", waits("a", "+9m", 1, 0)), CheckQueue, "q"),
		unsaid("paused, and nothing waits", w.with("paused", "=1"), CheckQueue, "q"),
		left("paused, and one waits", w.with("paused", "=1", "queues", "[a]"), "paused q 1", CheckQueue, "q"),
		unsaid("no workers, nothing waits", state{}, CheckQueue, "q"),
		left("no workers, one waits", state{"queues": "[a]"}, "no-worker q 1", CheckQueue, "q"),
	})
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
