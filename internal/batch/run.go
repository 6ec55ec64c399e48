package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/engine"
)

// An Item is a task that waits for a batch, or is in one.
type Item[T any] struct {
	Task     T
	Order    int64           // in which the tasks of a batch are
	Context  context.Context // ends with the task
	Base     context.Context // the same, without what was put into it for this task only
	Draining <-chan struct{} // closes when it isn't to wait for others any longer
}

// A Runner runs batches. Its methods may be called concurrently.
type Runner[T any] struct {
	handler  func(context.Context, []T) []error
	gatherer *Gatherer[Item[T]]
	grace    atomic.Int64 // for a handler whose tasks have ended; then another batch gets its place
}

// NewRunner returns a Runner of batches of up to size tasks, most of which run at once. A batch that
// isn't full waits for more.
func NewRunner[T any](size, most int, wait time.Duration, handler func(context.Context, []T) []error) *Runner[T] {
	return &Runner[T]{handler: handler, gatherer: New[Item[T]](size, most, wait)}
}

// Set changes how many batches run at once, and how long a handler has once its tasks have ended.
func (r *Runner[T]) Set(most int, grace time.Duration) {
	r.gatherer.SetMost(most)
	r.grace.Store(int64(grace))
}

// Run waits for a batch, and for its end, and returns how it ended for this task. The first of a batch
// runs it. It panics if the handler does.
func (r *Runner[T]) Run(item Item[T]) error {
	m := r.gatherer.Add(item)
	drains, ends := item.Draining, item.Context.Done()
	for {
		select {
		case all := <-m.Turn:
			r.run(all)
		case err := <-m.Verdict:
			if p, ok := errors.AsType[*passedPanic](err); ok {
				panic(p.error)
			}
			return err
		case <-drains:
			drains = nil
			r.gatherer.Hurry(m)
		case <-ends:
			if ends = nil; r.gatherer.Remove(m) {
				return context.Cause(item.Context)
			}
		}
	}
}

// A passedPanic is a panic of the handler, for all tasks of its batch.
type passedPanic struct{ error }

// run calls the handler for those of the tasks whose contexts have not ended, and tells all how it went.
func (r *Runner[T]) run(all []*Member[Item[T]]) {
	done := sync.OnceFunc(r.gatherer.Done)
	defer done()
	live := all[:0:0]
	for _, m := range all {
		if m.Item.Context.Err() != nil {
			m.Verdict <- context.Cause(m.Item.Context)
		} else {
			live = append(live, m)
		}
	}
	if len(live) == 0 {
		return
	}
	slices.SortFunc(live, func(a, b *Member[Item[T]]) int { return cmp.Compare(a.Item.Order, b.Item.Order) })
	tasks := make([]T, len(live))
	for i, m := range live {
		tasks[i] = m.Item.Task
	}
	var errs []error
	failed := engine.ErrGoexit
	defer func() { // also when the handler ends its goroutine
		if v := recover(); v != nil {
			failed = &passedPanic{engine.Panicked(v)}
		}
		for i, m := range live {
			if failed != nil {
				m.Verdict <- failed
			} else if errs == nil {
				m.Verdict <- nil
			} else {
				m.Verdict <- errs[i]
			}
		}
	}()
	ctx, stop := lasting(live)
	defer stop()
	// Once the tasks have ended without the handler, another batch gets its place.
	returns := context.AfterFunc(ctx, func() { time.AfterFunc(time.Duration(r.grace.Load()), done) })
	defer returns() // before stop ends ctx
	errs = r.handler(ctx, tasks)
	failed = nil
	if errs != nil && len(errs) != len(tasks) {
		failed = fmt.Errorf("the batch handler returned %d errors for %d tasks; return one per task, or nil if all are finished", len(errs), len(tasks))
	}
}

// lasting returns a context that ends when those of all tasks have, with the cause of the last.
func lasting[T any](all []*Member[Item[T]]) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(all[0].Item.Base))
	var left atomic.Int64
	left.Store(int64(len(all)))
	stops := make([]func() bool, len(all))
	for i, m := range all {
		stops[i] = context.AfterFunc(m.Item.Context, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(m.Item.Context))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
	}
}
