package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
)

// The tests in this file each hold one check of the script check to its word, as those in
// guard_test.go do for the other scripts.

// unsaid is what check says nothing of, and changes nothing of.
func unsaid(name string, seed state, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...)}}}
}

// left is what check tells of, and cannot mend.
func left(name string, seed state, flaw string, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...), want: flaw}}}
}

// mended is what check puts right.
func mended(name string, seed state, flaw string, after state, what What, names ...string) scenario {
	return scenario{name: name, seed: seed, steps: []when{{call: checks(true, what, names...), want: flaw + " mended", state: after}}}
}

func TestGuardCheckWorkers(t *testing.T) {
	w := member.with("token", "=9")
	two := w.with("workers", "(w1=+60m w2=+60m)")
	orphan := w.with("process:p1", "[a]")
	log := state{"token": "=9", "canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m"}
	counted := state{"cancel:#a": "{finished=0 stopped=1 token=4} +1m"}
	var held, lists []string
	many := w.with("token", "=101")
	for i := 1; i <= 101; i++ { // one more than a call gives back
		p := fmt.Sprint("p", i)
		held, lists = append(held, p+"="+itoa(i)), append(lists, fmt.Sprint("t", i))
		many["process:"+p] = "[" + lists[i-1] + "]"
	}
	many["working:w9"] = "(" + strings.Join(held, " ") + ")"
	run(t, []scenario{
		left("the schedule is of another type", orphan.with("schedule", "=foreign"), "WRONGTYPE", CheckProcesses, "p1"),
		mended("an orphan, what somebody holds is of another type", orphan.with("workers", "(w1=+60m w2=+60m)", "working:w2", "=foreign"), "orphan p1",
			w.with("workers", "(w1=+60m w2=+60m)", "working:w2", "=foreign", "queues", "[a]"), CheckProcesses, "p1"),
		// Where no token is known, no cancel covers it either.
		mended("an orphan, the token is no number", orphan.with("token", "=x", "canceled", "(#a=5)"), "orphan p1",
			w.with("token", "=x", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan, Redis has lost the token", orphan.with("token", "", "canceled", "(#a=5 #b=9)"), "orphan p1",
			w.with("token", "", "queues", "[a]"), CheckProcesses, "p1"),
		mended("an orphan of a key counts as the last that started, whatever was canceled", orphan.with("canceled", "(#b=3)", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 2, 1))), "orphan p1",
			w.with("schedule", "(k:x=10)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "10", 2, 1)), CheckProcesses, "p1"),
		{name: "an orphan that stays wakes nobody", alive: []string{"w1"}, seed: orphan.with("queues", "=foreign", "idle", "(w1=-1m)"), steps: []when{
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
		unsaid("who holds something is of another type", w.with("working:w1", "(p1=1)", "process:p1", "[a]", "holders", "=foreign"), CheckHolders, "w1"),
		unsaid("who is known to hold something is of another type", w.with("holders", "=foreign"), CheckHolding, "w1"),
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

// detail is a scenario with the detail behind what it says, and a state after it.
func (s scenario) detail(d string, after state) scenario {
	s.steps[0].want += " " + d
	s.steps[0].state = after
	return s
}

func TestGuardCheckEntries(t *testing.T) {
	w := member.with("token", "=9")
	running := w.with("working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 1, 0)))
	planned := running.with("keyed:k:x", waits("b", "+9m", 0, 0), "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	blocked := running.with("keyed:k:x", blocks(runs("p1", 1, 0), "b", "+9m"), "contents", "(#b:k:x=0)")
	timeless := func(due ...string) string {
		fields := append([]string{runs("p1", 1, 0), rule(0, 0, "+9m", "+9m"), "payload=b", "retries=0", "crashes=0"}, due...)
		return h(fields...)
	}
	foreign := w.with("keyed:k:x", "=foreign", "schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)")
	run(t, []scenario{
		// What a field of entries says.
		unsaid("runs, and the entry is of another type", running.with("keyed:k:x", "=foreign"), CheckRunning, "p1"),
		unsaid("runs, and the process is of another type", running.with("process:p1", "=foreign", "working:w1", ""), CheckRunning, "p1"),
		unsaid("runs, and nobody holds it", running.with("working:w1", ""), CheckRunning, "p1"),
		mended("process without list, and nothing is blocked", running.with("working:w1", "", "process:p1", ""), "schedule p1", w, CheckRunning, "p1"),
		mended("the process and the entry are lost", w.with("entries", "{p1=k:x}"), "schedule p1", w, CheckRunning, "p1"),
		mended("the entry waits, and does not know what runs", planned, "schedule p1",
			planned.with("keyed:k:x", h(runs("p1", 0, 0), waits("b", "+9m", 0, 0)), "schedule", ""), CheckRunning, "p1"),
		// What an entry says.
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

func TestGuardCheckQueue(t *testing.T) {
	w := member.with("token", "=9")
	counts := w.with("ledger", "{#a=2}")
	run(t, []scenario{
		unsaid("the lock of an entry of another type", w.with("keyed:k:x", "=foreign", "unique", "{#a=e:k:x offset=0}"), CheckLocks, "#a"),
		unsaid("a place of a list of another type", w.with("queues", "=foreign", "unique", "{#a=w:3 offset=0}"), CheckLocks, "#a"),
		unsaid("the record of no cancel is of another type", w.with("cancel:#a", "=foreign"), CheckRecords, "#a"),
		unsaid("a list of another type", w.with("queues", "=foreign", "unique", "{#a=w:0}"), CheckQueue, "q"),
		unsaid("counts of what runs in the schedule", counts.with("entries", "{p1=r:p0}"), CheckQueue, "q"),
		unsaid("counts of what waits in the schedule", counts.with("schedule", "(r:p9=+9m)", "contents", "(#a:r:p9=0)", "keyed:r:p9", waits("a", "+9m", 1, 0)), CheckQueue, "q"),
		unsaid("paused, and nothing waits", w.with("paused", "=1"), CheckQueue, "q"),
		left("paused, and one waits", w.with("paused", "=1", "queues", "[a]"), "paused q 1", CheckQueue, "q"),
		unsaid("nobody serves it, and nothing waits", state{}, CheckQueue, "q"),
		left("nobody serves it, and one waits", state{"queues": "[a]"}, "no-worker q 1", CheckQueue, "q"),
	})
}

// Who only looks does not write: a user who may not can look.
func TestGuardLook(t *testing.T) {
	e := beside(t, nil)
	e.ruled("~*", "+@all", "-@write", "resetchannels")
	e.doctor = func() *redisconn.Line { return e.line }
	e.play(scenario{seed: member.with("token", "=9", "process:p1", "[a]"), steps: []when{
		{call: checks(false, CheckProcesses, "p1"), want: "orphan p1"},
		{call: explains("", "a"), want: "workers=1"},
	}})
}

// tried counts the entries that wait to be tried again.
func tried(entries ...string) func(*env) string {
	return func(e *env) string {
		v := sure(Check(e.ctx, e.doctor(), e.q, CheckScheduled, "", false, entries))(e.t)
		return itoa(v.Retries)
	}
}

func TestGuardCheckCancels(t *testing.T) {
	w := member.with("token", "=9")
	holds := w.with("working:w1", "(p1=1)", "process:p1", "[a]")
	run(t, []scenario{
		unsaid("the token is no number", holds.with("token", "=x", "canceled", "(#a=5)"), CheckCanceled, "#a"),
		mended("no token was given", holds.with("token", "", "canceled", "(#a=2)"), "future-cancel #a", holds.with("token", ""), CheckCanceled, "#a"),
		mended("gaps, and no locks", w.with("gaps", "(3=3)"), "leftover gaps", w, CheckQueue, "q"),
		{name: "gaps, and only looked at", seed: w.with("gaps", "(3=3)"), steps: []when{{call: checks(false, CheckQueue, "q"), want: "leftover gaps"}}},
		unsaid("gaps, and locks", w.with("gaps", "(3=3)", "unique", "{#a=p:p1 #b=p:p2 offset=0}"), CheckQueue, "q"),
		{name: "entries that are tried again", steps: []when{{call: tried("k:x", "r:1"), want: "0"}}},
		{name: "of some entries", seed: state{}.planned("a", "k:x", "r:1", "r:2").with("keyed:r:1", waits("a", "+9m", 1, 0), "keyed:r:2", waits("a", "+9m", 2, 0)), steps: []when{
			{call: tried("k:x", "r:1", "r:2", "r:3"), want: "2"}, {call: tried("r:2"), want: "1"}}},
	})
}
