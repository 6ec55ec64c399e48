package store

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/past"
	"github.com/worqr/worqr/internal/redisconn"
)

var result = verb("result")

// The ways in which a task ends, as in its Ended.
const (
	EndFinished = "finished"
	EndFailed   = "failed"
	EndCanceled = "canceled"
	EndExpired  = "expired"
	EndRemoved  = "removed"
	EndReplaced = "replaced"
)

// An Ended says how the last task under a name ended.
type Ended struct {
	End   string
	At    int64 // µs of Redis's time; each end has a different one
	Error string
	Value []byte // what the handler has set; empty if it has set nothing
}

// A Fate is what Redis knows about the end of the tasks under a name. Waits and Runs are for how long
// the results of the waiting and of the running task will be kept: 0 if they won't, negative if there
// is no such task.
type Fate struct {
	Ended       *Ended // of the last one that has ended; nil if none is kept
	Waits, Runs time.Duration
}

// Pending reports whether a task waits or runs.
func (f *Fate) Pending() bool { return f.Waits >= 0 || f.Runs >= 0 }

// Keeps returns for how long the result of a waiting or running task will be kept; 0 if it won't.
func (f *Fate) Keeps() time.Duration { return max(f.Waits, f.Runs, 0) }

// MaxEnds is how many names one call of Ends takes.
const MaxEnds = 100

// Ends returns the fates of at most MaxEnds names, all read at one moment. If they are large, it
// returns only the first ones, and at least one.
func Ends(ctx context.Context, r Runner, q keys.Queue, names []string) ([]Fate, error) {
	in := result.ask(ctx, r, q, listed(names)...)
	var fates []Fate
	in.each(func() {
		f := Fate{Ended: readResult(in.bytes())}
		f.Waits, f.Runs = time.Duration(in.int())*time.Millisecond, time.Duration(in.int())*time.Millisecond
		if in.err == nil {
			fates = append(fates, f)
		}
	})
	if in.err == nil && (len(fates) == 0 || len(fates) > len(names)) {
		in.err = errMismatch
	}
	return fates, in.err
}

// readResult reads "end:µs:length:", the text of the error, which has that length, and the value. It
// returns nil if the text isn't a result.
func readResult(b []byte) *Ended {
	parts := bytes.SplitN(b, []byte(":"), 4)
	if len(parts) < 4 {
		return nil
	}
	at, err := strconv.ParseUint(string(parts[1]), 10, 60)
	n, bad := strconv.ParseUint(string(parts[2]), 10, 31)
	rest := parts[3]
	if !isWord(parts[0]) || err != nil || bad != nil || int(n) > len(rest) {
		return nil
	}
	return &Ended{End: string(parts[0]), At: int64(at), Error: past.Text(rest[:n]).Last(), Value: rest[n:]}
}

// An EndListener is notified when a task of a name ends. All but Closed are called on the
// connection's goroutine, and must not block.
type EndListener struct {
	Look   func()             // a task has ended, or messages may have been missed
	Heard  func(arrives bool) // whether messages arrive from now on
	Closed func()             // there will be no more messages
}

// AwaitEnd subscribes to the ends of a name's tasks, until stop is called. It doesn't block. It fails
// with ErrClosed.
func (l *Lines) AwaitEnd(q keys.Queue, name string, by EndListener) (stop func(), err error) {
	s := &redisconn.Subscription{
		Topics:  topics(q, q.End(name)),
		Message: func(string, []byte) { by.Look() },
		Synced:  func() { by.Heard(true); by.Look() },
		Failed:  func(error) { by.Heard(false) },
		Moved:   func(redisconn.Topic, string) { by.Heard(false) },
		Closed:  by.Closed,
	}
	return func() { l.Sub.Remove(s) }, l.Sub.Add(q, s)
}

// topics returns what to subscribe to in order to hear some channels of a queue. In a cluster, scripts
// publish with SPUBLISH if they can, and with PUBLISH otherwise.
func topics(q keys.Queue, channels ...string) (all []redisconn.Topic) {
	for _, c := range channels {
		if q.Scattered() {
			all = append(all, redisconn.Topic{Name: c, Sharded: true})
		}
		all = append(all, redisconn.Topic{Name: c})
	}
	return all
}
