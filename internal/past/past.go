// Package past has the errors of a task's attempts, as Redis keeps them.
package past

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/worqr/worqr/inspect"
)

// The limits of a list. The oldest attempts make room for new ones.
const (
	most      = 5
	maxList   = 1 << 10 // bytes
	maxError  = 200     // bytes
	maxWorker = 64      // bytes
)

// A Text is the error of the last attempt and, from the first NUL byte on, the list of those that failed, oldest first:
// for each a NUL byte and "worker:started:ended:error", with times in ms.
type Text string

// Last returns the error of the last attempt.
func (t Text) Last() string {
	last, _, _ := strings.Cut(string(t), "\x00")
	return last
}

// Attempts returns the attempts that failed, newest first and at most most. What isn't one is left out, and so is a
// list that is too long: another program has written it.
func (t Text) Attempts() (all []inspect.Attempt) {
	list := string(t[len(t.Last()):])
	if len(list) > maxList {
		return nil
	}
	entries := strings.Split(list, "\x00")
	for i := len(entries) - 1; i > 0 && len(all) < most; i-- {
		if a, ok := read(entries[i]); ok {
			all = append(all, a)
		}
	}
	return all
}

// List returns the list of attempts, given newest first, without the oldest ones if there are too many.
func List(attempts ...inspect.Attempt) (list string) {
	for i, a := range attempts {
		started := a.StartedAt.UnixMilli()
		ended := max(started, a.EndedAt.UnixMilli()) // the clock may have been set back
		entry := fmt.Sprintf("\x00%s:%d:%d:%s", a.WorkerID, started, ended, brief(a.Error))
		if i == most || len(entry)+len(list) > maxList {
			break
		}
		list = entry + list
	}
	return list
}

// brief returns the first bytes of an error, without NUL bytes.
func brief(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " "), "")
	end := min(len(text), maxError)
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func read(entry string) (a inspect.Attempt, ok bool) {
	parts := strings.SplitN(entry, ":", 4)
	if len(parts) < 4 || !isWorker(parts[0]) || len(parts[3]) > maxError || !utf8.ValidString(parts[3]) {
		return a, false
	}
	started, err := strconv.ParseUint(parts[1], 10, 48)
	ended, bad := strconv.ParseUint(parts[2], 10, 48)
	if err != nil || bad != nil || started == 0 || ended < started || time.UnixMilli(int64(ended)).UTC().Year() > 9999 { // JSON has no later one
		return a, false
	}
	a = inspect.Attempt{WorkerID: parts[0], Error: parts[3]}
	a.StartedAt, a.EndedAt = time.UnixMilli(int64(started)), time.UnixMilli(int64(ended))
	return a, true
}

// isWorker reports whether a text may be the id of a worker.
func isWorker(text string) bool {
	return text != "" && len(text) <= maxWorker && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
