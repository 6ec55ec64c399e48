package recur

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// maxNext is how long to wait for the times of schedules. Times that come later are used then.
const maxNext = time.Second

// The kinds of a nextError.
var (
	errPanicked = errors.New("the method Next panicked")
	errGoexit   = errors.New("the method Next called runtime.Goexit")
	errHangs    = fmt.Errorf("the method Next didn't return within %v", maxNext)
)

// A nextError means that user code didn't return normally.
type nextError struct {
	kind  error
	text  string // of the panic
	stack string
}

func (e *nextError) Error() string {
	if e.text == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.text
}
func (e *nextError) Unwrap() error { return e.kind }

// panicked returns the error for a recovered value.
func panicked(v any) error {
	return &nextError{errPanicked, logs.Text(v), string(debug.Stack())}
}

// A timing computes the times of a schedule, and its print, in its own goroutine, since that runs user
// code.
type timing struct {
	after time.Time
	done  chan struct{} // closed when the fields below are set
	times []int64
	print string // empty if the times aren't known
	err   error
}

func begin(spec Spec, after, until time.Time) *timing {
	t := &timing{after: after, done: make(chan struct{}), err: &nextError{kind: errGoexit}}
	go func() {
		defer close(t.done)
		t.times, t.err = spec.Times(after, until, int(max(0, until.Sub(after))/Shortest)+fewest)
		if t.err == nil || errors.Is(t.err, ErrNever) {
			t.print = spec.print(after, t.times)
		}
	}()
	return t
}

func (t *timing) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// ahead is how far the times reach that Redis gets. It wants more when half of that is over.
func (s *Schedules) ahead() time.Duration { return max(min(6*s.period, time.Minute), 2*s.period) }

// A plan is what a schedule's next times are.
type plan struct {
	times []int64
	print string
}

// plans returns the plan that Redis wants of each job, or nil if it isn't known. All are computed
// concurrently. It waits only for computations that have just begun, so a schedule that hangs
// delays it once.
func (s *Schedules) plans(ctx context.Context, wants []want) []*plan {
	all := make([]*plan, len(wants))
	fresh := make([]bool, len(wants))
	for i, w := range wants {
		t := w.timing
		if t == nil || w.state == store.ScheduleCompare && t.over() && !t.after.Equal(w.after) {
			w.timing, fresh[i] = begin(s.specOf(w.job), w.after, w.after.Add(s.ahead())), true
		}
	}
	patience, late := time.NewTimer(maxNext), false
	defer patience.Stop()
	for i, w := range wants {
		if fresh[i] && !late {
			select {
			case <-w.timing.done:
			case <-patience.C:
				late = true
			case <-ctx.Done():
				return all
			}
		}
		if w.timing.over() {
			all[i] = s.timed(w)
		} else {
			s.fault(w, &nextError{kind: errHangs})
		}
	}
	return all
}

// timed returns the plan that was computed, with the times after the one Redis asked for.
func (s *Schedules) timed(w want) *plan {
	t := w.timing
	w.timing = nil
	if w.state == store.ScheduleCompare && t.print != "" {
		if !t.after.Equal(w.after) {
			return nil // the print after an instant that Redis had before
		}
		return &plan{print: t.print}
	}
	if t.err != nil {
		s.fault(w, t.err)
		return nil
	}
	w.flaw = nil
	for i, at := range t.times {
		if at > w.after.UnixMilli() {
			return &plan{t.times[i:], t.print}
		}
	}
	return nil // they came too late
}
