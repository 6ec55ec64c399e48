package store

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// The tests named TestGuard… each cover one check of a script: without the check, they fail.

// A counter of tokens that has an invalid number isn't incremented.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"x", "1.5", "-1", "9007199254740991", "1e300"} {
		seed := keyX.with("queues", "[a]", "token", "="+token)
		for verb, call := range map[string]func(*env) string{"step": begins(1, "p1"), "cancel": cancels("a"), "cancel_key": cancelsKey("x"), "join": joins("w2", math.MaxInt64)} {
			t.Run(token+"/"+verb, func(t *testing.T) {
				t.Parallel()
				newEnv(t, redistest.URL(), nil).play(scenario{seed: seed, steps: []when{{call: call, want: "WRONGTYPE"}}})
			})
		}
	}
}

// Invalid fields that other programs have written into an entry count as 0, and so do missing ones.
func TestGuardStored(t *testing.T) {
	newer := runX.with("contents", "(#b:k:x=0)", "keyed:k:x", h(runs("p1", 2, 1), waits("b", "+9m", 0, 0)))
	all := []scenario{
		{name: "without bounds, a released task keeps its time", seed: newer, steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: doneX.with("schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+9m", 0, 0))}}},
		{name: "without bounds, there is no upper one", seed: newer, steps: []when{
			{call: sets("x", "b", "+5m", "later"), want: "ok", state: newer.with("keyed:k:x", h(runs("p1", 2, 1), waits("b", "+9m", 0, 0), rule(0, 0, "+5m", "never")))}}},
	}
	for _, counts := range []string{"", "retries=x crashes=x", "retries=-1 crashes=-1", "retries=1e300 crashes=1e300", "retries=nan crashes=nan"} {
		all = append(all, scenario{name: "counts: " + counts, seed: keyX.with("keyed:k:x", h("payload=a", counts)), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: runX.with("keyed:k:x", runs("p1", 0, 0))},
		}}, scenario{name: "a put keeps counts: " + counts, seed: keyX.with("keyed:k:x", h("payload=a", counts)), steps: []when{
			{call: sets("x", "b", "+9m", "always", "counts"), want: "ok", state: keyX.with("schedule", "(k:x=+9m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+9m", 0, 0))},
		}})
	}
	run(t, all)
}

func TestGuardMembers(t *testing.T) {
	held := state{"workers": "(w1=+60m)", "rounds": "{w1=5}", "working:w1": "(p1=1)", "process:p1": "[a]", "token": "=1"}
	left := state{"queues": "[a]", "token": "=2"}
	one := state{"workers": "(w2=+60m)", "suspects": "(w8=0 w9=0)", "token": "=1", "working:w8": "(p1=1)", "process:p1": "[a]", "working:w9": "=foreign", "queues": "[z]"}
	run(t, []scenario{
		{name: "leave: a late copy", seed: held, steps: []when{
			{call: leavesAt("w1", 4), want: "returned=0"},
			{call: leavesAt("w1", 5), want: "returned=1", state: left}}},
		{name: "leave: a cancel ends with its last holder", seed: held.with("canceled", "(#b=1)", "cancel:#b", h("finished=0", "stopped=0", "token=1")+" +1440m"), steps: []when{
			{call: leavesAt("w1", 5), want: "returned=1", state: left.with("cancel:#b", h("finished=0", "stopped=0", "token=1")+" +1m")}}},
		{name: "leave: before any round", seed: held.with("rounds", ""), steps: []when{{call: leavesAt("w1", 0), want: "returned=1", state: left}}},
		{name: "leave: one that was failed", seed: held.with("workers", "", "rounds", "", "suspects", "(w1=0)"), steps: []when{
			{call: leaves("w1"), want: "EVICTED"},
			{call: goesOn("w1"), want: "returned=1", state: left.with("token", "=1", "ledger", "{#a=1}")},
			{call: leavesBehind("w1", 0), want: "EVICTED"}}},
		{name: "leave: go on where it has begun", seed: held.with("workers", "", "rounds", "", "suspects", "(w1=-1)"), steps: []when{
			{call: leaves("w1"), want: "returned=1", state: left.with("token", "=1")}}},
		{name: "a return that goes on, of a member again", seed: held, steps: []when{{call: goesOn("w1"), want: "returned=0", state: held}}},
		{name: "the first of two kept the time", alive: []string{"w3"}, seed: state{"token": "=4", "queues": "[z]",
			"workers": "(w1=-60m w2=-60m)", "suspects": "(w1=-2m w2=-1m)", "schedule": "(k:x=+9m)", "idle": "(w3=-1m w1=clock:-1m)"}, steps: []when{
			{call: sweeps, want: "failed=w1,w2", heard: []string{"wake:w3 0"}, state: state{"token": "=5", "queues": "[z]", "schedule": "(k:x=+9m)"}}}},
		{name: "no ring when another worker keeps the time", alive: []string{"w3"}, seed: state{"workers": "(w1=+60m)", "schedule": "(k:x=+9m)", "idle": "(w1=-1m w3=clock:-1m)"}, steps: []when{
			{call: leaves("w1"), want: "returned=0", state: state{"token": "=1", "schedule": "(k:x=+9m)", "idle": "(w3=clock:-1m)"}}}},
		{name: "no ring without a planned entry", alive: []string{"w2"}, seed: state{"workers": "(w1=+60m)", "idle": "(w2=-1m w1=clock:-1m)"}, steps: []when{
			{call: leaves("w1"), want: "returned=0", state: state{"token": "=1", "idle": "(w2=-1m)"}}}},
		{name: "a return that others go on with wakes as many", alive: []string{"w3", "w4"}, seed: one.with("suspects", "(w8=0)", "working:w8", "(p1=1 p2=2)", "process:p2", "[b]", "working:w9", "", "idle", "(w3=-2m w4=-1m)"), steps: []when{
			{call: steps(Round{Worker: "w2", Number: 1}), want: "", heard: []string{"wake:w3 2", "wake:w4 2"}, state: state{"workers": "(w2=+60m)", "rounds": "{w2=1}", "token": "=1", "queues": "[a b z]", "ledger": "{#a=1 #b=1}"}}}},
		{name: "and sweeps again", seed: one, steps: []when{
			{call: sweeps, want: "returned=1 again", state: state{"workers": "(w2=+60m)", "suspects": "(w9=0)", "token": "=1", "working:w9": "=foreign", "queues": "[a z]", "ledger": "{#a=1}"}}}},
		{name: "a ring, though something is planned later", alive: []string{"w2"}, seed: blockedX.with("schedule", "(k:y=+10m)", "idle", "(w2=-1m w1=clock:-1m)", "token", "=2", "canceled", "(#a=2)", "cancel:#a", "{finished=0 stopped=0 token=2} +1440m"), steps: []when{
			{call: fails("w1"), want: "known=true returned=0", heard: []string{"wake:w2 0"}, state: state{"token": "=3", "schedule": "(k:y=+10m k:x=+20m)", "contents": "(#b:k:x=0)", "keyed:k:x": waits("b", "+20m", 0, 0),
				"cancel:#a": "{finished=0 stopped=1 token=2} +1m"}}}},
	})
}

// count returns the number of elements in a key that is too large to compare.
func (e *env) count(command, key string) int {
	e.t.Helper()
	n := sure(redis.Int(e.conn.Do(command, e.key(key))))(e.t)
	return n
}

// While the queue's key isn't a list, workers continue, nothing is lost, and returned tasks wait until
// it's a list again.
func TestQueueOfAnotherType(t *testing.T) {
	seed := state{"queues": "=foreign", "workers": "(w1=+60m w2=+60m)", "token": "=2",
		"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]"}
	left := seed.with("workers", "(w2=+60m)", "suspects", "(w1=-1)", "token", "=3")
	run(t, []scenario{
		{name: "step", seed: seed, steps: []when{{
			call: steps(Round{Worker: "w1", Number: 1, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Finish}}, Start: []string{"p3"}}),
			want: "settled=refused,ok trouble=WRONGTYPE", heard: []string{"done w1 b"},
			state: seed.with("working:w1", "(p1=1)", "process:p2", "", "rounds", "{w1=1}"),
		}}},
		{name: "leave", seed: seed, steps: []when{
			{call: leaves("w1"), want: "STUCK", state: left},
			{call: beats("w2", true), want: ""},
			{call: steps(Round{Worker: "w2", Number: 1, Start: []string{"p3"}}), want: "trouble=WRONGTYPE", state: left.with("rounds", "{w2=1}")},
			{call: puts("queues", "[z]"), state: left.with("rounds", "{w2=1}", "queues", "[z]")},
			{call: beats("w2", false), want: "waiting=3 returned=2",
				state: state{"queues": "[a b z]", "workers": "(w2=+60m)", "rounds": "{w2=1}", "token": "=3"}},
		}},
	})
}

// If the key of what a worker holds has another type, its round is refused before it's recorded,
// whatever it contains.
func TestHeldOfAnotherType(t *testing.T) {
	t.Parallel()
	seed := rawP.with("working:w1", "=foreign", "idle", "(w1=-1m)", "suspects", "(w1=-1m)", "queues", "[z]")
	for what, r := range map[string]Round{
		"nothing":     {},
		"a start":     {Start: []string{"p2"}},
		"an outcome":  {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}},
		"an end":      {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish, Plain: true}}},
		"one of each": {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p3", Token: 3, Verb: Finish, Plain: true}}, Start: []string{"p2"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r.Worker, r.Number = "w1", 2
			newEnv(t, redistest.URL(), nil).play(scenario{seed: seed, steps: []when{{call: steps(r), want: "WRONGTYPE"}}})
		})
	}
}

func TestGuardReturns(t *testing.T) {
	order := state{"token": "=5", "working:w1": "(p1=1 p2=2 p5=5)", "working:w2": "(p3=3 p4=4)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]", "process:p4": "[d]", "process:p5": "[e]",
		"workers": "(w1=-60m w2=-60m)", "suspects": "(w1=-2m w2=-1m)"}
	stuck := state{"suspects": "(w8=0)", "working:w8": "=foreign", "token": "=1"}
	lapsed := series(205, func(i int) string { return fmt.Sprintf("w%03d=-60m", i) })
	suspects := series(205, func(i int) string { return fmt.Sprintf("w%03d=-1m", i) })
	many := state{"workers": "(" + strings.Join(lapsed[1:], " ") + " me=+60m w000=+60m)", "token": "=1"}
	run(t, []scenario{
		{name: "the newest of two comes first each time", seed: order, steps: []when{
			{call: sweeps, want: "failed=w1/3,w2/2 returned=5", state: state{"token": "=6", "queues": "[a b c d e]", "ledger": "{#a=1 #b=1 #c=1 #d=1 #e=1}"}}}},
		{name: "a worker that is being returned is not due", seed: stuck.with("workers", "(w1=-60m w2=-50m)"), steps: []when{
			{call: sweeps, want: "due=+60m", state: stuck.with("workers", "(w1=-60m w2=-50m)", "suspects", "(w8=0 w1=+60m w2=+60m)")}}},
		{name: "the dead worker's set is of another type", seed: state{"workers": "(w2=-60m)", "suspects": "(w2=-1m)", "working:w2": "=foreign"}, steps: []when{
			{call: sweeps, want: "failed=w2", state: state{"suspects": "(w2=0)", "working:w2": "=foreign", "token": "=1"}}}},
		{name: "one worker of a page has sent a beat", seed: many.with("suspects", "(w900=0 "+strings.Join(suspects, " ")+")", "working:w900", "(p1=1)", "process:p1", "[a]"), steps: []when{
			{call: beats("me", false), want: "waiting=1 returned=1 again due=now", state: many.with("suspects", "("+strings.Join(suspects[1:], " ")+")", "queues", "[a]", "ledger", "{#a=1}")}}},
	})
}

// A process that Redis has lost ends, and the outcome of its occurrence is "lost". An unknown end
// leaves no record.
func TestGuardLost(t *testing.T) {
	lost := takenX.with("process:p1", "")
	var all []scenario
	for _, v := range []Ending{Finish, Drop, Stop, Retry, Snooze, Fail} {
		end := when{call: ends(2, "p1", 1, v, gaveUp), want: "settled=canceled", state: overX.with("recurrence:k:x", lastX("lost"))}
		switch v {
		case Finish:
			end.want, end.heard = "settled=ok", []string{`done w1 ""`}
		case Drop:
			end.want = "settled=ok"
		default:
			all = append(all, scenario{name: string(v) + ", of one whose result is kept", seed: lost.with("keyed:k:x", h(lost["keyed:k:x"], "held="+keeps)), steps: []when{end}})
		}
		all = append(all, scenario{name: string(v), seed: lost, steps: []when{end}})
	}
	run(t, all)
}

// The outcome of an occurrence that would wait again, but was canceled, is "canceled".
func TestGuardCanceledOccurrence(t *testing.T) {
	canceled := takenX.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", "{finished=0 stopped=0 token=2} +1440m")
	over := overX.with("token", "=2", "recurrence:k:x", lastX("canceled"), "cancel:k:x", "{finished=0 stopped=1 token=2} +1m")
	var all []scenario
	for _, v := range []Ending{Stop, Retry, Snooze, Fail} {
		all = append(all, scenario{name: string(v), seed: canceled, steps: []when{{call: ends(2, "p1", 1, v, gaveUp), want: "settled=canceled seen=2", state: over}}})
	}
	run(t, all)
}

// The error of an attempt belongs to the counts of the task that ran: it's kept or dropped with them.
func TestGuardErrors(t *testing.T) {
	failed := blockedX.with("keyed:k:x", h(blockedX["keyed:k:x"], "error=no"))
	why := Outcome{Delay: time.Hour, Reason: "why"}
	retry := ends(2, "p1", 1, Retry, why)
	b := backX.with("contents", "(#b:k:x=0)", "schedule", "(k:x=+20m)")
	run(t, []scenario{
		{name: "of the list", seed: rawP, steps: []when{{call: retry, want: "settled=ok", state: retryR.with("keyed:r:p1", h(waits("a", "+60m", 1, 0), "error=why"))}}},
		{name: "its counts go", seed: failed, steps: []when{{call: retry, want: "settled=ok", state: b.with("keyed:k:x", waits("b", "+20m", 0, 0))}}},
		{name: "its counts stay", seed: failed.with("keyed:k:x", h(failed["keyed:k:x"], "counts=1")), steps: []when{
			{call: retry, want: "settled=ok", state: b.with("keyed:k:x", h(waits("b", "+20m", 3, 1), "error=why"))}}},
	})
}
