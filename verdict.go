package worqr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

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
func (o *HandleOptions) outcome(err error, retries int, pause func(retry int) time.Duration) store.Outcome {
	v, judged := errors.AsType[*verdict](err)
	kind := store.Failed
	switch _, panicked := errors.AsType[*panicError](err); {
	case judged && v.kind != "":
		kind = v.kind
	case panicked && o.OnPanic == FailOnPanic:
	case retries >= max(o.MaxRetries, 0):
	case judged:
		return store.Outcome{Verb: store.Retry, Delay: v.after}
	default:
		return store.Outcome{Verb: store.Retry, Delay: pause(retries + 1)}
	}
	return store.Outcome{Verb: store.Fail, Kind: kind, Reason: reason(err)}
}

// longest is the longest time that a task can be put off by.
const longest = 100 * 365 * 24 * time.Hour

// defaultBackoff is 2 s before the first retry, doubling to 5 min, jittered.
func defaultBackoff(retry int) time.Duration { return doubling(retry, 2*time.Second, 5*time.Minute) }

// failedBackoff is that of OnFailed: 10 s, doubling to 15 min.
func failedBackoff(retry int) time.Duration { return doubling(retry, 10*time.Second, 15*time.Minute) }

func doubling(retry int, first, most time.Duration) time.Duration {
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
