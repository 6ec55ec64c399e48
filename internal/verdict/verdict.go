// Package verdict decides what happens to a task whose handler failed: what its error or its panic means, and when the
// task is retried. It does nothing itself.
package verdict

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Permanent makes a handler's error final. It returns nil if err is nil.
func Permanent(err error) error { return judge(err, verdict{kind: store.Failed}) }

// Malformed is Permanent for a payload that can't be decoded.
func Malformed(err error) error { return judge(err, verdict{kind: store.Malformed}) }

// RetryAfter makes a handler's error retry the task after d: immediately if d is negative, and
// after Longest at most.
func RetryAfter(err error, d time.Duration) error {
	return judge(err, verdict{after: min(max(d, 0), Longest)})
}

// Snooze returns an error that starts the task again after d, with the same limits. That doesn't
// count as a retry.
func Snooze(d time.Duration) error {
	d = min(max(d, 0), Longest)
	return &verdict{err: fmt.Errorf("snoozed for %v", d), after: d, snooze: true}
}

// IsPermanent reports whether the error makes a task fail for good, whatever its retries.
func IsPermanent(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.kind != ""
}

// IsMalformed reports whether the error means that the payload can't be decoded.
func IsMalformed(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.kind == store.Malformed
}

// IsSnooze reports whether the error delays the task without counting a retry.
func IsSnooze(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.snooze
}

// A verdict is an error that decides what happens to the task. If verdicts are nested, the
// outermost counts.
type verdict struct {
	err    error
	kind   store.Kind    // "" retries the task
	after  time.Duration // the delay of the retry
	snooze bool          // the retry doesn't count
}

func judge(err error, v verdict) error {
	if err == nil {
		return nil
	}
	v.err = err
	return &v
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// A Policy is what a queue's options say about failures.
type Policy struct {
	MaxRetries  int
	FailOnPanic bool
}

// Of returns how an attempt ends whose handler failed with err, after earlier retries. backoff returns the delay of
// the next one, unless the error says it.
func (p Policy) Of(err error, retries int, backoff func(err error) time.Duration) store.End {
	v, judged := errors.AsType[*verdict](err)
	switch _, panicked := errors.AsType[*Panic](err); {
	case judged && v.kind != "":
	case judged && v.snooze && !panicked:
		return store.End{Verb: store.Snooze, Delay: v.after}
	case panicked && p.FailOnPanic:
	case retries >= max(p.MaxRetries, 0):
	case judged:
		return store.End{Verb: store.Retry, Delay: v.after, Reason: reason(err, store.MaxError)}
	default:
		return store.End{Verb: store.Retry, Delay: backoff(err), Reason: reason(err, store.MaxError)}
	}
	return Final(err)
}

// Longest is the longest delay of a task.
const Longest = 100 * 365 * 24 * time.Hour

// Final returns how an attempt ends whose task fails for good with err.
func Final(err error) store.End {
	kind := store.Failed
	if v, judged := errors.AsType[*verdict](err); judged && v.kind != "" {
		kind = v.kind
	}
	return store.End{Verb: store.Fail, Kind: kind, Reason: reason(err, logs.MaxText)}
}

// DefaultBackoff returns 2 s before the first retry, doubling to 5 min, with jitter.
func DefaultBackoff(retries int) time.Duration {
	return Doubling(retries, 2*time.Second, 5*time.Minute)
}

// Doubling returns the delay of a retry after earlier ones: it doubles from first up to most, with
// jitter.
func Doubling(retries int, first, most time.Duration) time.Duration {
	d := first
	for i := 0; i < retries && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d*3/4 + rand.N(d/2) // ±25 %
}

// reason returns the text of an error for a failed task or the next attempt, cut to at most most
// bytes.
func reason(err error, most int) string {
	text := err.Error()
	text = strings.ReplaceAll(text[:min(len(text), most)], "\x00", "�") // a NUL byte begins the list of attempts
	text = strings.ToValidUTF8(text, "�")                               // the replacement character may make it longer
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
