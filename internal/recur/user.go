package recur

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

var (
	errPanicked = errors.New("the method Next panicked")
	errHangs    = errors.New("the method Next didn't return")
)

// maxNext is how long a schedule's Next may hold up the others, once.
const maxNext = time.Second

// A panicError means that user code panicked.
type panicError struct{ text, stack string }

func (e *panicError) Error() string { return errPanicked.Error() + ": " + e.text }
func (e *panicError) Unwrap() error { return errPanicked }

// panicked returns the error for a recovered value.
func panicked(v any) error { return &panicError{logs.Text(v), string(debug.Stack())} }

// ahead is how far the times reach that Redis gets. It wants more when half of that is over.
func (s *Schedules) ahead() time.Duration { return max(min(6*s.period, time.Minute), 2*s.period) }

// plan returns the plan that Redis wants of a job, or nil if there is none.
func (s *Schedules) plan(ctx context.Context, l *site, w want) *plan {
	p, err := s.timed(ctx, l, w)
	switch {
	case ctx.Err() != nil:
		return nil
	case w.word == store.ScheduleCompare && p.print != "":
	case err != nil:
		s.fault(w, err)
		return nil
	default:
		w.job.flaw = nil
	}
	return &p
}

// timed calls plan of a job's spec in a goroutine of its own, since that calls user code. If that
// hangs, timed calls it again only once it has returned.
func (s *Schedules) timed(ctx context.Context, l *site, w want) (plan, error) {
	if w.job.hung != nil {
		select {
		case <-w.job.hung:
			w.job.hung = nil
		default:
			return plan{}, errHangs
		}
	}
	var p plan
	err, done := errHangs, make(chan struct{}) // errHangs if Next ends its goroutine
	spec, _, _ := s.specOf(l, w.job)
	go func() {
		defer close(done)
		p, err = spec.plan(w.after, w.after.Add(s.ahead()))
	}()
	select {
	case <-done:
		return p, err
	case <-time.After(maxNext):
	case <-ctx.Done():
	}
	w.job.hung = done
	return plan{}, errHangs
}

// fault logs a problem with the times of a job, once until the times are valid again.
func (s *Schedules) fault(w want, err error) {
	kind, attrs := err, []any{"err", err}
	if p, ok := errors.AsType[*panicError](err); ok {
		kind, attrs = errPanicked, append(attrs, "stack", p.stack)
	}
	never := errors.Is(err, ErrNever)
	if kind == w.job.flaw || never && w.word == store.ScheduleMore { // Redis has its last times
		return
	}
	w.job.flaw = kind
	if never {
		s.say(w.job, s.Log.Warn, "worqr: a schedule has no further times", attrs...)
		return
	}
	s.say(w.job, s.Log.Error, "worqr: can't get the next times of a schedule", attrs...)
}
