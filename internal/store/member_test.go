package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestReturns(t *testing.T) {
	one := state{"queues": "[z]", "workers": "(w2=-60m w1=+60m)", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "rounds": "{w2=1}", "token": "=2"}
	suspected := one.with("suspects", "(w2=+60m)")
	due := one.with("suspects", "(w2=-1m)")
	back := state{"queues": "[a b z]", "workers": "(w1=+60m)", "token": "=3", "ledger": "{#a=1 #b=1}"}
	tasks := seq("t", 0, 250)
	many := state{"workers": "(w1=+60m w2=+60m)", "token": "=250", "queues": "[z]"}.holding("w1", tasks...)
	all := "[" + strings.Join(tasks, " ") + " z]"
	rest := state{"workers": "(w2=+60m)", "token": "=251", "queues": all}
	begun := many.with("workers", "(w2=+60m)", "suspects", "(w1=0)")
	died := func(from int) string { // one crash of each, from that number on
		return "{" + strings.Join(slices.Sorted(slices.Values(ones(from, 250))), " ") + "}"
	}
	part := func(left int) state {
		return state{"workers": "(w2=+60m)", "suspects": "(w1=0)", "token": "=250", "rounds": "{w2=1}", "ledger": died(left),
			"queues": "[" + strings.Join(tasks[left:], " ") + " z]"}.holding("w1", tasks[:left]...)
	}
	wants := func(n int64) func(*env) string { return steps(Round{Worker: "w2", Number: n, Start: []string{"q1"}}) }
	run(t, []scenario{
		{name: "the first look suspects, early ones do nothing", seed: one, steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=+60m", state: suspected},
			{call: beats("w1", true), want: "waiting=1 due=+60m"},
			{call: sweeps, want: "due=+60m"},
			{call: beats("w2", true), want: "lapsed waiting=1 held=2", state: one.with("workers", "(w1=+60m w2=+60m)")},
		}},
		{name: "due", seed: due, steps: []when{
			{call: beats("w1", false), want: "waiting=1 due=now"},
			{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back},
			{call: beats("w2", true), want: "EVICTED"},
		}},
		{name: "due, and the caller's lease has expired, too", seed: due.with("workers", "(w2=-60m w1=-1m)"), steps: []when{
			{call: beats("w1", true), want: "lapsed waiting=1 due=now", state: due},
			{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "due, and the judging deadline is beyond the limit", seed: due, steps: []when{
			{call: judges("w1", 2*time.Hour+time.Minute), want: "waiting=1 due=now"},
			{call: judges("w1", 2*time.Hour-time.Minute), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "due, and the caller's lease is beyond the limit", seed: due.with("workers", "(w2=-60m w1=+62m)"), steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=now", state: due},
			{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "many, leave", seed: many, steps: []when{{call: leaves("w1"), want: "returned=250", state: rest}}},
		{name: "many, fail", seed: many, steps: []when{{call: fails("w1"), want: "known=true returned=250", state: rest.with("ledger", died(0))}}},
		{name: "interrupted, resumed by step", seed: begun, steps: []when{
			{call: wants(1), want: "again", state: part(150)},
			{call: beats("w2", false), want: "waiting=201 returned=100 again", state: part(50)},
			{call: wants(2), want: "started=t0/251!1", state: state{"ledger": died(0), "workers": "(w2=+60m)", "token": "=251", "rounds": "{w2=2}",
				"working:w2": "(q1=251)", "process:q1": "[t0]", "queues": "[" + strings.Join(seq("t", 1, 250), " ") + " z]"}}}},
	})
}

// ones returns one crash of each payload from t<from> up to, but not including, t<to>.
func ones(from, to int) []string {
	return series(to-from, func(i int) string { return fmt.Sprintf("#t%d=1", from+i) })
}

func itoa(n int) string { return strconv.Itoa(n) }
