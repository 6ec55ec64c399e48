// Package reading reads from many queues, so that one that can't be read doesn't delay the others.
package reading

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSlow is the error if reading a queue took too long.
var ErrSlow = errors.New("no answer in time from Redis, or from the node of the cluster that has the queue")

// Limits configure Each.
type Limits struct {
	AtOnce int           // how many are read at the same time; slow ones don't count
	Each   time.Duration // how long reading one may take
}

// slow is how long a call may take before the next one starts anyway: the node that it asks may be down, and
// others have the rest of the queues.
const slow = 100 * time.Millisecond

// Each calls read for 0 to n-1, in this order except that calls may overtake slow ones, and returns what all have
// returned, and when the last of them did, apart from those that failed with ErrSlow. Each call has a context of its
// own. If ctx ends, the remaining calls aren't made, and its cause is their error.
func Each[T any](ctx context.Context, n int, l Limits, read func(ctx context.Context, i int) (T, error)) (
	all []T, errs []error, answered time.Time) {
	all, errs = make([]T, n), make([]error, n)
	answers := make([]time.Time, n)
	var calls sync.WaitGroup
	room := make(chan struct{}, l.AtOnce)
	for i := range n {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs[i] = context.Cause(ctx)
			continue
		}
		calls.Go(func() {
			release := sync.OnceFunc(func() { <-room })
			defer release()
			defer time.AfterFunc(slow, release).Stop()
			ctx, end := context.WithTimeoutCause(ctx, l.Each, ErrSlow)
			defer end()
			row, err := read(ctx, i)
			if all[i], errs[i] = row, Cause(ctx, err); errs[i] != ErrSlow {
				answers[i] = time.Now()
			}
		})
	}
	calls.Wait()
	for _, at := range answers {
		if at.After(answered) {
			answered = at
		}
	}
	return all, errs, answered
}

// Cause returns err, or ErrSlow if reading failed because it took too long.
func Cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrSlow) {
		return ErrSlow
	}
	return err
}
