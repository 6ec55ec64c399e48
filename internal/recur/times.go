package recur

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/worqr/worqr/internal/logs"
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

// A timing computes the times of a schedule in its own goroutine, since that runs user code.
type timing struct {
	done  chan struct{} // closed when the next two fields are set
	times []int64
	err   error
}

func begin(spec Spec, after, until time.Time) *timing {
	t := &timing{done: make(chan struct{}), err: &nextError{kind: errGoexit}}
	go func() {
		defer close(t.done)
		t.times, t.err = spec.Times(after, until, int(until.Sub(after)/Shortest)+fewest)
	}()
	return t
}

// ahead is how far the times reach that Redis gets. It wants more when half of that is over.
func (s *Schedules) ahead() time.Duration { return max(min(6*s.period, time.Minute), 2*s.period) }

// times returns the next times of each job, or none if they aren't known. All are computed
// concurrently. It waits only for computations that have just begun, so a schedule that hangs
// delays it once.
func (s *Schedules) times(ctx context.Context, wants []want) [][]int64 {
	if len(wants) == 0 {
		return nil
	}
	fresh := make([]bool, len(wants))
	for i, w := range wants {
		if w.timing == nil {
			w.timing, fresh[i] = begin(s.specOf(w.job), w.after, w.after.Add(s.ahead())), true
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

// timed returns the computed times that are later than the time Redis asked for.
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
