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

// Each calls read for 0 to n-1, in this order except that calls may overtake slow ones, and returns when all
// have returned. Each call has a context of its own; use [Cause] for the error of a call whose context has ended.
// If ctx ends, Each calls left for the remaining ones instead.
func Each(ctx context.Context, n int, l Limits, read func(ctx context.Context, i int), left func(i int, cause error)) {
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, l.AtOnce)
	for i := range n {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			left(i, context.Cause(ctx))
			continue
		}
		all.Go(func() {
			release := sync.OnceFunc(func() { <-room })
			defer release()
			defer time.AfterFunc(slow, release).Stop()
			ctx, end := context.WithTimeoutCause(ctx, l.Each, ErrSlow)
			defer end()
			read(ctx, i)
		})
	}
}

// Cause returns err, or ErrSlow if reading failed because it took too long.
func Cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrSlow) {
		return ErrSlow
	}
	return err
}
