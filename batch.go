package worqr

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/batch"
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
	b := &batches{size: o.Size, wait: o.Wait, Runner: batch.NewRunner(o.Size, max(o.Concurrency, 1), o.Wait, h)}
	q.check(b.handle, &o.HandleOptions)
	each := b.options(&o.HandleOptions)
	b.use(each)
	q.serve(b.handle, each, b)
}

// batches gathers the tasks of a queue into batches.
type batches struct {
	size int
	wait time.Duration
	*batch.Runner[*Task]
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
func (b *batches) use(o HandleOptions) { b.Set(o.Concurrency/b.size, o.Grace) }

// handle is the Handler of a task: it waits for a batch, and for its end.
func (b *batches) handle(ctx context.Context, t *Task) error {
	t.ctx = ctx
	base := ctx
	if t.attempt != nil { // else a function given to Use has made the task
		base = t.attempt.Context() // without what Use has put into that of one task
	}
	return b.Run(batch.Item[*Task]{Task: t, Order: t.Token, Context: ctx, Base: base, Draining: t.Draining()})
}
