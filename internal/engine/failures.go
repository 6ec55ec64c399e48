package engine

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

const (
	failureLines = 20 // a second, per queue
	failurePeak  = 50 // a second, per peer
	panicLines   = 5  // a second, per peer, in addition to the first at each place
	expiredLines = 1  // a second, per queue: one for all tasks of a round
	stuckLines   = 1  // a second, per peer: finding a stack briefly stops the program
	maxPlaces    = 1000
)

// A FailurePolicy selects which failures of handlers are logged.
type FailurePolicy int

// The policies: within limits, all, panics only.
const (
	LogLimited FailurePolicy = iota
	LogAll
	LogPanics
)

// failures logs the failures of a peer's handlers, within limits.
type failures struct {
	log     *logs.Log
	policy  FailurePolicy
	retries logs.Limiter
	finals  logs.Limiter
	ignored logs.Limiter
	late    logs.Limiter
	panics  logs.Limiter
	stuck   logs.Limiter
	strange logs.Limiter // about tasks that only Redis assigns to this worker
	large   logs.Limiter // about results that aren't stored

	mu    sync.Mutex // protects the field below
	known map[place]bool
}

// A place is where code panics: the innermost calls, and the file and line of the first.
type place struct {
	calls [3]uintptr
	line  string
}

func newFailures(log *logs.Log, policy FailurePolicy) *failures {
	each, all, panics := failureLines, failurePeak, panicLines
	if policy == LogAll {
		all, panics = 0, 0
	}
	return &failures{
		log: log, policy: policy, known: map[place]bool{},
		retries: logs.Limiter{Say: log.Warn, What: "worqr: more tasks failed and will be retried", Each: each, All: all},
		finals:  logs.Limiter{Say: log.Error, What: "worqr: more tasks failed for good", Each: each, All: all},
		ignored: logs.Limiter{Say: log.Warn, What: "worqr: more handlers returned errors after they had ended their tasks", Each: each, All: all},
		late:    logs.Limiter{Say: log.Warn, What: "worqr: more tasks expired before they started", Each: expiredLines, All: all},
		panics:  logs.Limiter{Say: log.Error, What: "worqr: more handlers panicked", Each: panics, All: panics},
		stuck:   logs.Limiter{Say: log.Error, What: "worqr: more handlers didn't return after their context ended; their slots go to other tasks", Each: stuckLines, All: stuckLines},
		strange: logs.Limiter{Say: log.Warn, What: "worqr: more tasks that this worker doesn't hold were returned", Each: failureLines, All: failurePeak},
		large:   logs.Limiter{Say: log.Warn, What: "worqr: more results were too large and weren't stored", Each: expiredLines, All: failurePeak},
	}
}

// tells reports whether a failure other than a panic may be logged.
func (f *failures) tells(within *logs.Limiter, t *Attempt) bool {
	return f.policy != LogPanics && within.Allow(t.session.queue.id)
}

// retried logs a failure that will be retried.
func (f *failures) retried(t *Attempt, text string, in time.Duration) {
	if f.tells(&f.retries, t) {
		f.log.Warn("worqr: task failed and will be retried", t.named("attempt", t.Retries+1, "retry_in", in, "err", text)...)
	}
}

// final logs that a task moved to the failed queue.
func (f *failures) final(t *Attempt, kind store.Kind, text string) {
	if f.tells(&f.finals, t) {
		f.log.Error("worqr: task failed for good", t.named("kind", string(kind), "attempts", t.Retries+1, "err", text)...)
	}
}

// moot logs the error of a handler that had already ended its task, so it changes nothing.
func (f *failures) moot(t *Attempt, text string) {
	if f.tells(&f.ignored, t) {
		f.log.Warn("worqr: handler returned an error after it had ended its task", t.named("err", text)...)
	}
}

// oversized logs that a result isn't stored.
func (f *failures) oversized(t *Attempt, size, most int) {
	if f.large.Allow(t.session.queue.id) {
		f.log.Warn("worqr: a result is too large and isn't stored; store it elsewhere, and return a reference", t.named("bytes", size, "MaxResult", most)...)
	}
}

// expired logs how many tasks of a queue expired before they started. No handler failed, so the
// policy only limits the number of lines.
func (f *failures) expired(queue string, tasks int) {
	if f.late.AllowMany(queue, tasks) {
		f.log.Warn("worqr: tasks expired before they started; list them with Failed",
			"queue", queue, "tasks", tasks, "kind", string(store.Expired))
	}
}

// tooLarge logs how many tasks of a queue failed because they are too large.
func (f *failures) tooLarge(queue string, tasks, most int) {
	if f.finals.AllowMany(queue, tasks) {
		f.log.Error("worqr: tasks failed for good: they are larger than this peer allows; list them with Failed",
			"queue", queue, "tasks", tasks, "kind", string(store.Malformed), "MaxPayload", most)
	}
}

// crashed logs how many tasks of a queue failed because too many workers had died holding them.
func (f *failures) crashed(queue string, tasks, most int) {
	if f.finals.AllowMany(queue, tasks) {
		f.log.Error("worqr: tasks failed for good: too many workers died holding them; list them with Failed",
			"queue", queue, "tasks", tasks, "kind", store.Crashed, "MaxCrashes", most)
	}
}

// panicked logs a panic with its stack, and when the task will be retried.
func (f *failures) panicked(t *Attempt, j judgement) {
	queue := t.session.queue.id
	if !f.first(j.panicked.at) && !f.panics.Allow(queue) {
		return
	}
	attrs := t.named("attempt", t.Retries+1)
	if j.Verb == store.Retry {
		attrs = append(attrs, "retry_in", j.Delay)
	}
	f.log.Error("worqr: handler panicked", append(attrs, "err", j.text, "stack", string(j.panicked.stack))...)
}

// first reports whether this is the first panic at the place. It returns false once there are too
// many places to remember.
func (f *failures) first(at place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[at] || len(f.known) == maxPlaces {
		return false
	}
	f.known[at] = true
	return true
}

// flush logs the counts of suppressed lines.
func (f *failures) flush() {
	for _, l := range []*logs.Limiter{&f.retries, &f.finals, &f.ignored, &f.late, &f.panics, &f.stuck, &f.strange, &f.large} {
		l.Flush()
	}
}

// panicPlace returns the place of the panic that is being recovered. Call it in the deferred
// function that recovers.
func panicPlace() (at place) {
	var all [64]uintptr
	callers := all[:runtime.Callers(1, all[:])]
	frames := runtime.CallersFrames(callers)
	panicking, n := false, 0
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking:
			if n == 0 {
				at.line = fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line)
			}
			at.calls[n] = f.PC
			n++
		}
		if !more || n == len(at.calls) {
			return at
		}
	}
}
