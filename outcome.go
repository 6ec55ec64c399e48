package worqr

import (
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// A PanicPolicy decides what happens to a task whose handler panics. runtime.Goexit is an
// error, not a panic.
type PanicPolicy int

const (
	// RetryOnPanic treats a panic as an error.
	RetryOnPanic PanicPolicy = iota
	// FailOnPanic treats a panic as a Permanent error.
	FailOnPanic
)

// A FailureKind says why a task is in the failed queue.
type FailureKind string

// The kinds of failure.
const (
	// FailureError: its retries were used up, or [Permanent] or [Task.Fail] ended it.
	FailureError = FailureKind(store.Failed)
	// FailureMalformed: its payload can't be decoded.
	FailureMalformed = FailureKind(store.Broken)
	// FailureCrashed: too many workers died holding it.
	FailureCrashed = FailureKind(store.Crashed)
)

// Permanent makes a handler's error final: the task goes to the failed queue. It returns nil
// if err is nil. Of Permanent, Malformed and RetryAfter around an error, the outermost
// decides.
func Permanent(err error) error { return engine.Permanent(err) }

// Malformed is Permanent for a payload that can't be decoded: the failed task has the kind
// FailureMalformed. It returns nil if err is nil.
func Malformed(err error) error { return engine.Malformed(err) }

// RetryAfter retries the task after d instead of Backoff; at once if d is negative.
// MaxRetries still applies. It returns nil if err is nil.
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// failedBackoff is that of OnFailed: 10 s, doubling to 15 min.
func failedBackoff(retry int) time.Duration {
	return engine.Doubling(retry, 10*time.Second, 15*time.Minute)
}
