package worqr

import (
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// A PanicPolicy decides what happens to a task whose handler panics. A panic with the
// error of Permanent or Broken fails at once under either, as that error does when it
// is returned. A handler that ends its goroutine with runtime.Goexit, as t.FailNow
// does, hasn't panicked: under either, that is an error, and the task is retried.
type PanicPolicy int

const (
	// RetryOnPanic treats a panic as an error: the task is retried. After a panic
	// with the error of RetryAfter, that says when.
	RetryOnPanic PanicPolicy = iota
	// FailOnPanic treats a panic as a Permanent error, even one with the error of
	// RetryAfter.
	FailOnPanic
)

// A FailureKind says why a task is in the failed queue.
type FailureKind string

// The kinds of failure.
const (
	// FailureError: its retries were used up, or Permanent or Task.Fail failed it for
	// good.
	FailureError = FailureKind(store.Failed)
	// FailureMalformed: its payload cannot be decoded.
	FailureMalformed = FailureKind(store.Broken)
	// FailureCrashed: too many workers died holding it.
	FailureCrashed = FailureKind(store.Crashed)
)

// Permanent makes a handler's error final: the task goes to the failed queue,
// whatever retries it has left. It is nil if err is.
//
// Of Permanent, Broken and RetryAfter the outermost holds: Permanent(RetryAfter(err, d))
// is final, and RetryAfter(Permanent(err), d) is retried.
func Permanent(err error) error { return engine.Permanent(err) }

// Broken is Permanent for a payload that cannot be decoded. It is kept apart
// from other failures by its kind. It is nil if err is.
func Malformed(err error) error { return engine.Malformed(err) }

// RetryAfter retries the task in d, whatever Backoff says; at once if d
// is negative, and in 100 years if d is longer, so that no task is lost by it. It
// counts as a retry, and MaxRetries holds, also where err is Permanent or Broken: the
// outermost holds. It is nil if err is.
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// failedBackoff is that of OnFailed: 10 s, doubling to 15 min.
func failedBackoff(retry int) time.Duration {
	return engine.Doubling(retry, 10*time.Second, 15*time.Minute)
}
