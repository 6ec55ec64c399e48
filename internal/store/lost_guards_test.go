package store

import (
	"testing"
	"time"
)

// A process that Redis has lost ends, and its occurrence is told as lost. There is no record of
// an end that nobody knows.
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

// An occurrence that would wait again, and was canceled, is told as canceled.
func TestGuardCanceledOccurrence(t *testing.T) {
	canceled := takenX.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", "{finished=0 stopped=0 token=2} +1440m")
	over := overX.with("token", "=2", "recurrence:k:x", lastX("canceled"), "cancel:k:x", "{finished=0 stopped=1 token=2} +1m")
	var all []scenario
	for _, v := range []Ending{Stop, Retry, Snooze, Fail} {
		all = append(all, scenario{name: string(v), seed: canceled, steps: []when{{call: ends(2, "p1", 1, v, gaveUp), want: "settled=canceled seen=2", state: over}}})
	}
	run(t, all)
}

// The error of an attempt is among the counts of what has run: it stays, or goes with them.
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
