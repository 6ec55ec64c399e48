package main

// An ending says how a process ended.
type ending string

// The endings. A process without one still runs.
const (
	running       ending = ""
	finished      ending = "finished" // the task is gone
	returned      ending = "returned" // its worker was evicted, and the task waits again
	stopped       ending = "stopped"  // its live worker has put it back or will retry it
	failedForGood ending = "failed"
)

// A start is one process of a task.
type start struct {
	process, worker string
	token           int64
	end             ending
}

// A story is what happened to one task, in the server's order. A task's payload is its name.
type story struct {
	name    string
	commit  int // that enqueued it
	number  int // position in its queue's order of enqueueing; 0 if it has a key
	places  int // in how many places it is
	starts  []start
	ends    int    // final ones: finished or canceled while it ran
	endedBy string // the last process with a final end
	dropped bool   // while it waited
	failed  bool
}
