package store

import (
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// While the queue is no list, workers go on, nothing is lost, and a return
// waits until it is one again.
func TestQueueOfAnotherType(t *testing.T) {
	seed := state{"queues": "=foreign", "workers": "(w1=+60m w2=+60m)", "token": "=2",
		"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]"}
	left := seed.with("workers", "(w2=+60m)", "suspects", "(w1=-1)", "token", "=3")
	run(t, []scenario{
		{name: "step", seed: seed, steps: []when{{
			call: steps(Round{Worker: "w1", Number: 1, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Finish}}, Start: []string{"p3"}}),
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
		"an outcome":  {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}},
		"an end":      {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish, Plain: true}}},
		"one of each": {Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}, {Process: "p3", Token: 3, Verb: Finish, Plain: true}}, Start: []string{"p2"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r.Worker, r.Number = "w1", 2
			newEnv(t, redistest.URL(), nil).play(scenario{seed: seed, steps: []when{{call: steps(r), want: "WRONGTYPE"}}})
		})
	}
}
