package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

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

// A verdict is an error that says what becomes of the task. Where verdicts wrap
// one another the outermost holds.
type verdict struct {
	err   error
	kind  store.Kind    // "": try again
	after time.Duration // then, when to
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

// outcome is what becomes of a task that has failed with err. Pause says how long to
// wait before a retry.
func (o *Options) outcome(err error, retries int, pause func(retry int) time.Duration) store.Outcome {
	v, judged := errors.AsType[*verdict](err)
	kind := store.Failed
	switch _, panicked := errors.AsType[*panicError](err); {
	case judged && v.kind != "":
		kind = v.kind
	case panicked && o.FailOnPanic:
	case retries >= max(o.MaxRetries, 0):
	case judged:
		return store.Outcome{Verb: store.Retry, Delay: v.after}
	default:
		return store.Outcome{Verb: store.Retry, Delay: pause(retries + 1)}
	}
	return store.Outcome{Verb: store.Fail, Kind: kind, Reason: reason(err)}
}

// Longest is the longest time that a task can be put off by.
const Longest = 100 * 365 * 24 * time.Hour

// OutcomeOf is what becomes of a task that fails for good with err.
func OutcomeOf(err error) store.Outcome { return (&Options{}).outcome(err, 0, nil) }

// DefaultBackoff is 2 s before the first retry, doubling to 5 min, jittered.
func DefaultBackoff(retry int) time.Duration { return Doubling(retry, 2*time.Second, 5*time.Minute) }

// Doubling is the time before a retry: it doubles from the first up to most, jittered.
func Doubling(retry int, first, most time.Duration) time.Duration {
	d := first
	for i := 1; i < retry && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d*3/4 + rand.N(d/2) // a quarter to either side
}

// reason is the text of an error as it is kept with a failed task.
func reason(err error) string {
	text := err.Error()
	if len(text) > logs.MaxText {
		text = text[:logs.MaxText]
	}
	return strings.ToValidUTF8(text, "�")
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

// Unwrap makes a panic with an error that error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit")
