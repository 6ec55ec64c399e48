package main

// An ending says how a process ended.
type ending string

// The endings. One that has none still runs.
const (
	running  ending = ""
	finished ending = "finished" // the task is nowhere any more
	returned ending = "returned" // its worker was failed, and the task waits again
	stopped  ending = "stopped"  // its worker, alive, has put it back or is to try it again
	buried   ending = "failed"
)

// A start is one process of a task.
type start struct {
	process, worker string
	token           int64
	end             ending
}

// A story is what became of one task, in the order of the server. The payload of
// each task is its name.
type story struct {
	name    string
	commit  int // that brought it
	number  int // of its enqueueing, on its queue; 0 if it is under a key
	places  int // where it is
	starts  []start
	ends    int    // for good: finished or canceled while it ran
	endedBy string // the process that did so last
	dropped bool   // while it waited
	failed  bool
}
