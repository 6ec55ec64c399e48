package worqr

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/worqr/worqr/internal/batch"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/jsontext"
	"github.com/worqr/worqr/internal/program"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
)

// A Handler works on one task. Its result decides the outcome:
//
//	nil                  finished
//	an error             retried after Backoff; after MaxRetries, failed
//	RetryAfter(err, d)   retried after d; after MaxRetries, failed
//	Snooze(d)            started again after d; not a retry
//	Permanent(err)       failed
//	Malformed(err)       failed: its payload can't be decoded
//	a panic              see OnPanic; the peer survives
//
// A failed task moves to the failed queue. The context ends when the handler should stop;
// context.Cause is ErrCanceled, ErrTimeout, ErrEvicted, ErrLeaseExpired or, after Options.Drain,
// ErrShutdown. Even then, nil finishes the task. A handler that doesn't return within Grace loses
// its slot, and its task ends as if it had returned the cause.
//
// Handlers must be idempotent: a task may have run before. Pass t.Token to other systems so that
// they can reject late writes.
type Handler func(ctx context.Context, t *Task) error

// HandleOptions configure a handler. A zero field means the default. See docs/handlers.md.
type HandleOptions struct {
	// Concurrency is how many tasks of the queue run at once; 0 is GOMAXPROCS, which is low for
	// handlers that mostly wait.
	Concurrency int
	Timeout     time.Duration // ends an attempt's context with ErrTimeout; 0 is no limit
	Grace       time.Duration // how long a handler may run once its context has ended; 0 is 10 s
	MaxRetries  int           // before a task fails for good; 0 is 10, negative none
	MaxCrashes  int           // a task fails after this many workers died holding it; 0 is 3, negative never
	// Backoff returns the delay before t is retried after err. Nil is 2 s, doubling to 5 min,
	// ±25 %. It must be safe for concurrent use, and not change t.Payload.
	Backoff func(t *Task, err error) time.Duration
	// Exclusive makes the context end before another peer can start the task; see
	// docs/guarantees.md for exceptions. Without it, handlers keep running while Redis is down.
	Exclusive  bool
	OnPanic    PanicPolicy
	KeepFailed int // how many failed tasks the queue keeps, the newest; 0 is 1,000
	// OnFailed, if set, handles failed tasks: if it returns nil, the task is deleted; with Permanent, it stays
	// failed; otherwise it's retried. OnFailedOptions default to Concurrency 1, MaxRetries 100, and Backoff 10 s,
	// doubling to 15 min.
	OnFailed        Handler
	OnFailedOptions *HandleOptions
	Priority        int // of queues that compete for Options.Capacity: higher goes first
	Weight          int // units of Options.Capacity that a task occupies; 0 is 1
	// Prefetch is how many tasks a peer may hold beyond those that run, at most 1,024; 0 adapts to
	// the handlers' pace, negative is none.
	Prefetch int
}

const (
	defaultGrace      = 10 * time.Second
	defaultRetries    = 10
	defaultCrashes    = 3
	defaultKeepFailed = 1000
	failedRetries     = 100
	maxUnits          = 1 << 30
	maxPrefetch       = 1024
)

// withDefaults replaces zero fields with their defaults.
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
		c.Backoff = func(t *Task, _ error) time.Duration { return verdict.DefaultBackoff(t.Retries) }
	}
	return c
}

// forEngine converts the options of a queue's handler for the engine. If followed, OnFailed
// handles the failed tasks, and all are kept.
func (o *HandleOptions) forEngine(q *Queue, followed bool) engine.Options {
	backoff, keep := o.Backoff, o.KeepFailed
	if followed {
		keep = 0
	}
	return engine.Options{
		Concurrency: o.Concurrency, Timeout: o.Timeout, Grace: o.Grace, MaxCrashes: o.MaxCrashes,
		Policy: verdict.Policy{MaxRetries: o.MaxRetries, FailOnPanic: o.OnPanic == FailOnPanic},
		Keep:   keep, Exclusive: o.Exclusive,
		Priority: o.Priority, Weight: o.Weight, Prefetch: o.Prefetch,
		Backoff: func(a *engine.Attempt, err error) time.Duration { return backoff(taskOf(q.name, a), err) },
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
		c.Backoff = func(t *Task, _ error) time.Duration {
			return verdict.Doubling(t.Retries, 10*time.Second, 15*time.Minute)
		}
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
		return fmt.Errorf("%w: Weight %d is above Capacity %d", ErrInvalid, o.Weight, capacity)
	case f != nil && (f.OnFailed != nil || f.OnFailedOptions != nil || f.KeepFailed != 0):
		return fmt.Errorf("%w: OnFailedOptions can't have OnFailed, OnFailedOptions or KeepFailed", ErrInvalid)
	}
	if err := f.check(capacity); err != nil {
		return fmt.Errorf("options of OnFailed: %w", err)
	}
	return nil
}

// Use adds functions that wrap every handler, OnFailed too; the first is outermost. Call it before
// Handle: it panics if a queue has a handler.
func (p *Peer) Use(wraps ...func(Handler) Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case slices.ContainsFunc(wraps, func(w func(Handler) Handler) bool { return w == nil }):
		panic("worqr: a function passed to Use is nil")
	case len(p.services) > 0:
		panic("worqr: Use after Handle")
	}
	p.wraps = append(p.wraps, wraps...)
}

// wrapped wraps h in the functions passed to Use.
func (q *Queue) wrapped(h Handler) Handler {
	q.peer.mu.Lock()
	wraps := slices.Clone(q.peer.wraps)
	q.peer.mu.Unlock()
	for _, w := range slices.Backward(wraps) {
		if h = w(h); h == nil {
			panic(fmt.Sprintf("worqr: the handler of %q is nil: a function passed to Use returned nil", q.name))
		}
	}
	return h
}

// Handle makes h the only handler of the queue, which the peer serves while Run is running. It
// panics if the queue has a handler or was joined by StartWork, if h is nil, or if an option isn't
// valid. If the queue's name is bad, Run fails; once Run has been called, Handle panics instead.
func (q *Queue) Handle(h Handler, opts *HandleOptions) {
	q.check(h, opts)
	q.serve(h, opts.withDefaults(), nil)
}

// check panics if the arguments of Handle aren't valid.
func (q *Queue) check(h Handler, opts *HandleOptions) {
	err := opts.check(q.peer.capacity.Total())
	switch {
	case h == nil:
		panic(fmt.Sprintf("worqr: the handler of %q is nil", q.name))
	case err != nil:
		panic(wrap(fmt.Sprintf("options for the handler of %q", q.name), err).Error())
	case opts != nil && opts.OnFailedOptions != nil && opts.OnFailed == nil:
		panic(fmt.Sprintf("worqr: options for the handler of %q: OnFailedOptions is set without OnFailed", q.name))
	}
}

// serve registers a handler. If b isn't nil, it gathers the tasks into batches.
func (q *Queue) serve(h Handler, o HandleOptions, b *batches) {
	p := q.peer
	main := q.handled(q.wrapped(h), o.forEngine(q, o.OnFailed != nil))
	main.batches = b
	added := []*service{main}
	if o.OnFailed != nil {
		of, f := o.forFailed(), q.failed()
		added = append(added, f.handled(q.wrapped(o.OnFailed), of.forEngine(f, false)))
	}

	wanted := p.fleet.Wants(q.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.services[q.id] != nil:
		panic(fmt.Sprintf("worqr: %q already has a handler", q.name))
	case wanted && p.leaving[q.id] == nil:
		panic(fmt.Sprintf("worqr: Handle for %q after StartWork", q.name))
	case p.ran && q.bad != nil: // otherwise Run returns the error
		panic(fmt.Sprintf("worqr: Handle for %.*q: %v", store.MaxName, q.name, q.bad))
	}
	for _, s := range added {
		p.services[s.queue.id] = s
		if p.base != nil {
			s.setBase(p.base)
		}
	}
	p.changedLocked()
}

// SetOptions replaces all options of a handled queue. Running attempts keep their Timeout and
// Grace. OnFailed must be nil, and Exclusive can't change.
func (q *Queue) SetOptions(opts *HandleOptions) error {
	p := q.peer
	p.mu.Lock()
	s, f := p.services[q.id], p.services[q.failed().id]
	p.mu.Unlock()
	o := opts.withDefaults()
	if s != nil && s.batches != nil {
		o = s.batches.options(opts)
	}
	of := o.forFailed()
	err := opts.check(p.capacity.Total())
	switch {
	case err != nil:
	case s == nil:
		err = errors.New("the queue has no handler")
	case o.OnFailed != nil:
		err = errors.New("OnFailed can't be changed; leave it nil")
	case s.batches != nil && o.Timeout != 0 && o.Timeout <= s.batches.wait:
		err = fmt.Errorf("the Timeout %v isn't above BatchOptions.Wait, %v, which is part of it", o.Timeout, s.batches.wait)
	case f == nil && o.OnFailedOptions != nil:
		err = errors.New("OnFailedOptions is set without OnFailed")
	case o.Exclusive != s.Options().Exclusive, f != nil && of.Exclusive != f.Options().Exclusive:
		err = errors.New("the option Exclusive can't be changed")
	}
	if err != nil && !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return q.wrap("set options", err)
	}
	s.SetOptions(o.forEngine(s.queue, f != nil))
	if b := s.batches; b != nil {
		b.use(o)
	}
	if f != nil {
		f.SetOptions(of.forEngine(f.queue, false))
	}
	p.fleet.Announce() // the number of slots
	return nil
}

// SetCapacity changes Options.Capacity for tasks that start later. It fails with ErrInvalid if
// units is negative.
func (p *Peer) SetCapacity(units int) error {
	if units < 0 {
		return wrap("set capacity", fmt.Errorf("%w: Capacity %d is negative; 0 means no limit", ErrInvalid, units))
	}
	p.capacity.SetTotal(units)
	p.capacity.Pass()
	if units > 0 { // with a capacity, nothing is prefetched
		p.mu.Lock()
		services := slices.Collect(maps.Values(p.services))
		p.mu.Unlock()
		for _, s := range services {
			s.Recall()
		}
	}
	return nil
}

// JSON returns a Handler that decodes the payload with json.Unmarshal. If that fails, the error
// is Malformed and h isn't called. It panics if h is nil.
func JSON[T any](h func(ctx context.Context, v T, t *Task) error) Handler {
	if h == nil {
		panic("worqr: JSON needs a handler")
	}
	return func(ctx context.Context, t *Task) error {
		var v T
		if err := json.Unmarshal(t.Payload, &v); err != nil {
			return Malformed(wrap("decode the payload", jsontext.Undecodable(err, reflect.TypeFor[T](), len(t.Payload))))
		}
		return h(ctx, v, t)
	}
}

// Mux returns a Handler that calls the handler for the task's "type" header, or for "" if it has
// none. An unknown type is an error, so the task is retried: a newer peer may know it. Mux copies
// the map, and panics if a handler is nil.
func Mux(handlers map[string]Handler) Handler {
	handlers = maps.Clone(handlers)
	if len(handlers) == 0 {
		panic("worqr: Mux has no handlers")
	}
	for typ, h := range handlers {
		if h == nil {
			panic(fmt.Sprintf("worqr: the handler for type %q is nil", typ))
		}
	}
	return func(ctx context.Context, t *Task) error {
		typ, typed := t.Headers["type"]
		switch h := handlers[typ]; {
		case h != nil:
			return h(ctx, t)
		case !typed:
			return errors.New("worqr: the task has no \"type\" header, and Mux has no handler for \"\"")
		default:
			return fmt.Errorf("worqr: Mux has no handler for type %.100q", typ)
		}
	}
}

const exitBroken = 65 // EX_DATAERR of sysexits.h

// Command returns a Handler that runs a program for each task, without a shell. The payload is its
// standard input; up to 1 MiB of its standard output becomes t.Result. Exit status 0 finishes the
// task, 65 is a Malformed error, and any other matches *exec.ExitError. When ctx ends, the
// program's process group is killed. docs/handlers.md lists its environment.
func Command(name string, args ...string) Handler {
	return CommandWith(CommandOptions{}, name, args...)
}

// CommandOptions configure CommandWith.
type CommandOptions struct {
	// Env adds to the program's environment: NAME=value, or NAME for the peer's own variable.
	Env []string
}

// CommandWith is Command with options.
func CommandWith(o CommandOptions, name string, args ...string) Handler {
	if name == "" {
		panic("worqr: Command has no program")
	}
	args, more := slices.Clone(args), slices.Clone(o.Env)
	return func(ctx context.Context, t *Task) error {
		output, err := program.Run(ctx, program.Program{Name: name, Args: args, Input: t.Payload, Env: environment(t, more)})
		if err == nil {
			t.Result = output
			return nil
		}
		exit, exited := errors.AsType[*exec.ExitError](err)
		err = wrap(fmt.Sprintf("run %q", name), err)
		if exited && exit.ExitCode() == exitBroken {
			return Malformed(err)
		}
		return err
	}
}

// environment returns the environment of a program that handles the task. Whatever the options add,
// it never has another task's variables.
func environment(t *Task, more []string) []string {
	return program.Environment(more, [][2]string{
		{"WORQR_QUEUE", t.Queue},
		{"WORQR_ATTEMPT", t.AttemptID},
		{"WORQR_TOKEN", strconv.FormatInt(t.Token, 10)},
		{"WORQR_KEY", t.Key},
		{"WORQR_RETRIES", strconv.Itoa(t.Retries)},
		{"WORQR_CRASHES", strconv.Itoa(t.Crashes)},
	})
}

// A BatchHandler works on several tasks at once, oldest first, and returns an error for each, as a
// [Handler] does; nil finishes all. A panic, or a wrong number of errors, fails every task's attempt.
// The context ends once every task's context has; t.Context() belongs to a single task.
type BatchHandler func(ctx context.Context, tasks []*Task) []error

// BatchOptions configure a BatchHandler.
type BatchOptions struct {
	// HandleOptions apply to each task: Timeout and Grace include Wait, and OnFailed gets tasks
	// one by one. Concurrency is how many batches run at once; 0 is 1. With an Options.Capacity
	// below Size*Weight, batches don't fill up.
	HandleOptions
	Size int // maximum tasks of a batch, up to 10,000; 0 is 100
	// Wait is how long a task waits for a batch to fill; 0 is 100 ms, negative is not at all.
	// Draining ends the wait.
	Wait time.Duration
}

const (
	defaultBatch = 100
	maxBatch     = 10_000
	defaultWait  = 100 * time.Millisecond
)

// HandleBatch is Handle for batches. Functions passed to Use wrap each task's handler, which
// returns once its batch has run. SetOptions replaces the HandleOptions; Size and Wait stay.
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

// options returns opts with defaults, and room for the tasks of all batches.
func (b *batches) options(opts *HandleOptions) HandleOptions {
	o := opts.withDefaults()
	o.Concurrency = b.size
	if opts != nil {
		o.Concurrency *= min(max(opts.Concurrency, 1), maxUnits/b.size)
	}
	return o
}

// use applies the options that concern batches.
func (b *batches) use(o HandleOptions) { b.Set(o.Concurrency/b.size, o.Grace) }

// handle is the Handler of each task. It waits until the task's batch has run.
func (b *batches) handle(ctx context.Context, t *Task) error {
	t.ctx = ctx
	base := ctx
	if t.attempt != nil { // otherwise a function passed to Use made the task
		base = t.attempt.Context() // without values that Use's functions added for one task
	}
	return b.Run(batch.Item[*Task]{Task: t, Order: t.Token, Context: ctx, Base: base, Draining: t.Draining()})
}
