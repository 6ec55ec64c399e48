package main

import (
	"fmt"
	"time"
)

// A goal is a target for a figure of this library, absolute or relative to another cell.
type goal struct {
	what  string
	cell  cell
	value string
	over  cell // none: the goal is absolute
	least float64
	most  float64 // either least or most is set
	unit  string
	worst bool // the worst round counts, not the median
}

var goals = []goal{
	{what: "process, 64 handlers, vs. asynq", cell: cell{processing, "64", ours}, over: cell{processing, "64", theirs}, value: "tasks/s", least: 15},
	{what: "process, 10 handlers, vs. asynq", cell: cell{processing, "10", ours}, over: cell{processing, "10", theirs}, value: "tasks/s", least: 10},
	{what: "process, 1 handler, vs. asynq", cell: cell{processing, "1", ours}, over: cell{processing, "1", theirs}, value: "tasks/s", least: 8},
	{what: "process, 64 handlers, vs. the scripted floor", cell: cell{processing, "64", ours}, over: cell{processing, "64", scripted}, value: "tasks/s", least: 0.8},
	{what: "CPU time of Redis per task, 64 handlers", cell: cell{processing, "64", ours}, value: "server µs", most: 8, unit: "µs"},
	{what: "enqueue one by one, vs. bare LPUSH", cell: cell{enqueuing, "one by one", ours}, over: cell{enqueuing, "one by one", bare}, value: "tasks/s", least: 0.9},
	{what: "enqueue, 32 callers, vs. asynq", cell: cell{enqueuing, "32 callers", ours}, over: cell{enqueuing, "32 callers", theirs}, value: "tasks/s", least: 5},
	{what: "enqueue batches of 100, vs. bare LPUSH of 100", cell: cell{enqueuing, "batches of 100", ours}, over: cell{enqueuing, "batches of 100", bare}, value: "tasks/s", least: 0.7},
	{what: "process added tasks, 64 handlers, vs. asynq", cell: cell{processing, "64", added}, over: cell{processing, "64", theirs}, value: "tasks/s", least: 8},
	{what: "Add by 32 callers in batches of 100, vs. asynq by 32 callers", cell: cell{enqueuing, "32 callers, batches of 100", added}, over: cell{enqueuing, "32 callers", theirs}, value: "tasks/s", least: 5},
	{what: "process with a round trip of 0.5 ms, vs. none", cell: cell{networking, away(500*time.Microsecond, 0), ours}, over: cell{networking, away(0, 0), ours}, value: "tasks/s", least: 0.9},
	{what: "process with a round trip of 2 ms, vs. none", cell: cell{networking, away(2*time.Millisecond, 0), ours}, over: cell{networking, away(0, 0), ours}, value: "tasks/s", least: 0.7},
	{what: "process with a round trip of 10 ms, 64 handlers of 1 ms", cell: cell{networking, away(10*time.Millisecond, time.Millisecond), ours}, value: "tasks/s", least: 25_000, unit: "tasks/s"},
	{what: "from enqueue to start, median", cell: cell{delaying, "", ours}, value: "trips", most: 2.5, unit: "round trips"},
	{what: "from enqueue to start, 99th percentile", cell: cell{delaying, "", ours}, value: "p99 ms", most: 2, unit: "ms"},
	{what: "memory of a waiting task of 100 bytes", cell: cell{storing, "", ours}, value: "bytes", most: 108, unit: "bytes"},
	{what: "memory of a waiting added task of 100 bytes with a header", cell: cell{storing, "", added}, value: "bytes", most: 400, unit: "bytes"},
	{what: "commands per task with 8 idle peers, vs. 1", cell: cell{beside, "8", ours}, over: cell{beside, "1", ours}, value: "commands", most: 1.1},
	{what: "commands per task with 32 idle peers, vs. 1", cell: cell{beside, "32", ours}, over: cell{beside, "1", ours}, value: "commands", most: 1.1},
	{what: "from a kill until the last task starts elsewhere, the slowest", cell: cell{recovering, "", ours}, value: "last s", most: 4.5, unit: "s", worst: true},
	{what: "from the kill of 1,000 workers until the last task starts elsewhere", cell: cell{dying, "", ours}, value: "last s", most: 4.5, unit: "s", worst: true},
	{what: "of 10,000 memberships, those that survive a 10 s stall of Redis", cell: cell{stalling, "", ours}, value: "kept", least: 10_000, unit: "memberships", worst: true},
	{what: "memory of the history of 200 queues after 30 days", cell: cell{recording, "", ours}, value: "MB", most: 12, unit: "MB"},
	{what: "commands of 500 idle peers that serve 20 queues each, vs. without history", cell: cell{recording, "idle", ours}, over: cell{recording, "idle", quiet}, value: "commands/s", most: 1.05},
}

// reached returns the measured value of the goal and whether it is met. ok is false if it wasn't
// measured.
func (g goal) reached(r results) (s summary, met, ok bool) {
	if g.over == (cell{}) {
		s, ok = r.of(g.cell, g.value)
	} else {
		s, ok = r.ratio(g.cell, g.over, g.value)
	}
	decides := s.median
	if g.worst {
		decides = s.max
	}
	if g.least > 0 {
		return s, decides >= g.least, ok
	}
	return s, decides <= g.most, ok
}

// aim returns the goal as text.
func (g goal) aim() string {
	if g.least > 0 {
		return fmt.Sprintf("≥ %g%s", g.least, g.suffix())
	}
	return fmt.Sprintf("≤ %g%s", g.most, g.suffix())
}

func (g goal) suffix() string {
	if g.unit == "" {
		return "×"
	}
	return " " + g.unit
}
