package store

import (
	"crypto/sha1"
	"fmt"
	"strconv"
	"time"

	"github.com/worqr/worqr/inspect"
)

// An Ending says how a process ends.
type Ending string

// The endings: Finish ends the task; Drop ends it as canceled and without the event;
// Stop returns it to the front; Retry schedules a retry; Snooze schedules a start that doesn't count
// as a retry; Fail moves it to the failed queue.
const (
	Finish Ending = "finish"
	Drop   Ending = "drop"
	Stop   Ending = "stop"
	Retry  Ending = "retry"
	Snooze Ending = "snooze"
	Fail   Ending = "fail"
)

// A Kind says why a task is in the failed queue.
type Kind = inspect.FailureKind

// The kinds of failure: the handler failed permanently; the payload can't be read; too
// many workers died holding the task; it expired before it started.
const (
	Failed    = inspect.FailureError
	Malformed = inspect.FailureMalformed
	Crashed   = inspect.FailureCrashed
	Expired   = inspect.FailureExpired
)

// MaxError is how much of an error the next attempt sees, in bytes.
const MaxError = 1 << 10

// An Outcome ends one process.
type Outcome struct {
	Process string
	Token   int64
	Plain   bool // it certainly comes from the list; in a round these are last
	Added   bool // it was started as an added task, and not as an entry
	Size    int  // bytes of the payload
	Card    int  // bytes of the card
	Verb    Ending
	Result  []byte        // of Finish; nil: none
	Delay   time.Duration // of Retry and Snooze
	Kind    Kind          // of Fail
	Due     int64         // of Fail: ms of Redis time when the task was due; 0 if that isn't known
	Reason  string        // of Fail; of Retry, up to MaxError bytes for the next attempt to see; "": it sees the previous reason

	omitted string // the length and the digest of a result that is too large to be sent; "" otherwise
}

// Limit drops a result of more than most bytes: only its length and digest will be sent. It takes
// a while.
func (o *Outcome) Limit(most int) {
	if len(o.Result) > most {
		o.omitted, o.Result = fmt.Sprintf("#%d:%x", len(o.Result), sha1.Sum(o.Result)), nil
	}
}

// word returns the argument of the ending in a round, besides the process.
func (o *Outcome) word() any {
	switch {
	case o.Verb == Retry && o.Reason != "":
		return strconv.FormatInt(max(o.Delay, 0).Milliseconds(), 10) + ":" + o.Reason
	case o.Verb == Retry || o.Verb == Snooze:
		return max(o.Delay, 0).Milliseconds()
	case o.Verb == Fail:
		due := ""
		if o.Due > 0 {
			due = strconv.FormatInt(o.Due, 10)
		}
		return string(o.Kind) + ":" + due + ":" + o.Reason
	case o.Verb == Finish && o.Result != nil:
		return append([]byte{'='}, o.Result...)
	}
	return o.omitted
}

// Large is the size in bytes from which Redis takes long to encode a payload or a result.
// Observers get only the length and the digest of one that is larger.
const Large = 64 << 10

// simple reports whether an outcome only finishes a process of the list, or of an
// added task. In a round these come last, each process once.
func (o *Outcome) simple() bool {
	return (o.Plain || o.Added) && o.Verb == Finish && o.Result == nil && o.omitted == ""
}

// Weight returns how much the outcome counts in a round, and how many bytes Redis may have to read for it.
func (o *Outcome) Weight() (weight, bytes int) {
	weight = heavy
	if o.simple() {
		weight = 1
	}
	return weight, o.Size + o.Card + len(o.Result)
}

// Rank returns the place of an outcome in a round: outcomes of the schedule come first, simple ones
// last, and among these the added ones first.
func (o *Outcome) Rank() int {
	switch {
	case o.simple() && o.Plain:
		return 3
	case o.simple():
		return 2
	case o.Plain:
		return 1
	}
	return 0
}
