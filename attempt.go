package worqr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/script"
)

// An attempt is one run of a handler with a task, and its end:
//
//	handler returns ───────────────────────────▶ end: finish, retry, fail, drop or stop
//	context ends ─▶ Grace ─▶ it has not: disown ─▶ end, in the handler's place
type attempt struct {
	service  *service
	task     *Task
	opts     HandleOptions // when it began
	slot     slot
	ctx      context.Context
	cancel   context.CancelFunc // nil without a timeout, as the next
	unwatch  func() bool
	returned chan struct{} // closed when the handler has
	over     atomic.Bool   // the slot was given back
}

func newAttempt(s *service, t *Task, o HandleOptions, of slot) *attempt {
	a := &attempt{service: s, task: t, opts: o, slot: of, returned: make(chan struct{})}
	if o.Timeout > 0 {
		a.ctx, a.cancel = context.WithTimeoutCause(t.ctx, o.Timeout, ErrTimeout)
		a.unwatch = context.AfterFunc(a.ctx, a.watch)
	} else {
		a.ctx, t.watch = t.ctx, a.watch
	}
	return a
}

// run calls the handler and ends the attempt. The profiler's label is how the
// stack of a handler that does not return is found.
func (a *attempt) run() {
	err := errGoexit
	defer func() { // also when the handler ends its goroutine
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
		if a.cancel != nil {
			a.unwatch()
		}
		close(a.returned)
		if !a.over.CompareAndSwap(false, true) {
			a.service.queue.peer.counts.stuck.Add(-1)
			return
		}
		a.end(err)
	}()
	pprof.SetGoroutineLabels(pprof.WithLabels(a.ctx, pprof.Labels(label, a.task.ID)))
	err = a.service.handler(a.ctx, a.task)
}

const label = "worqr.process"

// watch disowns the attempt when the handler has not returned a grace after its
// context has ended. A handler that ends its task itself may take its time; and
// a shutdown has a limit of its own.
func (a *attempt) watch() {
	cause := context.Cause(a.ctx)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, ErrShutdown) {
		return
	}
	select {
	case <-a.returned:
		return
	case <-time.After(a.opts.Grace):
	}
	stuck := &a.service.queue.peer.counts.stuck
	stuck.Add(1)
	if !a.over.CompareAndSwap(false, true) {
		stuck.Add(-1)
		return
	}
	a.end(fmt.Errorf("%w, and its handler did not return", cause))
	a.service.disown(a.task, cause) // last: it may take a while
}

// stackOf is the stack of the goroutines that work on a process.
func stackOf(process string) string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // to memory
	for block := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(block, process) {
			return block
		}
	}
	return ""
}

// end ends the task of a handler that returned err.
func (a *attempt) end(err error) {
	if a.cancel != nil {
		defer a.cancel()
	}
	s, t := a.service, a.task
	cause := context.Cause(a.ctx)
	s.release(a.slot) // before the end is told, so that the same round asks for the next task
	defer s.queue.freed(t.rounds)
	defer s.end()
	switch {
	case err == nil:
		s.insist(t, t.Finish)
	case errors.Is(cause, ErrCanceled):
		s.insist(t, t.drop)
	case errors.Is(cause, ErrShutdown):
		// It stays ours until the worker leaves, which puts all that is left
		// back in its order.
		if !s.isDraining() {
			s.insist(t, t.Stop)
		}
	case errors.Is(cause, ErrEvicted):
		s.insist(t, t.Stop)
	default:
		outcome := a.judge(err, cause)
		s.insist(t, func(ctx context.Context) error { return t.settle(ctx, outcome) })
	}
}

// judge says what becomes of a task whose handler returned err, and does not fall
// when that error's methods panic, as those of a nil pointer do.
func (a *attempt) judge(err, cause error) (o script.Outcome) {
	s, t, opts := a.service, a.task, a.service.options()
	defer func() {
		if v := recover(); v != nil {
			o = opts.outcome(&panicError{fmt.Sprintf("%T: %v", err, v), debug.Stack()}, t.Retries)
		}
	}()
	if errors.Is(cause, ErrTimeout) && !errors.Is(err, ErrTimeout) {
		err = &lateError{err}
	}
	s.queue.peer.counts.failures.Add(1)
	s.complain(t, err)
	return opts.outcome(err, t.Retries)
}

// A lateError is what a handler returned because, or after, it took too long.
type lateError struct{ err error }

func (e *lateError) Error() string   { return ErrTimeout.Error() + ": " + e.err.Error() }
func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }

// freed has the queue's rounds look, if a slot became free that belonged to an
// earlier incarnation; otherwise the end of the task has done so.
func (q *Queue) freed(of *rounds) {
	if r, err := q.rounds(); err == nil && r != of {
		r.poke()
	}
}
