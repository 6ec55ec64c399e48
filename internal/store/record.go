package store

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A Record is what is stored of a named task: "enqueued:due:expires:result:occurrence:size:", metadata
// of that size, and the payload. Times are in ms of Redis's time; 0 where there is none.
type Record struct {
	Enqueued   int64 // when it was added
	Due        int64 // when it was to start
	Expires    int64
	Keep       time.Duration // for how long its result is kept; 0: it isn't
	Occurrence bool          // a schedule made it, for the time in Due
	Metadata   Metadata
	Failure    *Failure // in a failed queue
	Payload    []byte

	Damaged bool // another program has written it, or its metadata can't be read
}

// A Kind says why a task is in the failed queue.
type Kind = inspect.FailureKind

// The kinds of failure: the handler failed permanently; the payload can't be read; too many workers
// died holding the task; it expired before it started.
const (
	Failed    = inspect.FailureError
	Malformed = inspect.FailureMalformed
	Crashed   = inspect.FailureCrashed
	Expired   = inspect.FailureExpired
)

// A Failure says how a task has failed.
type Failure struct {
	Kind    Kind
	At      int64  // ms of Redis time
	Worker  string // that ran it last
	Attempt string
	Retries int
	Crashes int
	Back    string // the name to go back to; "" for a raw task
	Error   string
}

// Append appends the text of a record to b, as add and recur expect it.
func (r *Record) Append(b []byte) []byte {
	metadata := r.Metadata.Append(nil)
	b = append(b, "0:"...) // the script knows when it's added
	for _, n := range []int64{r.Due, r.Expires, r.Keep.Milliseconds()} {
		b = append(strconv.AppendInt(b, n, 10), ':')
	}
	b = append(b, "0:"...)
	b = append(strconv.AppendInt(b, int64(len(metadata)), 10), ':')
	return append(append(b, metadata...), r.Payload...)
}

// ReadRecord reads a record. In a failed queue, its metadata begins with the failure. The payload
// shares the bytes of text.
func ReadRecord(text []byte, inFailed bool) Record {
	rest, numbers := text, [6]int64{}
	for i := range numbers {
		digits, after, ok := bytes.Cut(rest, []byte(":"))
		n, err := strconv.ParseUint(string(digits), 10, 53)
		if !ok || err != nil {
			return Record{Payload: text, Damaged: true}
		}
		numbers[i], rest = int64(n), after
	}
	size := numbers[5]
	if size > int64(len(rest)) || numbers[4] > 1 {
		return Record{Payload: text, Damaged: true}
	}
	r := Record{
		Enqueued: numbers[0], Due: numbers[1], Expires: numbers[2], Keep: time.Duration(min(numbers[3], longestTimeout)) * time.Millisecond,
		Occurrence: numbers[4] == 1, Payload: rest[size:],
	}
	metadata, sound := string(rest[:size]), true
	if inFailed {
		r.Failure, metadata, sound = readFailure(metadata)
	}
	ok := false
	r.Metadata, ok = parseMetadata(metadata)
	r.Damaged = !ok || !sound
	return r
}

// readFailure reads the failure at the beginning of metadata, and returns what follows:
// "kind:when:worker:attempt:retries:crashes:" and the lengths of two texts, then these texts.
func readFailure(metadata string) (f *Failure, rest string, ok bool) {
	parts := strings.SplitN(metadata, ":", 9)
	if len(parts) < 9 {
		return nil, metadata, false
	}
	rest = parts[8]
	back, failure := numberIn(parts[6]), numberIn(parts[7])
	if back < 0 || failure < 0 || back > int64(len(rest)) || failure > int64(len(rest))-back {
		return nil, metadata, false
	}
	return &Failure{
		Kind: Kind(wordIn(parts[0])), At: numberIn(parts[1]), Worker: parts[2], Attempt: parts[3], Retries: countIn(parts[4]), Crashes: countIn(parts[5]),
		Back: rest[:back], Error: rest[back : back+failure],
	}, rest[back+failure:], true
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
