package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/next/store"
)

// eachQueue calls a function for each queue and each failed queue. If Redis refuses a queue, it
// continues and names the queue in its error. If a cluster node is down, it skips the node's other
// queues after the first.
func (f *Fleet) eachQueue(ctx context.Context, do func(q store.Keys, id string) error) (errs []error) {
	away := store.NewAbsence(f.Lines.Calls)
	skipped := 0
	defer func() {
		if skipped > 0 {
			errs = append(errs, &ofSome{fmt.Errorf("queues skipped, since their node can't be reached: %d", skipped)})
		}
	}()
	for name, err := range store.Queues(ctx, f.Lines.Calls, f.Space) {
		if err != nil {
			return append(errs, f.Describe("list queues", "", err))
		}
		if away.Has(f.Space.Queue(name)) {
			skipped++
			continue
		}
		for q, id := range halves(f.Space, name) {
			err := do(q, id)
			if err == nil {
				continue
			}
			failed := fmt.Errorf("queue %q: %w", name, logs.WithoutInput(err))
			if ctx.Err() == nil && away.Note(q, err) {
				errs = append(errs, &ofSome{failed})
				break
			}
			if errs = append(errs, failed); !store.OfQueue(err) {
				return errs
			}
		}
	}
	return errs
}

// An ofSome error affects only some of the queues.
type ofSome struct{ error }

func (e *ofSome) Unwrap() error { return e.error }

// partly wraps the error of a key that belongs to no queue. In a cluster, it may be that only the
// node with that key is down.
func (f *Fleet) partly(err error) error {
	if err != nil && f.Lines.InCluster() && store.IsAway(err) {
		return &ofSome{err}
	}
	return err
}

// most is the largest number of queue errors in one error.
const most = 20

// joined combines the errors of many queues: it returns the error that affects all of them, if
// there is one, otherwise the first few.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range errs {
		if _, some := errors.AsType[*ofSome](err); !some && !store.OfQueue(err) {
			return err
		}
	}
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("more errors: %d", len(errs)-most))
	}
	return errors.Join(errs...)
}
