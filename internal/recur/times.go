package recur

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

var errPanicked = errors.New("the method Next panicked")

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
func (s *Schedules) plan(w want) *plan {
	spec := s.specOf(w.job)
	p, err := spec.plan(w.after, w.after.Add(s.ahead()))
	switch {
	case w.state == store.ScheduleCompare && p.print != "":
	case err != nil:
		s.fault(w, err)
		return nil
	default:
		w.flaw = nil
	}
	return &p
}
