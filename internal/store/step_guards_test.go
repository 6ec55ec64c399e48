package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
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

// An answer has the number of other workers that are idle with nothing to start, and whether ends
// are hashed, which costs more. It also says whether more tasks could start, even if the round
// asked for none, so that a peer without free slots learns for which queue to free some.
func TestGuardTold(t *testing.T) {
	t.Parallel()
	added := member.with("added", "|1-1-a/0=x|")
	two := state{"idle": "(w2=-1m w3=-1m)"}.merged(member)
	start := Round{Start: []string{"p1"}}
	end := Round{Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish, Plain: true}}}
	for name, c := range map[string]struct {
		seed  state
		round Round
		want  string
	}{
		"nothing is left":                 {two.with("queues", "[a]"), start, "started=a hungry=2"},
		"more is left":                    {two.with("queues", "[a b c]"), start, "started=a more"},
		"empty":                           {member, Round{}, ""},
		"one waits":                       {member.with("queues", "[a]"), Round{}, "more"},
		"one is due":                      {keyX, Round{}, "more"},
		"one is to come":                  {keyX.with("schedule", "(k:x=+9m)"), Round{}, ""},
		"one waits, paused":               {member.with("queues", "[a]", "paused", "=1"), Round{}, ""},
		"one is due, paused":              {keyX.with("paused", "=1"), Round{}, ""},
		"a list of another type":          {member.with("queues", "=foreign"), Round{}, ""},
		"an added one waits":              {added, Round{}, "more"},
		"an added one waits, paused":      {added.with("paused", "=1"), Round{}, ""},
		"it starts":                       {added, start, "started=x"},
		"it starts, and the list has one": {added.with("queues", "[a]"), start, "started=x more"},
		"nothing to hash for":             {rawP, end, ""},
		"a crash":                         {rawP.with("ledger", "{#b=1}"), end, "watched"},
		"a cancel":                        {rawP.with("canceled", "(#b=5)"), end, "watched"},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, c.seed)
			c.round.Number = max(c.round.Number, 1)
			a := e.round(c.round)
			var w words
			for _, s := range a.Started {
				w.add("started", string(s.Payload))
			}
			w.num("hungry", int64(a.Hungry), 0)
			w.flag("more", a.More)
			w.flag("again", a.Again)
			w.flag("watched", a.Watched)
			if w.String() != c.want {
				t.Errorf("got %q, want %q", &w, c.want)
			}
		})
	}
}

// Prefetched tasks start only if no other worker is idle, and no task beside them has crashed a
// worker.
func TestGuardAhead(t *testing.T) {
	ahead := func(n int, r Round, ids ...string) func(*env) string {
		r.Worker, r.Number, r.Ahead, r.Start = "w1", 1, n, ids
		return steps(r)
	}
	list := member.with("queues", "[a b c]")
	started := func(n int, s state) state {
		return s.holding("w1", []string{"a", "b", "c"}[:n]...).with("rounds", "{w1=1}", "token", "="+itoa(n))
	}
	due := func(crashes ...int) state { // entries k:0, k:1 and so on, in this order
		return member.waiting(series(len(crashes), func(i int) waiting {
			return waiting{fmt.Sprint("k:", i), fmt.Sprint("t", i), itoa(i + 1), crashes[i]}
		})...)
	}
	ran := func(s state, token, process, i, died int) state {
		entry, p := fmt.Sprint("k:", i), fmt.Sprint("p", process)
		return s.with("keyed:"+entry, runs(p, 0, died), "process:"+p, fmt.Sprint("[t", i, "]"), "token", "="+itoa(token), "rounds", "{w1=1}")
	}
	run(t, []scenario{
		{name: "another worker is idle", seed: list.with("idle", "(w2=-1m)"), steps: []when{{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=a/1", state: started(1, member.with("queues", "[b c]"))}}},
		{name: "a crash count exists", seed: list.with("ledger", "{#z=1}"), steps: []when{{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=a/1", state: started(1, member.with("queues", "[b c]", "ledger", "{#z=1}"))}}},
		{name: "idle of another type", seed: list.with("idle", "=foreign"), steps: []when{{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=a/1,b/2,c/3", state: started(3, member.with("idle", "=foreign"))}}},
		{name: "beside entries without crashes", seed: due(0, 0).with("queues", "[z]"), steps: []when{
			{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=t0/1@k:0,t1/2@k:1,z/3", state: ran(ran(due(0, 0), 1, 1, 0, 0), 3, 2, 1, 0).with("schedule", "", "contents", "",
				"process:p3", "[z]", "working:w1", "(p1=1 p2=2 p3=3)", "entries", "{p1=k:0 p2=k:1}")}}},
		{name: "not beside entries with crashes", seed: due(1, 0).with("queues", "[z]"), steps: []when{
			{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=t0/1@k:0!1", state: ran(due(1, 0), 1, 1, 0, 1).with("queues", "[z]", "working:w1", "(p1=1)", "entries", "{p1=k:0}", "schedule", "(k:1=2)", "contents", "(#t1:k:1=0)")}}},
		{name: "nor is a risky task prefetched", seed: due(0, 1, 0).with("queues", "[z]"), steps: []when{
			{call: ahead(2, Round{}, "p1", "p2", "p3"), want: "started=t0/1@k:0", state: ran(due(0, 1, 0), 1, 1, 0, 0).with("queues", "[z]", "working:w1", "(p1=1)", "entries", "{p1=k:0}", "schedule", "(k:1=2 k:2=3)", "contents", "(#t1:k:1=0 #t2:k:2=0)")}}},
		{name: "an id used for a failed task starts nothing", seed: due(3, 1).with("queues", "[z]"), steps: []when{
			{call: ahead(0, Round{Crashes: 3}, "p1", "p2"), want: "started=t1/1@k:1!1 again unstarted=1", state: ran(due(3, 1), 1, 1, 1, 1).with("queues", "[z]", "working:w1", "(p1=1)", "entries", "{p1=k:1}", "schedule", "", "contents", "", "keyed:k:0", "").merged(failedAt("p2.001", "t0", "k:0"))}}},
		{name: "an id for a prefetched task names the failed one", seed: due(3).with("queues", "[a b]", "ledger", "{#z=1}"), steps: []when{
			{call: ahead(1, Round{Crashes: 3}, "p1", "p2", "p3"), want: "started=a/1,b/2 again unstarted=1", state: started(2, member).with("ledger", "{#z=1}").merged(failedAt("p3.001", "t0", "k:0"))}},
		},
	})
}

// failedAt returns a failed task with an id that no process has.
func failedAt(id, payload, from string, fields ...string) state {
	return state{"failed:schedule": "(k:" + id + "=now)", "failed:contents": "(#" + payload + ":k:" + id + "=0)",
		"failed:keyed:k:" + id: failedOf(payload, "now", append(fields, "kind=crashed", "deaths=3", "from="+from, `reason="3 workers died holding it"`)...)}
}

// Tasks that have crashed workers wait separately, fail, or start after all.
func TestGuardRisky(t *testing.T) {
	take := func(crashes int, solo bool, ids ...string) func(*env) string {
		return steps(Round{Worker: "w1", Number: 1, Crashes: crashes, Solo: solo, Start: ids})
	}
	wait := func(crashes int) state { return keyX.with("keyed:k:x", waits("a", "-1m", 0, crashes)) }
	ran := func(died int) state { return runX.with("keyed:k:x", runs("p1", 0, died)) }
	no := state{"failed:schedule": "=foreign"}
	raw := member.failed().with("failed:queues", "[z]", "failed:ledger", "{#z=3}")
	run(t, []scenario{
		{name: "one died, and two are too many", seed: wait(1), steps: []when{{call: take(2, false, "p1"), state: wait(1).with("rounds", "{w1=1}")}}},
		{name: "without a limit, where nothing can fail", seed: wait(1).merged(no), steps: []when{{call: take(0, false, "p1"), want: "started=a/1@k:x!1", state: ran(1).merged(no)}}},
		{name: "too many died, and nothing can fail", seed: wait(3).merged(no), steps: []when{
			{call: take(3, false, "p1"), state: wait(3).merged(no).with("rounds", "{w1=1}")},
			{call: take(3, true, "p1"), want: "again", state: wait(3).merged(no).with("rounds", "{w1=1}")},
			{call: steps(Round{Worker: "w1", Number: 2, Crashes: 3, Solo: true, Start: []string{"p1"}}), want: "started=a/1@k:x!3 trouble=WRONGTYPE", state: ran(3).merged(no).with("rounds", "{w1=2}")}}},
		{name: "of the list, skipped as risky", seed: member.with("queues", "[a b]", "ledger", "{#a=2}"), steps: []when{
			{call: take(3, false, "p1", "p2"), want: "started=b/1 again", state: member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[b]", "ledger", "{#a=2}",
				"schedule", "(r:p2.001=now)", "contents", "(#a:r:p2.001=0)", "keyed:r:p2.001", h(waits("a", "now", 0, 0), "digest="+digest("a")))}}},
		{name: "a failing key leaves other counts", seed: wait(3).with("ledger", "{#a=1}"), steps: []when{
			{call: take(3, false, "p1", "p2"), want: "unstarted=1", state: member.with("rounds", "{w1=1}", "ledger", "{#a=1}").merged(state{"failed:schedule": "(k:p2.001=now)", "failed:contents": "(#a:k:p2.001=0)",
				"failed:keyed:k:p2.001": failedOf("a", "now", "kind=crashed", "deaths=3", "from=k:x", "planned=-1m", `reason="3 workers died holding it"`)})}}},
		{name: "of the list of a failed queue, set aside", seed: raw, steps: []when{
			{call: inFailed(take(3, false, "p1", "p2")), want: "unstarted=1", state: member.failed().with("failed:rounds", "{w1=1}", "failed:schedule", "(r:p2.001=aside:now)", "failed:contents", "(#z:r:p2.001=0)", "failed:keyed:r:p2.001", waits("z", "aside:now", 0, 3))}}},
		{name: "of the list of a failed queue, returned", seed: raw.with("failed:ledger", "{#z=1}"), steps: []when{
			{call: inFailed(take(0, false, "p1")), want: "started=z/1!1", state: rawP.failed().with("failed:process:p1", "[z]", "failed:ledger", "{#z=1}")}}},
		{name: "in a failed queue, one death is too many", seed: wait(1).failed(), steps: []when{
			{call: inFailed(take(1, false, "p1")), state: wait(1).failed().with("failed:rounds", "{w1=1}", "failed:schedule", "(k:x=aside:now)", "failed:keyed:k:x", waits("a", "aside:now", 0, 1))}}},
		{name: "in a failed queue, not too many", seed: wait(1).failed(), steps: []when{
			{call: inFailed(take(3, false, "p1")), want: `started=a/1@k:x!1{k:x a  "" ~0 !0  "" 0 0}`, state: ran(1).failed()}}},
	})
}

// The failed queue is bounded, unless a worker serves it.
func TestGuardBound(t *testing.T) {
	failedTasks := func(due string, names ...string) state {
		s := state{}
		var schedule, contents []string
		for _, n := range names {
			schedule, contents = append(schedule, "k:"+n+"="+due), append(contents, "#x:k:"+n+"=0")
			s["failed:keyed:k:"+n] = failedOf("x", strings.TrimPrefix(due, "aside:"))
		}
		s["failed:schedule"], s["failed:contents"] = "("+strings.Join(schedule, " ")+")", "("+strings.Join(contents, " ")+")"
		return s
	}
	fresh := func(s state) state {
		return s.with("failed:schedule", strings.TrimSuffix(s["failed:schedule"], ")")+" k:p1=now)", "failed:contents", "(#a:k:p1=0 "+s["failed:contents"][1:], "failed:keyed:k:p1", failedOf("a", "now"))
	}
	two := failedTasks("-9m", "g1", "g2")
	keep := func(n int) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Keep: n, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Failed, Reason: "r"}}})
	}
	only := state{"failed:schedule": "(k:p1=now)", "failed:contents": "(#a:k:p1=0)", "failed:keyed:k:p1": failedOf("a", "now")}
	foreign := state{"failed:workers": "=foreign"}
	tie := state{"failed:schedule": "(k:g1=-9m k:g2=aside:-9m)", "failed:contents": "(#x:k:g1=0 #x:k:g2=0)", "failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("x", "-9m")}
	w := state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=1}", "failed:token": "=1", "failed:working:w1": "(p1=1)", "failed:process:p1": "[a]"}
	asides := failedTasks("aside:-9m", "g1", "g2")
	over := state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=2}", "failed:token": "=1"}
	giveUp := inFailed(keep(1))
	run(t, []scenario{
		{name: "one", seed: rawP.merged(two), steps: []when{{call: keep(1), want: "settled=ok dropped=2", state: doneX.merged(only)}}},
		{name: "all", seed: rawP.merged(two), steps: []when{{call: keep(-1), want: "settled=ok", state: doneX.merged(fresh(two))}}},
		{name: "workers of another type", seed: rawP.merged(two).merged(foreign), steps: []when{{call: keep(1), want: "settled=ok", state: doneX.merged(fresh(two)).merged(foreign)}}},
		{name: "two of the same time", seed: rawP.merged(tie), steps: []when{{call: keep(2), want: "settled=ok dropped=1", state: doneX.merged(only).with("failed:schedule", "(k:p1=now k:g2=aside:-9m)", "failed:contents", "(#a:k:p1=0 #x:k:g2=0)", "failed:keyed:k:g2", failedOf("x", "-9m"))}}},
		{name: "set aside, of the list", seed: w.merged(asides), steps: []when{{call: giveUp, want: "settled=ok dropped=2", state: over.merged(state{"failed:schedule": "(r:p1=aside:now)", "failed:contents": "(#a:r:p1=0)", "failed:keyed:r:p1": waits("a", "aside:now", 0, 0)})}}},
		{name: "tasks with too many crashes count", seed: keyX.with("keyed:k:x", waits("a", "-1m", 0, 3)).merged(two), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 3, Keep: 1, Start: []string{"p1", "p2"}}), want: "unstarted=1 dropped=2", state: member.with("rounds", "{w1=1}").merged(failedAt("p2.001", "a", "k:x", "planned=-1m"))}}},
		{name: "and in a failed queue, too", seed: state{"failed:workers": "(w1=+60m)"}.merged(asides).with("failed:schedule", "(k:x=-1m k:g1=aside:-9m k:g2=aside:-9m)", "failed:contents", "(#a:k:x=0 #x:k:g1=0 #x:k:g2=0)", "failed:keyed:k:x", waits("a", "-1m", 0, 3)), steps: []when{
			{call: inFailed(steps(Round{Worker: "w1", Number: 1, Crashes: 3, Keep: 1, Start: []string{"p1"}})), want: "dropped=2", state: over.with("failed:rounds", "{w1=1}", "failed:token", "",
				"failed:schedule", "(k:x=aside:now)", "failed:contents", "(#a:k:x=0)", "failed:keyed:k:x", waits("a", "aside:now", 0, 3))}}},
		{name: "set aside, with a timekeeper", alive: []string{"failed:w9"}, seed: w.with("failed:idle", "(w9=clock:-1m)"), steps: []when{
			{call: giveUp, want: "settled=ok", state: over.with("failed:idle", "(w9=clock:-1m)", "failed:schedule", "(r:p1=aside:now)", "failed:contents", "(#a:r:p1=0)", "failed:keyed:r:p1", waits("a", "aside:now", 0, 0))}}},
	})
}

// No step does unbounded work.
func TestGuardSteps(t *testing.T) {
	t.Parallel()
	lost := member.with("schedule", dueEntries(600, func(int) int { return 0 })["schedule"])
	dead := func(n int) state { return dueEntries(n, func(int) int { return 3 }) }
	plain := member.with("queues", "["+strings.Join(seq("t", 0, 1010), " ")+"]", "ledger", "{"+strings.ReplaceAll(strings.Join(ones(0, 1010), " "), "=1", "=3")+"}")
	busy := rawP.with("queues", "["+strings.Join(seq("t", 0, 2200), " ")+"]")
	added := func(card, payload string) state { return member.with("added", addedLine(1010, card, payload)) }
	unasserted := dueEntries(600, func(int) int { return 0 })
	for _, entry := range seqOf("k:t0", 600) {
		unasserted["keyed:"+entry] = h(unasserted["keyed:"+entry], "turn=7")
		unasserted["recurrence:"+entry] = "{passed=0}"
	}
	take := func(ids ...string) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Crashes: 3, Start: ids})
	}
	some := take("p0", "p1", "p2")
	type left map[string]int64 // by the command that counts them
	for _, c := range []struct {
		name  string
		seed  state
		call  func(*env) string
		again bool // the answer says that there is more to do
		left  left
	}{
		{"lost entries", lost, some, false, left{"ZCARD schedule": 100}},
		{"entries put aside", dead(600).failed(), inFailed(some), false, left{"ZCARD failed:working:w1": 0, "ZCOUNT failed:schedule -inf 1000": 100}},
		{"entries that fail", dead(1010), some, false, left{"ZCARD schedule": 11}},
		{"entries that nobody asserts", unasserted, begins(1, "p1"), false, left{"ZCOUNT schedule -inf 7": 100}},
		{"tasks that fail", plain, some, true, left{"LLEN queues": 11}},
		{"starts", busy, steps(Round{Worker: "w1", Number: 2, Start: seq("q", 0, 2100)}), false, left{"ZCARD working:w1": 2101}},
		{"added tasks that start", added("0", "x"), take(seq("p", 0, 1010)...), true, left{"XLEN added": 10, "HLEN entries": 2000}},
		{"added tasks that fail", added("10000000000000005", "x"), some, true, left{"XLEN added": 11, "HLEN entries": 0}},
		{"added tasks that are lost", added("2", ""), some, true, left{"XLEN added": 10, "HLEN entries": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, c.seed)
			said := c.call(e)
			if c.again && !slices.Contains(strings.Fields(said), "again") {
				t.Errorf("answered %s", short(said))
			}
			for counting, want := range c.left {
				words := strings.Fields(counting)
				if got := e.must(e.conn.Do(words[0], redis.Args{e.key(words[1])}.AddFlat(words[2:])...)); got != want {
					t.Errorf("%s is %d, want %d after\n%s", counting, got, want, short(said))
				}
			}
		})
	}
}

// Many ends are processed a page at a time. Without observers, added tasks end together, except those
// that need further steps.
func TestGuardEnds(t *testing.T) {
	t.Parallel()
	plain := member.with("rounds", "{w1=1}", "token", "=2500").holding("w1", seq("t", 0, 2500)...)
	five := heldAdded(5)
	five["entries"] = strings.NewReplacer("p4=a:1-4-a0", "p4=a:1-4-a"+keeps, "a:1-5-a=p5:w1 ", "", "p5=a:1-5-a0", "p5=k:@1-5-a").Replace(five["entries"])
	five["keyed:k:@1-5-a"] = h(runs("p5", 0, 0), "held=0", "sum=p5:"+digest(spelled("k:@1-5-a")))
	for n, c := range map[int]struct {
		seed, after state
		outcome     Outcome
	}{
		5:    {five, state{"result:k:@1-4-a": "=finished:now:0: +60m"}, Outcome{Verb: Finish, Added: true}},
		1005: {heldAdded(1005), nil, Outcome{Verb: Finish, Added: true}},
		2500: {plain, nil, Outcome{Verb: Finish, Plain: true}},
	} {
		t.Run(itoa(n), func(t *testing.T) {
			e := beside(t, c.seed)
			e.unhear()
			if got, want := c.outcome.each(2, n)(e), "settled="+strings.TrimSuffix(strings.Repeat("ok,", n), ","); got != want {
				t.Error(short(got))
			}
			e.compare(1, member.with("rounds", "{w1=2}", "token", "="+itoa(n)).merged(c.after))
		})
	}
}

// Observers of just one channel, or of a pattern, receive a long payload in full, even if the user
// may not ask whether there are observers.
func TestGuardObserved(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"channel", "pattern", "unknown"} {
		t.Run(way, func(t *testing.T) {
			e := beside(t, nil)
			long := strings.Repeat("x", 1025)
			switch way {
			case "pattern": // for the end as well, since miniredis delivers messages of patterns apart from others
				end := e.prefix + "_end"
				e.unhear()
				e.must(nil, e.ear.Unsubscribe(end))
				e.must(nil, e.ear.PSubscribe(e.prefix+"_*")) // a single one
				for range 2 {
					e.ear.Receive()
				}
			case "unknown":
				e.ruled("~*", "+@all", "-pubsub", "resetchannels", "&*_{q}_*")
			}
			for _, payload := range []string{long, strings.Repeat("x", Large)} {
				e.play(scenario{seed: rawP.with("process:p1", "["+payload+"]"), steps: []when{
					{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 " + payload}, state: doneX}}})
			}
		})
	}
}
