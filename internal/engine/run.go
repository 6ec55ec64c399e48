package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/invoke"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
)

// A run is one call of a handler with a task, and how it ends:
//
//	handler returns ───────────────────────────▶ end: done, retry, snooze, fail, drop or stop
//	context ends ─▶ Grace ─▶ not returned: disown ─▶ end, without the handler
//
// The outcome is stored with the next round; the run doesn't wait for that.
type run struct {
	queue  *Queue
	task   *Attempt
	opts   *Options // when the run began
	slot   slot
	call   *invoke.Call
	began  time.Time
	ended  time.Time // this and the next three fields are set when the handler has returned
	result []byte
	next   *Attempt // for the slot; nil if the slot was given back
	then   *Options // for next
	unread error    // why the payload couldn't be read; the handler isn't called
	ending ending   // set by who ends it: the goroutine of the handler, or disown
}

func newRun(q *Queue, t *Attempt, opts *Options, of slot, label string, now time.Time, unread error) *run {
	r := &run{queue: q, task: t, opts: t.options(opts), slot: of, began: now, unread: unread}
	q.counts.Running.Add(1)
	r.call = invoke.New(t.ctx, invoke.Limits{Timeout: r.opts.Timeout, Late: ErrTimeout, Grace: r.opts.Grace}, label, r.disown)
	t.run.Store(r)
	if t.ctx.Err() != nil { // the context ended before the run existed
		r.call.Expire()
	}
	return r
}

// handle calls the handler.
func (r *run) handle() {
	var j judgement
	r.call.Do(r.handler, func(err error) { r.judge(err, &j) }, func(err error, isLate bool) {
		if isLate {
			r.queue.counts.Stuck.Add(-1)
			r.queue.engine.StuckChanged()
			return
		}
		r.ended = time.Now()
		r.end(err, j, true)
	})
}

func (r *run) handler() (err error) {
	switch {
	case r.unread != nil:
		return r.unread
	case r.task.ctx.Err() != nil:
		return context.Cause(r.task.ctx) // it was canceled in the meantime, or the lease may have expired
	}
	r.queue.counts.Begin(r.task.began, max(r.task.Enqueued, r.task.Due), r.task.Retries+r.task.Crashes)
	if r.task.story != nil {
		r.queue.mu.Lock()
		r.task.beganLocked()
		r.queue.mu.Unlock()
	}
	r.result, err = r.queue.handler(r.call.Context(), r.task)
	return err
}

// disown ends the attempt without its handler, and frees the slot, unless the handler has ended its task itself. While
// Run drains, Abandon does that instead.
func (r *run) disown(cause error) {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, ErrShutdown) && r.queue.isDraining() || !r.forsake(cause) {
		return
	}
	r.queue.engine.failures.Stuck(r.queue.id, func() []any { // last, since finding the stack may take a while
		return r.task.named("cause", cause, "grace", r.opts.Grace, "stack", r.call.Stack())
	})
}

// forsake does disown's work without the log line. It returns false if the handler has returned or
// was already disowned.
func (r *run) forsake(cause error) bool {
	if !r.call.GiveUp() {
		return false
	}
	r.queue.counts.Stuck.Add(1)
	r.queue.engine.StuckChanged()
	r.queue.reassign(r)
	err := fmt.Errorf("%w, and its handler didn't return", cause)
	var j judgement
	defer func() { r.end(err, j, false) }() // even if Backoff ends the goroutine
	r.judge(err, &j)
	return true
}

// end ends the task of a handler that returned err; j is the judgement on that error. If frees is set, it also hands
// over the slot under the same lock, so that the same round asks for the next task. The outcome is sent again until
// it's stored, or until the worker no longer holds the task because it was evicted or has left.
func (r *run) end(err error, j judgement, frees bool) {
	defer r.call.Free()
	q, t := r.queue, r.task
	e, stays := r.outcome(err, j)
	_, isUnfit := err.(*unfit)
	r.ending = ending{End: t.endOf(e, !isUnfit), task: t, by: r, unfit: isUnfit && e.Verb == store.Fail}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.story.Left(len(r.ending.Result), j.text)
	if frees {
		q.counts.Return(r.ended.Sub(r.began))
		q.pace.Returned(r.ended, r.ended.Sub(r.began), q.opts.Concurrency)
		r.next, r.then = q.vacantLocked(r.ended, r), q.opts
	}
	if stays && q.draining {
		q.storedLocked()
	} else {
		t.session.sayLocked(&r.ending)
	}
	// If the session has ended, its slot goes to the worker's next incarnation. Otherwise the
	// ending makes the session look for a task.
	if t.session.ended != nil && q.session != nil {
		q.session.wakeLocked()
	}
}

// outcome returns the outcome for a handler that returned err. If stays is set, the outcome isn't sent while Run
// drains: the worker keeps the task until it leaves, which returns all remaining tasks in order.
func (r *run) outcome(err error, j judgement) (e store.End, stays bool) {
	queue, t, failures, cause := r.queue.id, r.task, r.queue.engine.failures, context.Cause(r.call.Context())
	if j.panicked != nil {
		attrs := t.named("attempt", t.Retries+1)
		if j.Verb == store.Retry {
			attrs = append(attrs, "retry_in", j.Delay)
		}
		failures.Panicked(j.panicked.At, queue, append(attrs, "err", j.text, "stack", string(j.panicked.Stack))...)
	}
	switch {
	case err == nil:
		return store.End{Verb: store.Done, Result: r.result}, false
	case errors.Is(cause, ErrCanceled):
		return store.End{Verb: store.Drop, Reason: canceledWord}, false
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrEvicted), errors.Is(cause, ErrLeaseExpired):
		return store.End{Verb: store.Stop}, errors.Is(cause, ErrShutdown)
	case j.Verb == store.Snooze, r.unread != nil:
		return j.End, false
	}
	r.queue.counts.Failures.Add(1)
	switch {
	case j.panicked != nil || !failures.HasHandlers():
	case errors.Is(cause, context.Canceled):
		failures.Warn("worqr: handler returned an error after it had ended its task", queue, 1, t.named("err", j.text)...)
	case j.Verb == store.Retry:
		failures.Warn("worqr: task failed and will be retried", queue, 1,
			t.named("attempt", t.Retries+1, "retry_in", j.Delay, "err", j.text)...)
	}
	return j.End, false
}

// A judgement decides what happens to a task whose handler failed.
type judgement struct {
	store.End
	text     string         // of the error
	panicked *verdict.Panic // of the handler, or of a method of its error; nil if neither panicked
}

// judge decides what happens to a task whose handler returned err. If err doesn't matter, j stays zero. The methods of
// the error and Backoff are user code. If one ends the goroutine, the task is retried with an error that says so.
func (r *run) judge(err error, j *judgement) {
	cause := context.Cause(r.call.Context())
	panicked, _ := err.(*verdict.Panic)
	switch {
	case err == nil:
		return
	case decided(cause) && panicked == nil:
		j.text = cause.Error()
		return
	}
	if bad, ok := err.(*unfit); ok {
		*j = judgement{End: bad.End, text: bad.Reason}
		return
	}
	opts := r.task.options(r.queue.Options())
	of := func(err error) judgement {
		p, _ := err.(*verdict.Panic)
		if decided(cause) {
			return judgement{text: logs.Text(err), panicked: p}
		}
		if errors.Is(cause, ErrTimeout) && !errors.Is(err, ErrTimeout) {
			err = &lateError{err}
		}
		end := opts.Policy.Of(err, r.task.Retries, func(err error) time.Duration { return r.backoff(opts, err) })
		return judgement{end, logs.Printable(err.Error()), p}
	}
	j.text, j.panicked = errExit.Error(), panicked
	j.End = opts.Policy.Of(errExit, r.task.Retries, func(error) time.Duration { return verdict.DefaultBackoff(r.task.Retries) })
	defer func() {
		if v := recover(); v != nil { // by a method of the error, such as that of a nil pointer
			p := verdict.Panicked(v)
			*j = of(&verdict.Panic{Value: fmt.Sprintf("%T: %v", err, v), Stack: p.Stack, At: p.At})
		}
	}()
	*j = of(err)
}

var errExit = errors.New("a method of the handler's error, or Backoff, called runtime.Goexit")

// backoff calls Backoff for the delay after a failure. If that panics, it returns the default.
func (r *run) backoff(o *Options, failure error) (d time.Duration) {
	err := errExit
	attrs := []any{"queue", r.queue.id}
	defer func() {
		if v := recover(); v != nil {
			p := verdict.Panicked(v)
			d, err = verdict.DefaultBackoff(r.task.Retries), p
			attrs = append(attrs, "stack", string(p.Stack))
		}
		r.queue.unsound.Note(r.queue.engine.Log, "Backoff panicked; using the default", err, attrs...)
	}()
	d = min(max(o.Backoff(r.task, failure), 0), verdict.Longest)
	err = nil
	return d
}

// decided reports whether the cause that ended a context decides what happens to the task, whatever the error.
func decided(cause error) bool {
	return errors.Is(cause, ErrCanceled) || errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrEvicted)
}

// A lateError is the error of a handler that returned at or after its timeout.
type lateError struct{ err error }

func (e *lateError) Error() string   { return ErrTimeout.Error() + ": " + e.err.Error() }
func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }
