package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// A Phase says how far an operation got.
type Phase string

// The phases. An operation that begins with Invoke and has no other end was cut
// off: its outcome is unknown, too.
const (
	Invoke  Phase = "invoke"
	Okay    Phase = "ok"
	Refused Phase = "fail"    // it was not carried out
	Unknown Phase = "unknown" // it may have been
)

// The operations of peers.
const (
	OpUp      = "up"      // a peer runs, or goes on under another id
	OpServing = "serving" // it is a member of its queues
	OpCalm    = "calm"    // it enqueues nothing any more
	OpEnqueue = "enqueue" // Tasks
	OpRun     = "run"     // a handler begins (Invoke) and returns (Okay)
	OpEnded   = "ended"   // the context of a handler has ended; Note is the cause
	OpFinish  = "finish"  // a handler finishes its task itself
	OpCancel  = "cancel"  // of Tasks, or their removal
	OpGone    = "gone"    // that is over, and nothing of Tasks runs any more; or Note is NoteKept
	OpWait    = "wait"    // for the end of Tasks; Note is what it was
	OpLost    = "lost"    // Redis has lost writes, an event says
	OpLate    = "late"    // the machine has not let a process run for Waited
	OpFinding = "finding" // Check has found what Note says
)

// The causes of a handler's end, and what else is noted.
const (
	NoteRetry    = "retry"
	NoteFail     = "fail"
	NoteCanceled = "canceled"
	NoteEvicted  = "evicted"
	NoteShutdown = "shutdown"
	NoteKept     = "kept"                         // there was nothing to cancel any more
	NoteOther    = "the header of another task: " // and its name: a handler was given that
)

// An Event is what a peer is about to do, or what came of it.
type Event struct {
	Mono    int64     // ns of the monotonic clock, which all processes of the machine share
	Wall    time.Time // for people
	Peer    string    `json:",omitempty"`
	Worker  string    `json:",omitempty"`
	Op      string
	Phase   Phase    `json:",omitempty"`
	Tasks   []string `json:",omitempty"`
	Key     string   `json:",omitempty"` // that several tasks have, one after the other
	Process string   `json:",omitempty"`
	Token   int64    `json:",omitempty"`
	Note    string   `json:",omitempty"`
	Waited  int64    `json:",omitempty"` // ns
}

// Mono reads the monotonic clock.
func Mono() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock is always there
	return t.Nano()
}
