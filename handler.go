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
	"strings"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/program"
	"github.com/worqr/worqr/internal/store"
)

// A Handler works on one task. What it returns decides what happens to the task:
//
//	nil                  finished
//	an error             retried after Backoff; after MaxRetries, failed
//	RetryAfter(err, d)   retried after d; after MaxRetries, failed
//	Permanent(err)       failed
//	Malformed(err)       failed: its payload can't be decoded
//	a panic              see OnPanic; the peer survives
//
// A failed task moves to the failed queue. The context ends when the handler should stop,
// and context.Cause says why:
//
//	ErrCanceled       the task was canceled and won't run again
//	ErrTimeout        the attempt exceeded Timeout; the task is retried
//	ErrEvicted        this peer was evicted; another may be running the task
//	ErrLeaseExpired   Redis didn't answer in time; another may run the task
//	ErrShutdown       Options.Drain is over; the task returns to the front
//
// Even then, returning nil finishes the task. A handler that doesn't return within Grace is
// disowned: its task ends as if it had returned the cause, and another task gets its slot.
//
// Handlers must be idempotent: a task may have run before, partly or completely. If that
// matters in another system, pass it t.Token and have it refuse lower tokens.
type Handler func(ctx context.Context, t *Task) error

// HandleOptions configure a handler. A zero field has its default. They apply when a task
// starts or ends. docs/options.md says more.
type HandleOptions struct {
	// Concurrency is how many tasks of the queue run at once; 0 is GOMAXPROCS, which is low
	// for handlers that mostly wait.
	Concurrency int
	// Timeout is how long an attempt may take before its context ends with ErrTimeout; 0 is
	// no limit.
	Timeout time.Duration
	// Grace is how long a handler may go on after its context has ended; 0 is 10 s.
	Grace time.Duration
	// MaxRetries is how often a failed task is retried before it goes to the failed queue;
	// 0 is 10, negative is no retries.
	MaxRetries int
	// MaxCrashes is how many workers may die holding a task before it fails; 0 is 3,
	// negative is no limit.
	MaxCrashes int
	// Backoff returns the delay before a retry, which counts from 1. Nil is 2 s, doubling to
	// 5 min, ±25 %. It must be safe for concurrent use.
	Backoff func(retry int) time.Duration
	// Exclusive ends the context before another peer can start the task. Without it, handlers
	// keep running while Redis is down.
	Exclusive bool
	// OnPanic decides what happens to a task whose handler panics.
	OnPanic PanicPolicy
	// KeepFailed is how many failed tasks the queue keeps; 0 is 1,000. The oldest are dropped,
	// counted and logged.
	KeepFailed int
	// OnFailed, if set, handles the tasks of the failed queue. A task it finishes is
	// removed; if it returns an error, the task is retried.
	OnFailed Handler
	// OnFailedOptions are the options of OnFailed. There, Concurrency 0 is 1, MaxRetries 0 is
	// 100, and Backoff nil is 10 s, doubling to 15 min.
	OnFailedOptions *HandleOptions
	// Priority orders the peer's queues when they compete for Options.Capacity: higher goes
	// first. Every eighth task comes from the queue that has waited longest.
	Priority int
	// Weight is how many units of Options.Capacity a task occupies; 0 is 1.
	Weight int
	// Prefetch is how many tasks a peer may hold beyond those that run. 0 adapts to the
	// pace of the handlers and the round trip; negative is none. Set a positive number only
	// if all tasks are short.
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
		return fmt.Errorf("%w: Weight %d is above Capacity %d", ErrInvalid, o.Weight, capacity)
	case f != nil && (f.OnFailed != nil || f.OnFailedOptions != nil || f.KeepFailed != 0):
		return fmt.Errorf("%w: OnFailedOptions can't have OnFailed, OnFailedOptions or KeepFailed", ErrInvalid)
	}
	if err := f.check(capacity); err != nil {
		return fmt.Errorf("options of OnFailed: %w", err)
	}
	return nil
}

// Handle registers h as the queue's handler. Call it before Run, once for each queue. It
// panics if h is nil, an option isn't valid, the queue has a handler, or Run or StartWork was
// called.
func (q *Queue) Handle(h Handler, opts *HandleOptions) {
	p := q.peer
	err := opts.check(p.capacity.Total())
	switch {
	case h == nil:
		panic(fmt.Sprintf("worqr: the handler of %q is nil", q.name))
	case err != nil:
		panic(wrap(fmt.Sprintf("options for the handler of %q", q.name), err).Error())
	case opts != nil && opts.OnFailedOptions != nil && opts.OnFailed == nil:
		panic(fmt.Sprintf("worqr: options for the handler of %q: OnFailedOptions is set without OnFailed", q.name))
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

// SetOptions replaces all options of a handled queue. What runs keeps its Timeout and Grace.
// OnFailed must be nil, and Exclusive can't change. It doesn't block.
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
		err = errors.New("OnFailed can't be changed; leave it nil")
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
	s.SetOptions(o.forEngine(f != nil))
	if f != nil {
		f.SetOptions(of.forEngine(false))
	}
	return nil
}

// SetCapacity changes Options.Capacity; 0 is no limit. What runs isn't touched. It doesn't
// block, and fails with ErrInvalid if units is negative.
func (p *Peer) SetCapacity(units int) error {
	if units < 0 {
		return wrap("set capacity", fmt.Errorf("%w: Capacity %d is negative; 0 means no limit", ErrInvalid, units))
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

// A PanicPolicy decides what happens to a task whose handler panics. runtime.Goexit
// counts as an error.
type PanicPolicy int

const (
	// RetryOnPanic treats a panic as an error.
	RetryOnPanic PanicPolicy = iota
	// FailOnPanic treats a panic as a Permanent error.
	FailOnPanic
)

// A FailureKind says why a task is in the failed queue.
type FailureKind string

// The kinds of failure.
const (
	// FailureError: its retries were used up, or [Permanent] or [Task.Fail] ended it.
	FailureError FailureKind = FailureKind(store.Failed)
	// FailureMalformed: its payload can't be decoded.
	FailureMalformed FailureKind = FailureKind(store.Malformed)
	// FailureCrashed: too many workers died holding it.
	FailureCrashed FailureKind = FailureKind(store.Crashed)
)

// Permanent makes a handler's error final: the task goes to the failed queue. It returns nil
// if err is nil. If Permanent, Malformed and RetryAfter are nested, the outermost decides.
func Permanent(err error) error { return engine.Permanent(err) }

// Malformed is like Permanent, for a payload that can't be decoded: the failed task has the
// kind FailureMalformed. It returns nil if err is nil.
func Malformed(err error) error { return engine.Malformed(err) }

// RetryAfter wraps a handler's error so that the task is retried after d, not
// after Backoff's delay; at once if d is negative. MaxRetries still applies. It returns nil
// if err is nil.
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// failedBackoff is that of OnFailed: 10 s, doubling to 15 min.
func failedBackoff(retry int) time.Duration {
	return engine.Doubling(retry, 10*time.Second, 15*time.Minute)
}

// JSON returns a Handler that decodes the payload as json.Unmarshal does. If that fails, or
// more follows the value, the error is Malformed and h isn't called. It panics if h is nil.
func JSON[T any](h func(ctx context.Context, v T, t *Task) error) Handler {
	if h == nil {
		panic("worqr: JSON needs a handler")
	}
	return func(ctx context.Context, t *Task) error {
		var v T
		if err := json.Unmarshal(t.Payload, &v); err != nil {
			return Malformed(wrap("decode the payload", undecodable(err, reflect.TypeFor[T](), len(t.Payload))))
		}
		return h(ctx, v, t)
	}
}

// undecodable says why size bytes did not become a value of the type. Errors of
// encoding/json quote characters, numbers, keys and fields, and those of
// UnmarshalJSON methods may quote anything. So none of their text is used.
func undecodable(err error, into reflect.Type, size int) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON, at byte %d of %d", e.Offset, size)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := fieldOf(into, e.Field)
		if field != "" {
			field = "field " + field + ": "
		}
		found, _, _ := strings.Cut(e.Value, " ") // after a space, a number is quoted
		if !slices.Contains(kinds, found) {
			found = "something else"
		}
		return fmt.Errorf("not a %v: %swant %v, found %s, at byte %d of %d", into, field, e.Type, found, e.Offset, size)
	}
	return fmt.Errorf("not a %v: UnmarshalJSON failed with a %T", into, err)
}

// kinds are those of JSON.
var kinds = []string{"string", "number", "bool", "array", "object", "null"}

// fieldOf is the path to a field, through what is embedded, as far as the type knows
// it. What follows may be of the payload, as the keys of maps are.
func fieldOf(in reflect.Type, path string) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		seen := map[reflect.Type]bool{} // a type may hold nothing but itself: type tree []tree
		for (in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice || in.Kind() == reflect.Array || in.Kind() == reflect.Map) && !seen[in] {
			seen[in] = true
			in = in.Elem()
		}
		if in.Kind() != reflect.Struct {
			break
		}
		fields := reflect.VisibleFields(in)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return (f.IsExported() || f.Anonymous) && cmp.Or(tag, f.Name) == name
		})
		if i < 0 {
			break
		}
		known, in = append(known, name), fields[i].Type
	}
	return strings.Join(known, ".")
}

// EnqueueJSON encodes the values as json.Marshal does and enqueues them: all, or none if it
// fails. It fails as Enqueue does, and with ErrInvalid if a value can't be encoded.
func EnqueueJSON[T any](ctx context.Context, q *Queue, vs ...T) error {
	payloads := make([][]byte, len(vs))
	for i, v := range vs {
		p, err := json.Marshal(v)
		if err != nil {
			return q.wrap("enqueue", fmt.Errorf("%w: value %d of %d, a %T, can't be encoded as JSON: %s", ErrInvalid, i+1, len(vs), v, unencodable(err)))
		}
		payloads[i] = p
	}
	return q.Enqueue(ctx, payloads...)
}

// unencodable says why a value could not be encoded, without the text of the
// error, which may quote the value.
func unencodable(err error) string {
	if e, ok := errors.AsType[*json.MarshalerError](err); ok { // first: it may wrap the others
		return fmt.Sprintf("a method of %v fails", e.Type)
	}
	if e, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return fmt.Sprintf("JSON has no %v", e.Type)
	}
	return fmt.Sprintf("refused with a %T", err)
}

const exitBroken = 65 // EX_DATAERR of sysexits.h

// Command returns a Handler that runs a program for each task, without a shell. The program
// reads the payload from standard input; its standard output, up to 1 MiB, becomes
// t.Result. Exit status 0 finishes the task, 65 is a Malformed error, and any other is an
// error that matches *exec.ExitError. When ctx ends, its whole process group is killed.
//
// The environment has PATH, HOME and the like, and WORQR_QUEUE, WORQR_ATTEMPT, WORQR_TOKEN,
// WORQR_KEY, WORQR_RETRIES and WORQR_CRASHES. It has none of the peer's other variables,
// which may hold secrets. docs/options.md has the details.
func Command(name string, args ...string) Handler {
	return CommandWith(CommandOptions{}, name, args...)
}

// CommandOptions configure CommandWith.
type CommandOptions struct {
	// Env adds to the program's environment: NAME passes on the peer's variable, if it's set
	// when the program starts; NAME=value sets one.
	Env []string
}

// CommandWith is Command with options.
func CommandWith(o CommandOptions, name string, args ...string) Handler {
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

// environment is that of a program which handles the task. Whatever it is given besides,
// nothing in it is of another task.
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
