package store

import (
	"crypto/sha1"
	"fmt"
	"strconv"
	"time"
)

// An Ending says how a process ends.
type Ending string

// The endings: Finish for good; Drop for good, as canceled and without the event;
// Stop returns the task to the front; Retry has it tried again later; Fail puts
// it into the failed queue.
const (
	Finish Ending = "finish"
	Drop   Ending = "drop"
	Stop   Ending = "stop"
	Retry  Ending = "retry"
	Fail   Ending = "fail"
)

// A Kind says why a task is in the failed queue.
type Kind string

// The kinds of failure: its handler gave up; its payload cannot be read; too
// many workers died holding it.
const (
	Failed    Kind = "failed"
	Malformed Kind = "malformed"
	Crashed   Kind = "crashed"
)

// An Outcome ends one process.
type Outcome struct {
	Process string
	Token   int64
	Plain   bool   // it is certain to be of the list; in a round these come last
	Size    int    // bytes of the payload
	Digest  string // of the payload; of a large one it is said to the script
	Verb    Ending
	Result  []byte        // of Finish; nil: none
	Delay   time.Duration // of Retry
	Kind    Kind          // of Fail
	Reason  string        // of Fail

	large *largeResult // once Encode has been called
}

// A largeResult is what is said of one that is large.
type largeResult struct {
	about   string // its length and digest
	encoded []byte // as it is sent; nil above the limit
}

// Encode does beforehand, without a lock and beside the rounds, what takes long of sending
// a large result. Most is how long one may be to be sent whole.
func (o *Outcome) Encode(most int) {
	if o.Verb != Finish || len(o.Result) <= Large {
		return
	}
	o.large = &largeResult{about: about(len(o.Result), fmt.Sprintf("%x", sha1.Sum(o.Result)))}
	if len(o.Result) <= most {
		o.large.encoded = quoted("+"+o.large.about+":", o.Result)
	}
}

// word is what the verb needs besides the process, in a round.
func (o *Outcome) word(r *Round) any {
	switch {
	case o.Verb == Retry:
		return max(o.Delay, 0).Milliseconds()
	case o.Verb == Fail:
		return string(o.Kind) + ":" + o.Reason
	case o.Verb == Finish && len(o.Result) > Large:
		if o.large == nil || o.large.encoded == nil && len(o.Result) <= r.results() {
			o.Encode(r.results())
		}
		if len(o.Result) > r.results() {
			return "#" + o.large.about
		}
		return o.large.encoded
	case o.Verb == Finish && o.Result != nil:
		return append([]byte{'='}, o.Result...)
	}
	return ""
}

// quoted appends a string to a head as JSON writes it, whatever its bytes are. Redis
// would take 30 ms for each MiB.
func quoted(head string, s []byte) []byte {
	const hex = "0123456789abcdef"
	b := append(make([]byte, 0, len(head)+len(s)+len(s)/8+2), head...)
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// Large is from how many bytes on Redis would take long to encode a payload or a result.
// Observers get the length and the digest of such a payload; a result is encoded by
// the worker.
const Large = 64 << 10

// hint is what there is to say of a large payload. A script that knows its digest
// need not read it.
func (o *Outcome) hint() string {
	if o.Size <= Large {
		return ""
	}
	return about(o.Size, o.Digest)
}

func about(size int, digest string) string { return strconv.Itoa(size) + ":" + digest }

// simple reports whether all there is to say of an outcome is that it finishes
// a process of the list. In a round these come last, each process once.
func (o *Outcome) simple() bool {
	return o.Plain && o.Verb == Finish && o.Result == nil && o.Size <= Large
}

// Rank is the place of an outcome in a round: what may be of the schedule
// comes first, what is simple last.
func (o *Outcome) Rank() int {
	switch {
	case !o.Plain:
		return 0
	case !o.simple():
		return 1
	}
	return 2
}
