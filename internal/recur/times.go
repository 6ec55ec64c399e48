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

// A plan is what a schedule's next times after an instant are.
type plan struct {
	times []int64
	print string // empty if the times aren't known
}

// plan returns the times up to until, and a few at least. A schedule that has no more times has a
// print, too.
func (s *Spec) plan(after, until time.Time) (p plan, err error) {
	p.times, err = s.Times(after, until, int(max(0, until.Sub(after))/Shortest)+fewest)
	if err == nil || errors.Is(err, ErrNever) {
		p.print = s.print(after, p.times)
	}
	return p, err
}

// ahead is how far the times reach that Redis gets. It wants more when half of that is over.
func (s *Schedules) ahead() time.Duration { return max(min(6*s.period, time.Minute), 2*s.period) }

// plan returns the plan that Redis wants of a job, or nil if there is none.
func (s *Schedules) plan(ctx context.Context, w want) *plan {
	p, err := s.timed(ctx, w)
	switch {
	case ctx.Err() != nil:
		return nil
	case w.state == store.ScheduleCompare && p.print != "":
	case err != nil:
		s.fault(w, err)
		return nil
	default:
		w.flaw = nil
	}
	return &p
}

// timed calls plan of a job's spec in a goroutine of its own, since that calls user code. If that
// hangs, timed calls it again only once it has returned.
func (s *Schedules) timed(ctx context.Context, w want) (plan, error) {
	if w.hung != nil {
		select {
		case <-w.hung:
			w.hung = nil
		default:
			return plan{}, errHangs
		}
	}
	var p plan
	err, done := errHangs, make(chan struct{}) // errHangs if Next ends its goroutine
	spec := s.specOf(w.job)
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
	w.hung = done
	return plan{}, errHangs
}
