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

	"github.com/worqr/worqr/internal/verdict"
	"github.com/worqr/worqr/internal/words"
)

// An Item is a task that waits for a batch, or is in one.
type Item[T any] struct {
	Task     T
	Order    int64           // position of the task in its batch
	Context  context.Context // ends with the task
	Base     context.Context // like Context, without the values added for this task only
	Draining <-chan struct{} // closed when the task must no longer wait for others
}

// A Runner runs batches. Its methods may be called concurrently.
type Runner[T any] struct {
	handler  func(context.Context, []T) []error
	gatherer *Gatherer[Item[T]]
	grace    atomic.Int64 // for the handler after its tasks have ended; then another batch may run
}

// NewRunner returns a Runner of batches of up to size tasks. Up to most batches run concurrently. A
// batch that isn't full waits for more tasks.
func NewRunner[T any](size, most int, wait time.Duration, handler func(context.Context, []T) []error) *Runner[T] {
	return &Runner[T]{handler: handler, gatherer: New[Item[T]](size, most, wait)}
}

// Set changes how many batches run concurrently, and how long a handler may run after its tasks
// have ended.
func (r *Runner[T]) Set(most int, grace time.Duration) {
	r.gatherer.SetMost(most)
	r.grace.Store(int64(grace))
}

// Run waits until the item's batch has run, and returns the result for this task. The first task of
// a batch runs it. Run panics if the handler does.
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

// A passedPanic passes a panic of the handler to all tasks of its batch.
type passedPanic struct{ error }

// run calls the handler with the tasks whose contexts haven't ended, and sends all members their
// result.
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
	failed := verdict.ErrGoexit
	defer func() { // even if the handler ends its goroutine
		if v := recover(); v != nil {
			failed = &passedPanic{verdict.Panicked(v)}
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
	// If the tasks have ended but the handler hasn't, another batch may run.
	returns := context.AfterFunc(ctx, func() { time.AfterFunc(time.Duration(r.grace.Load()), done) })
	defer returns() // called before stop ends ctx
	errs = r.handler(ctx, tasks)
	failed = nil
	if errs != nil && len(errs) != len(tasks) {
		failed = fmt.Errorf("the batch handler returned %s for %s; return one per task, or nil if all are finished",
			words.Counted(len(errs), "error"), words.Counted(len(tasks), "task"))
	}
}

// lasting returns a context that ends when the contexts of all tasks have ended, with the cause of
// the last one.
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
