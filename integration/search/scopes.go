package search

import "github.com/worqr/worqr/integration/spec"

var (
	mixed = []task{{"", "x"}, {"k:a", "A"}}
	equal = []task{{"", "x"}, {"", "x"}, {"", "x"}}
)

var scopes = []scope{
	{name: "rounds of raw tasks", workers: 1, members: 1, tasks: []task{{"", "x"}, {"", "y"}}, first: 2, verbs: []string{"done", "stop", "retry"},
		wanted: []int{1, 2}, budget: budget{Rounds: 3, Lost: 1, Late: 1, Leaves: 1}},
	{name: "rounds of named tasks", workers: 1, members: 1, tasks: []task{{"k:a", "A"}, {"k:b", "B"}}, first: 2, verbs: []string{"done", "later", "fail"},
		wanted: []int{1, 2}, budget: budget{Rounds: 3, Lost: 1, Late: 1}},
	{name: "a worker that dies while its calls are late", workers: 2, members: 2, tasks: mixed, first: 2, verbs: []string{"done", "stop"},
		wanted: []int{1}, budget: budget{Rounds: 2, Lost: 1, Late: 1, Deaths: 1}},
	{name: "joins and leaves", workers: 2, members: 1, tasks: mixed, first: 2, verbs: []string{"done"},
		wanted: []int{2}, budget: budget{Rounds: 1, Joins: 2, Leaves: 1, Lost: 1, Late: 1, Evictions: 1}},
	{name: "leases that expire", workers: 2, members: 2, tasks: mixed, first: 2, verbs: []string{"done"},
		wanted: []int{2}, solo: true, crashes: 2, budget: budget{Rounds: 2, Deaths: 1, Lapses: 2}},
	{name: "idle workers", workers: 2, members: 2, tasks: mixed, first: 1, verbs: []string{"later"}, wanted: []int{1},
		budget: budget{Rounds: 2, Pauses: 2, Leaves: 1}},
	{name: "put while it runs", workers: 1, members: 1, tasks: []task{{"k:a", "A"}, {"k:a", "B"}, {"k:a", "C"}}, first: 1,
		verbs: []string{"done", "later", "stop", "fail"}, wanted: []int{1}, remove: "k:a",
		budget: budget{Rounds: 3, Evictions: 1, Removes: 1, Leaves: 1}},
	{name: "risky tasks", workers: 2, members: 2, tasks: mixed, first: 2, verbs: []string{"done", "stop"}, wanted: []int{1, 2}, solo: true,
		crashes: 2, prepare: allCrashed, budget: budget{Rounds: 2, Lost: 1}},
	{name: "cancel of raw tasks", workers: 2, members: 2, tasks: equal, first: 2, verbs: []string{"stop"}, wanted: []int{1},
		cancel: canceled, budget: budget{Rounds: 2, Cancels: 1}},
	{name: "cancel, with lost answers and late copies", workers: 1, members: 1, tasks: equal, first: 2, verbs: []string{"retry"}, wanted: []int{2},
		cancel: canceled, budget: budget{Rounds: 2, Cancels: 1, Lost: 1, Late: 1, Leaves: 1}},
	{name: "cancel of what is unique, retried or risky", workers: 1, members: 1, tasks: []task{{"", "x"}, {"u:" + spec.Digest("x"), "x"}, {"", "x"}},
		first: 2, verbs: []string{"later", "stop"}, wanted: []int{1, 2}, crashes: 2, cancel: canceled, prepare: crashed,
		budget: budget{Rounds: 2, Cancels: 1, Minutes: 1, Evictions: 1}},
	{name: "failover", workers: 2, members: 2, tasks: mixed, first: 2, verbs: []string{"done", "retry"}, wanted: []int{1},
		budget: budget{Rounds: 2, Failovers: 1, Deaths: 1}},
}

// crashed prepares a payload that has crashed once.
func crashed(q *spec.Queue) { q.Crashes.Put(spec.Digest("x"), "1") }

// allCrashed prepares that all tasks have crashed once.
func allCrashed(q *spec.Queue) {
	crashed(q)
	q.Runs.Put("k:a", ":0:1:")
}
