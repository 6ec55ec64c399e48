package store

import (
	"fmt"
	"testing"
	"time"
)

var _ = probed("sweep",
	probe{seed: busy, call: sweeps},
	probe{what: "the schedule", seed: busyLane, call: sweeps},
)

func sweeps(e *env) string {
	l, err := Sweep(e.ctx, e.line, e.q, time.Hour)
	if err != nil {
		return refused(err)
	}
	var w words
	w.look(l)
	return w.String()
}

func TestSweep(t *testing.T) {
	one := state{"queues": "[z]", "workers": "(w2=-60m w1=+60m)", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "rounds": "{w2=1}", "token": "=2"}
	due := one.with("suspects", "(w2=-1m)")
	back := state{"queues": "[a b z]", "workers": "(w1=+60m)", "token": "=3", "ledger": "{#a=1 #b=1}"}
	run(t, []scenario{
		{name: "sweep", alive: []string{"w3"}, seed: due.with("idle", "(w2=-2m w3=-1m)"), steps: []when{
			{call: sweeps, want: "failed=w2/2 returned=2", state: back, heard: []string{"wake:w3 2"}}}},
	})
}

// What others have written to the suspects hides nobody.
func TestForeignSuspects(t *testing.T) {
	e := beside(t, nil)
	e.crowd(300, 0, 1)
	for i := range 200 {
		e.must(e.conn.Do("ZADD", e.q.Suspects(), 1<<50, fmt.Sprint("nobody", i)))
	}
	for range 40 {
		sure(Sweep(e.ctx, e.line, e.q, 0))(e.t)
	}
	if n := e.count("ZCARD", "workers"); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestGuardSweep(t *testing.T) {
	lapsed := state{"workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-1m)", "token": "=1", "working:w2": "(p1=1)", "process:p1": "[a]"}
	back := state{"workers": "(w1=+60m)", "token": "=2", "queues": "[a]", "ledger": "{#a=1}"}
	order := state{"token": "=4", "working:w1": "(p1=1 p3=3)", "working:w2": "(p2=2 p4=4)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]", "process:p4": "[d]", "queues": "[z]",
		"workers": "(w1=-60m w2=-60m)", "suspects": "(w1=-2m w2=-1m)", "idle": "(w1=clock:-3m w2=-2m)"}
	run(t, []scenario{
		{name: "locks move", seed: lapsed.with("unique", "{#b=w:1 offset=1}", "queues", "[b]"), steps: []when{
			{call: sweeps, want: "failed=w2/1 returned=1", state: back.with("unique", "{#b=w:1 offset=0}", "queues", "[a b]")}}},
		{name: "heard of since, and gone", seed: state{"workers": "(w2=+60m)", "suspects": "(w2=-1m w9=-1m)"}, steps: []when{{call: sweeps, want: "", state: state{"workers": "(w2=+60m)"}}}},
		{name: "two that die together", alive: []string{"w3"}, seed: order, steps: []when{
			{call: sweeps, want: "failed=w1/2,w2/2 returned=4", state: state{"token": "=5", "queues": "[a b c d z]", "ledger": "{#a=1 #b=1 #c=1 #d=1}"}}}},
	})
}
