package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/engine"
)

// A Handler works on one task. What it returns says what becomes of the task:
//
//	nil                  finished
//	an error             retried after Backoff; after MaxRetries, failed
//	RetryAfter(err, d)   retried after d; after MaxRetries, failed
//	Permanent(err)       failed
//	Broken(err)          failed, as a payload that cannot be decoded
//	a panic              see OnPanic; the peer survives
//
// A failed task moves to the queue's failed queue (Queue.Failed), with the
// reason. A task that is retried waits in the schedule and doesn't block others.
//
// The context ends when the handler should stop, and context.Cause says why:
//
//	ErrCanceled       the task was canceled and will not run again
//	ErrTimeout        the attempt exceeded Timeout; the task is retried
//	ErrEvicted        this peer was evicted; another may be running the task
//	ErrLeaseExpired   Redis didn't answer in time, so another peer might run it
//	ErrShutdown       Options.Drain is over; the task returns to the front
//
// Then what the handler returns matters only if it is nil (finished after all) or,
// after a timeout, one of the verdicts above. The context carries the values of
// Run's context.
//
// A handler that does not return within Grace after its context has ended is
// disowned: its task ends as if it had returned the cause, another task gets its
// slot, and its goroutine is counted in PeerStats.StuckHandlers until it returns. That is
// logged with its stack, one line a second, and then how many more there were. The
// task, if it is retried, may run beside it, even when it has a key.
//
// Handlers must be idempotent: a task may have run before, partly or completely.
// If that matters in another system, pass it t.Token and let it refuse lower tokens.
type Handler func(ctx context.Context, t *Task) error

// HandleOptions configure a handler. Nil means the defaults, and so does a zero
// field. Options apply when a task starts or ends, so waiting tasks need no migration.
type HandleOptions struct {
	// Concurrency is how many tasks of the queue run at once; 0 is GOMAXPROCS,
	// which is low for handlers that mostly wait.
	Concurrency int
	// Timeout is how long an attempt may take before its context ends with
	// ErrTimeout; 0 means no timeout.
	Timeout time.Duration
	// Grace is how long a handler may go on after its context has ended before
	// it is disowned; 0 is 10 s. It is also how long Run waits for handlers
	// after the time to drain.
	Grace time.Duration
	// MaxRetries is how often a task is retried after its handler failed,
	// before it goes to the failed queue; 0 is 10, negative is never.
	MaxRetries int
	// MaxCrashes is how many workers may die holding a task. Then it goes to
	// the failed queue, with kind crashed, instead of being started again. 0 is
	// 3, negative is any number. Stops, cancels and drains that end do not count;
	// a process that is killed while it drains has died like any other, so give
	// it Options.Drain, Grace and 5 s more. A death counts for every task that the
	// worker held. But a peer runs tasks that are one crash short of the limit one at
	// a time, so an innocent task rarely fails: only if it's one crash short itself,
	// beside a killer that has fewer crashes. With 1 there is no such protection:
	// every task of a dead worker fails.
	// A pause of the process that is longer than the lease, and FailWorker, count
	// as deaths, too.
	MaxCrashes int
	// Backoff is the time to wait before each retry: retry counts from 1, and a
	// negative time is none. Nil is 2 s, doubling to 5 min, a quarter more or
	// less. It must be safe for concurrent use. If it panics, calls runtime.Goexit
	// or takes longer than Grace, the default is used and a warning logged.
	Backoff func(retry int) time.Duration
	// Exclusive ends the context before any other peer can start the task,
	// whether Redis can be reached or not, unless its own process stands still
	// (SIGSTOP, a sleeping machine) or the clock of Redis steps: then the task's
	// Token tells a late writer. Without it, handlers go on through an outage of
	// Redis.
	Exclusive bool
	// OnPanic decides what happens to a task whose handler panics.
	OnPanic PanicPolicy
	// KeepFailed is how many failed tasks the queue keeps; 0 is 1000. The oldest are
	// dropped, counted in Stats.Dropped, and logged, once a minute at most. With
	// OnFailed it is how many are kept that OnFailed retries no more; others are
	// not dropped while any peer with OnFailed serves the queue.
	KeepFailed int
	// OnFailed, if set, works on the failed queue, as a handler does on any
	// other: t.Failure tells what has happened, t.Key is the key that the task
	// had, a task that it finishes is gone, and one with which it fails is tried
	// again.
	OnFailed Handler
	// OnFailedOptions are the options of OnFailed; there, Concurrency 0 is 1,
	// MaxRetries 0 is 100, and Backoff nil is 10 s, doubling to 15 min. What
	// OnFailed retries no more stays in the failed queue, to be looked at, with the
	// reason for which it had failed before. Neither KeepFailed nor OnFailed may
	// be set in them.
	OnFailedOptions *HandleOptions
	// Priority says which of the peer's queues goes first when they compete for
	// Options.Capacity: the higher. Every eighth task goes to the queue that has
	// waited longest, so that none starves.
	Priority int
	// Weight is how many units of Options.Capacity a task occupies; 0 is 1.
	Weight int
	// Prefetch is how many tasks a peer may hold beyond those that run, so that a
	// handler that returns need not wait for the next one. 0 adapts: as many as
	// the handlers begin at their measured pace within 3 ms and three round trips to
	// Redis, none while they are slow or slow ones are among them, and to begin
	// with at most one for eight that were fast. These go back to the front when
	// none was begun for 5/3 of that time, or when another peer is idle and nothing
	// waits. A positive number, at most 100,000, always keeps that many: they
	// wait for this peer even when others have become idle, and later
	// tasks may start before them. Set it only where all tasks are short. Negative
	// is none.
	//
	// No more is taken ahead while another peer is idle, while a task is suspected
	// of killing its workers, or with MaxCrashes 1; with an Options.Capacity none
	// is, and a positive number is refused. What is held counts as running in
	// Queue.Running and Queue.Stats, not in Queue.Len. It is begun after a Pause,
	// and before a task whose time has come. If the peer dies, a crash is counted
	// for it.
	Prefetch int
}

const (
	defaultGrace      = 10 * time.Second
	defaultRetries    = 10
	defaultCrashes    = 3
	defaultKeepFailed = 1000
	failedRetries     = 100
	maxUnits          = 1 << 30
	maxPrefetch       = 100_000
)

// withDefaults fills in what was left open.
func (o *HandleOptions) withDefaults() HandleOptions {
	var c HandleOptions
	if o != nil {
		c = *o
	}
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0))
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.MaxRetries = cmp.Or(c.MaxRetries, defaultRetries)
	c.MaxCrashes = cmp.Or(c.MaxCrashes, defaultCrashes)
	c.KeepFailed = cmp.Or(c.KeepFailed, defaultKeepFailed)
	c.Weight = cmp.Or(c.Weight, 1)
	if c.Backoff == nil {
		c.Backoff = engine.DefaultBackoff
	}
	return c
}

// forEngine are the options as the engine has them. Followed tells whether OnFailed works on
// what fails.
func (o *HandleOptions) forEngine(followed bool) engine.Options {
	return engine.Options{
		Concurrency: o.Concurrency, Timeout: o.Timeout, Grace: o.Grace, MaxRetries: o.MaxRetries, MaxCrashes: o.MaxCrashes,
		Keep: o.KeepFailed, Backoff: o.Backoff, Exclusive: o.Exclusive, FailOnPanic: o.OnPanic == FailOnPanic, Followed: followed,
		Priority: o.Priority, Weight: o.Weight, Prefetch: o.Prefetch,
	}
}

// forFailed returns the options of OnFailed.
func (o *HandleOptions) forFailed() HandleOptions {
	var c HandleOptions
	if o.OnFailedOptions != nil {
		c = *o.OnFailedOptions
	}
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.MaxRetries = cmp.Or(c.MaxRetries, failedRetries)
	if c.Backoff == nil {
		c.Backoff = failedBackoff
	}
	c.KeepFailed = o.KeepFailed
	return c.withDefaults()
}

func (o *HandleOptions) check(capacity int) error {
	if o == nil {
		return nil
	}
	for name, n := range map[string]int64{
		"Concurrency": int64(o.Concurrency), "Timeout": int64(o.Timeout), "Grace": int64(o.Grace),
		"KeepFailed": int64(o.KeepFailed), "Weight": int64(o.Weight),
	} {
		if n < 0 {
			return fmt.Errorf("%w: %s is negative", ErrInvalid, name)
		}
	}
	f := o.OnFailedOptions
	switch {
	case o.Weight > maxUnits:
		return fmt.Errorf("%w: Weight %d is above the maximum of %d", ErrInvalid, o.Weight, maxUnits)
	case o.Prefetch > maxPrefetch:
		return fmt.Errorf("%w: Prefetch %d is above the maximum of %d", ErrInvalid, o.Prefetch, maxPrefetch)
	case o.Prefetch > 0 && capacity > 0:
		return fmt.Errorf("%w: Prefetch can't be combined with Options.Capacity; remove one of them", ErrInvalid)
	case o.OnPanic != RetryOnPanic && o.OnPanic != FailOnPanic:
		return fmt.Errorf("%w: unknown OnPanic %d", ErrInvalid, o.OnPanic)
	case capacity > 0 && o.Weight > capacity:
		return fmt.Errorf("%w: a task of Weight %d does not fit into a Capacity of %d", ErrInvalid, o.Weight, capacity)
	case f != nil && (f.OnFailed != nil || f.OnFailedOptions != nil || f.KeepFailed != 0):
		return fmt.Errorf("%w: in FailedOptions, OnFailed, FailedOptions and KeepFailed must be left out", ErrInvalid)
	}
	if err := f.check(capacity); err != nil {
		return fmt.Errorf("options of OnFailed: %w", err)
	}
	return nil
}

// Handle registers h as the queue's handler, for Concurrency tasks at a time. It is
// called before Run, once for each queue. It panics if h is nil, an option makes
// no sense, the queue has a handler, Run was called, or the peer works on the queue
// since StartWork. With a name that isn't allowed, Run fails with ErrBadName.
func (q *Queue) Handle(h Handler, opts *HandleOptions) {
	p := q.peer
	err := opts.check(p.capacity.Total())
	switch {
	case h == nil:
		panic(fmt.Sprintf("worqr: the handler of %q is nil", q.name))
	case err != nil:
		panic(wrap(fmt.Sprintf("options for the handler of %q", q.name), err).Error())
	case opts != nil && opts.OnFailedOptions != nil && opts.OnFailed == nil:
		panic(fmt.Sprintf("worqr: options for the handler of %q: bad option: FailedOptions without OnFailed", q.name))
	}
	o := opts.withDefaults()

	wanted := p.fleet.Wants(q.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case wanted:
		panic(fmt.Sprintf("worqr: Handle for %q after StartWork", q.name))
	case p.ran:
		panic(fmt.Sprintf("worqr: Handle for %q after Run", q.name))
	case p.services[q.id] != nil:
		panic(fmt.Sprintf("worqr: %q has a handler", q.name))
	}
	p.services[q.id] = q.handled(h, o.forEngine(o.OnFailed != nil))
	if o.OnFailed != nil {
		of, f := o.forFailed(), q.failed()
		p.services[f.id] = f.handled(o.OnFailed, of.forEngine(false))
	}
}

// A service is a queue with a handler.
type service struct {
	queue *Queue
	*engine.Queue
}

func (q *Queue) handled(h Handler, o engine.Options) *service {
	s := &service{q, q.served()}
	s.Serve(func(ctx context.Context, a *engine.Attempt) ([]byte, error) {
		t := taskOf(q.name, a)
		err := h(ctx, t)
		return t.Result, err
	}, o)
	return s
}

// SetOptions replaces the options of a handled queue, all of them: what is left
// zero gets its default, in OnFailedOptions as well. They hold for what is taken
// or ends from now on; nothing that waits is touched, and what runs keeps its
// Timeout and its Grace. OnFailed must be nil: the handlers stay, and
// OnFailedOptions are for the one given to Handle; Exclusive must be what it was.
// It does not block, and fails with ErrInvalid when an option makes no sense
// or the queue has no handler. It may be called at any time.
func (q *Queue) SetOptions(opts *HandleOptions) error {
	p := q.peer
	p.mu.Lock()
	s, f := p.services[q.id], p.services[q.failed().id]
	p.mu.Unlock()
	o := opts.withDefaults()
	of := o.forFailed()
	err := opts.check(p.capacity.Total())
	switch {
	case err != nil:
	case s == nil:
		err = errors.New("the queue has no handler")
	case o.OnFailed != nil:
		err = errors.New("handlers cannot be changed; leave OnFailed nil")
	case f == nil && o.OnFailedOptions != nil:
		err = errors.New("there are FailedOptions, but no OnFailed")
	case o.Exclusive != s.Options().Exclusive, f != nil && of.Exclusive != f.Options().Exclusive:
		err = errors.New("whether it is Exclusive cannot be changed")
	}
	if err != nil && !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return q.wrap("set options", err)
	}
	s.SetOptions(o.forEngine(f != nil))
	if f != nil {
		f.SetOptions(of.forEngine(false))
	}
	return nil
}

// SetCapacity changes Options.Capacity; 0 is no common bound. What runs is not
// touched: above a lower bound, nothing is taken until enough has ended. A task
// whose Weight is more than all of it runs alone, though Handle and SetOptions
// refuse such a Weight. It does not block, and fails with ErrInvalid when units
// is negative.
func (p *Peer) SetCapacity(units int) error {
	if units < 0 {
		return wrap("set capacity", fmt.Errorf("%w: %d units", ErrInvalid, units))
	}
	p.capacity.SetTotal(units)
	p.capacity.Pass()
	if units > 0 { // what is shared is not hoarded
		p.mu.Lock()
		services := slices.Collect(maps.Values(p.services))
		p.mu.Unlock()
		for _, s := range services {
			s.Recall()
		}
	}
	return nil
}
