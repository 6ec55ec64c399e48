package store

import (
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
