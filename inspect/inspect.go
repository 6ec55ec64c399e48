// Package inspect has what you get when you look at queues and workers with package worqr: rows of
// listings, counters, events, the findings of Check and the answers of Explain.
//
// Printing or logging a task or an event, with any verb, never shows its payload, key, headers or
// result. These are secret, so you must name the fields.
package inspect

import (
	"time"
)

// QueueStats are counts of one queue.
type QueueStats struct {
	Waiting     int // on the list, and added tasks
	Scheduled   int // in the schedule
	Running     int // held by workers, running or prefetched
	Failed      int // without those that OnFailed is handling
	Workers     int
	IdleWorkers int // with free slots; if the queue is spread, those of the part that has most
	Paused      bool
	// Oldest is how long ago the task that has waited longest could have started, by Redis's clock:
	// the front of the list, the first of Add, or the one most overdue. For the list it's right to
	// about a second or 2 %; it leaves out what came since a peer last served the queue, and may be
	// too high after cancels.
	Oldest time.Duration
	// Tokens counts the tokens given, over all parts. Each start, cancel and lost worker takes one,
	// so the difference of two reads is about how many tasks have started.
	Tokens int64
}

// A Worker is a registered peer.
type Worker struct {
	ID            string
	Name          string
	Host          string
	PID           int
	StartedAt     time.Time // by its clock
	Version       string
	Queues        []string
	Lease         time.Duration
	StuckHandlers int
	Protocol      int // of Version; 0 if unnumbered
}

// PeerStats counts what a peer has done since it was created, on all queues or on one.
type PeerStats struct {
	Started         int64 // passed to a handler, or returned by StartTask
	Finished        int64
	Stopped         int64 // returned to the front
	Canceled        int64
	Retried         int64 // attempts, not tasks
	Snoozed         int64 // by Snooze
	Failed          int64 // moved to the failed queue
	Expired         int64 // of these, whose time was over before they started
	Dropped         int64 // from a full failed queue
	TakenOver       int64 // taken over by another worker, or ended too late
	HandlerErrors   int64 // panics included
	WorkersEvicted  int64 // by this peer
	TasksReturned   int64 // of evicted workers
	TimesEvicted    int64
	RunningHandlers int64
	StuckHandlers   int64 // abandoned and still running
	LostWrites      int64 // times that Redis had lost writes
}
