package store

import (
	"fmt"
	"testing"
	"time"
)

// each makes a round that ends the processes p1, p2 and so on, all with this outcome.
func (o Outcome) each(n int64, count int) func(*env) string {
	return steps(Round{Worker: "w1", Number: n, Outcomes: series(count, func(i int) *Outcome {
		o.Process, o.Token = fmt.Sprint("p", i+1), int64(i+1)
		one := o
		return &one
	})})
}

func TestGuardStep(t *testing.T) {
	after := func(n string) state { return member.with("rounds", "{w1="+n+"}", "token", "=1") }
	two := member.with("rounds", "{w1=1}", "token", "=2", "working:w1", "(p1=1 p2=2)", "process:p1", "[a]", "process:p2", "[b]")
	over := member.with("rounds", "{w1=2}", "token", "=2")
	log := func(name string) string { return h("finished=0", "stopped=0", "token="+name) + " +1440m" }
	done := []string{"done w1 a", "done w1 b"}
	all := []scenario{
		{name: "ending a lost process and starting one records a holder", seed: member.with("queues", "[a]"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Outcomes: []*Outcome{{Process: "p9", Token: 1, Verb: Finish}}, Start: []string{"p1"}}), want: "settled=gone started=a/1", state: rawP}}},
		{name: "ending a lost process acknowledges nothing for others", seed: rawP.with("token", "=3", "holders", "(w1=0)", "canceled", "(#a=3)", "cancel:#a", log("3"), "queues", "[z]"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Outcomes: []*Outcome{{Process: "p9", Token: 1, Verb: Finish}}, Start: []string{"p2"}}), want: "settled=gone started=z/4 cancels=#a/3 seen=3",
				state: rawP.with("rounds", "{w1=2}", "token", "=4", "holders", "(w1=0)", "working:w1", "(p1=1 p2=4)", "process:p2", "[z]", "canceled", "(#a=3)", "cancel:#a", log("3"))}}},
		{name: "a worker that got all it asked for is not idle", seed: keyX.with("keyed:k:x", waits("a", "-1m", 0, 0)), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Idle: true, Start: []string{"p1"}}), want: "started=a/1@k:x", state: runX.with("keyed:k:x", runs("p1", 0, 0))}}},
		{name: "no crash count for its digest", seed: member.with("schedule", "(r:p0=-1m)", "contents", "(#a:r:p0=0)", "keyed:r:p0", h(waits("a", "-1m", 0, 0), "digest="+digest("a"))), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 3, Start: []string{"p1"}}), want: "started=a/1@r:p0",
				state: rawP.with("entries", "{p1=r:p0}", "keyed:r:p0", runs("p1", 0, 0))}}},
		{name: "an entry is lost, and another has a crash count", seed: member.with("schedule", "(r:p0=-1m)", "ledger", "{#z=1}"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 3, Start: []string{"p1"}}), state: member.with("rounds", "{w1=1}", "ledger", "{#z=1}")}}},
		{name: "only the crashes of an entry are left", seed: keyX.with("keyed:k:x", "{crashes=1}"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 3, Start: []string{"p1"}}), state: keyX.with("keyed:k:x", "{crashes=1}", "rounds", "{w1=1}", "schedule", "")}}},
		{name: "an overtaken round of a worker without tasks returns no cancels", seed: rawP.with("workers", "(w1=+60m w2=+60m)", "rounds", "{w1=1 w2=3}", "token", "=3", "canceled", "(#a=3)", "cancel:#a", log("3")), steps: []when{
			{call: steps(Round{Worker: "w2", Number: 2})}}},
		{name: "a task started after a cancel is not stopping", seed: rawP.with("token", "=5", "working:w1", "(p1=5)", "canceled", "(#a=3)", "cancel:#a", log("3")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Stopping: []Stopping{{digest("a"), "p1"}}}), want: "seen=3",
				state: rawP.with("rounds", "{w1=2}", "token", "=5", "working:w1", "(p1=5)", "canceled", "(#a=3)", "cancel:#a", log("3"))}}},
		{name: "stopping processes", seed: rawP.with("token", "=3", "canceled", "(#a=3)", "cancel:#a", log("3")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Issued: 3, Said: 3, Stopping: []Stopping{{digest("a"), "p1"}}}), want: "seen=3",
				state: rawP.with("rounds", "{w1=2}", "token", "=3", "holders", "(w1=3)", "stopping", "("+stopped("a", 1, "p1")+"=0)", "canceled", "(#a=3)", "cancel:#a", log("3"))}}},
		{name: "acknowledged before tokens were lost", seed: rawP.with("token", "=3", "holders", "(w1=0)", "canceled", "(#z=2 #a=3)", "cancel:#z", log("2"), "cancel:#a", log("3")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 2, Issued: 4, Said: 2}), want: "cancels=#z/2,#a/3 seen=3",
				state: rawP.with("rounds", "{w1=2}", "token", "=3", "holders", "(w1=0)", "canceled", "(#z=2 #a=3)", "cancel:#z", log("2"), "cancel:#a", log("3"))}}},
		{name: "stopping of another type", seed: rawP.with("token", "=3", "canceled", "(#a=3)", "cancel:#a", log("3"), "stopping", "=foreign"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Stopping: []Stopping{{digest("a"), "p1"}}}), want: "seen=3",
				state: rawP.with("rounds", "{w1=2}", "token", "=3", "stopping", "=foreign", "canceled", "(#a=3)", "cancel:#a", log("3"))}}},
		{name: "acknowledged up to the first cancel", seed: rawP.with("token", "=2", "canceled", "(#z=1)", "cancel:#z", log("1")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 1, Said: 1}), want: "seen=1",
				state: rawP.with("rounds", "{w1=2}", "token", "=2", "holders", "(w1=1)", "cancel:#z", "{finished=0 stopped=0 token=1} +1m")}}},
		{name: "acknowledged without cancels", seed: rawP.with("holders", "(w1=0)", "token", "=3"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Said: 3}), want: "seen=3", state: rawP.with("rounds", "{w1=2}", "token", "=3", "holders", "(w1=0)")}}},
		{name: "a new holder", seed: member.with("workers", "(w1=+60m w2=+60m)", "queues", "[a b c]", "holders", "(w2=0)", "token", "=4"), steps: []when{
			{call: begins(1, "p1", "p2", "p3"), want: "started=a/5,b/6,c/7", state: member.with("workers", "(w1=+60m w2=+60m)", "rounds", "{w1=1}", "token", "=7", "holders", "(w2=0 w1=4)",
				"working:w1", "(p1=5 p2=6 p3=7)", "process:p1", "[a]", "process:p2", "[b]", "process:p3", "[c]")}}},
		{name: "a new holder, holders of another type", seed: member.with("queues", "[a]", "holders", "=foreign"), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1", state: rawP.with("holders", "=foreign")}}},
		{name: "acknowledged, holders of another type", seed: rawP.with("token", "=3", "holders", "=foreign", "canceled", "(#a=3)", "cancel:#a", log("3")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 3, Said: 3}), want: "seen=3", state: rawP.with("rounds", "{w1=2}", "token", "=3", "holders", "=foreign", "canceled", "(#a=3)", "cancel:#a", log("3"))}}},
		{name: "a cancel", seed: two.with("token", "=3", "canceled", "(#b=3)", "cancel:#b", log("3")), steps: []when{
			{call: Outcome{Verb: Finish}.each(2, 2), want: "settled=ok,ok seen=3", heard: done, state: over.with("token", "=3", "cancel:#b", "{finished=1 stopped=0 token=3} +1m")}}},
		{name: "a process that another runs", seed: runX.with("keyed:k:x", runs("p2", 1, 0)), steps: []when{
			{call: ends(2, "p1", 1, Fail, gaveUp), want: "settled=ok", state: after("2").with("keyed:k:x", runs("p2", 1, 0)).merged(
				state{"failed:schedule": "(k:p1=now)", "failed:contents": "(#a:k:p1=0)", "failed:keyed:k:p1": failedOf("a", "now")})}}},
		{name: "a token beyond all times", seed: runX.with("working:w1", "(p1=8000000000000)", "token", "=8000000000000"), steps: []when{
			{call: ends(2, "p1", 8000000000000, Stop, Outcome{}), want: "settled=ok", state: backX.with("token", "=8000000000000", "schedule", "(k:x=now)", "keyed:k:x", waits("a", "now", 2, 1))}}},
		{name: "digests of cancel messages", seed: member.with("token", "=7", "cancel:#a", "{finished=0 stopped=0 token=7} +1m", "cancel:#b", "=foreign", "cancel:#d", "{finished=0 stopped=0 token=5} +1m"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Heard: []string{digest("a"), digest("b"), digest("c"), digest("d")}, Start: []string{"p1"}}), want: "recorded=7,0,0,5",
				state: member.with("rounds", "{w1=1}", "token", "=7", "cancel:#a", "{finished=0 stopped=0 token=7} +1m", "cancel:#b", "=foreign", "cancel:#d", "{finished=0 stopped=0 token=5} +1m")}}},
		{name: "Redis has lost tokens", seed: rawP.with("canceled", "(#b=1)", "cancel:#b", log("1")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 9, Issued: 9, Said: 9}), want: "cancels=#b/1 seen=1", state: rawP.with("rounds", "{w1=2}", "canceled", "(#b=1)", "cancel:#b", log("1"))}}},
		{name: "two cancels", seed: rawP.with("token", "=3", "canceled", "(#a=2 #b=3)", "cancel:#a", log("2"), "cancel:#b", log("3")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2}), want: "cancels=#a/2,#b/3 seen=3", state: rawP.with("rounds", "{w1=2}", "token", "=3", "canceled", "(#a=2 #b=3)", "cancel:#a", log("2"), "cancel:#b", log("3"))},
			{call: steps(Round{Worker: "w1", Number: 3, Seen: 3, Said: 3, Stopping: []Stopping{{digest("a"), "p1"}, {digest("a"), "p9"}, {digest("z"), "p1"}}}), want: "seen=3",
				state: rawP.with("rounds", "{w1=3}", "token", "=3", "holders", "(w1=3)", "canceled", "(#a=2)", "stopping", "("+stopped("a", 1, "p1")+"=0)", "cancel:#a", log("2"), "cancel:#b", "{finished=0 stopped=0 token=3} +1m")},
			{call: ends(4, "p1", 1, Drop, Outcome{}), want: "settled=ok seen=3",
				state: member.with("rounds", "{w1=4}", "token", "=3", "cancel:#a", "{finished=0 stopped=1 token=2} +1m", "cancel:#b", "{finished=0 stopped=0 token=3} +1m")}}},
		{name: "a repeated round, the process of another type", seed: rawP.with("process:p1", "=foreign"), steps: []when{{call: begins(1, "p1"), want: ""}}},
		{name: "a repeated round, the entry of another type", seed: runX.with("keyed:k:x", "=foreign"), steps: []when{{call: begins(1, "p1"), want: ""}}},
		{name: "retried tasks, the earliest rings", alive: []string{"w3"}, seed: two.with("schedule", "(k:z=+45m)", "idle", "(w3=clock:-1m)"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Retry, Delay: 30 * time.Minute}, {Process: "p2", Token: 2, Verb: Retry, Delay: time.Hour}}}), want: "settled=ok,ok", heard: []string{"wake:w3 0"},
				state: over.with("schedule", "(r:p1=+30m k:z=+45m r:p2=+60m)", "contents", "(#a:r:p1=0 #b:r:p2=0)", "keyed:r:p1", waits("a", "+30m", 1, 0), "keyed:r:p2", waits("b", "+60m", 1, 0))}}},
		{name: "retried tasks, the last is the first to come", alive: []string{"w3"}, seed: two.with("schedule", "(k:z=+45m)", "idle", "(w3=clock:-1m)"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Retry, Delay: time.Hour}, {Process: "p2", Token: 2, Verb: Retry, Delay: 30 * time.Minute}}}), want: "settled=ok,ok", heard: []string{"wake:w3 0"},
				state: over.with("schedule", "(r:p2=+30m k:z=+45m r:p1=+60m)", "contents", "(#a:r:p1=0 #b:r:p2=0)", "keyed:r:p2", waits("b", "+30m", 1, 0), "keyed:r:p1", waits("a", "+60m", 1, 0))}}},
		{name: "paused, and something is due", alive: []string{"w2"}, seed: keyX.with("paused", "=1", "idle", "(w2=clock:-1m)"), steps: []when{{call: begins(1, "p1"), state: keyX.with("paused", "=1", "idle", "(w2=clock:-1m)", "rounds", "{w1=1}")}}},
		{name: "the list has more, and something is to come", alive: []string{"w2"}, seed: member.with("queues", "[a b]", "schedule", "(k:y=+9m)", "idle", "(w2=-1m w3=clock:-1m)"), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1", heard: []string{"wake:w2 1"}, state: member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "queues", "[b]", "schedule", "(k:y=+9m)", "idle", "(w3=clock:-1m)")}}},
		{name: "an entry of another type", seed: keyX.with("keyed:k:x", "=foreign"), steps: []when{
			{call: begins(1, "p1"), want: "trouble=WRONGTYPE", state: member.with("rounds", "{w1=1}", "contents", "(#a:k:x=0)", "keyed:k:x", "=foreign")}}},
		{name: "a list of another type, and a ledger", seed: member.with("queues", "=foreign", "ledger", "{#z=1}"), steps: []when{{call: begins(1, "p1"), want: "trouble=WRONGTYPE", state: member.with("queues", "=foreign", "ledger", "{#z=1}", "rounds", "{w1=1}")}}},
		{name: "several workers of the failed queue are woken", alive: []string{"failed:w8", "failed:w9"}, seed: two.with("failed:idle", "(w8=-2m w9=-1m)"), steps: []when{
			{call: Outcome{Verb: Fail, Kind: Failed, Reason: "r"}.each(2, 2), want: "settled=ok,ok", heard: []string{"failed:wake:w8 2", "failed:wake:w9 2"}, state: over.merged(
				state{"failed:schedule": "(k:p1=now k:p2=now)", "failed:contents": "(#a:k:p1=0 #b:k:p2=0)", "failed:keyed:k:p1": failedOf("a", "now"), "failed:keyed:k:p2": failedOf("b", "now")})}}},
	}
	for _, v := range []Ending{Finish, Drop, Stop, Retry, Snooze, Fail} {
		for key, s := range map[string]state{
			"an entry":    runX.with("keyed:k:x", "=foreign"),
			"a process":   runX.with("process:p1", "=foreign"),
			"of a digest": runX.with("process:p1", "=foreign", "keyed:k:x", h(runs("p1", 2, 1), "sum=p1:"+digest("a"))),
			"of a raw":    rawP.with("process:p1", "=foreign"),
			"in a cancel": rawP.with("process:p1", "=foreign", "token", "=2", "canceled", "(#a=2)", "cancel:#a", log("2")),
		} {
			want := "settled=refused trouble=WRONGTYPE"
			if key == "in a cancel" {
				want = "settled=refused cancels=#a/2 seen=2 trouble=WRONGTYPE"
			}
			all = append(all, scenario{name: key + " of another type, " + string(v), seed: s, steps: []when{
				{call: ends(2, "p1", 1, v, gaveUp), want: want, state: s.with("rounds", "{w1=2}")}}})
		}
	}
	run(t, all)
}
