package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A run is one call of a handler with a task, and how it ends:
//
//	handler returns ───────────────────────────▶ end: done, retry, snooze, fail, drop or stop
//	context ends ─▶ Grace ─▶ not returned: disown ─▶ end, without the handler
//
// The outcome is stored with the next round; the run doesn't wait for that.
type run struct {
	queue   *Queue
	task    *Attempt
	opts    *Options // when the run began
	slot    slot
	label   string // of the goroutine
	ctx     context.Context
	cancel  context.CancelFunc // nil without a timeout, and so is unwatch
	unwatch func() bool
	began   time.Time
	ended   time.Time // this and the next three fields are set when the handler has returned
	result  []byte
	next    *Attempt // for the slot; nil if the slot was given back
	then    *Options // for next
	ready   bool     // the context may have ended before the handler begins, as for a prefetched task
	unread  error    // why the payload couldn't be read; the handler isn't called
	ending  ending   // valid once it has ended

	mu       sync.Mutex  // protects the fields below
	returned bool        // the handler has returned
	disowned bool        // the handler hasn't returned in time
	grace    *time.Timer // until it is disowned; nil while its context hasn't ended
}

func newRun(q *Queue, t *Attempt, opts *Options, of slot, label string, now time.Time, unread error) *run {
	r := &run{queue: q, task: t, opts: t.options(opts), slot: of, label: label, began: now, ctx: t.ctx, unread: unread}
	q.counts.Running.Add(1)
	if r.opts.Timeout > 0 {
		r.ctx, r.cancel = context.WithTimeoutCause(t.ctx, r.opts.Timeout, ErrTimeout)
		r.unwatch = context.AfterFunc(r.ctx, r.watch)
	}
	t.run.Store(r)
	if r.unwatch == nil && t.ctx.Err() != nil { // the context ended before the run existed
		go r.watch()
	}
	return r
}

func (r *run) handle() {
	err := ErrGoexit
	defer func() { // even if the handler ends its goroutine
		if v := recover(); v != nil {
			err = Panicked(v)
		}
		j := r.judge(err)
		if r.cancel != nil {
			r.unwatch()
		}
		if !r.close() {
			r.queue.counts.Stuck.Add(-1)
			r.queue.engine.StuckChanged()
			return
		}
		r.ended = time.Now()
		r.end(err, j, true)
	}()
	switch {
	case r.unread != nil:
		err = r.unread
	case r.ready && r.ctx.Err() != nil:
		err = context.Cause(r.ctx) // it was canceled in the meantime, or may be
	default:
		r.queue.counts.Started.Add(1)
		r.tell()
		r.result, err = r.queue.handler(r.ctx, r.task)
	}
}

// tell reports to the Trace, if any, that the handler has begun.
func (r *run) tell() {
	if r.task.story != nil {
		r.queue.mu.Lock()
		defer r.queue.mu.Unlock()
		r.task.beganLocked(time.Now())
	}
}

// why returns, for a Trace, the text of the handler's error or of what ended its context. It calls
// no method of the handler's error.
func (r *run) why(err error, j judgement) string {
	if err == nil || r.task.story == nil || j.text != "" {
		return j.text
	}
	for _, cause := range []error{ErrCanceled, ErrShutdown, ErrEvicted, ErrLeaseExpired} {
		if errors.Is(context.Cause(r.ctx), cause) {
			return cause.Error()
		}
	}
	return ""
}

// close records that the handler has returned. It returns false if the run was disowned.
func (r *run) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = true
	if r.grace != nil {
		r.grace.Stop()
	}
	return !r.disowned
}

// watch disowns the attempt if the handler hasn't returned within Grace of its context ending,
// unless the handler ended its task itself. While Run drains, drain abandons such handlers instead.
func (r *run) watch() {
	cause := context.Cause(r.ctx)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, ErrShutdown) && r.queue.isDraining() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.returned && r.grace == nil {
		r.grace = time.AfterFunc(r.opts.Grace, func() { r.disown(cause) })
	}
}

// disown ends the attempt without its handler, and frees the slot.
func (r *run) disown(cause error) {
	if r.forsake(cause) {
		r.queue.disown(r, cause) // last, since it may take a while
	}
}

// forsake does disown's work without the log line. It returns false if the handler has returned or
// was already disowned.
func (r *run) forsake(cause error) bool {
	stuck := &r.queue.counts.Stuck
	stuck.Add(1)
	r.mu.Lock()
	disowned := !r.returned && !r.disowned
	r.disowned = r.disowned || disowned
	r.mu.Unlock()
	if !disowned {
		stuck.Add(-1)
		return false
	}
	r.queue.engine.StuckChanged()
	r.queue.reassign(r)
	err := fmt.Errorf("%w, and its handler didn't return", cause)
	r.end(err, r.judge(err), false)
	return true
}

// stackOf returns the stack of the goroutine with a label that runs a handler.
func stackOf(label string) string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // it writes to memory
	for block := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(block, `"`+label+`"`) && strings.Contains(block, "(*run).handle") {
			return block
		}
	}
	return ""
}

// end ends the task of a handler that returned err; j is the judgement on that error. If frees is
// set, it also hands over the slot under the same lock, so that the same round asks for the next
// task. The outcome is sent again until it's stored, or until the worker no longer holds the task
// because it was evicted or has left.
func (r *run) end(err error, j judgement, frees bool) {
	if r.cancel != nil {
		defer r.cancel()
	}
	q, t := r.queue, r.task
	e, stays := r.outcome(err, j)
	r.ending = ending{End: t.endOf(e), ours: true, by: r}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.leftLocked(len(r.ending.Result), r.why(err, j))
	if frees {
		r.next = q.freedLocked(r)
	}
	if stays && q.draining {
		q.storedLocked()
	} else {
		r.ending.before = t.tryLocked(e.Verb)
		t.session.sayLocked(&r.ending)
	}
	// If the session has ended, its slot goes to the worker's next incarnation. Otherwise the
	// ending makes the session look for a task.
	if t.session.ended != nil && q.session != nil {
		q.session.lookLocked()
	}
}

// outcome returns the outcome for a handler that returned err. If stays is set, the outcome isn't
// sent while Run drains: the worker keeps the task until it leaves, which returns all remaining
// tasks in order.
func (r *run) outcome(err error, j judgement) (e store.End, stays bool) {
	failures, cause := r.queue.engine.failures, context.Cause(r.ctx)
	if j.panicked != nil {
		failures.panicked(r.task, j)
	}
	switch {
	case err == nil:
		return store.End{Verb: store.Done, Result: r.result}, false
	case errors.Is(cause, ErrCanceled):
		return store.End{Verb: store.Drop, Reason: canceledWord}, false
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrEvicted), errors.Is(cause, ErrLeaseExpired):
		return store.End{Verb: store.Stop}, errors.Is(cause, ErrShutdown)
	}
	if j.Verb == store.Snooze || r.unread != nil {
		return j.End, false
	}
	r.queue.counts.Failures.Add(1)
	switch {
	case j.panicked != nil: // logged above
	case errors.Is(cause, context.Canceled): // the handler has ended the task
		failures.moot(r.task, j.text)
	case j.Verb == store.Retry:
		failures.retried(r.task, j.text, j.Delay)
	}
	return j.End, false
}

func (r *run) storedLocked(end *ending, d settled) {
	t := r.task
	if isStored(t.concludeLocked(end.Verb, end.before, d)) {
		r.queue.storedLocked()
		return
	}
	t.session.engine.background.Go(func() {
		r.queue.keepTrying(t, end.End)
		r.queue.mu.Lock()
		defer r.queue.mu.Unlock()
		r.queue.storedLocked()
	})
}

// A judgement decides what happens to a task whose handler failed.
type judgement struct {
	store.End
	text     string      // of the error
	panicked *panicError // of the handler, or of a method of its error; nil if neither panicked
}

// judge decides what happens to a task whose handler returned err. If err doesn't matter, it returns
// the zero judgement.
//
// The methods of the error and Backoff are user code. They run in a separate goroutine. If they end
// it or take longer than Grace, the task is retried with an error that reports this.
func (r *run) judge(err error) judgement {
	cause := context.Cause(r.ctx)
	p, panicked := err.(*panicError)
	if err == nil || decided(cause) && !panicked {
		return judgement{}
	}
	if bad, ok := err.(*unfit); ok {
		return judgement{bad.End, bad.Reason, nil}
	}
	judged := make(chan judgement, 1)
	go func() {
		defer close(judged)
		judged <- r.weigh(err, cause)
	}()
	patience := time.NewTimer(max(r.opts.Grace, time.Millisecond))
	defer patience.Stop()
	var failed error
	select {
	case j, ok := <-judged:
		if ok {
			return j
		}
		failed = errors.New("a method of the handler's error, or Backoff, called runtime.Goexit")
	case <-patience.C:
		failed = errors.New("a method of the handler's error, or Backoff, didn't return")
	}
	r.queue.unsound.Note(r.queue.engine.Log, "Backoff failed; using the default", failed, "queue", r.queue.id)
	opts := r.task.options(r.queue.Options())
	return judgement{opts.outcome(failed, r.task.Retries, func(error) time.Duration { return DefaultBackoff(r.task.Retries) }), failed.Error(), p}
}

// decided reports whether the cause that ended a context decides what happens to the task, whatever
// the error.
func decided(cause error) bool {
	return errors.Is(cause, ErrCanceled) || errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrEvicted)
}

// weigh does judge's work in the current goroutine. It recovers only from panics of the error's
// methods, such as those of a nil pointer.
func (r *run) weigh(err, cause error) (j judgement) {
	opts := r.task.options(r.queue.Options())
	of := func(err error) judgement {
		p, _ := err.(*panicError)
		if decided(cause) {
			return judgement{text: logs.Text(err), panicked: p}
		}
		if errors.Is(cause, ErrTimeout) && !errors.Is(err, ErrTimeout) {
			err = &lateError{err}
		}
		pause := func(err error) time.Duration { return r.queue.pause(opts, r.task, err) }
		return judgement{opts.outcome(err, r.task.Retries, pause), logs.Printable(err.Error()), p}
	}
	defer func() {
		if v := recover(); v != nil {
			j = of(&panicError{fmt.Sprintf("%T: %v", err, v), debug.Stack(), panicPlace()})
		}
	}()
	return of(err)
}

// A lateError is the error of a handler that returned at or after its timeout.
type lateError struct{ err error }

func (e *lateError) Error() string   { return ErrTimeout.Error() + ": " + e.err.Error() }
func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }
