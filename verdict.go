package worqr

import (
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// A PanicPolicy decides what happens to a task whose handler panics. runtime.Goexit counts as
// an error.
type PanicPolicy int

const (
	// RetryOnPanic treats a panic as an error.
	RetryOnPanic PanicPolicy = iota
	// FailOnPanic treats a panic as a Permanent error.
	FailOnPanic
)

// A FailureKind says why a task is in the failed queue.
type FailureKind string

const (
	// FailureError: its retries were used up, or [Permanent] or [Task.Fail] ended it.
	FailureError FailureKind = FailureKind(store.Failed)
	// FailureMalformed: its payload can't be decoded.
	FailureMalformed FailureKind = FailureKind(store.Malformed)
	// FailureExpired: its [Properties.Expires] came before it started.
	FailureExpired FailureKind = FailureKind(store.Expired)
	// FailureCrashed: too many workers died holding it.
	FailureCrashed FailureKind = FailureKind(store.Crashed)
)

// Permanent makes a handler's error final: the task goes to the failed queue. Of nested
// Permanent, Malformed, RetryAfter and Snooze, the outermost decides. The first three return nil
// for a nil err.
func Permanent(err error) error { return engine.Permanent(err) }

// Malformed is like Permanent, for a payload that can't be decoded: the task fails as
// FailureMalformed.
func Malformed(err error) error { return engine.Malformed(err) }

// RetryAfter makes a handler's error retry the task after d, not after Backoff's delay; at once
// if d is negative. MaxRetries still applies.
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// Snooze returns an error that starts the task again after d, at once if d isn't positive. Use it
// if a task's time hasn't come: it isn't a retry, doesn't lengthen Backoff's delay, and isn't
// logged. A panic with it is a panic.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// IsPermanent reports whether a handler's error makes its task fail for good, whatever its
// retries: it's a Permanent or a Malformed.
func IsPermanent(err error) bool { return engine.IsPermanent(err) }

// IsMalformed reports whether a handler's error is a Malformed.
func IsMalformed(err error) bool { return engine.IsMalformed(err) }

// IsSnooze reports whether a handler's error is a Snooze.
func IsSnooze(err error) bool { return engine.IsSnooze(err) }

// A FailureLog says which handler failures a peer logs.
type FailureLog int

const (
	// LogLimited logs up to 20 failures a second per queue, 50 in all, and counts the rest.
	LogLimited FailureLog = iota
	// LogAll logs every failure, unless the Logger can't keep up.
	LogAll
	// LogPanics logs panics only, as LogLimited does.
	LogPanics
)
