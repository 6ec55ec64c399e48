package store

import (
	"testing"
)

var _ = probed("cancel_key",
	probe{seed: busyLane, call: cancelsKey("x")},
)

func cancelsKey(key string) func(*env) string {
	return func(e *env) string {
		c, err := CancelKey(e.ctx, e.line, e.q, "k:"+spelled(key))
		return said(err, "removed=%d token=%d", c.Removed, c.Token)
	}
}

func TestCancelKey(t *testing.T) {
	told := runX.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", "{finished=0 stopped=0 token=2} +1440m", "stopping", "("+stoppedKey("k:x", 1, "p1")+"=0)")
	over := doneX.with("token", "=2", "cancel:k:x", "{finished=0 stopped=1 token=2} +1m")
	finished := doneX.with("token", "=2", "cancel:k:x", "{finished=1 stopped=0 token=2} +1m")
	acked := func(v Ending) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Seen: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: v, Kind: Failed}}, Said: 2})
	}
	record := func(token string) string { return "{finished=0 stopped=0 token=" + token + "}" }
	lost := member.with("working:w1", "(p7=1)", "process:p7", "[z]", "token", "=1", "keyed:k:x", runs("p9", 0, 0))
	back := runX.with("workers", "", "suspects", "(w1=0)")
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
		{name: "key and payload canceled", seed: told, steps: []when{
			{call: cancels("a"), want: "removed=0 token=3", heard: []string{"cancel a"}, state: told.with("token", "=3", "canceled", "(k:x=2 #a=3)", "cancel:#a", "{finished=0 stopped=0 token=3} +1440m")},
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}, Said: 3}),
				want: "settled=canceled seen=3", state: over.with("token", "=3", "cancel:#a", "{finished=0 stopped=1 token=3} +1m")}}},
		{name: "a list task with the key as payload is not canceled", seed: member.with("queues", "[k:x]"), steps: []when{{call: cancelsKey("x"), want: "removed=0 token=0"}}},
		{name: "later starts are not canceled", seed: told.with("contents", "(#b:k:y=0)", "schedule", "(k:y=-1m)", "keyed:k:y", waits("b", "-1m", 0, 0)), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 2, Start: []string{"p2"}}), want: "started=b/3@k:y seen=2",
				state: told.with("rounds", "{w1=2}", "token", "=3", "working:w1", "(p1=1 p2=3)", "process:p2", "[b]", "entries", "{p1=k:x p2=k:y}", "keyed:k:y", runs("p2", 0, 0))}}},
		{name: "members of another type", seed: keyX.with("workers", "=foreign"), steps: []when{{call: cancelsKey("x"), want: "WRONGTYPE"}}},
		{name: "holders of another type", seed: keyX.with("holders", "=foreign"), steps: []when{{call: cancelsKey("x"), want: "WRONGTYPE"}}},
		{name: "no known holder", seed: lost, steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", state: lost.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", record("2")+" +1440m")}}},
		{name: "working set of another type", seed: lost.with("keyed:k:x", h(runs("p9", 0, 0), "holder=w2"), "working:w2", "=foreign"), steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", state: lost.with("keyed:k:x", h(runs("p9", 0, 0), "holder=w2"), "working:w2", "=foreign",
				"token", "=2", "canceled", "(k:x=2)", "cancel:k:x", record("2")+" +1440m")}}},
		{name: "Redis has lost the holders", alive: []string{"w1"}, seed: runX.with("holders", none), steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=0", state: runX.with("holders", none, "token", "=2", "cancel:k:x", record("2")+" +1m")}}},
		{name: "no members, and it is being returned", alive: []string{"w1"}, seed: back, steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=1", heard: []string{"wake:w1 0"},
				state: back.with("canceled", "(k:x=1)", "cancel:k:x", record("1")+" +1440m", "stopping", "("+stoppedKey("k:x", 1, "p1")+"=0)")}}},
		{name: "stopping of another type", alive: []string{"w1"}, seed: runX.with("stopping", "=foreign"), steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", heard: []string{"wake:w1 0"},
				state: runX.with("stopping", "=foreign", "token", "=2", "canceled", "(k:x=2)", "cancel:k:x", record("2")+" +1440m")}}},
	}
	for _, v := range []Ending{Stop, Retry, Snooze, Fail} {
		all = append(all, scenario{name: "then " + string(v), seed: told, steps: []when{{call: acked(v), want: "settled=canceled seen=2", state: over}}})
	}
	all = append(all, scenario{name: "finished first", seed: told, steps: []when{{call: acked(Finish), want: "settled=ok seen=2", heard: []string{"done w1 a"}, state: finished}}})
	run(t, all)
}
