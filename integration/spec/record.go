package spec

import (
	"crypto/sha1"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Record is what is stored of a named task.
type Record struct {
	Enqueued, Due, Expires, Keep int64
	Occurrence                   bool
	Metadata, Payload            string
}

var recordForm = regexp.MustCompile(`^(\d+):(\d+):(\d+):(\d+):([01]):(\d+):`)

// ReadRecord reads a record. What another program has written is all payload.
func ReadRecord(text string) Record {
	m := recordForm.FindStringSubmatch(text)
	if m == nil {
		return Record{Payload: text}
	}
	rest := text[len(m[0]):]
	size := min(int(number(m[6])), len(rest))
	return Record{number(m[1]), number(m[2]), number(m[3]), number(m[4]), m[5] == "1", rest[:size], rest[size:]}
}

func (r Record) String() string {
	occurrence := 0
	if r.Occurrence {
		occurrence = 1
	}
	return fmt.Sprintf("%d:%d:%d:%d:%d:%d:%s%s", r.Enqueued, r.Due, r.Expires, r.Keep, occurrence, len(r.Metadata), r.Metadata, r.Payload)
}

// A Run is what is known of a name while it runs, or after a failure.
type Run struct {
	Attempt          string // "" while the task waits
	Retries, Crashes int64
	Error            string
}

var runForm = regexp.MustCompile(`(?s)^([^:]*):(\d+):(\d+):(.*)$`)

// ReadRun reads what is known of a name.
func ReadRun(text string) (r Run) {
	if m := runForm.FindStringSubmatch(text); m != nil {
		r = Run{m[1], number(m[2]), number(m[3]), m[4]}
	}
	return r
}

func (r Run) String() string {
	return fmt.Sprintf("%s:%d:%d:%s", r.Attempt, r.Retries, r.Crashes, r.Error)
}

// Behind is a task that waits in next, behind the running one of its name.
type Behind struct {
	At           int64
	Rule         string
	Keep, Counts bool
	Record       string
}

var nextForm = regexp.MustCompile(`(?s)^(\d+):([a-z]+):([01]):([01]):(.*)$`)

// ReadBehind reads what waits in next; nil if another program has written it.
func ReadBehind(text string) *Behind {
	m := nextForm.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	return &Behind{number(m[1]), m[2], m[3] == "1", m[4] == "1", m[5]}
}

// ruled returns when a task may start that was to start at a time, if the one behind it judges.
func (b *Behind) ruled(at int64) int64 {
	switch b.Rule {
	case "never":
		return at
	case "later":
		return max(at, b.At)
	case "earlier":
		return min(at, b.At)
	}
	return b.At
}

// Digest returns the digest of a payload.
func Digest(payload string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(payload))) }

var digestForm = regexp.MustCompile(`^(?:r:([0-9a-f]+):\d+|u:([0-9a-f]+))$`)

// digestIn returns the digest in the name of a raw or unique task; "" for others.
func digestIn(name string) string {
	if m := digestForm.FindStringSubmatch(name); m != nil {
		return m[1] + m[2]
	}
	return ""
}

func isRaw(name string) bool { return strings.HasPrefix(name, "r:") }

func isNamed(attempt string) bool { return strings.HasSuffix(attempt, "n") }

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
