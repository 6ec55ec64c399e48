package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// failedOf returns a failed task of the list, or of a key.
func failedOf(payload, due string, fields ...string) string {
	return h(append([]string{waits(payload, due, 0, 0), "kind=failed reason=r tries=0 deaths=0 worker=w1 at=" + due, "from="}, fields...)...)
}

// merged returns a state with the keys of another one added or replaced.
func (s state) merged(t state) state {
	c := s.with()
	maps.Copy(c, t)
	return c
}

// failed returns the same state for the failed queue.
func (s state) failed() state {
	c := state{}
	for k, v := range s {
		c["failed:"+k] = v
	}
	return c
}

var gaveUp = Outcome{Kind: Failed, Reason: "r"}

func TestGiveUp(t *testing.T) {
	one := state{"failed:schedule": "(k:p1=now)", "failed:contents": "(#a:k:p1=0)", "failed:keyed:k:p1": failedOf("a", "now")}
	three := state{"failed:schedule": "(k:g1=-9m k:g2=-8m k:g3=-7m)", "failed:contents": "(#x:k:g1=0 #y:k:g2=0 #z:k:g3=0)",
		"failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("y", "-8m"), "failed:keyed:k:g3": failedOf("z", "-7m")}
	large := strings.Repeat("l", 1<<19)
	keep := func(n int) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Keep: n, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Failed, Reason: "r"}}})
	}
	run(t, []scenario{
		{name: "raw", alive: []string{"failed:w9", "w2"}, seed: rawP.with("failed:idle", "(w9=-1m)", "idle", "(w2=-1m)", "ledger", "{#a=2}"), steps: []when{
			{call: ends(2, "p1", 1, Fail, gaveUp), want: "settled=ok", heard: []string{"failed:wake:w9 1"},
				state: doneX.with("idle", "(w2=-1m)").merged(one).with("failed:keyed:k:p1", failedOf("a", "now", "deaths=2"))},
			{call: ends(3, "p1", 1, Fail, gaveUp), want: "settled=gone", state: doneX.with("idle", "(w2=-1m)", "rounds", "{w1=3}").merged(one).with("failed:keyed:k:p1", failedOf("a", "now", "deaths=2"))}}},
		{name: "any bytes", seed: rawP.with("process:p1", `[x]`), steps: []when{
			{call: ends(2, "p1", 1, Fail, Outcome{Kind: Malformed, Reason: "\x00: é\n{"}), want: "settled=ok", state: doneX.with("failed:schedule", "(k:p1=now)", "failed:contents", "(#x:k:p1=0)",
				"failed:keyed:k:p1", failedOf("x", "now", "kind=malformed", `reason="\x00: é\n{"`))}}},
		{name: "the newest are kept", seed: rawP.merged(three), steps: []when{
			{call: keep(2), want: "settled=ok dropped=2", state: doneX.merged(state{"failed:schedule": "(k:g3=-7m k:p1=now)", "failed:contents": "(#a:k:p1=0 #z:k:g3=0)",
				"failed:keyed:k:g3": failedOf("z", "-7m"), "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "one of the oldest is lost", seed: rawP.merged(three).with("failed:keyed:k:g1", ""), steps: []when{
			{call: keep(2), want: "settled=ok dropped=2", state: doneX.merged(state{"failed:schedule": "(k:g3=-7m k:p1=now)", "failed:contents": "(#a:k:p1=0 #x:k:g1=0 #z:k:g3=0)",
				"failed:keyed:k:g3": failedOf("z", "-7m"), "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "a mebibyte at once", seed: rawP.merged(three).with("failed:keyed:k:g1", failedOf(large, "-9m"), "failed:keyed:k:g2", failedOf(large, "-8m"),
			"failed:contents", "("+digest(large)+":k:g1=0 "+digest(large)+":k:g2=0 #z:k:g3=0)"), steps: []when{
			{call: keep(1), want: "settled=ok dropped=2", state: doneX.merged(state{"failed:schedule": "(k:g3=-7m k:p1=now)", "failed:contents": "(#a:k:p1=0 #z:k:g3=0)",
				"failed:keyed:k:g3": failedOf("z", "-7m"), "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "tasks that were set aside count by their time", seed: rawP.merged(three).with("failed:schedule", "(k:g1=-9m k:g3=-7m k:g2=aside:-8m)"), steps: []when{
			{call: keep(3), want: "settled=ok dropped=1", state: doneX.merged(state{"failed:schedule": "(k:g3=-7m k:p1=now k:g2=aside:-8m)", "failed:contents": "(#a:k:p1=0 #y:k:g2=0 #z:k:g3=0)",
				"failed:keyed:k:g2": failedOf("y", "-8m"), "failed:keyed:k:g3": failedOf("z", "-7m"), "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "the oldest was set aside", seed: rawP.merged(three).with("failed:schedule", "(k:g2=-8m k:g3=-7m k:g1=aside:-9m)"), steps: []when{
			{call: keep(3), want: "settled=ok dropped=1", state: doneX.merged(state{"failed:schedule": "(k:g2=-8m k:g3=-7m k:p1=now)", "failed:contents": "(#a:k:p1=0 #y:k:g2=0 #z:k:g3=0)",
				"failed:keyed:k:g2": failedOf("y", "-8m"), "failed:keyed:k:g3": failedOf("z", "-7m"), "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "the task it blocked is released", seed: blockedX, steps: []when{
			{call: ends(2, "p1", 1, Fail, gaveUp), want: "settled=ok", state: doneX.merged(one).with("schedule", "(k:x=+20m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+20m", 0, 0),
				"failed:keyed:k:p1", failedOf("a", "now", "tries=2", "deaths=1", "from=k:x"))}}},
	})
}

// A task with too many crashes fails when it would start; the others get the ids of their places.
func TestCrashed(t *testing.T) {
	worn := func(payload, from, tries, deaths string) string {
		return failedOf(payload, "now", "kind=crashed", "tries="+tries, "deaths="+deaths, "from="+from, `reason="`+deaths+` workers died holding it"`)
	}
	seed := keyX.with("queues", "[b c d]", "ledger", "{#b=3}", "keyed:k:x", waits("a", "-1m", 2, 3))
	take := func(n int64, ids ...string) func(*env) string {
		return steps(Round{Worker: "w1", Number: n, Crashes: 3, Idle: true, Start: ids})
	}
	failedTasks := state{"failed:schedule": "(k:p4.001=now k:p4.002=now)", "failed:contents": "(#a:k:p4.001=0 #b:k:p4.002=0)",
		"failed:keyed:k:p4.001": h(worn("a", "k:x", "2", "3"), "planned=-1m"), "failed:keyed:k:p4.002": worn("b", "", "0", "3")}
	after := member.with("rounds", "{w1=1}", "token", "=2", "working:w1", "(p1=1 p2=2)", "process:p1", "[c]", "process:p2", "[d]").merged(failedTasks)
	run(t, []scenario{
		{name: "both lanes", seed: seed, steps: []when{
			{call: take(1, "p1", "p2", "p3", "p4"), want: "started=c/1,d/2 rank=0 unstarted=2", state: after.with("idle", "(w1=clock:now)")},
			{call: take(1, "p1", "p2", "p3", "p4"), want: "started=c/1,d/2 rank=0", state: after.with("idle", "(w1=now)")}}},
		{name: "all of them", seed: member.with("queues", "[b b]", "ledger", "{#b=3}"), steps: []when{
			// The count of crashes goes with the first one.
			{call: take(1, "p1", "p2", "p3"), want: "started=b/1 rank=0 unstarted=1", state: member.with("idle", "(w1=now)", "rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[b]",
				"failed:schedule", "(k:p3.001=now)", "failed:contents", "(#b:k:p3.001=0)", "failed:keyed:k:p3.001", worn("b", "", "0", "3"))}}},
		{name: "never", seed: seed, steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=a/1@k:x~2!3,b/2!3", state: runX.with("token", "=2", "working:w1", "(p1=1 p2=2)", "process:p2", "[b]", "queues", "[c d]",
				"keyed:k:x", runs("p1", 2, 3), "ledger", "{#b=3}")}}},
	})
}

// A failed queue is a queue, too. Tasks that fail there are set aside.
func TestFailedQueue(t *testing.T) {
	w := member.failed()
	seed := w.with("failed:schedule", "(k:g1=-9m)", "failed:contents", "(#a:k:g1=0)", "failed:keyed:k:g1", failedOf("a", "-9m", "from=k:x"))
	meta := "kind=failed reason=r tries=0 deaths=0 worker=w1 at=-9m from=k:x"
	running := w.with("failed:rounds", "{w1=1}", "failed:token", "=1", "failed:working:w1", "(p1=1)", "failed:process:p1", "[a]", "failed:entries", "{p1=k:g1}",
		"failed:keyed:k:g1", h(meta, runs("p1", 0, 0)))
	over := w.with("failed:rounds", "{w1=2}", "failed:token", "=1")
	back := over.with("failed:contents", "(#a:k:g1=0)")
	story := `{k:g1 a failed "r" ~0 !0 w1 "k:x" -9m 0}`
	run(t, []scenario{
		{name: "start and finish", seed: seed, steps: []when{
			{call: inFailed(begins(1, "p1")), want: "started=a/1@k:g1" + story, state: running},
			{call: inFailed(begins(1, "p1")), want: "started=a/1@k:g1" + story},
			{call: requeues("k:g1"), want: "requeued=0"},
			{call: inFailed(removes("k:g1")), want: "removed=false"},
			{call: inFailed(ends(2, "p1", 1, Drop, Outcome{})), want: "settled=ok", state: over}}},
		{name: "retry", seed: running, steps: []when{
			{call: inFailed(ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour})), want: "settled=ok", state: back.with("failed:schedule", "(k:g1=+60m)", "failed:keyed:k:g1", h(meta, waits("a", "+60m", 1, 0)))}}},
		{name: "give up", seed: running, steps: []when{
			{call: inFailed(ends(2, "p1", 1, Fail, gaveUp)), want: "settled=ok", state: back.with("failed:schedule", "(k:g1=aside:now)", "failed:keyed:k:g1", h(meta, waits("a", "aside:now", 0, 0)))},
			{call: inFailed(begins(3, "p2")), state: back.with("failed:rounds", "{w1=3}", "failed:schedule", "(k:g1=aside:now)", "failed:keyed:k:g1", h(meta, waits("a", "aside:now", 0, 0)))},
			{call: requeues("k:g1"), want: "requeued=1", heard: []string{"enqueue 1"},
				state: over.with("failed:rounds", "{w1=3}", "schedule", "(k:x=now)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "now", 0, 0))}}},
		{name: "its worker dies", seed: running, steps: []when{
			{call: inFailed(fails("w1")), want: "known=true returned=1", state: back.with("failed:workers", "", "failed:rounds", "", "failed:token", "=2", "failed:schedule", "(k:g1=1)", "failed:keyed:k:g1", h(meta, waits("a", "1", 0, 1)))}}},
		{name: "too many crashes", seed: seed.with("failed:keyed:k:g1", failedOf("a", "-9m", "from=k:x", "crashes=3")), steps: []when{
			{call: inFailed(steps(Round{Worker: "w1", Number: 1, Crashes: 3, Idle: true, Start: []string{"p1"}})), want: "rank=0", state: seed.with("failed:rounds", "{w1=1}",
				"failed:idle", "(w1=clock:now)", "failed:schedule", "(k:g1=aside:now)", "failed:keyed:k:g1", h(failedOf("a", "-9m", "from=k:x", "crashes=3"), "due=aside:now"))}}},
		{name: "another program pushed to its list", seed: w.with("failed:queues", "[z]"), steps: []when{
			{call: inFailed(begins(1, "p1")), want: "started=z/1", state: w.with("failed:rounds", "{w1=1}", "failed:token", "=1", "failed:working:w1", "(p1=1)", "failed:process:p1", "[z]")},
			{call: inFailed(ends(2, "p1", 1, Fail, gaveUp)), want: "settled=ok", state: over.with("failed:schedule", "(r:p1=aside:now)", "failed:contents", "(#z:r:p1=0)", "failed:keyed:r:p1", waits("z", "aside:now", 0, 0))},
			{call: requeues("r:p1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: over.with("queues", "[z]")}}},
	})
}

// Exactly one idle worker keeps the time of the next due task.
func TestClock(t *testing.T) {
	seed := keyX.with("workers", "(w1=+60m w2=+60m w3=+60m)", "schedule", "(k:x=+30m)", "keyed:k:x", waits("a", "+30m", 0, 0))
	idle := func(worker string, n int64, o ...*Outcome) func(*env) string {
		return steps(Round{Worker: worker, Number: n, Idle: true, Outcomes: o, Start: []string{worker + itoa(int(n))}})
	}
	kept := seed.with("rounds", "{w1=1}", "idle", "(w1=clock:now)")
	both := seed.with("rounds", "{w1=1 w2=1}", "idle", "(w2=now w1=clock:now)")
	run(t, []scenario{
		{name: "register, again, and the next", seed: seed, steps: []when{
			{call: idle("w1", 1), want: "rank=0 look=+30m", state: kept},
			{call: idle("w1", 1), want: "rank=0 look=+30m"},
			{call: idle("w2", 1), want: "rank=0", state: both},
			{call: beats("w1", true), want: "rank=1"}}},
		{name: "an hour at most", seed: seed.with("schedule", "(k:x=+300m)"), steps: []when{
			{call: idle("w1", 1), want: "rank=0 look=+60m", state: kept.with("schedule", "(k:x=+300m)")}}},
		{name: "never for tasks that were set aside", seed: seed.with("schedule", "(k:x=aside:-1m)"), steps: []when{
			{call: idle("w1", 1), want: "rank=0", state: kept.with("schedule", "(k:x=aside:-1m)")}}},
		{name: "the timekeeper changes", alive: []string{"w1", "w2"}, seed: both.with("queues", "[z]"), steps: []when{
			{call: idle("w1", 2), want: "started=z/1", heard: []string{"wake:w2 0"}, state: seed.with("rounds", "{w1=2 w2=1}", "token", "=1", "working:w1", "(w12=1)", "process:w12", "[z]")},
			{call: idle("w2", 2), want: "rank=0 look=+30m", state: seed.with("rounds", "{w1=2 w2=2}", "token", "=1", "working:w1", "(w12=1)", "process:w12", "[z]", "idle", "(w2=clock:now)")}}},
		{name: "the woken worker did not become idle again", alive: []string{"w1", "w2", "w3"}, seed: both.with("queues", "[z]", "idle", "(w2=-1m w1=clock:-1m)"), steps: []when{
			{call: sets("y", "b", "+5m"), want: "ok", heard: []string{"wake:w1 0", "enqueue 1"}, state: both.with("queues", "[z]", "idle", "(w2=-1m)",
				"schedule", "(k:y=+5m k:x=+30m)", "contents", "(#a:k:x=0 #b:k:y=0)", "keyed:k:y", waits("b", "+5m", 0, 0))},
			{call: idle("w1", 2), want: "started=z/1", heard: []string{"wake:w2 0"}, state: seed.with("rounds", "{w1=2 w2=1}", "token", "=1", "working:w1", "(w12=1)", "process:w12", "[z]",
				"schedule", "(k:y=+5m k:x=+30m)", "contents", "(#a:k:x=0 #b:k:y=0)", "keyed:k:y", waits("b", "+5m", 0, 0))}}},
		{name: "leaves", alive: []string{"w2"}, seed: both, steps: []when{
			{call: leaves("w1"), want: "returned=0", heard: []string{"wake:w2 0"}, state: seed.with("workers", "(w2=+60m w3=+60m)", "rounds", "{fence=1 w2=1}", "token", "=1")}}},
		{name: "dies", alive: []string{"w2"}, seed: both.with("workers", "(w1=-60m w2=+60m w3=+60m)", "suspects", "(w1=-1m)"), steps: []when{
			{call: beats("w3", true), want: "failed=w1", heard: []string{"wake:w2 0"}, state: seed.with("workers", "(w2=+60m w3=+60m)", "rounds", "{fence=1 w2=1}", "token", "=1")}}},
		{name: "paused", seed: seed.with("paused", "=1"), steps: []when{{call: idle("w1", 1), want: "rank=0", state: kept.with("paused", "=1")}}},
		{name: "due tasks are waiting tasks", seed: seed.with("queues", "[z]", "schedule", "(k:y=7 k:x=-1m k:z=+1m k:u=aside:-1m)"), steps: []when{{call: beats("w1", true), want: "waiting=3"}}},
		{name: "a retry comes first", alive: []string{"w2", "w3"}, seed: seed.merged(rawP).with("workers", seed["workers"], "idle", "(w2=-1m w3=clock:-1m)"), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: 5 * time.Minute}), want: "settled=ok", heard: []string{"wake:w3 0"}, state: seed.with("rounds", "{w1=2}", "token", "=1", "idle", "(w2=-1m)",
				"schedule", "(r:p1=+5m k:x=+30m)", "contents", "(#a:k:x=0 #a:r:p1=0)", "keyed:r:p1", waits("a", "+5m", 1, 0))}}},
		{name: "a retry by the next timekeeper", seed: rawP, steps: []when{
			{call: idle("w1", 2, &Outcome{Process: "p1", Token: 1, Verb: Retry, Delay: time.Hour}), want: "settled=ok rank=0 look=+60m", state: retryR.with("idle", "(w1=clock:now)")}}},
		{name: "the end of a blocking run wakes a worker for a due task", alive: []string{"w2"}, seed: blockedX.with("idle", "(w2=-1m)", "keyed:k:x", h(blockedX["keyed:k:x"], "due=-1m")), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", heard: []string{"wake:w2 1"}, state: doneX.with("schedule", "(k:x=-1m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "-1m", 0, 0))}}},
		{name: "the end of a blocking run rings", alive: []string{"w2"}, seed: blockedX.with("idle", "(w2=-1m)"), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", heard: []string{"wake:w2 0"}, state: doneX.with("schedule", "(k:x=+20m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+20m", 0, 0))}}},
		{name: "more is due", alive: []string{"w2"}, seed: keyX.with("workers", "(w1=+60m w2=+60m)", "idle", "(w2=-1m)", "schedule", "(k:x=-2m k:y=-1m)", "contents", "(#a:k:x=0 #b:k:y=0)", "keyed:k:y", waits("b", "-1m", 0, 0)), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", heard: []string{"wake:w2 1"}, state: runX.with("workers", "(w1=+60m w2=+60m)", "schedule", "(k:y=-1m)", "contents", "(#b:k:y=0)", "keyed:k:y", waits("b", "-1m", 0, 0))}}},
	})
}

// However many tasks one more crash would fail, they are left to a worker that may start one. No
// other worker is woken for them again and again, and tasks of the list still start.
func TestRisky(t *testing.T) {
	many := riskyEntries(150).with("queues", "[z]", "idle", "(w2=-1m)")
	after := many.with("queues", "", "idle", "(w2=-1m w1=clock:now)", "rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[z]")
	run(t, []scenario{
		{name: "left to others", alive: []string{"w1", "w2"}, seed: many, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 3, Idle: true, Start: []string{"p1", "p2"}}), want: "started=z/1 rank=1", state: after},
			{call: steps(Round{Worker: "w1", Number: 2, Crashes: 3, Solo: true, Idle: true, Start: []string{"p2", "p3"}}), want: "started=t0/2@k:t0000!2 rank=1", state: after.with(
				"rounds", "{w1=2}", "token", "=2", "working:w1", "(p1=1 p2=2)", "process:p2", "[t0]", "entries", "{p2=k:t0000}", "keyed:k:t0000", runs("p2", 0, 2),
				"schedule", strings.Replace(many["schedule"], "k:t0000=7 ", "", 1), "contents", strings.Replace(after["contents"], "#t0:k:t0000=0 ", "", 1))}}},
	})
}

// Scripts don't make up what Redis has lost, and nothing else is affected.
func TestLost(t *testing.T) {
	noProcess, noEntry := runX.with("process:p1", ""), runX.with("keyed:k:x", "")
	two := keyX.with("schedule", "(k:gone=-2m k:x=-1m)")
	unlocked := rawP.with("process:p1", "", "queues", "[b]")
	all := []scenario{
		{name: "a due entry", seed: two, steps: []when{{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX}}},
		{name: "only that", seed: member.with("schedule", "(k:gone=-2m)"), steps: []when{{call: begins(1, "p1"), state: member.with("rounds", "{w1=1}")}}},
		{name: "a running entry, finish", seed: noEntry, steps: []when{{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX}}},
		{name: "a running entry, retry", seed: noEntry, steps: []when{{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: backX.with("schedule", "(k:x=+60m)", "keyed:k:x", waits("a", "+60m", 1, 0))}}},
		{name: "a running entry, put again", seed: noEntry.merged(state{"schedule": "(k:x=+5m)", "contents": "(#b:k:x=0)", "keyed:k:x": waits("b", "+5m", 0, 0)}), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
				state: backX.with("schedule", "(k:x=+5m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+5m", 0, 0))}}},
		{name: "the process of a repeated round", seed: noProcess, steps: []when{{call: begins(1, "p1"), want: ""}}},
		{name: "a raw process, leave", seed: unlocked, steps: []when{{call: leaves("w1"), want: "returned=0", state: state{"token": "=2", "queues": "[b]"}}}},
		{name: "a raw process, fail", seed: rawP.with("process:p1", ""), steps: []when{{call: fails("w1"), want: "known=true returned=0", state: state{"token": "=2"}}}},
		{name: "another process runs the key", seed: runX.with("workers", "(w1=+60m w2=+60m)", "working:w2", "(p2=2)", "process:p2", "[b]", "entries", "{p1=k:x p2=k:x}", "keyed:k:x", runs("p2", 0, 0)), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX.with("workers", "(w1=+60m w2=+60m)", "working:w2", "(p2=2)", "process:p2", "[b]", "entries", "{p2=k:x}", "keyed:k:x", runs("p2", 0, 0))}}},
	}
	for _, v := range []Ending{Stop, Retry, Snooze, Fail, Drop} {
		want := "settled=canceled"
		if v == Drop {
			want = "settled=ok"
		}
		all = append(all, scenario{name: "the process, " + string(v), seed: noProcess, steps: []when{{call: ends(2, "p1", 1, v, Outcome{Kind: Failed}), want: want, state: doneX}}},
			scenario{name: "a raw process, " + string(v), seed: unlocked, steps: []when{{call: ends(2, "p1", 1, v, Outcome{Kind: Failed}), want: want, state: doneX.with("queues", "[b]")}}})
	}
	run(t, all)
}

// Failed tasks are deleted and requeued a page at a time: a hundred tasks, or a mebibyte of payloads.
// Redis does nothing else during a page.
func TestFailedPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for name, c := range map[string]struct{ tasks, size, page int }{
		"elements": {250, 1, 100},
		"bytes":    {24, 300 << 10, 3},
		"exactly":  {8, 512 << 10, 2},
		"one":      {3, 2 << 20, 1},
	} {
		for verb, call := range map[string]func(e *env, r Runner, ids []string) (int, error){
			"DeleteFailed":     func(e *env, r Runner, ids []string) (int, error) { return DeleteFailed(e.ctx, r, e.q, ids) },
			"RequeueFailed":    func(e *env, r Runner, ids []string) (int, error) { return RequeueFailed(e.ctx, r, e.q, ids) },
			"DeleteAllFailed":  func(e *env, r Runner, _ []string) (int, error) { return DeleteAllFailed(e.ctx, r, e.q) },
			"RequeueAllFailed": func(e *env, r Runner, _ []string) (int, error) { return RequeueAllFailed(e.ctx, r, e.q) },
		} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				e, payload := newEnv(t, url, nil), strings.Repeat("x", c.size)
				var ids []string
				for i := range c.tasks {
					id := fmt.Sprint("g", i)
					ids = append(ids, id)
					e.must(nil, e.conn.Send("HSET", e.q.Failed().Keyed(EntryOf(id)), "payload", payload, "kind", Failed, "at", i))
					e.must(nil, e.conn.Send("ZADD", e.q.Failed().Contents(), 0, digest(payload)+":"+EntryOf(id)))
					e.must(e.conn.Do("ZADD", e.q.Failed().Schedule(), i, EntryOf(id)))
				}
				left, pages := c.tasks, 0
				n, err := call(e, &hooked{Runner: e.line, after: func(int) {
					now := e.count("ZCARD", "failed:schedule")
					if now < left {
						pages++
					}
					if left-now > c.page {
						t.Errorf("%d tasks of %d bytes at once, not %d", left-now, c.size, c.page)
					}
					left = now
				}}, ids)
				e.must(nil, err)
				if most := (c.tasks + c.page - 1) / c.page; n != c.tasks || left > 0 || pages > most {
					t.Errorf("%d of %d tasks in %d pages, %d are left", n, c.tasks, pages, left)
				}
			})
		}
	}
}

// However many tasks fail in one round, and however long the failed queue is, the round drops at most
// the hundred oldest, and none for which there is room. It returns the number.
func TestTrimOfManyFailures(t *testing.T) {
	t.Parallel()
	const before, fails = 20_000, 60
	e := newEnv(t, redistest.Start(t).URL(), nil)
	e.seed(member)
	e.fill(before, "redis.call('HSET', KEYS[3] .. 'k:g' .. i, 'payload', 't' .. i, 'kind', 'failed', 'at', i) "+
		"redis.call('ZADD', KEYS[1], 0, redis.sha1hex('t' .. i) .. ':k:g' .. i) redis.call('ZADD', KEYS[2], i, 'k:g' .. i)",
		e.q.Failed().Contents(), e.q.Failed().Schedule(), e.q.Failed().Keyed(""))
	failed, dropped := 0, 0
	for i, c := range []struct{ keep, drops int }{
		{before, fails}, {before, fails}, // full before each of them
		{before - 100, 100}, {before - 100, 100}, {before - 100, 80}, // 160, 120 and 80 too many
		{before + 100, 0},
	} {
		r := Round{Number: int64(i + 1), Keep: c.keep}
		for range fails {
			failed++
			id := fmt.Sprint("p", failed)
			e.must(e.conn.Do("ZADD", e.q.Working("w1"), failed, id))
			e.must(e.conn.Do("LPUSH", e.q.Process(id), fmt.Sprint("new", failed)))
			r.Outcomes = append(r.Outcomes, &Outcome{Process: id, Token: int64(failed), Verb: Fail, Kind: Failed, Reason: "r"})
		}
		e.must(e.conn.Do("SET", e.q.Token(), failed))
		a := e.round(r)
		if !slices.Equal(a.Settled, slices.Repeat([]Settled{OK}, fails)) || a.Dropped != c.drops {
			t.Errorf("round %d keeps %d: %v, and %d are dropped, not %d", i+1, c.keep, a.Settled, a.Dropped, c.drops)
		}
		dropped += a.Dropped
		if n := e.count("ZCARD", "failed:schedule"); n != before+failed-dropped {
			t.Errorf("round %d: %d of %d are left, and %d are said to be dropped", i+1, n, before+failed, dropped)
		}
	}
	oldest := sure(redis.Strings(e.conn.Do("ZRANGE", e.q.Failed().Schedule(), 0, 0)))(e.t)
	if want := fmt.Sprint("k:g", dropped); !slices.Equal(oldest, []string{want}) {
		t.Errorf("the oldest that is left is %v, not %s", oldest, want)
	}
	contents, hashes := e.count("ZCARD", "failed:contents"), len(redistest.Keys(t, e.conn, strings.TrimSuffix(e.q.Failed().Keyed(""), ":")))
	if left := before + failed - dropped; contents != left || hashes != left {
		t.Errorf("%d contents and %d tasks are left, not %d", contents, hashes, left)
	}
}
