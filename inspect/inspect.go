// Package inspect has the types that package worqr returns when you look at queues and workers:
// rows of listings, counts, events, the findings of Check and the answers of Explain.
//
// Printing or logging a task or an event, with any verb, never shows its payload, key, headers or
// result. These are secret; to print one, name its field.
package inspect

import (
	"time"
)

// QueueStats are counts of one queue, as Queue.Stats returns them.
type QueueStats struct {
	Waiting     int  // that may start: on the list, named ones that are ready, and risky ones
	Named       int  // of those that are Waiting
	Scheduled   int  // for a time, even if that has come; or behind the running task with their key
	Running     int  // held by workers, running or prefetched
	Retrying    int  // of those that are Scheduled, at least so many wait for a retry
	Failed      int  // not counting those that OnFailed is handling
	Workers     int  // including dead ones until they're evicted
	IdleWorkers int  // with free slots
	Silent      bool // it has workers, and none has renewed its lease in time
	Paused      bool
	PausedBy    string    // Options.Name of the peer that paused it
	PausedSince time.Time // by Redis's clock
	// Oldest is how long ago the task that has waited longest could have started, by Redis's clock:
	// the front of the list, the first named task that is ready, or the one most overdue in the
	// schedule. A named task that is ready counts as waiting since it was added, or was due if that's
	// later, even if it has been retried or requeued since. For the list it's accurate to about a
	// second or 2 %. It leaves out tasks that arrived after a peer last served the queue, and may be
	// too low after cancels.
	Oldest time.Duration
	// Tokens counts the fencing tokens issued: one for each start, and for each worker that leaves or is
	// evicted. The difference between two reads is roughly the number of attempts started.
	Tokens int64
}

// A Worker is a row of Peer.Workers: a registered peer.
type Worker struct {
	ID            string
	Name          string
	Host          string
	PID           int
	StartedAt     time.Time // by its clock
	Version       string
	Queues        []string
	Lease         time.Duration
	Slots         int // the Concurrency of its handlers together, without those of OnFailed
	StuckHandlers int
	StuckQueues   []string  // on which it has some
	StuckSince    time.Time // by its clock; zero without stuck handlers
	// ClockAhead is by how much its clock is ahead of Redis's; negative if it's behind, and 0 if it's less than a
	// second.
	ClockAhead    time.Duration
	LastHeartbeat time.Time // by this machine's clock; zero if that isn't known, as with a Lease without end
	Protocol      int       // that Version speaks; 0 if it has no number
}

// PeerStats counts what a peer has done since it was created: on all queues, from Peer.Stats, or on
// one, from Peer.StatsOf.
type PeerStats struct {
	Started         int64 // passed to a handler, or returned by StartTask
	Finished        int64
	Stopped         int64 // returned to the front
	Canceled        int64
	Retried         int64 // attempts, not tasks
	Snoozed         int64 // by Snooze
	Failed          int64 // moved to the failed queue
	Expired         int64 // tasks in Failed that expired before they started
	Dropped         int64 // from a full failed queue
	TakenOver       int64 // taken over by another worker, or ended too late
	HandlerErrors   int64 // panics included
	WorkersEvicted  int64 // by this peer
	TasksReturned   int64 // of evicted workers
	TimesEvicted    int64
	RunningHandlers int64
	StuckHandlers   int64 // abandoned and still running
	LostWrites      int64 // how many times this peer noticed that Redis lost writes
	EnqueuesRefused int64 // calls that added no task, since Redis refused them or wasn't reached in time
	// ClockAhead is by how much this peer's clock is ahead of Redis's, by its heartbeats; see Worker.
	ClockAhead time.Duration
}
