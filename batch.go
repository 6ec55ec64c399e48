package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/batch"
	"github.com/worqr/worqr/internal/engine"
)

// A BatchHandler works on several tasks at once, oldest first, and returns an error for each, as a
// [Handler] does; nil finishes all. A panic, or another number of errors, counts for each task. The
// context ends when those of all tasks have ended; t.Context() is that of one.
type BatchHandler func(ctx context.Context, tasks []*Task) []error

// BatchOptions configure a BatchHandler.
type BatchOptions struct {
	// HandleOptions are those of each task: Timeout and Grace include Wait, and OnFailed gets tasks
	// one by one. Concurrency is how many batches run at once; 0 is 1. With an Options.Capacity
	// below Size*Weight, batches don't fill up.
	HandleOptions
	// Size is how many tasks a batch has at most, up to 10,000; 0 is 100.
	Size int
	// Wait is how long a task waits for a batch to fill; 0 is 100 ms, negative is not at all. It
	// ends when the peer drains.
	Wait time.Duration
}

const (
	defaultBatch = 100
	maxBatch     = 10_000
	defaultWait  = 100 * time.Millisecond
)

// HandleBatch is Handle for batches. What Use was given wraps each task, until its batch has run.
// SetOptions replaces the HandleOptions; Size and Wait stay.
func (q *Queue) HandleBatch(h BatchHandler, opts *BatchOptions) {
	var o BatchOptions
	if opts != nil {
		o = *opts
	}
	o.Size, o.Wait = cmp.Or(o.Size, defaultBatch), cmp.Or(o.Wait, defaultWait)
	var bad string
	switch {
	case h == nil:
		bad = "the handler is nil"
	case o.Size < 1 || o.Size > maxBatch:
		bad = fmt.Sprintf("Size %d isn't between 1 and %d", o.Size, maxBatch)
	case o.Concurrency > maxUnits/o.Size:
		bad = fmt.Sprintf("Concurrency %d is too large for batches of %d", o.Concurrency, o.Size)
	case o.Timeout > 0 && o.Timeout <= o.Wait:
		bad = fmt.Sprintf("Timeout %v isn't above Wait, %v, which is part of it", o.Timeout, o.Wait)
	}
	if bad != "" {
		panic(fmt.Sprintf("worqr: options for the batches of %q: %s", q.name, bad))
	}
	b := &batches{handler: h, size: o.Size, wait: o.Wait, Gatherer: batch.New[*waiting](o.Size, max(o.Concurrency, 1), o.Wait)}
	q.check(b.handle, &o.HandleOptions)
	each := b.options(&o.HandleOptions)
	b.use(each)
	q.serve(b.handle, each, b)
}

// batches gathers the tasks of a queue into batches.
type batches struct {
	handler BatchHandler
	size    int
	wait    time.Duration
	grace   atomic.Int64
	*batch.Gatherer[*waiting]
}

// A waiting is a task that waits for a batch, or is in one.
type waiting struct {
	ctx  context.Context
	task *Task
}

// options returns options with their defaults, for as many tasks as all batches have.
func (b *batches) options(opts *HandleOptions) HandleOptions {
	o := opts.withDefaults()
	o.Concurrency = b.size
	if opts != nil {
		o.Concurrency *= min(max(opts.Concurrency, 1), maxUnits/b.size)
	}
	return o
}

// use takes over what concerns batches from the options of their tasks.
func (b *batches) use(o HandleOptions) {
	b.SetMost(o.Concurrency / b.size)
	b.grace.Store(int64(o.Grace))
}

// handle is the Handler of a task: it waits for a batch, and for its end. The first of a batch runs it.
func (b *batches) handle(ctx context.Context, t *Task) error {
	t.ctx = ctx
	m := b.Add(&waiting{ctx, t})
	drains, ends := t.Draining(), ctx.Done()
	for {
		select {
		case all := <-m.Turn:
			b.run(all)
		case err := <-m.Verdict:
			if p, ok := errors.AsType[*passedPanic](err); ok {
				panic(p.error)
			}
			return err
		case <-drains:
			drains = nil
			b.Hurry(m)
		case <-ends:
			if ends = nil; b.Remove(m) {
				return context.Cause(ctx)
			}
		}
	}
}

// A passedPanic is a panic of a BatchHandler, for all of its tasks.
type passedPanic struct{ error }

// run calls the handler for those of the tasks whose contexts have not ended, and tells all how it went.
func (b *batches) run(all []*batch.Member[*waiting]) {
	done := sync.OnceFunc(b.Done)
	defer done()
	live := all[:0:0]
	for _, m := range all {
		if m.Item.ctx.Err() != nil {
			m.Verdict <- context.Cause(m.Item.ctx)
		} else {
			live = append(live, m)
		}
	}
	if len(live) == 0 {
		return
	}
	slices.SortFunc(live, func(a, b *batch.Member[*waiting]) int { return cmp.Compare(a.Item.task.Token, b.Item.task.Token) })
	tasks := make([]*Task, len(live))
	for i, m := range live {
		tasks[i] = m.Item.task
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
	returns := context.AfterFunc(ctx, func() { time.AfterFunc(time.Duration(b.grace.Load()), done) })
	defer returns() // before stop ends ctx
	errs = b.handler(ctx, tasks)
	failed = nil
	if errs != nil && len(errs) != len(tasks) {
		failed = fmt.Errorf("the batch handler returned %d errors for %d tasks; return one per task, or nil if all are finished", len(errs), len(tasks))
	}
}

// lasting returns a context that ends when those of all tasks have, with the cause of the last.
func lasting(all []*batch.Member[*waiting]) (ctx context.Context, stop func()) {
	base := all[0].Item.ctx
	if a := all[0].Item.task.attempt; a != nil { // else a function given to Use has made the task
		base = a.Context() // without what Use has put into that of one task
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(base))
	var left atomic.Int64
	left.Store(int64(len(all)))
	stops := make([]func() bool, len(all))
	for i, m := range all {
		stops[i] = context.AfterFunc(m.Item.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(m.Item.ctx))
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
