package recur

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/worqr/worqr/internal/logs"
)

// maxNext is how long the times of schedules are waited for. If they come later, they are used then.
const maxNext = time.Second

// The kinds of a nextError.
var (
	errPanicked = errors.New("the method Next panicked")
	errGoexit   = errors.New("the method Next called runtime.Goexit")
	errHangs    = fmt.Errorf("the method Next didn't return within %v", maxNext)
)

// A nextError says that user code didn't return.
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

// panicked is the error for a value that was recovered.
func panicked(v any) error {
	return &nextError{errPanicked, logs.Text(v), string(debug.Stack())}
}

// A timing is how user code computes the times of a schedule, on a goroutine of its own.
type timing struct {
	done  chan struct{} // closed when the next two are known
	times []int64
	err   error
}

func begin(spec Spec, after, until time.Time) *timing {
	t := &timing{done: make(chan struct{}), err: &nextError{kind: errGoexit}}
	go func() {
		defer close(t.done)
		t.times, t.err = spec.Times(after, until)
	}()
	return t
}

// times returns the next times of each job; none if they aren't known. All are computed at the same
// time. It waits only for those that have just begun, so a schedule that hangs costs that once.
func (s *Schedules) times(ctx context.Context, wants []want) [][]int64 {
	if len(wants) == 0 {
		return nil
	}
	fresh := make([]bool, len(wants))
	for i, w := range wants {
		if w.timing == nil {
			w.timing, fresh[i] = begin(s.specOf(w.job), w.after, w.after.Add(6*s.period)), true
		}
	}
	patience, over := time.NewTimer(maxNext), false
	defer patience.Stop()
	all := make([][]int64, len(wants))
	for i, w := range wants {
		if fresh[i] && !over {
			select {
			case <-w.timing.done:
			case <-patience.C:
				over = true
			case <-ctx.Done():
				return all
			}
		}
		select {
		case <-w.timing.done:
			all[i] = s.timed(w)
		default:
			s.fault(w, &nextError{kind: errHangs})
		}
	}
	return all
}

// timed returns the times of a job after that which Redis wants them after.
func (s *Schedules) timed(w want) []int64 {
	t := w.timing
	w.timing = nil
	if t.err != nil {
		s.fault(w, t.err)
		return nil
	}
	w.flaw = nil
	for i, at := range t.times {
		if at > w.after.UnixMilli() {
			return t.times[i:]
		}
	}
	return nil // they came too late
}
