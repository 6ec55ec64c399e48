package store

import (
	"testing"
	"time"
)

var _ = probed("join",
	probe{seed: busy, call: joins("w4", 1000)},
)

// joins joins for an hour, with the given token.
func joins(worker string, asked int64) func(*env) string { return joinsBehind(worker, asked, 1) }

func joinsBehind(worker string, asked, round int64) func(*env) string {
	return joinsFor(time.Hour, worker, asked, round)
}

func joinsFor(lease time.Duration, worker string, asked, round int64) func(*env) string {
	return func(e *env) string {
		joined, err := ReadJoin(e.line.Do(e.ctx, JoinCall(e.q, worker, lease, asked, round))[0])
		switch {
		case err != nil:
			return refused(err)
		case !joined:
			return "again"
		}
		return "ok"
	}
}

// A join is valid until a worker leaves.
func TestJoin(t *testing.T) {
	one := state{"workers": "(w1=+60m)", "rounds": "{fence=3 lease=3600000 w1=4}", "token": "=5"}
	three := state{"workers": "(w1=+60m w2=+60m w3=+60m)", "rounds": "{fence=3 lease=3600000 w1=4 w2=7 w3=9}", "token": "=5"}
	without2 := state{"workers": "(w1=+60m w3=+60m)", "rounds": "{fence=6 lease=3600000 w1=4 w3=9}", "token": "=6"}
	dead2 := three.with("workers", "(w2=-60m w1=+60m w3=+60m)", "suspects", "(w2=-1m)")
	lapsing := one.with("workers", "(w1=+30m)", "suspects", "(w1=+5m)")
	renewed := one.with("rounds", "{fence=3 lease=3600000 w1=5}")
	late := []when{
		{call: joins("w2", 5), want: "again"}, // a delayed copy of its join, which named at most 5
		{call: joinsBehind("w2", 5, 8), want: "again"},
		{call: joins("w4", 5), want: "again"},
		{call: joins("w4", 6), want: "ok", state: without2.with("workers", "(w1=+60m w3=+60m w4=+60m)", "rounds", "{fence=6 lease=3600000 w1=4 w3=9 w4=1}")},
	}
	alone := []when{
		{call: joins("w1", 5), want: "again"},
		{call: joinsBehind("w1", 5, 5), want: "again"},
		{call: joins("w1", 6), want: "ok", state: state{"workers": "(w1=+60m)", "rounds": "{fence=6 lease=3600000 w1=1}", "token": "=6"}},
	}
	after := func(first when, then ...when) []when { return append([]when{first}, then...) }
	run(t, []scenario{
		{name: "the first of all", steps: []when{{call: joins("w1", 0), want: "ok", state: state{"workers": "(w1=+60m)", "rounds": "{fence=0 lease=3600000 w1=1}"}}}},
		{name: "no members", seed: state{"token": "=7"}, steps: []when{
			{call: joins("w1", 0), want: "again"},
			{call: joins("w1", 6), want: "again"},
			{call: joins("w1", 7), want: "ok", state: state{"workers": "(w1=+60m)", "rounds": "{fence=7 lease=3600000 w1=1}", "token": "=7"}}}},
		{name: "a fence that is no number", seed: one.with("rounds", "{fence=x lease=3600000 w1=4}"), steps: []when{
			{call: joins("w2", 0), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=0 lease=3600000 w1=4 w2=1}")}}},
		{name: "a round that is no number", seed: lapsing.with("rounds", "{fence=3 lease=3600000 w1=x}"), steps: []when{
			{call: joins("w1", 2), want: "again"},
			{call: joins("w1", 3), want: "ok", state: one.with("rounds", "{fence=3 lease=3600000 w1=1}")}}},
		{name: "others are there", seed: one, steps: []when{
			{call: joins("w2", 2), want: "again"},
			{call: joins("w2", 3), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=3 lease=3600000 w1=4 w2=1}")},
			{call: joinsBehind("w3", 5, 6), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m w3=+60m)", "rounds", "{fence=3 lease=3600000 w1=4 w2=1 w3=6}")}}},
		{name: "one of several was failed", seed: three, steps: after(when{call: fails("w2"), want: "known=true returned=0", state: without2}, late...)},
		{name: "one of several has died", seed: dead2, steps: after(when{call: beats("w1", true), want: "failed=w2", state: without2}, late...)},
		{name: "one of several has left", seed: three, steps: after(when{call: leaves("w2"), want: "returned=0", state: without2}, late...)},
		{name: "the only one was failed", seed: one, steps: after(when{call: fails("w1"), want: "known=true returned=0", state: state{"token": "=6"}}, alone...)},
		{name: "the only one has left", seed: one, steps: after(when{call: leaves("w1"), want: "returned=0", state: state{"token": "=6"}}, alone...)},
		{name: "leave and rejoin, before any token", seed: member, steps: []when{
			{call: leaves("w1"), want: "returned=0", state: state{"token": "=1"}},
			{call: joins("w1", 0), want: "again"},
			{call: joins("w1", 1), want: "ok", state: member.with("rounds", "{fence=1 lease=3600000 w1=1}", "token", "=1")}}},
		{name: "a copy changes nothing", seed: lapsing, steps: []when{
			{call: joinsBehind("w1", 5, 4), want: "ok"},
			{call: joinsBehind("w1", 2, 4), want: "ok"}, // from before a worker left
			{call: joinsBehind("w1", 5, 1), want: "ok"}, // from the previous membership
			{call: beats("w1", true), want: "", state: one}}},
		{name: "a member that has come by a later number", seed: lapsing, steps: []when{
			{call: joinsBehind("w1", 2, 5), want: "again"},
			{call: joinsBehind("w1", 3, 5), want: "ok", state: renewed},
			{call: joinsBehind("w1", 3, 4), want: "ok"}}},
		{name: "a member without a round number", seed: state{"workers": "(w1=+30m)", "token": "=2"}, steps: []when{
			{call: joins("w1", 1), want: "again"},
			{call: joins("w1", 2), want: "ok", state: state{"workers": "(w1=+60m)", "rounds": "{fence=2 lease=3600000 w1=1}", "token": "=2"}}}},
		{name: "a round number of a worker that is no member", seed: one.with("workers", "(w2=+60m)"), steps: []when{
			{call: joins("w1", 2), want: "again"},
			{call: joins("w1", 3), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=3 lease=3600000 w1=1}")}}},
		{name: "a suspect that is no member", seed: one.with("suspects", "(w2=+5m)"), steps: []when{
			{call: joins("w2", 2), want: "again"},
			{call: joins("w2", 5), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=3 lease=3600000 w1=4 w2=1}")}}},
		{name: "while its tasks are being returned", seed: one.with("suspects", "(w3=-1 w2=0)"), steps: []when{
			{call: joins("w2", 5), want: "EVICTED"},
			{call: joins("w3", 5), want: "EVICTED"},
			{call: joins("w3", 0), want: "EVICTED"}}},
		{name: "no fence yet", seed: one.with("rounds", "{w1=4}"), steps: []when{
			{call: joins("w2", 0), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=0 lease=3600000 w1=4 w2=1}")},
			{call: fails("w2"), want: "known=true returned=0", state: one.with("rounds", "{fence=6 lease=3600000 w1=4}", "token", "=6")}}},
		{name: "no fence yet, and the first that goes", seed: three.with("rounds", "{lease=3600000 w1=4 w2=7 w3=9}"), steps: []when{
			{call: fails("w2"), want: "known=true returned=0", state: without2}}},
		{name: "Redis has lost tokens, and others are there", seed: one.with("rounds", "{fence=9 lease=3600000 w1=4}"), steps: []when{
			{call: joins("w2", 4), want: "again"},
			{call: joins("w2", 5), want: "ok", state: one.with("workers", "(w1=+60m w2=+60m)", "rounds", "{fence=5 lease=3600000 w1=4 w2=1}")}}},
		{name: "Redis has lost all tokens", seed: one.with("token", ""), steps: []when{
			{call: joins("w2", 0), want: "ok", state: one.with("token", "", "workers", "(w1=+60m w2=+60m)", "rounds", "{fence=0 lease=3600000 w1=4 w2=1}")}}},
		{name: "Redis has lost tokens, no members", seed: state{"token": "=7"}, steps: []when{
			{call: joins("w1", 9), want: "ok", state: state{"workers": "(w1=+60m)", "rounds": "{fence=7 lease=3600000 w1=1}", "token": "=7"}}}},
		{name: "members of another type", seed: state{"workers": "=foreign", "suspects": "(w1=+5m)"}, steps: []when{{call: joins("w1", 0), want: "WRONGTYPE"}}},
		{name: "suspects of another type", seed: one.with("suspects", "=foreign"), steps: []when{{call: joins("w2", 5), want: "WRONGTYPE"}}},
		{name: "rounds of another type", seed: lapsing.with("rounds", "=foreign"), steps: []when{{call: joins("w1", 5), want: "WRONGTYPE"}, {call: joins("w2", 5), want: "WRONGTYPE"}}},
		{name: "a token of another type", seed: lapsing.with("token", "[5]"), steps: []when{{call: joins("w1", 5), want: "WRONGTYPE"}, {call: joins("w2", 5), want: "WRONGTYPE"}}},
		{name: "a token that is no number", seed: lapsing.with("token", "=x"), steps: []when{{call: joins("w1", 5), want: "WRONGTYPE"}, {call: joins("w2", 5), want: "WRONGTYPE"}}},
	})
}
