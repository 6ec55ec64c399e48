package store

import (
	"fmt"
	"strings"
	"testing"
)

var _ = probed("requeue",
	probe{seed: busyLane, call: requeues("k:g1")},
)

func requeues(entries ...string) func(*env) string {
	return func(e *env) string {
		n, err := Requeue(e.ctx, e.line, e.q, entries)
		return said(err, "requeued=%d", n)
	}
}

func TestRequeue(t *testing.T) {
	seed := state{"failed:schedule": "(k:g1=-9m k:g2=-8m k:g3=aside:-7m)", "failed:contents": "(#x:k:g1=0 #y:k:g2=0 #z:k:g3=0)",
		"failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("y", "-8m", "from=k:x"), "failed:keyed:k:g3": failedOf("z", "-7m", "from=k:y")}
	left := func(g, digest, due string, s state) state {
		return s.with("failed:schedule", "("+g+"="+due+")", "failed:contents", "("+digest+":"+g+"=0)", "failed:keyed:"+g, seed["failed:keyed:"+g])
	}
	page := func(entries ...string) func(*env) string { // one call
		return func(e *env) string {
			head, tail := e.q.Failed().Around()
			a := requeue.ask(e.ctx, e.line, e.q, "head", head, "tail", tail, "entry", entries)
			return fmt.Sprintf("requeued=%d looked=%d", a.int("requeued"), a.int("looked"))
		}
	}
	half, large := strings.Repeat("h", 600<<10), strings.Repeat("l", 1<<20+1)
	big := func(payload string) string { return failedOf(payload, "-9m") }
	three := state{"failed:keyed:k:g1": big(half), "failed:keyed:k:g2": big(half), "failed:keyed:k:g3": big(large)}
	failedTasks := state{"failed:schedule": "(k:g1=-9m k:g2=-8m)", "failed:contents": "(#x:k:g1=0 #y:k:g2=0)", "failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("y", "-8m")}
	run(t, []scenario{
		{name: "all", alive: []string{"w1", "w2", "w3"}, seed: seed.with("queues", "[a]", "idle", "(w1=-3m w2=-2m w3=-1m)"), steps: []when{
			{call: requeues("k:g1", "k:g2", "k:g3", "k:g1", "k:none"), want: "requeued=3", heard: []string{"wake:w1 3", "wake:w2 3", "wake:w3 3", "enqueue 3"},
				state: state{"queues": "[a x]", "schedule": "(k:x=now k:y=now)", "contents": "(#y:k:x=0 #z:k:y=0)", "keyed:k:x": waits("y", "now", 0, 0), "keyed:k:y": waits("z", "now", 0, 0)}},
			{call: requeues("k:g1"), want: "requeued=0"}}},
		{name: "something runs or waits there", seed: seed.merged(keyX).with("keyed:k:y", runs("p1", 0, 0)), steps: []when{
			{call: requeues("k:g2", "k:g3"), want: "requeued=0"},
			{call: requeues("k:g1", "k:g2"), want: "requeued=1", heard: []string{"enqueue 1"}, state: seed.merged(keyX).with("keyed:k:y", runs("p1", 0, 0), "queues", "[x]",
				"failed:schedule", "(k:g2=-8m k:g3=aside:-7m)", "failed:contents", "(#y:k:g2=0 #z:k:g3=0)", "failed:keyed:k:g1", "")}}},
		{name: "two of one key", seed: seed.with("failed:keyed:k:g3", failedOf("z", "-7m", "from=k:x")), steps: []when{
			{call: requeues("k:g1", "k:g2", "k:g3"), want: "requeued=2", heard: []string{"enqueue 2"},
				state: left("k:g3", "#z", "aside:-7m", state{"queues": "[x]", "schedule": "(k:x=now)", "contents": "(#y:k:x=0)", "keyed:k:x": waits("y", "now", 0, 0)}).with("failed:keyed:k:g3", failedOf("z", "-7m", "from=k:x"))}}},
		{name: "deleted", seed: seed, steps: []when{
			{call: inFailed(removes("k:g2")), want: "removed=true", state: seed.with("failed:schedule", "(k:g1=-9m k:g3=aside:-7m)", "failed:contents", "(#x:k:g1=0 #z:k:g3=0)", "failed:keyed:k:g2", "")},
			{call: inFailed(removes("k:g2")), want: "removed=false"}}},
		{name: "a list of another type", seed: failedTasks.with("queues", "=foreign"), steps: []when{{call: requeues("k:g1"), want: "WRONGTYPE"}}},
		{name: "a mebibyte at once", seed: three, steps: []when{
			{call: page("k:g1", "k:g2", "k:g3"), want: "requeued=1 looked=1", heard: []string{"enqueue 1"}, state: three.with("failed:keyed:k:g1", "", "queues", "["+half+"]")},
			{call: page("k:g2", "k:g3"), want: "requeued=1 looked=1", heard: []string{"enqueue 1"}, state: three.with("failed:keyed:k:g1", "", "failed:keyed:k:g2", "", "queues", "["+half+" "+half+"]")},
			{call: page("k:g3"), want: "requeued=1 looked=1", heard: []string{"enqueue 1"}, state: state{"queues": "[" + half + " " + half + " " + large + "]"}}}},
		{name: "an empty payload", seed: state{"failed:keyed:k:g1": failedOf("", "-9m")}, steps: []when{
			{call: page("k:g1"), want: "requeued=1 looked=1", heard: []string{"enqueue 1"}, state: state{"queues": `[""]`}}}},
		{name: "a failed task of another type", seed: failedTasks.with("failed:keyed:k:g1", "=foreign"), steps: []when{
			{call: requeues("k:g1", "k:g2"), want: "requeued=1", heard: []string{"enqueue 1"}, state: state{"queues": "[y]", "failed:schedule": "(k:g1=-9m)", "failed:contents": "(#x:k:g1=0)", "failed:keyed:k:g1": "=foreign"}}}},
	})
}

// Requeueing removes the record of how a task ended if the task will leave another one.
func TestRequeueRecord(t *testing.T) {
	var all []scenario
	for card, goes := range map[string]bool{"0h": false, "40000000000": false, "40000000001": true, keeps: true} {
		seed := state{"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#a:k:g1=0)", "failed:keyed:k:g1": failedOf("a", "-9m", "from=k:x", "card="+card), "result:k:x": "=failed:5:0:"}
		after := state{"schedule": "(k:x=now)", "contents": "(#a:k:x=0)", "keyed:k:x": h(waits("a", "now", 0, 0), "card="+card)}
		if !goes {
			after = after.with("result:k:x", seed["result:k:x"])
		}
		all = append(all, scenario{name: card, seed: seed, steps: []when{{call: requeues("k:g1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: after}}})
	}
	run(t, all)
}
