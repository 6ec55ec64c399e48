package logs

import (
	"sync"
	"time"
)

// A FailurePolicy selects which failures of handlers are logged.
type FailurePolicy int

// The policies: within limits, all, panics only.
const (
	LogLimited FailurePolicy = iota
	LogAll
	LogPanics
)

const (
	failureLines = 20 // a second, per queue
	failurePeak  = 50 // a second, per peer
	stackLines   = 1  // a second, per peer: finding a stack briefly stops the program
	dropLines    = 1  // a minute, per queue
	maxPlaces    = 1000
)

// Failures logs what went wrong with tasks. Flush it at the end.
type Failures struct {
	log      *Log
	policy   FailurePolicy
	warnings Limiter
	errors   Limiter // so that retries don't hide that tasks have failed for good
	stacks   Limiter
	drops    Limiter

	mu    sync.Mutex   // protects the field below
	known map[any]bool // places that have panicked
}

// NewFailures returns a Failures that writes to log.
func NewFailures(log *Log, policy FailurePolicy) *Failures {
	peak := failurePeak
	if policy == LogAll {
		peak = 0 // no limit
	}
	return &Failures{
		log: log, policy: policy, known: map[any]bool{},
		warnings: Limiter{Say: log.Warn, What: "worqr: more tasks failed and will be retried, or have other warnings", Each: failureLines, All: peak},
		errors:   Limiter{Say: log.Error, What: "worqr: more tasks failed for good", Each: failureLines, All: peak},
		stacks:   Limiter{Say: log.Error, What: "worqr: more handlers panicked, or didn't return after their context ended", Each: stackLines, All: stackLines},
		drops:    Limiter{Say: log.Error, What: "worqr: more failed tasks were dropped for good", Each: dropLines, All: failurePeak, Period: time.Minute},
	}
}

// HasHandlers reports whether the errors of handlers are logged, and not only their panics.
func (f *Failures) HasHandlers() bool { return f.policy != LogPanics }

// Warn and Error log a line about some tasks of a queue, within limits.
func (f *Failures) Warn(msg, queue string, tasks int, attrs ...any) {
	if f.warnings.AllowMany(queue, tasks) {
		f.log.Warn(msg, attrs...)
	}
}

func (f *Failures) Error(msg, queue string, tasks int, attrs ...any) {
	if f.errors.AllowMany(queue, tasks) {
		f.log.Error(msg, attrs...)
	}
}

// Panicked logs a panic with its stack: the first one at each place, and others within limits. The place is anything
// comparable.
func (f *Failures) Panicked(place any, queue string, attrs ...any) {
	if f.policy == LogAll || f.noteFirst(place) || f.stacks.Allow(queue) {
		f.log.Error("worqr: handler panicked", attrs...)
	}
}

// Stuck logs that a handler doesn't return, with its stack, if the limits permit that. It calls attrs only then.
func (f *Failures) Stuck(queue string, attrs func() []any) {
	if f.stacks.Allow(queue) {
		f.log.Error("worqr: a handler didn't return after its context ended; its slot goes to other tasks", attrs()...)
	}
}

// Dropped logs that tasks were dropped from a failed queue that keeps kept tasks, within limits.
func (f *Failures) Dropped(queue string, tasks, kept int) {
	if f.drops.AllowMany(queue, tasks) {
		f.log.Error("worqr: the failed queue is full, and its oldest tasks were dropped for good; raise KeepFailed, or requeue or delete failed tasks in time",
			"queue", queue, "dropped", tasks, "kept", kept)
	}
}

// noteFirst notes a panic, and reports whether it's the first at the place. It returns false once there are too
// many places to remember.
func (f *Failures) noteFirst(place any) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[place] || len(f.known) == maxPlaces {
		return false
	}
	f.known[place] = true
	return true
}

// Flush logs how many lines were left out.
func (f *Failures) Flush() {
	f.warnings.Flush()
	f.errors.Flush()
	f.stacks.Flush()
	f.drops.Flush()
}
