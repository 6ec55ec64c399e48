package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// A Phase says how far an operation got.
type Phase string

// The phases. If an operation begins with Invoke and has no other phase, it was cut off, and its
// outcome is unknown, too.
const (
	Invoke  Phase = "invoke"
	Okay    Phase = "ok"
	Refused Phase = "fail"    // it wasn't carried out
	Unknown Phase = "unknown" // it may have been carried out
)

// The operations of peers.
const (
	OpUp      = "up"      // a peer runs, or continues under another id
	OpCalm    = "calm"    // it has stopped enqueueing
	OpEnqueue = "enqueue" // Tasks
	OpRun     = "run"     // a handler begins (Invoke) and returns (Okay)
	OpEnded   = "ended"   // the context of a handler has ended; Note is the cause
	OpFinish  = "finish"  // a handler finishes its task itself
	OpCancel  = "cancel"  // of Tasks, or their removal
	OpGone    = "gone"    // the cancel is complete, and no copy of Tasks runs; Note is NoteKept or NoteStopped if none was waiting
	OpWait    = "wait"    // for the end of Tasks; Note is the outcome
	OpLate    = "late"    // the machine hasn't let a process run for Waited
	OpLost    = "lost"    // an event reports that Redis has lost writes
)

// Causes of the end of a handler's context, and other notes.
const (
	NoteRetry    = "retry"
	NoteFail     = "fail"
	NoteCanceled = "canceled"
	NoteEvicted  = "evicted"
	NoteShutdown = "shutdown"
	NoteKept     = "kept"                         // nothing was left to remove
	NoteStopped  = "stopped"                      // a cancel has removed nothing: it may have stopped something
	NoteOther    = "the header of another task: " // a handler got this header; followed by the other task's name
)

// An Event is what a peer is about to do, or the result.
type Event struct {
	Mono    int64     // ns of the monotonic clock, which all processes of the machine share
	Wall    time.Time // for people
	Peer    string    `json:",omitempty"`
	Worker  string    `json:",omitempty"`
	Op      string
	Phase   Phase    `json:",omitempty"`
	Tasks   []string `json:",omitempty"`
	Key     string   `json:",omitempty"` // shared by several tasks, one after the other
	Process string   `json:",omitempty"`
	Token   int64    `json:",omitempty"`
	Note    string   `json:",omitempty"`
	Waited  int64    `json:",omitempty"` // ns
}

// Mono reads the monotonic clock.
func Mono() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock always exists
	return t.Nano()
}
