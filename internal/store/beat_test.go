package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var _ = probed("beat",
	probe{seed: busy, call: beats("w1", true)},
	probe{what: "in the schedule", seed: busyLane, call: beats("w1", true)},
)

// beats renews the lease for an hour; suspects have another hour.
func beats(worker string, judge bool) func(*env) string {
	if judge {
		return judges(worker, time.Minute)
	}
	return judges(worker, 0)
}

// judges makes a beat that may judge for the time right; 0 means not at all.
func judges(worker string, right time.Duration) func(*env) string {
	return func(e *env) string {
		var until int64
		if right > 0 {
			until = e.now() + right.Milliseconds()
		}
		p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, worker, time.Hour, time.Hour, until))[0])
		if err != nil {
			return refused(err)
		}
		var w words
		w.flag("lapsed", p.Lapsed)
		w.num("waiting", int64(p.Waiting), 0)
		w.num("held", int64(p.Held), 0)
		w.num("rank", int64(p.Rank), -1)
		w.num("canceled", p.Canceled, 0)
		w.flag("over", p.Over)
		w.look(p.Look)
		return w.String()
	}
}

// The first beats that notice an expired lease suspect its worker, and a later one returns its tasks,
// in pages.
func TestBeat(t *testing.T) {
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

// Two looks record two pages of workers whose leases have expired. The second follows immediately,
// whether or not the looking worker may judge.
func TestSuspectsInPages(t *testing.T) {
	e := beside(t, nil)
	e.crowd(1100, 0, 1)
	e.must(e.conn.Do("ZADD", e.q.Workers(), e.now()+time.Hour.Milliseconds(), "judge"))
	for i, want := range []int{1000, 1100, 1100} {
		p := sure(ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, "judge", time.Hour, time.Minute, 0))[0]))(e.t)
		if n := e.count("ZCARD", "suspects"); n != want || p.Again != (i == 0) {
			t.Errorf("look %d: %d suspects, again: %t", i, n, p.Again)
		}
	}
}

func TestGuardBeat(t *testing.T) {
	record := func(token string) string { return h("finished=0", "stopped=0", "token="+token) }
	log := state{"token": "=2", "canceled": "(#a=2)", "cancel:#a": record("2") + " +1440m"}
	held := rawP.merged(log)
	stopping := "(" + stopped("a", 1, "p1") + "=0)"
	run(t, []scenario{
		{name: "added tasks wait, too", seed: line, steps: []when{{call: beats("w1", true), want: "waiting=4"}}},
		{name: "where added tasks wait there is something else", seed: member.with("added", "=foreign"), steps: []when{{call: beats("w1", true), want: ""}}},
		{name: "schedules without an assertion", seed: member.with("recurring", "(k:y=-1m k:x=+1m)"), steps: []when{{call: beats("w1", true), want: "over"}}},
		{name: "asserted schedules", seed: member.with("recurring", "(k:x=+1m k:y=+2m)"), steps: []when{{call: beats("w1", true), want: ""}}},
		{name: "schedules of another type", seed: member.with("recurring", "[a]"), steps: []when{{call: beats("w1", true), want: ""}}},
		{name: "the place among the idle", seed: member.with("idle", "(w1=-1m)"), steps: []when{{call: beats("w1", true), want: "rank=0"}}},
		{name: "a holder is recorded", seed: rawP.with("holders", "(w9=4)"), steps: []when{
			{call: beats("w1", false), want: "held=1", state: rawP.with("holders", "(w1=0 w9=4)")}}},
		{name: "holders of another type", seed: held.with("holders", "=foreign"), steps: []when{{call: beats("w1", false), want: "held=1 canceled=2"}}},
		{name: "a token that is no number", seed: held.with("token", "=x", "canceled", "(#a=1)"), steps: []when{{call: beats("w1", false), want: "held=1"}}},
		{name: "acknowledged cancels", seed: held.with("holders", "(w1=2)", "stopping", stopping), steps: []when{{call: beats("w1", false), want: "held=1"}}},
		{name: "it holds nothing", seed: member.merged(log).with("holders", "(w1=0)"), steps: []when{
			{call: beats("w1", false), want: "", state: member.merged(log)}}},
		{name: "it holds nothing, and there are no cancels", seed: member.with("holders", "(w1=0)"), steps: []when{{call: beats("w1", false), want: ""}}},
	})
}

func ones(from, to int) []string {
	return series(to-from, func(i int) string { return fmt.Sprintf("#t%d=1", from+i) })
}

func itoa(n int) string { return strconv.Itoa(n) }

// While Redis's clock was ahead, w2 renewed its lease, and died. If it lives, it renews its lease in time.
func TestClockWasAhead(t *testing.T) {
	const year = "+525600m"
	one := state{"queues": "[z]", "workers": "(w1=+60m w2=" + year + ")", "rounds": "{lease=3600000 w2=1}", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "token": "=2"}
	suspected := one.with("suspects", "(w2=+90m)")
	due := one.with("suspects", "(w2=-1m)")
	back := state{"queues": "[a b z]", "workers": "(w1=+60m)", "token": "=3", "ledger": "{#a=1 #b=1}"}
	lapsed := one.with("workers", "(w2=-1m w1=+60m)", "suspects", "(w2="+year+")")
	both := one.with("workers", "(w3=-1m w4=-1m w1=+60m w2="+year+")")
	lives := one.with("workers", "(w1=+60m w2=+60m)")
	judge := func(e *env) string { // with the deadline that was read
		return checks(true, CheckMembers, sure(Check(e.ctx, e.doctor(), e.q, CheckMembers, "", false, []string{":w2"}))(e.t).Flaws[0].Detail+":w2")(e)
	}
	run(t, []scenario{
		{name: "the first look suspects it, early ones do nothing", seed: one, steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=+90m", state: suspected},
			{call: beats("w1", true), want: "waiting=1 due=+90m"},
			{call: sweeps, want: "due=+90m"}}},
		{name: "it lives", seed: suspected, steps: []when{{call: beats("w2", true), want: "waiting=1 held=2", state: lives}}},
		{name: "it lives, and works", seed: suspected, steps: []when{{call: steps(Round{Worker: "w2", Number: 2, Lease: time.Hour}), want: "", state: lives.with("rounds", "{lease=3600000 w2=2}")}}},
		{name: "a peer may not judge", seed: due, steps: []when{{call: beats("w1", false), want: "waiting=1 due=now"}}},
		{name: "a peer finds it dead", seed: due, steps: []when{{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back}}},
		{name: "a sweep finds it dead", seed: due, steps: []when{{call: sweeps, want: "failed=w2/2 returned=2", state: back}}},
		{name: "its lease has expired, but it is to be judged in a year", seed: lapsed, steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=+60m", state: lapsed.with("suspects", "(w2=+60m)")}}},
		{name: "leases of others have expired", seed: both, steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=+60m", state: both.with("suspects", "(w3=+60m w4=+60m w2=+90m)")}}},
		{name: "and it is a suspect", seed: both.with("suspects", "(w2=+90m)"), steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=+60m", state: both.with("suspects", "(w3=+60m w4=+60m w2=+90m)")}}},
		{name: "another member has a lease that is as long", seed: one.with("rounds", "{lease=31536060000 w2=1}"), steps: []when{{call: beats("w1", true), want: "waiting=1"}}},
		{name: "a lease that never expires", seed: one.with("workers", "(w1=+60m w2=never)"), steps: []when{{call: beats("w1", true), want: "waiting=1"}}},
		{name: "the longest lease isn't known", seed: one.with("rounds", "{w2=1}"), steps: []when{{call: beats("w1", true), want: "waiting=1"}}},
		{name: "check", seed: one, steps: []when{
			{call: checks(false, CheckMembers, ":w1", ":w2"), want: "expired-worker w2"},
			{call: checks(true, CheckMembers, ":w2", "123:w2"), want: "expired-worker w2, expired-worker w2"},
			{call: judge, want: "expired-worker w2 mended", state: back}}},
		{name: "check: nobody else serves the queue", seed: one.with("workers", "(w2="+year+")"), steps: []when{
			{call: checks(false, CheckQueue, "q"), want: "no-worker q 1"}}},
	})
}
