package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Permanent makes an error of a handler final. It is nil if err is.
func Permanent(err error) error { return judge(err, verdict{kind: store.Failed}) }

// Malformed is Permanent for a payload that cannot be decoded.
func Malformed(err error) error { return judge(err, verdict{kind: store.Malformed}) }

// RetryAfter makes an error of a handler one after which the task is retried in d: at once
// if that is negative, and in Longest at most.
func RetryAfter(err error, d time.Duration) error {
	return judge(err, verdict{after: min(max(d, 0), Longest)})
}

// Snooze is an error after which the task starts again in d, with the same limits. That
// doesn't count as a retry.
func Snooze(d time.Duration) error {
	d = min(max(d, 0), Longest)
	return &verdict{err: fmt.Errorf("it starts again in %v", d), after: d, snooze: true}
}

// IsPermanent reports whether the error makes a task fail for good, whatever its retries.
func IsPermanent(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.kind != ""
}

// IsMalformed reports whether the error says that the payload can't be decoded.
func IsMalformed(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.kind == store.Malformed
}

// IsSnooze reports whether the error puts the task off without a retry.
func IsSnooze(err error) bool {
	v, judged := errors.AsType[*verdict](err)
	return judged && v.snooze
}

// A verdict is an error that decides what happens to the task. If verdicts wrap
// one another, the outermost counts.
type verdict struct {
	err    error
	kind   store.Kind    // "": try again
	after  time.Duration // then, when to
	snooze bool          // then, that isn't a retry
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

// outcome returns what happens to a task that has failed with err. Pause says how long to
// wait before a retry after it.
func (o *Options) outcome(err error, retries int, pause func(err error) time.Duration) store.Outcome {
	v, judged := errors.AsType[*verdict](err)
	switch _, panicked := errors.AsType[*panicError](err); {
	case judged && v.kind != "":
	case judged && v.snooze && !panicked:
		return store.Outcome{Verb: store.Snooze, Delay: v.after}
	case panicked && o.FailOnPanic:
	case retries >= max(o.MaxRetries, 0):
	case judged:
		return store.Outcome{Verb: store.Retry, Delay: v.after, Reason: reason(err, store.MaxError)}
	default:
		return store.Outcome{Verb: store.Retry, Delay: pause(err), Reason: reason(err, store.MaxError)}
	}
	return OutcomeOf(err)
}

// Longest is the longest delay of a task.
const Longest = 100 * 365 * 24 * time.Hour

// OutcomeOf returns what happens to a task that fails for good with err.
func OutcomeOf(err error) store.Outcome {
	kind := store.Failed
	if v, judged := errors.AsType[*verdict](err); judged && v.kind != "" {
		kind = v.kind
	}
	return store.Outcome{Verb: store.Fail, Kind: kind, Reason: reason(err, logs.MaxText)}
}

// DefaultBackoff is 2 s before the first retry, doubling to 5 min, jittered.
func DefaultBackoff(retries int) time.Duration {
	return Doubling(retries, 2*time.Second, 5*time.Minute)
}

// Doubling is the time before a retry that follows others: it doubles from the first up to most,
// jittered.
func Doubling(retries int, first, most time.Duration) time.Duration {
	d := first
	for i := 0; i < retries && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d*3/4 + rand.N(d/2) // a quarter to either side
}

// reason returns the text of an error for a failed task or the next attempt, cut to as many bytes.
func reason(err error, most int) string {
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), most)], "�") // which may be longer
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// A panicError is the error of a handler that panicked.
type panicError struct {
	value any
	stack []byte
	at    place
}

func (e *panicError) Error() string {
	if e.at.line == "" {
		return fmt.Sprintf("panic: %v", e.value)
	}
	return fmt.Sprintf("panic at %s: %v", e.at.line, e.value)
}

// Panicked makes an error of a panic, for others to panic with: it has the stack of the first one. It is
// called by the deferred function that recovers.
func Panicked(v any) error {
	if p, ok := v.(*panicError); ok {
		return p
	}
	return &panicError{v, debug.Stack(), panicPlace()}
}

// ErrGoexit is the error of a handler that ended its goroutine.
var ErrGoexit = errors.New("the handler called runtime.Goexit")

// Unwrap makes a panic with an error that error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
