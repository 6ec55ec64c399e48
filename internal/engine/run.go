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
//	handler returns ───────────────────────────▶ end: finish, retry, fail, drop or stop
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
	ready   bool     // the task was prefetched

	mu       sync.Mutex  // protects the fields below
	returned bool        // the handler has returned
	disowned bool        // the handler hasn't returned in time
	grace    *time.Timer // until it is disowned; nil while its context hasn't ended
}

func newRun(q *Queue, t *Attempt, opts *Options, of slot, label string, now time.Time) *run {
	a := &run{queue: q, task: t, opts: t.options(opts), slot: of, label: label, began: now, ctx: t.ctx}
	q.counts.Running.Add(1)
	if a.opts.Timeout > 0 {
		a.ctx, a.cancel = context.WithTimeoutCause(t.ctx, a.opts.Timeout, ErrTimeout)
		a.unwatch = context.AfterFunc(a.ctx, a.watch)
	}
	t.run.Store(a)
	if a.unwatch == nil && t.ctx.Err() != nil { // the context ended before the run existed
		go a.watch()
	}
	return a
}

func (a *run) handle() {
	err, returned := ErrGoexit, false
	defer func() { // even if the handler ends its goroutine
		if v := recover(); v != nil {
			err, returned = Panicked(v), true
		}
		j := a.judge(err)
		if a.cancel != nil {
			a.unwatch()
		}
		if !a.close() {
			a.queue.counts.Stuck.Add(-1)
			a.queue.engine.StuckChanged()
			return
		}
		a.ended = time.Now()
		a.end(err, j, true)
		if !returned && a.next != nil {
			go a.queue.work(a.next, a.slot, true)
		}
	}()
	if !a.task.isKnown() {
		a.task.wait() // the handler may change the payload
		a.ready = true
		a.queue.mu.Lock()
		a.task.assureLocked(time.Now())
		a.queue.mu.Unlock()
	}
	if a.ready && a.ctx.Err() != nil {
		err = context.Cause(a.ctx) // it was canceled in the meantime, or may be
	} else {
		a.queue.counts.Started.Add(1)
		a.tell()
		a.result, err = a.queue.handler(a.ctx, a.task)
	}
	returned = true
}

// tell reports to the Trace, if any, that the handler has begun.
func (a *run) tell() {
	if a.task.story != nil {
		a.queue.mu.Lock()
		defer a.queue.mu.Unlock()
		a.task.beganLocked(time.Now())
	}
}

// why returns, for a Trace, the text of the handler's error or of what ended its context. It calls
// no method of the handler's error.
func (a *run) why(err error, j judgement) string {
	if err == nil || a.task.story == nil || j.text != "" {
		return j.text
	}
	for _, cause := range []error{ErrCanceled, ErrShutdown, ErrEvicted, ErrLeaseExpired} {
		if errors.Is(context.Cause(a.ctx), cause) {
			return cause.Error()
		}
	}
	return ""
}

// close records that the handler has returned. It returns false if the run was disowned.
func (a *run) close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returned = true
	if a.grace != nil {
		a.grace.Stop()
	}
	return !a.disowned
}

// watch disowns the attempt if the handler hasn't returned within Grace of its context ending,
// unless the handler ended its task itself. While Run drains, drain abandons such handlers instead.
func (a *run) watch() {
	cause := context.Cause(a.ctx)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, ErrShutdown) && a.queue.isDraining() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.returned && a.grace == nil {
		a.grace = time.AfterFunc(a.opts.Grace, func() { a.disown(cause) })
	}
}

// disown ends the attempt without its handler, and frees the slot.
func (a *run) disown(cause error) {
	if a.forsake(cause) {
		a.queue.disown(a, cause) // last, since it may take a while
	}
}

// forsake does disown's work without the log line. It returns false if the handler has returned or
// was already disowned.
func (a *run) forsake(cause error) bool {
	stuck := &a.queue.counts.Stuck
	stuck.Add(1)
	a.mu.Lock()
	disowned := !a.returned && !a.disowned
	a.disowned = a.disowned || disowned
	a.mu.Unlock()
	if !disowned {
		stuck.Add(-1)
		return false
	}
	a.queue.engine.StuckChanged()
	a.queue.reassign(a)
	err := fmt.Errorf("%w, and its handler didn't return", cause)
	a.end(err, a.judge(err), false)
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
func (a *run) end(err error, j judgement, frees bool) {
	if a.cancel != nil {
		defer a.cancel()
	}
	q, t := a.queue, a.task
	o, stays := a.outcome(err, j)
	e := &ending{Outcome: t.outcome(o), ours: true, by: a}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.leftLocked(len(o.Result), a.why(err, j))
	if frees {
		a.next = q.freedLocked(a)
	}
	if stays && q.draining {
		q.storedLocked()
	} else {
		e.before = t.tryLocked(o.Verb)
		t.session.sayLocked(e)
	}
	// If the session has ended, its slot goes to the worker's next incarnation. Otherwise the
	// ending makes the session look for a task.
	if t.session.ended != nil {
		q.lookLocked()
	}
}

// outcome returns the outcome for a handler that returned err. If stays is set, the outcome isn't
// sent while Run drains: the worker keeps the task until it leaves, which returns all remaining
// tasks in order.
func (a *run) outcome(err error, j judgement) (o store.Outcome, stays bool) {
	e, cause := a.queue.engine, context.Cause(a.ctx)
	if j.panicked != nil {
		e.failures.panicked(a.task, j)
	}
	switch {
	case err == nil:
		return store.Outcome{Verb: store.Finish, Result: a.result}, false
	case errors.Is(cause, ErrCanceled):
		return store.Outcome{Verb: store.Drop}, false
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrEvicted), errors.Is(cause, ErrLeaseExpired):
		return store.Outcome{Verb: store.Stop}, errors.Is(cause, ErrShutdown)
	}
	if j.Verb == store.Snooze {
		return j.Outcome, false
	}
	a.queue.counts.Failures.Add(1)
	if j.Verb == store.Retry && j.panicked == nil {
		e.failures.retried(a.task, j.text, j.Delay)
	}
	return j.Outcome, false
}

func (a *run) storedLocked(s *ending, d settled) {
	t := a.task
	err := t.concludeLocked(s.Verb, s.before, d)
	if err == nil || errors.Is(err, ErrNotOwner) { // in a pair with a Pool's error, it comes first
		a.queue.storedLocked()
		return
	}
	t.session.engine.background.Go(func() {
		a.queue.insist(t, s.Outcome)
		a.queue.mu.Lock()
		defer a.queue.mu.Unlock()
		a.queue.storedLocked()
	})
}

// A judgement decides what happens to a task whose handler failed.
type judgement struct {
	store.Outcome
	text     string      // of the error
	panicked *panicError // of the handler, or of a method of its error; nil if neither panicked
}

// judge decides what happens to a task whose handler returned err. It returns the zero judgement if
// err doesn't matter.
//
// The methods of the error and Backoff are user code. They run in a separate goroutine. If they end
// it or take longer than Grace, the task is retried with an error that reports this.
func (a *run) judge(err error) judgement {
	cause := context.Cause(a.ctx)
	p, panicked := err.(*panicError)
	if err == nil || decided(cause) && !panicked {
		return judgement{}
	}
	judged := make(chan judgement, 1)
	go func() {
		defer close(judged)
		judged <- a.weigh(err, cause)
	}()
	patience := time.NewTimer(max(a.opts.Grace, time.Millisecond))
	defer patience.Stop()
	var failed error
	select {
	case j, ok := <-judged:
		if ok {
			return j
		}
		failed = errors.New("Backoff, or a method of the handler's error, called runtime.Goexit")
	case <-patience.C:
		failed = errors.New("Backoff, or a method of the handler's error, didn't return")
	}
	a.queue.unsound.Note(a.queue.engine.Log, "Backoff failed; using the default", failed, "queue", a.queue.id)
	opts := a.task.options(a.queue.Options())
	return judgement{opts.outcome(failed, a.task.Retries, func(error) time.Duration { return DefaultBackoff(a.task.Retries) }), failed.Error(), p}
}

// decided reports whether the cause that ended a context decides what happens to the task, whatever
// the error.
func decided(cause error) bool {
	return errors.Is(cause, ErrCanceled) || errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrEvicted)
}

// weigh does judge's work in the current goroutine. It recovers only from panics of the error's
// methods, such as those of a nil pointer.
func (a *run) weigh(err, cause error) (j judgement) {
	opts := a.task.options(a.queue.Options())
	of := func(err error) judgement {
		p, _ := err.(*panicError)
		if decided(cause) {
			return judgement{text: logs.Text(err), panicked: p}
		}
		if errors.Is(cause, ErrTimeout) && !errors.Is(err, ErrTimeout) {
			err = &lateError{err}
		}
		pause := func(err error) time.Duration { return a.queue.pause(opts, a.task, err) }
		return judgement{opts.outcome(err, a.task.Retries, pause), logs.Printable(err.Error()), p}
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
