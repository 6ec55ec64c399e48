package store

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/past"
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
	Error   past.Text
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
		n, err := strconv.ParseUint(string(digits), 10, 64)
		if !ok || errors.Is(err, strconv.ErrSyntax) {
			return Record{Payload: text, Damaged: true}
		}
		numbers[i], rest = int64(min(n, 1<<53)), after // another program may mean forever
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
		Back: rest[:back], Error: past.Text(rest[back : back+failure]),
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

// The names of named tasks begin with one of these: a key, a digest (a unique task), or a digest and
// a number (a raw task outside the list). In a failed queue, "#" and a number follow the first two.
const (
	keyMark    = "k:"
	uniqueMark = "u:"
	rawMark    = "r:"
)

// NameOf returns the name of the task with a key.
func NameOf(key string) string { return keyMark + key }

// KeyOf returns the key in the name of a task; "" if it has none.
func KeyOf(name string) string {
	key, ok := strings.CutPrefix(name, keyMark)
	if !ok {
		return ""
	}
	return key
}

// UniqueName returns the name of the unique task with a payload of at most MaxDigested bytes.
func UniqueName(payload []byte) string { return uniqueMark + DigestOf(payload) }

// DigestIn returns the digest of the payload in the name of a task that has one; the zero Digest for others.
func DigestIn(name string) (d Digest) {
	kind, rest, _ := strings.Cut(name, ":")
	if kind == "r" {
		rest, _, _ = strings.Cut(rest, ":")
	}
	if (kind != "u" && kind != "r") || len(rest) != 2*len(d) {
		return Digest{}
	}
	if _, err := hex.Decode(d[:], []byte(rest)); err != nil {
		return Digest{}
	}
	return d
}

// IsDigest reports whether a text is the digest of a payload.
func IsDigest(text string) bool {
	return len(text) == 2*sha1.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// Metadata has the properties of a task that only its worker needs. In Redis it's text, before the
// payload: for each property a letter, a length, a colon and that many bytes. The letters are
// t (timeout), m (retries), e (expression), and h with the name of a header, followed by v with its
// value. Readers skip letters that they don't know.
type Metadata struct {
	Timeout    time.Duration     // in ms; 0: the queue's
	MaxRetries int               // 0: the queue's; negative: none
	Expression string            // of a schedule, for people
	Headers    map[string]string // nil: none
}

// The limits of metadata.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 8 << 10 // names and values
	maxMetadata    = MaxHeaderBytes + 1<<10
)

// Append appends the text of the metadata to b. Equal metadata has equal texts.
func (m *Metadata) Append(b []byte) []byte {
	if ms := m.Timeout.Milliseconds(); ms > 0 {
		b = appendField(b, 't', strconv.FormatInt(ms, 10))
	}
	if m.MaxRetries != 0 {
		b = appendField(b, 'm', strconv.Itoa(max(m.MaxRetries, 0)))
	}
	if m.Expression != "" {
		b = appendField(b, 'e', m.Expression)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		b = appendField(b, 'h', name)
		b = appendField(b, 'v', m.Headers[name])
	}
	return b
}

func appendField(b []byte, letter byte, value string) []byte {
	b = strconv.AppendInt(append(b, letter), int64(len(value)), 10)
	return append(append(b, ':'), value...)
}

// parseMetadata reads the text of metadata. ok is false if it's damaged.
func parseMetadata(text string) (m Metadata, ok bool) {
	if len(text) > maxMetadata {
		return m, false
	}
	header, named := "", false // the name of a header, before its value
	for text != "" {
		letter := text[0]
		digits, rest, found := strings.Cut(text[1:], ":")
		n, err := strconv.ParseUint(digits, 10, 16)
		if !found || err != nil || int(n) > len(rest) || named != (letter == 'v') {
			return Metadata{}, false
		}
		value := rest[:n]
		text, named = rest[n:], letter == 'h'
		switch letter {
		case 't', 'm':
			number, err := strconv.ParseUint(value, 10, 63)
			if err != nil {
				return Metadata{}, false
			}
			if letter == 't' {
				m.Timeout = time.Duration(min(int64(number), longestTimeout)) * time.Millisecond
			} else if m.MaxRetries = int(min(number, 1<<30)); m.MaxRetries == 0 {
				m.MaxRetries = -1
			}
		case 'e':
			m.Expression = value
		case 'h':
			header = value
		case 'v':
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			m.Headers[header] = value
		}
	}
	if named || len(m.Headers) > MaxHeaders {
		return Metadata{}, false
	}
	return m, true
}

// longestTimeout is about 290 years, in ms.
const longestTimeout = int64(1<<63-1) / int64(time.Millisecond)
