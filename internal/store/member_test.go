package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestStep(t *testing.T) {
	t.Parallel()
	base := state{"queues": "[a b c]", "workers": "(w1=+60m)"}
	two := state{"queues": "[c]", "workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=2",
		"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]"}
	log := two.with("rounds", "{w1=3}", "token", "=3", "canceled", "(#b=3)", "cancel:#b", "{finished=0 stopped=0 token=3} +1440m")
	first := steps(Round{Worker: "w1", Number: 1, Start: []string{"p1", "p2"}})
	out := func(n int64, o ...*Outcome) func(*env) string {
		return steps(Round{Worker: "w1", Number: n, Outcomes: o})
	}
	run(t, []scenario{
		{name: "not a member", seed: base, steps: []when{{call: steps(Round{Worker: "w2", Number: 1, Start: []string{"p1"}}), want: "EVICTED"}}},
		{name: "start, repeat, stale", seed: base, steps: []when{
			{call: first, want: "started=a/1,b/2", state: two},
			{call: first, want: "started=a/1,b/2 again"},
			{call: out(2), state: two.with("rounds", "{w1=2}")},
			{call: first, want: "started=a/1,b/2", state: two.with("rounds", "{w1=2}")},
			{call: out(4), state: two.with("rounds", "{w1=4}")},
			{call: first, want: "started=a/1,b/2", state: two.with("rounds", "{w1=4}")},
			{call: out(5), state: two.with("rounds", "{w1=5}")},
			{call: first, want: "STALE"},
		}},
		{name: "a late copy starts nothing", alive: []string{"w2"}, seed: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "", state: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)", "rounds": "{w1=1}"}},
			{call: puts("queues", "[a]"), state: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)", "rounds": "{w1=1}", "queues": "[a]"}},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "again", heard: []string{"wake:w2 1"},
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "queues": "[a]"}},
		}},
		{name: "overtaken by the round behind it", seed: two, alive: []string{"w1"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Start: []string{"p3", "p4"}, Idle: true}), want: "started=c/3 rank=0",
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3", "idle": "(w1=now)",
					"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]"}},
			{call: puts("queues", "[d]"), state: state{"queues": "[d]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3", "idle": "(w1=now)",
				"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]"}},
			// It ends what it is to end, starts nothing, and leaves the idle alone.
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p5"}, Idle: true,
				Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish}, {Process: "p3", Token: 3, Verb: Stop}}}), want: "settled=ok,ok again", heard: []string{"done w1 a", "wake:w1 1"},
				state: state{"queues": "[c d]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3",
					"working:w1": "(p2=2)", "process:p2": "[b]"}},
			{call: steps(Round{Worker: "w1", Number: 6}), want: "", state: state{"queues": "[c d]", "workers": "(w1=+60m)", "rounds": "{w1=6}", "token": "=3",
				"working:w1": "(p2=2)", "process:p2": "[b]"}},
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p5"}}), want: "STALE"},
		}},
		{name: "overtaken, and heard of", seed: two.with("rounds", "{w1=3}", "workers", "(w1=-1m)", "suspects", "(w1=+1m)"), steps: []when{
			{call: out(2), want: "", state: two.with("rounds", "{w1=3}")},
		}},
		{name: "overtaken, and told of no cancels", seed: two.with("rounds", "{w1=3}"), steps: []when{
			{call: cancels("b"), want: "removed=0 token=3", heard: []string{"cancel b"}, state: log},
			{call: out(2), want: ""},
			{call: out(4), want: "cancels=#b/3 seen=3", state: log.with("rounds", "{w1=4}")},
		}},
		{name: "repeat while paused", seed: base, steps: []when{
			{call: first, want: "started=a/1,b/2", state: two},
			{call: puts("paused", "=1"), state: two.with("paused", "=1")},
			{call: first, want: "started=a/1,b/2"},
		}},
		{name: "repeat during a return", seed: two.with("suspects", "(w9=0)", "working:w9", "(p9=0)", "process:p9", "[z]"), steps: []when{
			{call: first, want: "started=a/1,b/2 again", state: two.with("queues", "[z c]", "ledger", "{#z=1}")},
		}},
		{name: "more than there is, idle", seed: state{"queues": "[a]", "workers": "(w1=-5m)", "suspects": "(w1=+1m)"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Idle: true, Start: []string{"p1", "p2"}}), want: "started=a/1 rank=0",
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=1", "idle": "(w1=now)", "working:w1": "(p1=1)", "process:p1": "[a]"}},
			{call: out(2, &Outcome{Process: "p1", Token: 1, Verb: Finish, Result: []byte{}}), want: "settled=ok", heard: []string{`done w1 a ""`},
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=1"}},
		}},
		{name: "binary payloads", seed: state{"workers": "(w1=+60m)"}, steps: []when{
			{call: enqueues("", "\x00", "\xff", "false"), want: "ok", heard: []string{"enqueue 4"},
				state: state{"workers": "(w1=+60m)", "queues": `["" "\x00" "\xff" false]`}},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1", "p2", "p3", "p4", "p5"}}), want: `started=""/1,"\x00"/2,"\xff"/3,false/4`,
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=4", "working:w1": "(p1=1 p2=2 p3=3 p4=4)",
					"process:p1": `[""]`, "process:p2": `["\x00"]`, "process:p3": `["\xff"]`, "process:p4": "[false]"}},
		}},
		{name: "outcomes", seed: two, steps: []when{
			{call: out(2, &Outcome{Process: "p1", Token: 9, Verb: Finish}, &Outcome{Process: "p1", Token: 0, Verb: Stop}, &Outcome{Process: "p7", Token: 1, Verb: Drop}),
				want: "settled=gone,gone,gone", state: two.with("rounds", "{w1=2}")},
			{call: out(3, &Outcome{Process: "p1", Token: 1, Verb: Finish, Result: []byte("r")}, &Outcome{Process: "p2", Token: 2, Verb: Drop}),
				want: "settled=ok,ok", heard: []string{`done w1 a "r"`}, state: state{"queues": "[c]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=2"}},
		}},
		{name: "several stops, newest first as a worker sends them", seed: two, steps: []when{
			{call: out(2, &Outcome{Process: "p2", Token: 2, Verb: Stop}, &Outcome{Process: "p1", Token: 1, Verb: Stop}), want: "settled=ok,ok",
				state: state{"queues": "[a b c]", "workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=2"}},
		}},
		{name: "cascade", alive: []string{"w2"}, seed: base.with("idle", "(w3=-2m w2=-1m)"), steps: []when{
			{call: first, want: "started=a/1,b/2", heard: []string{"wake:w2 1"}, state: two},
		}},
		{name: "paused", alive: []string{"w2"}, seed: base.with("paused", "=1", "idle", "(w2=-1m)"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Idle: true, Start: []string{"p1"}}), want: "rank=1",
				state: base.with("paused", "=1", "idle", "(w2=-1m w1=now)", "rounds", "{w1=1}")},
		}},
	})
}

func TestReturns(t *testing.T) {
	t.Parallel()
	one := state{"queues": "[z]", "workers": "(w2=-60m w1=+60m)", "working:w2": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]", "rounds": "{w2=1}", "token": "=2"}
	suspected := one.with("suspects", "(w2=+60m)")
	due := one.with("suspects", "(w2=-1m)")
	back := state{"queues": "[a b z]", "workers": "(w1=+60m)", "token": "=3", "ledger": "{#a=1 #b=1}"}
	many := state{"workers": "(w1=+60m w2=+60m)", "token": "=250", "queues": "[z]"}
	var held []string
	for i := range 250 {
		p := "p" + strings.Repeat("0", 3-len(itoa(i))) + itoa(i)
		held = append(held, p+"="+itoa(i+1))
		many["process:"+p] = "[t" + itoa(i) + "]"
	}
	many["working:w1"] = "(" + strings.Join(held, " ") + ")"
	all := "[" + strings.Join(seq("t", 0, 250), " ") + " z]"
	rest := state{"workers": "(w2=+60m)", "token": "=251", "queues": all}
	begun := many.with("workers", "(w2=+60m)", "suspects", "(w1=0)")
	died := func(from int) string { // one crash of each from there on
		return "{" + strings.Join(slices.Sorted(slices.Values(ones(from, 250))), " ") + "}"
	}
	part := func(left int) state {
		s := begun.with("queues", "["+strings.Join(seq("t", left, 250), " ")+" z]", "working:w1", "("+strings.Join(held[:left], " ")+")", "rounds", "{w2=1}", "ledger", died(left))
		for i := left; i < 250; i++ {
			p, _, _ := strings.Cut(held[i], "=")
			delete(s, "process:"+p)
		}
		return s
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
		{name: "due, and who looks has lapsed, too", seed: due.with("workers", "(w2=-60m w1=-1m)"), steps: []when{
			{call: beats("w1", true), want: "lapsed waiting=1 due=now", state: due},
			{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "due, and the right to judge is longer than any that is asked for", seed: due, steps: []when{
			{call: judges("w1", 2*time.Hour+time.Minute), want: "waiting=1 due=now"},
			{call: judges("w1", 2*time.Hour-time.Minute), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "due, and the lease of who looks is longer than any that is granted", seed: due.with("workers", "(w2=-60m w1=+62m)"), steps: []when{
			{call: beats("w1", true), want: "waiting=1 due=now", state: due},
			{call: beats("w1", true), want: "waiting=3 failed=w2/2 returned=2", state: back},
		}},
		{name: "sweep", alive: []string{"w3"}, seed: due.with("idle", "(w2=-2m w3=-1m)"), steps: []when{
			{call: sweeps, want: "failed=w2/2 returned=2", state: back, heard: []string{"wake:w3 2"}}}},
		{name: "unknown", seed: one, steps: []when{{call: fails("w9"), want: "known=false returned=0"}}},
		{name: "many, leave", seed: many, steps: []when{{call: leaves("w1"), want: "returned=250", state: rest}}},
		{name: "many, fail", seed: many, steps: []when{{call: fails("w1"), want: "known=true returned=250", state: rest.with("ledger", died(0))}}},
		{name: "interrupted, resumed by step", seed: begun, steps: []when{
			{call: wants(1), want: "again", state: part(150)},
			{call: beats("w2", false), want: "waiting=201 returned=100 again", state: part(50)},
			{call: wants(2), want: "started=t0/251!1", state: state{"ledger": died(0), "workers": "(w2=+60m)", "token": "=251", "rounds": "{w2=2}",
				"working:w2": "(q1=251)", "process:q1": "[t0]", "queues": "[" + strings.Join(seq("t", 1, 250), " ") + " z]"}}}},
	})
}

// ones is one crash of each payload t from up to (not including) to.
func ones(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, "#t"+itoa(i)+"=1")
	}
	return all
}

func itoa(n int) string { return strconv.Itoa(n) }
