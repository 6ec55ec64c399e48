package store

import (
	"math"
	"testing"
)

var _ = probed("leave",
	probe{seed: busy, call: leaves("w1")},
	probe{what: "the schedule", seed: busyLane, call: leaves("w1")},
)

func leaves(worker string) func(*env) string {
	return leavesAfter(worker, math.MaxInt32, math.MaxInt32)
}

// leavesBehind leaves a membership whose join named the given token.
func leavesBehind(worker string, asked int64) func(*env) string {
	return leavesAfter(worker, asked, math.MaxInt32)
}

// leavesAt leaves, and names its last round.
func leavesAt(worker string, round int64) func(*env) string {
	return leavesAfter(worker, math.MaxInt32, round)
}

func leavesAfter(worker string, asked, round int64) func(*env) string {
	return func(e *env) string {
		n, err := Leave(e.ctx, e.line, e.q, worker, asked, round)
		return said(err, "returned=%d", n)
	}
}

// Requests in flight can't make a member of a worker that has left, whether or not it was one
// before.
func TestLeave(t *testing.T) {
	other := state{"workers": "(w2=+60m)", "rounds": "{fence=3 w2=4}", "token": "=5"}
	both := other.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=3 w1=7 w2=4}")
	risen := other.with("rounds", "{fence=6 w2=4}", "token", "=6")
	run(t, []scenario{
		{name: "before the join of all", steps: []when{
			{call: leavesBehind("w1", 0), want: "returned=0", state: state{"token": "=1"}},
			{call: joins("w1", 0), want: "again"}}},
		{name: "before its join", seed: state{"token": "=5"}, steps: []when{
			{call: leavesBehind("w1", 5), want: "returned=0", state: state{"token": "=6"}},
			{call: joins("w1", 5), want: "again"},
			{call: leavesBehind("w1", 5), want: "EVICTED"}}},
		{name: "before its join, others are there", seed: other, steps: []when{
			{call: leavesBehind("w1", 5), want: "returned=0", state: risen},
			{call: joins("w1", 5), want: "again"},
			{call: leavesBehind("w1", 5), want: "EVICTED"}}},
		{name: "before its join, when the last one has just gone", seed: other, steps: []when{{call: leavesBehind("w1", 3), want: "returned=0", state: risen}}},
		{name: "twice", seed: both, steps: []when{
			{call: leavesBehind("w1", 5), want: "returned=0", state: risen},
			{call: leavesBehind("w1", 5), want: "EVICTED"}}},
		{name: "twice, alone", seed: other, steps: []when{
			{call: leavesBehind("w2", 3), want: "returned=0", state: state{"token": "=6"}},
			{call: leavesBehind("w2", 3), want: "EVICTED"},
			{call: leavesBehind("w2", 6), want: "returned=0", state: state{"token": "=7"}}}},
		{name: "it may have been failed", seed: other, steps: []when{{call: leavesBehind("w1", 2), want: "EVICTED"}}},
		{name: "it may have been evicted, no members", seed: state{"token": "=5"}, steps: []when{{call: leavesBehind("w1", 4), want: "EVICTED"}}},
		{name: "it was failed", seed: both, steps: []when{
			{call: fails("w1"), want: "known=true returned=0", state: risen},
			{call: leavesBehind("w1", 5), want: "EVICTED"}}},
		{name: "a suspect that is no member", seed: other.with("suspects", "(w1=+5m)"), steps: []when{
			{call: leavesBehind("w1", 2), want: "EVICTED"},
			{call: leavesBehind("w1", 5), want: "returned=0", state: risen.with("suspects", "(w1=+5m)")}}},
		{name: "no fence yet", seed: other.with("rounds", "{w2=4}"), steps: []when{{call: leavesBehind("w1", 0), want: "returned=0", state: risen}}},
		{name: "Redis has lost tokens", seed: other.with("rounds", "{fence=9 w2=4}"), steps: []when{
			{call: leavesBehind("w1", 4), want: "EVICTED"},
			{call: leavesBehind("w1", 5), want: "returned=0", state: risen}}},
		{name: "rounds of another type", seed: both.with("rounds", "=foreign"), steps: []when{
			{call: leaves("w1"), want: "WRONGTYPE"},
			{call: leaves("w3"), want: "WRONGTYPE"},
			{call: fails("w1"), want: "known=true returned=0", state: other.with("rounds", "=foreign")},
			{call: joins("w1", 5), want: "WRONGTYPE"}}},
		{name: "a token of another type", seed: both.with("token", "[5]"), steps: []when{
			{call: leavesBehind("w3", 0), want: "returned=0"},
			{call: leaves("w1"), want: "returned=0", state: other.with("token", "[5]")},
			{call: fails("w2"), want: "known=true returned=0", state: state{"rounds": "{fence=3}", "token": "[5]"}},
			{call: joins("w1", 5), want: "WRONGTYPE"}}},
		{name: "a token that is no number", seed: both.with("token", "=x"), steps: []when{
			{call: leavesBehind("w3", 0), want: "returned=0"},
			{call: leaves("w1"), want: "returned=0", state: other.with("token", "=x")},
			{call: fails("w2"), want: "known=true returned=0", state: state{"rounds": "{fence=3}", "token": "=x"}},
			{call: joins("w1", 5), want: "WRONGTYPE"}}},
		{name: "a token that is no number, no members", seed: state{"token": "=x"}, steps: []when{{call: leavesBehind("w1", 0), want: "returned=0"}}},
	})
}
