package store

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The ways in which a task ends, as in its Record.
const (
	EndFinished = "finished"
	EndFailed   = "failed"
	EndCanceled = "canceled"
	EndExpired  = "expired"
	EndRemoved  = "removed"
	EndReplaced = "replaced"
)

// A Record says how the last task of an entry ended.
type Record struct {
	End    string
	At     int64 // µs of Redis time; each end has a different one
	Error  string
	Result []byte // nil if there was none, or it was too large
	Size   int    // bytes of the result
}

// An End is what Redis knows about the end of an entry's task. Waits and Runs are how long the results
// of the waiting and of the running task will be kept: 0 if they won't, negative if there is no such
// task.
type End struct {
	Record      *Record // nil if there is none
	Waits, Runs time.Duration
}

func (e *End) Pending() bool { return e.Waits >= 0 || e.Runs >= 0 }

// Keeps returns how long the result of a waiting or running task will be kept; 0 if it won't.
func (e *End) Keeps() time.Duration { return max(e.Waits, e.Runs, 0) }

// MaxEnds is how many entries one call of Ends takes.
const MaxEnds = 100

// Ends returns the ends of at most MaxEnds entries, all read at one moment. If their results are
// large, it returns only the first ones, and at least one.
func Ends(ctx context.Context, r Runner, q keys.Queue, entries []string) ([]End, error) {
	var ends []End
	a := outcome.ask(ctx, r, q, "entry", entries)
	a.each("ends", func(d *decoder) {
		e := End{Record: readRecord(d.bytes())}
		e.Waits, e.Runs = time.Duration(d.int())*time.Millisecond, time.Duration(d.int())*time.Millisecond
		ends = append(ends, e)
	})
	if a.err == nil && (len(ends) == 0 || len(ends) > len(entries)) {
		a.err = errors.New("the reply doesn't match the request")
	}
	return ends, a.err
}

// readRecord reads "end:µs:length:", the text of the error, which has that length, and the result
// as in a round: see Outcome.word. It returns nil if the text isn't a record: check.lua judges
// likewise.
func readRecord(b []byte) *Record {
	parts := bytes.SplitN(b, []byte(":"), 4)
	if len(parts) < 4 {
		return nil
	}
	at, err := strconv.ParseUint(string(parts[1]), 10, 63)
	n, bad := strconv.ParseUint(string(parts[2]), 10, 31)
	rest := parts[3]
	if !isWord(parts[0]) || err != nil || bad != nil || at > lastMoment*1000 || int(n) > len(rest) {
		return nil
	}
	r := &Record{End: string(parts[0]), At: int64(at), Error: string(rest[:n])}
	if rest = rest[n:]; len(rest) == 0 {
		return r
	}
	switch about := rest[1:]; rest[0] {
	case '=':
		r.Result, r.Size = about[:len(about):len(about)], len(about)
	case '#':
		size, _, _ := strings.Cut(string(about), ":")
		n, err := strconv.ParseUint(size, 10, 31)
		if err != nil {
			return nil
		}
		r.Size = int(n)
	}
	return r
}

// isWord reports whether b consists of small letters.
func isWord(b []byte) bool {
	return len(b) > 0 && !bytes.ContainsFunc(b, func(r rune) bool { return r < 'a' || r > 'z' })
}

// wordIn returns a text if it's a short word, and "" if it's something that another program has written.
func wordIn(text string) string {
	if len(text) > 20 || !isWord([]byte(text)) {
		return ""
	}
	return text
}

// An EndListener is notified when the task of an entry ends. Its functions are called on the
// connection's goroutine, and must not block.
type EndListener struct {
	Look   func()             // the task has ended, or messages may have been missed
	Heard  func(arrives bool) // whether messages arrive from now on
	Closed func()             // there will be no more messages
}

// AwaitEnd subscribes to the end of an entry's task, until stop is called.
func (l *Lines) AwaitEnd(q Keys, entry string, by EndListener) (stop func(), err error) {
	s := &redisconn.Subscription{
		Topics:  topics(q, q.End(entry)),
		Message: func(string, []byte) { by.Look() },
		Synced:  func() { by.Heard(true); by.Look() },
		Failed:  func(error) { by.Heard(false) },
		Moved:   func(redisconn.Topic, string) { by.Heard(false) },
		Closed:  by.Closed,
	}
	return func() { l.Sub.Remove(s) }, l.Sub.Add(q, s)
}
