package store

import (
	"maps"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// busy is a queue on which everything is going on: w1 runs a and b, of which a
// is being canceled and b is locked; w2 has lapsed while it ran c.
var busy = state{
	"queues": "[x y z]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-30m)",
	"idle": "(w3=-1m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]",
	"working:w2": "(p3=3)", "process:p3": "[c]",
	"canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m",
	"unique": "{#b=p:p2 #y=w:1 offset=0}", "paused": "=1", "once:n": "=1 +60m",
}

var round5 = Round{Worker: "w1", Number: 5, Idle: true, Outcomes: []Outcome{
	{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Finish},
}, Start: []string{"p4"}}

// verbs has a call of each script that would change the busy queue.
var verbs = map[string]func(*env) string{
	"enqueue": enqueues("new"), "enqueue_once": enqueuesOnce("m", "new"), "enqueue_unique": enqueuesUnique("n"),
	"cancel": cancels("a"), "resume": resumes, "delete": deletes, "join": joins("w4", 1000),
	"step": steps(round5), "beat": beats("w1", true), "sweep": sweeps, "leave": leaves("w1"), "fail": fails("w1"),
}

// A key that somebody put something else under makes a script fail before it
// changes anything, with an error that says why; or it does not matter.
func TestForeignTypes(t *testing.T) {
	t.Parallel()
	for verb, call := range verbs {
		for key, value := range busy {
			for kind, foreign := range map[byte]string{'=': "=foreign", '[': "[foreign]", '{': "{foreign=1}", '(': "(foreign=1)"} {
				if kind == value[0] {
					continue
				}
				switch {
				case key == "queues" && (verb == "step" || verb == "beat" || verb == "sweep" || verb == "leave" || verb == "fail"):
					continue // they go on without it: TestQueueOfAnotherType
				case key == "paused" || key == "once:n":
					continue // their presence is all that counts
				}
				t.Run(verb+"/"+key+"/"+string(kind), func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, redistest.URL(), nil)
					before := busy.with(key, foreign)
					e.seed(before)
					got := call(e)
					after := e.look()
					switch {
					case after[key] != foreign:
						t.Errorf("answered %q and made the foreign key %q", got, after[key])
					case strings.HasPrefix(key, "working:"), strings.HasPrefix(key, "process:"):
						// What cannot be read stays where it is; the rest goes on.
					case got == "WRONGTYPE" && !maps.Equal(before, after):
						e.compare(1, before)
					case got != "WRONGTYPE" && strings.Contains(got, "WRONGTYPE"):
						t.Errorf("failed halfway: %q", got)
						e.compare(1, before)
					}
				})
			}
		}
	}
}

// While the queue is no list, workers go on, nothing is lost, and a return
// waits until it is one again.
func TestQueueOfAnotherType(t *testing.T) {
	t.Parallel()
	seed := state{"queues": "=foreign", "workers": "(w1=+60m w2=+60m)", "token": "=2",
		"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]"}
	left := seed.with("workers", "(w2=+60m)", "suspects", "(w1=-1)", "token", "=3")
	run(t, []scenario{
		{name: "step", seed: seed, steps: []when{{
			call: steps(Round{Worker: "w1", Number: 1, Outcomes: []Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Finish}}, Start: []string{"p3"}}),
			want: "settled=refused,ok trouble=WRONGTYPE", heard: []string{"done w1 b"},
			state: seed.with("working:w1", "(p1=1)", "process:p2", "", "rounds", "{w1=1}"),
		}}},
		{name: "leave", seed: seed, steps: []when{
			{call: leaves("w1"), want: "STUCK", state: left},
			{call: beats("w2", true), want: ""},
			{call: steps(Round{Worker: "w2", Number: 1, Start: []string{"p3"}}), want: "trouble=WRONGTYPE", state: left.with("rounds", "{w2=1}")},
			{call: puts("queues", "[z]"), state: left.with("rounds", "{w2=1}", "queues", "[z]")},
			{call: beats("w2", false), want: "waiting=3 returned=2",
				state: state{"queues": "[a b z]", "workers": "(w2=+60m)", "rounds": "{w2=1}", "token": "=3"}},
		}},
	})
}

// Where nobody can tell what a worker holds, its round is refused before it is on
// record, whatever the round says.
func TestHeldOfAnotherType(t *testing.T) {
	t.Parallel()
	seed := rawP.with("working:w1", "=foreign", "idle", "(w1=-1m)", "suspects", "(w1=-1m)", "queues", "[z]")
	for what, r := range map[string]Round{
		"nothing":     {},
		"a start":     {Start: []string{"p2"}},
		"an outcome":  {Outcomes: []Outcome{{Process: "p1", Token: 1, Verb: Stop}}},
		"an end":      {Outcomes: []Outcome{{Process: "p1", Token: 1, Verb: Finish, Plain: true}}},
		"one of each": {Outcomes: []Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p3", Token: 3, Verb: Finish, Plain: true}}, Start: []string{"p2"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r.Worker, r.Number = "w1", 2
			newEnv(t, redistest.URL(), nil).play(scenario{seed: seed, steps: []when{{call: steps(r), want: "WRONGTYPE"}}}, nil)
		})
	}
}

// On a full Redis only adding work is refused.
func TestFull(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	open := busy.with("paused", "", "suspects", "", "holders", "(w1=0 w2=4)")
	for verb, c := range map[string]when{
		"enqueue":        {want: "OOM", state: open},
		"enqueue_once":   {want: "OOM", state: open},
		"enqueue_unique": {want: "OOM", state: open},
		"cancel": {want: "removed=0 token=5", heard: []string{"cancel a"},
			state: open.with("token", "=5", "canceled", "(#a=5)", "cancel:#a", "{finished=0 stopped=0 token=5} +1440m")},
		"resume": {want: "ok", state: open.with("idle", "")},
		"delete": {want: "ok", heard: []string{`delete ""`}, state: open.with("queues", "", "unique", "{#b=p:p2 offset="+deleted(3)+"}")},
		"join":   {want: "ok", state: open.with("workers", "(w2=-60m w1=+60m w4=+60m)", "rounds", "{fence=0 w1=4 w2=7 w4=1}")},
		"step": {want: "settled=canceled,ok started=x/5 cancels=#a/4 seen=4", heard: []string{"done w1 b"},
			state: open.with("working:w1", "(p4=5)", "process:p1", "", "process:p2", "", "process:p4", "[x]", "queues", "[y z]",
				"token", "=5", "rounds", "{w1=5 w2=7}", "unique", "{#y=w:1 offset=1}", "idle", "",
				"cancel:#a", "{finished=0 stopped=1 token=4} +1440m")},
		"beat":  {want: "waiting=3 held=2 canceled=4 due=+60m", state: open.with("suspects", "(w2=+60m)")},
		"sweep": {want: "due=+60m", state: open.with("suspects", "(w2=+60m)")},
		"leave": {want: "returned=1", state: full(open)},
		"fail":  {want: "known=true returned=1", state: full(open).with("ledger", "{#b=1}")},
	} {
		t.Run(verb, func(t *testing.T) { // one after the other: the limit is the server's
			e := newEnv(t, url, nil)
			limit := func(n int) { e.must(e.conn.Do("CONFIG", "SET", "maxmemory", n)) }
			c.call = verbs[verb]
			e.play(scenario{seed: open, steps: []when{c}}, func() { limit(1) })
			limit(0)
			e.must(e.conn.Do("FLUSHALL"))
		})
	}
}

// full is what is left when w1 is gone: its a is canceled, its b is in front.
func full(s state) state {
	return s.with("workers", "(w2=-60m)", "rounds", "{fence=5 w2=7}", "token", "=5", "working:w1", "", "process:p1", "", "process:p2", "",
		"queues", "[b x y z]", "unique", "{#b=w:-1 #y=w:1 offset=-1}", "idle", "", "holders", "(w2=4)",
		"canceled", "", "cancel:#a", "{finished=0 stopped=1 token=4} +1m")
}
