package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// instant is the time, in ms, at which the clock stands still in TestInstant: so long ago that states
// show all times unchanged.
const instant = 1_000_999

// runAtInstant plays scenarios while time stands still. It doesn't run beside other tests, which need
// the real time: they wait until it ends.
func runAtInstant(t *testing.T, scenarios []scenario) {
	t.Helper()
	rewrite(t, func(source string) string {
		return strings.ReplaceAll(source, "redis.call('TIME')", "{ '1000', '999500' }")
	})
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), s.alive)
			e.still = instant
			e.play(s)
		})
	}
}

// atInstant returns the time that many ms after instant.
func atInstant(ms int) string { return fmt.Sprint(instant + ms) }

// While time stands still, results that depend on it are exact: TestInstant checks behavior to the
// millisecond, and with equal times.
func TestInstant(t *testing.T) {
	at := atInstant
	beat := func(leaseMs, graceMs int, judge int64) func(*env) string {
		return func(e *env) string {
			p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, "w1", time.Duration(leaseMs)*time.Millisecond, time.Duration(graceMs)*time.Millisecond, judge))[0])
			return said(err, "lapsed=%t failed=%v due=%d now=%d", p.Lapsed, p.Failed, p.Due.Milliseconds(), p.Now)
		}
	}
	sweep := func(graceMs int) func(*env) string {
		return func(e *env) string {
			l, err := Sweep(e.ctx, e.line, e.q, time.Duration(graceMs)*time.Millisecond)
			return said(err, "failed=%v due=%d", l.Failed, l.Due.Milliseconds())
		}
	}
	round := func(r Round) func(*env) string {
		return func(e *env) string {
			r.Worker, r.Number = "w1", 1
			a, err := Step(e.ctx, e.line, e.q, &r)
			if err != nil {
				return refused(err)
			}
			due := a.Due.Microseconds()
			if a.Due < 0 {
				due = -1
			}
			return fmt.Sprintf("settled=%v started=%d due=%d", a.Settled, len(a.Started), due)
		}
	}
	// A score as in Redis, since states show distant times in minutes.
	scored := func(key, member, want string) func(*env) string {
		return func(e *env) string {
			got, err := redis.String(e.conn.Do("ZSCORE", e.key(key), member))
			if err != nil || got != want {
				return fmt.Sprint(got, err)
			}
			return ""
		}
	}
	w1 := func(score string) state { return state{"workers": "(w1=" + score + ")"} }
	one := func(entry, due string) state {
		return state{"workers": "(w1=" + at(9) + ")", "schedule": "(" + entry + "=" + due + ")", "contents": "(#a:" + entry + "=0)", "keyed:" + entry: waits("a", due, 0, 0)}
	}
	joined := w1(at(1)).with("rounds", "{fence=0 w1=1}")
	late := state{"workers": "(w2=" + at(-1) + " w1=" + at(9) + ")", "suspects": "(w2=" + at(0) + ")"}
	idle := one("k:y", at(0)).with("idle", "(w3=clock:now)")
	over := state{"recurring": "(k:x=" + at(-1) + ")"}
	runAtInstant(t, []scenario{
		{name: "recur: the right to judge, to the end", seed: over, steps: []when{{call: recursAll(5, instant), want: "ended=k:x", state: state{}}}},
		{name: "recur: the right to judge has ended", seed: over, steps: []when{{call: recursAll(5, instant-1), want: ""}}},
		{name: "join: a lease of a millisecond", steps: []when{{call: joinsFor(time.Millisecond, "w1", 0, 1), want: "ok", state: joined.with("rounds", "{fence=0 lease=1 w1=1}")}}},
		{name: "join: for ever", steps: []when{{call: joinsFor(0, "w1", 0, 1), want: "ok", state: joined.with("workers", "(w1=never)")}}},
		{name: "beat: a lease of a millisecond", seed: w1(at(0)), steps: []when{{call: beat(1, 1, 0), want: "lapsed=false failed=[] due=-1 now=1000999", state: w1(at(1))}}},
		{name: "beat: expired by a millisecond", seed: w1(at(-1)), steps: []when{{call: beat(0, 1, 0), want: "lapsed=true failed=[] due=-1 now=1000999", state: w1("never")}}},
		{name: "beat: the right to judge, to the end", seed: late, steps: []when{{call: beat(9, 5, instant), want: "lapsed=false failed=[{w2 0}] due=-1 now=1000999", state: w1(at(9)).with("token", "=1")}}},
		{name: "beat: the right to judge has ended", seed: late, steps: []when{{call: beat(9, 5, instant-1), want: "lapsed=false failed=[] due=0 now=1000999"}}},
		{name: "beat: the longest right to judge", seed: late, steps: []when{{call: beat(9, 5, instant+10), want: "lapsed=false failed=[{w2 0}] due=-1 now=1000999", state: w1(at(9)).with("token", "=1")}}},
		{name: "beat: a longer right to judge than any", seed: late, steps: []when{{call: beat(9, 5, instant+11), want: "lapsed=false failed=[] due=0 now=1000999"}}},
		{name: "beat: a longer lease than any", seed: late, steps: []when{{call: beat(8, 5, instant), want: "lapsed=false failed=[] due=0 now=1000999",
			state: late.with("workers", "(w2="+at(-1)+" w1="+at(8)+")")}}},
		{name: "beat: the caller's lease ends now", seed: late.with("workers", "(w2="+at(-1)+" w1="+at(0)+")"), steps: []when{
			{call: beat(9, 5, instant), want: "lapsed=false failed=[{w2 0}] due=-1 now=1000999", state: w1(at(9)).with("token", "=1")}}},
		{name: "beat: a lease that never ends", seed: late.with("workers", "(w2="+at(-1)+" w1=never)"), steps: []when{
			{call: beat(0, 5, instant), want: "lapsed=false failed=[{w2 0}] due=-1 now=1000999", state: w1("never").with("token", "=1")}}},
		{name: "sweep: a lease that has not expired", seed: w1(at(0)), steps: []when{{call: sweep(5), want: "failed=[] due=-1"}}},
		{name: "sweep: a suspect, and when to fail it", seed: w1(at(-1)), steps: []when{{call: sweep(5), want: "failed=[] due=5", state: w1(at(-1)).with("suspects", "(w1="+at(5)+")")}}},
		{name: "sweep: a beat at the last moment", seed: w1(at(0)).with("suspects", "(w1="+at(-1)+")"), steps: []when{{call: sweep(5), want: "failed=[] due=-1", state: w1(at(0))}}},
		{name: "sweep: not due yet", seed: w1(at(-5)).with("suspects", "(w1="+at(1)+")"), steps: []when{{call: sweep(5), want: "failed=[] due=1"}}},
		{name: "step: a lease of a millisecond", seed: w1(at(0)), steps: []when{{call: round(Round{Lease: time.Millisecond}), want: "settled=[] started=0 due=-1", state: w1(at(1)).with("rounds", "{w1=1}")}}},
		{name: "step: for ever", seed: w1(at(0)), steps: []when{{call: round(Round{}), want: "settled=[] started=0 due=-1", state: w1("never").with("rounds", "{w1=1}")}}},
		{name: "step: due now", seed: one("k:x", at(0)), steps: []when{{call: round(Round{Lease: 9 * time.Millisecond, Start: []string{"p1"}}), want: "settled=[] started=1 due=-1",
			state: w1(at(9)).with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "keyed:k:x", runs("p1", 0, 0))}}},
		{name: "step: due in a millisecond, less the elapsed fraction", seed: one("k:x", at(1)), steps: []when{
			{call: round(Round{Lease: 9 * time.Millisecond, Idle: true, Start: []string{"p1"}}), want: "settled=[] started=0 due=500", state: one("k:x", at(1)).with("rounds", "{w1=1}", "idle", "(w1=clock:now)")}}},
		{name: "step: an hour at most", seed: one("k:x", at(4_000_000)), steps: []when{
			{call: round(Round{Lease: 9 * time.Millisecond, Idle: true, Start: []string{"p1"}}), want: "settled=[] started=0 due=3600000000", state: one("k:x", at(4_000_000)).with("rounds", "{w1=1}", "idle", "(w1=clock:now)")},
			{call: scored("idle", "w1", "8796094023207")}}},
		{name: "step: due now is not in the future", seed: one("k:x", at(0)).with("paused", "=1", "schedule", "(k:x="+at(0)+" k:y="+at(7)+")"), steps: []when{
			{call: round(Round{Lease: 9 * time.Millisecond, Idle: true, Start: []string{"p1"}}), want: "settled=[] started=0 due=-1", state: one("k:x", at(0)).with("paused", "=1", "schedule", "(k:x="+at(0)+" k:y="+at(7)+")", "rounds", "{w1=1}", "idle", "(w1=clock:now)")}}},
		{name: "step: a due task that may not start does not set the timer", seed: one("k:x", at(0)).with("schedule", "(k:x="+at(0)+" k:y="+at(7)+")", "keyed:k:x", waits("a", at(0), 0, 2)), steps: []when{
			{call: round(Round{Lease: 9 * time.Millisecond, Idle: true, Crashes: 3, Start: []string{"p1"}}), want: "settled=[] started=0 due=6500",
				state: one("k:x", at(0)).with("schedule", "(k:x="+at(0)+" k:y="+at(7)+")", "keyed:k:x", waits("a", at(0), 0, 2), "rounds", "{w1=1}", "idle", "(w1=clock:now)")}}},
		{name: "put: rings for an entry after one that is due now", alive: []string{"w3"}, seed: idle, steps: []when{
			{call: sets("x", "b", at(5)), want: "ok", heard: []string{"wake:w3 0", "enqueue 1"}, state: one("k:y", at(0)).with("schedule", "(k:y="+at(0)+" k:x="+at(5)+")", "contents", "(#a:k:y=0 #b:k:x=0)", "keyed:k:x", waits("b", at(5), 0, 0))}}},
		{name: "put: due now wakes", alive: []string{"w3"}, seed: state{"idle": "(w3=5)"}, steps: []when{
			{call: sets("x", "b", at(0)), want: "ok", heard: []string{"wake:w3 1", "enqueue 1"}, state: state{"schedule": "(k:x=" + at(0) + ")", "contents": "(#b:k:x=0)", "keyed:k:x": waits("b", at(0), 0, 0)}}}},
		{name: "beat: a page of expired members each time", seed: page(106).with("working:w1", "", "process:p1", "", "cancel:#t105", "", "holders", "(w9=200)"), steps: []when{
			{call: beat(9, 5, 0), want: "lapsed=false failed=[] due=-1 now=1000999", state: state{"workers": "(w1=" + at(9) + ")", "token": "=106", "holders": "(w9=200)",
				"canceled": "(#t0=1 #t1=2 #t2=3 #t3=4 #t104=105 #t105=106)"}}}},
		{name: "beat: less than a page of expired members", seed: page(50).with("working:w1", "", "process:p1", "", "cancel:#t49", "", "holders", "(w9=200)"), steps: []when{
			{call: beat(9, 5, 0), want: "lapsed=false failed=[] due=-1 now=1000999", state: state{"workers": "(w1=" + at(9) + ")", "token": "=50", "holders": "(w9=200)"}}}},
		{name: "fail: set aside, to the millisecond", seed: state{"failed:workers": "(w1=" + at(9) + ")", "failed:working:w1": "(p1=1)", "failed:process:p1": "[a]", "failed:token": "=1"}, steps: []when{
			{call: inFailed(round(Round{Lease: 9 * time.Millisecond, Keep: 9, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Failed}}})), want: "settled=[ok] started=0 due=-1",
				state: state{"failed:workers": "(w1=" + at(9) + ")", "failed:token": "=1", "failed:rounds": "{w1=1}", "failed:schedule": "(r:p1=aside:now)", "failed:contents": "(#a:r:p1=0)", "failed:keyed:r:p1": waits("a", "aside:now", 0, 0)}},
			{call: scored("failed:schedule", "r:p1", "4503599628371495")}}},
	})
}
