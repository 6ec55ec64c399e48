// Package worqr is a peer-to-peer work queue on Redis. Every replica of a service embeds
// it; there is no server but Redis.
//
//	peer, err := worqr.Open("redis://localhost:6379", nil)
//	emails := peer.Queue("emails")
//	emails.Handle(send, &worqr.HandleOptions{Concurrency: 16, Timeout: time.Minute})
//	err = peer.Run(ctx) // until ctx ends; then drains and leaves
//
// and in this process or any other:
//
//	err = emails.Enqueue(ctx, []byte("hello"))
//
// # Terms
//
// A task is a unit of work; its payload is raw bytes. A queue is a first-in, first-out list
// of tasks, with a schedule beside it: tasks that have a key or a time, and those that wait
// for a retry. When due, these start before the list. An attempt is one run of a task. A
// worker is a registered peer. It renews its lease with heartbeats. A worker whose lease
// expires is evicted, and its tasks return to the front of their queues.
//
// # Guarantees
//
// Delivery is at least once. A task runs again if its worker died, or was cut off, before
// the task's end was stored. Each attempt has a token, and Redis records at most one
// outcome for each token. Tasks start in the order in which they were enqueued; those that
// return go to the front. A canceled task never runs again. No worker is evicted because
// Redis is down. Tasks of a killed process start again within 4.5 s at the defaults.
// docs/guarantees.md has the conditions.
//
// # Calls
//
// All methods are safe for concurrent use. Methods that take a context block until Redis
// answers or the context ends, and fail if Redis sends nothing for [Options.CallTimeout].
// If the call was sent and the reply lost, it may have taken effect: the error is
// [ErrUnknownOutcome]. With any other error, it had no effect.
//
// Iterators read a page at a time. They aren't snapshots, and stop after the first error.
// Printed or logged values never show payloads, keys or results.
package worqr

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Version is the version of this library, as a worker registers it.
const Version = "0.2.0-dev"

// The errors to match with errors.Is. Errors from Redis are wrapped unchanged.
var (
	// ErrNoTask: the queue is empty or paused.
	ErrNoTask = engine.ErrNoTask
	// ErrDuplicate: an equal unique task is waiting or running.
	ErrDuplicate = errors.New("worqr: duplicate: an equal unique task is waiting or running")
	// ErrNotStarted: call StartWorker or Run first.
	ErrNotStarted = fleet.ErrNotStarted
	// ErrNotWorking: call StartWork on the queue, or Handle and Run, first.
	ErrNotWorking = engine.ErrNotWorking
	// ErrNotOwner: this worker no longer holds the task; another one may be running it.
	ErrNotOwner = engine.ErrNotOwner
	// ErrEvicted: this worker was evicted, and its tasks may run elsewhere. The peer
	// rejoins under a new id.
	ErrEvicted = engine.ErrEvicted
	// ErrLeaseExpired: Redis didn't answer for nine tenths of the lease, so an Exclusive handler
	// must stop.
	ErrLeaseExpired = engine.ErrLeaseExpired
	// ErrCanceled: the task was canceled.
	ErrCanceled = engine.ErrCanceled
	// ErrTimeout: the attempt took longer than HandleOptions.Timeout.
	ErrTimeout = engine.ErrTimeout
	// ErrShutdown: the peer is shutting down or has shut down.
	ErrShutdown = engine.ErrShutdown
	// ErrBadName: the name of a queue, or a prefix, isn't allowed.
	ErrBadName = errors.New("worqr: bad name")
	// ErrInvalid: an option or an argument isn't valid; the error says which.
	ErrInvalid = errors.New("worqr: invalid argument")
	// ErrTooLarge: something is over its limit, and nothing was sent. It comes with ErrInvalid or
	// ErrBadName.
	ErrTooLarge = errors.New("worqr: too large")
	// ErrUnknownOutcome: the reply was lost. It's safe to repeat Put, EnqueueOnce and the
	// methods of Task.
	ErrUnknownOutcome = errors.New("worqr: the outcome is unknown")
	// ErrEvictionPolicy: a full Redis would evict tasks. Set maxmemory-policy noeviction.
	ErrEvictionPolicy = fleet.ErrEvictionPolicy
	// ErrDenied: the Redis user lacks a permission. docs/security.md has a rule for each role.
	ErrDenied = errors.New("worqr: permission denied")
)

// A Pool provides connections, as *redis.Pool of github.com/gomodule/redigo does. A peer
// keeps a few of them; docs/options.md says how many. A *redis.Pool only dials them, so its
// limits don't apply. GetContext must not call the peer's methods: they may time out. For
// large payloads over slow links, prefer Open.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// Options configure a Peer. A zero field means the default. docs/options.md says more.
type Options struct {
	// Prefix is the start of every key and channel name; "" is "worqr". Fleets in different
	// databases of one Redis each need their own prefix.
	Prefix string
	// Name is a human-readable name, shown next to the worker's id; "" is host:pid.
	Name string
	// Lease is how long this peer may be silent before others take over its tasks; 0 is 3 s,
	// negative never expires. Use the same for all peers of a queue.
	Lease time.Duration
	// Drain is how long handlers may keep running once Run's context ends; 0 is 25 s,
	// negative is no time.
	Drain time.Duration
	// Capacity is how many units all handlers together may occupy, each task as many as its
	// queue's Weight; 0 is no limit.
	Capacity int
	// CallTimeout is how long a call waits while Redis sends nothing; 0 is 5 s. Each MiB of
	// payload adds a second.
	CallTimeout time.Duration
	// MaxPayload is the size in bytes of the largest payload that this peer enqueues; 0 is
	// DefaultMaxPayload.
	MaxPayload int
	// MaxResult is the size in bytes of the largest Task.Result that observers get; 0 is 1 MiB.
	// A task with a larger one still finishes.
	MaxResult int
	// TLSConfig configures rediss:// connections of Open. It must not change afterwards.
	TLSConfig *tls.Config
	// Logger receives log records; nil is slog.Default. One goroutine calls it, so a slow Logger
	// delays only the log.
	Logger *slog.Logger
	// FailureLog says which failures of handlers are logged.
	FailureLog FailureLog
}

const (
	defaultLease = 3 * time.Second
	defaultDrain = 25 * time.Second
	shortest     = 150 * time.Millisecond // lease
	shortestCall = 10 * time.Millisecond

	defaultMaxResult = 1 << 20 // bytes
)

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	host, _ := os.Hostname() // for people only
	c.Name = cmp.Or(c.Name, fmt.Sprintf("%s:%d", host, os.Getpid()))
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	c.CallTimeout = cmp.Or(c.CallTimeout, store.DefaultTimeout)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxResult = cmp.Or(c.MaxResult, defaultMaxResult)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (o *Options) check() error {
	if err := store.CheckPrefix(o.Prefix); err != nil {
		return badName("prefix", o.Prefix, err)
	}
	if o.Lease > 0 && o.Lease < shortest {
		return fmt.Errorf("%w: Lease %v is below the minimum of %v", ErrInvalid, o.Lease, shortest)
	}
	if o.CallTimeout < shortestCall {
		return fmt.Errorf("%w: CallTimeout %v is below the minimum of %v", ErrInvalid, o.CallTimeout, shortestCall)
	}
	if o.Capacity < 0 {
		return fmt.Errorf("%w: Capacity %d is negative; 0 means no limit", ErrInvalid, o.Capacity)
	}
	if o.MaxPayload < 0 || o.MaxPayload > MaxPayloadSize {
		return fmt.Errorf("%w: MaxPayload %d isn't between 1 and %d bytes; 0 means %d", ErrInvalid, o.MaxPayload, MaxPayloadSize, DefaultMaxPayload)
	}
	if o.MaxResult < 0 || o.MaxResult > MaxPayloadSize {
		return fmt.Errorf("%w: MaxResult %d isn't between 1 and %d bytes; 0 means %d", ErrInvalid, o.MaxResult, MaxPayloadSize, defaultMaxResult)
	}
	if o.FailureLog < LogLimited || o.FailureLog > LogPanics {
		return fmt.Errorf("%w: unknown FailureLog %d", ErrInvalid, o.FailureLog)
	}
	return nil
}

func (o *Options) capacity() int {
	if o == nil {
		return 0
	}
	return o.Capacity
}

// A Peer is one member of the fleet.
type Peer struct {
	opts  Options
	bad   error // why the peer cannot be used
	space store.Space
	log   *logs.Log

	lines    *store.Lines
	calls    store.Runner // of these, for what producers and read-outs send
	producer *store.Producer
	capacity *capacity.Capacity
	engine   *engine.Engine
	fleet    *fleet.Fleet

	shutdown context.Context // ends when Shutdown is called
	shut     context.CancelFunc
	ended    chan struct{} // closed when Run has returned

	starting chan struct{} // has an element while the worker starts or stops

	mu       sync.Mutex          // protects the fields below
	ran      bool                // Run was called
	running  bool                // and has not returned
	closed   bool                // Close was called, and the peer wasn't running
	services map[string]*service // by queue
}

// Open returns a peer for the Redis at url: redis://[[user]:password@]host[:port][/db],
// rediss:// for TLS, or unix:///path[?db=n]. It does no I/O. A name without a colon is the
// password, as in redis-cli.
func Open(url string, opts *Options) (*Peer, error) {
	var config *tls.Config
	if opts != nil {
		config = opts.TLSConfig
	}
	dial, err := store.DialURL(url, config)
	if err != nil {
		return nil, wrap("open", fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	p := newPeer(dial, store.Lanes, opts)
	p.log.Server = store.Address(url)
	if p.bad != nil {
		return nil, wrap("open", p.bad)
	}
	return p, nil
}

// New returns a peer that gets its connections from pool, and does no I/O. It panics if pool
// is nil; methods report other invalid options.
func New(pool Pool, opts *Options) *Peer {
	if p, ok := pool.(*redis.Pool); pool == nil || ok && p == nil {
		panic("worqr: New needs a pool")
	}
	dial, lanes := store.DialPool(pool)
	return newPeer(dial, lanes, opts)
}

func newPeer(dial store.Dial, lanes int, opts *Options) *Peer {
	p := &Peer{
		opts:     opts.withDefaults(),
		capacity: capacity.New(opts.capacity()),
		services: map[string]*service{},
		ended:    make(chan struct{}),
		starting: make(chan struct{}, 1),
	}
	p.bad = p.opts.check()
	p.space = store.SpaceOf(p.opts.Prefix)
	p.log = logs.New(p.opts.Logger)
	p.lines = store.NewLines(dial, lanes, p.log, p.opts.CallTimeout, p.opts.beat())
	p.calls = p.lines.Calls
	p.producer = store.NewProducer(p.lines, p.space, p.log)
	p.engine = engine.New(engine.Config{
		Log: p.log, Capacity: p.capacity, Failures: engine.FailurePolicy(p.opts.FailureLog), Lease: engine.LeaseOf(p.opts.Lease),
		CallTimeout: p.opts.CallTimeout, MaxResult: p.opts.MaxResult, StuckChanged: func() { p.fleet.Announce() },
	})
	p.fleet = fleet.New(fleet.Config{
		Lines: p.lines, Space: p.space, Log: p.log, Engine: p.engine, Lease: p.opts.Lease, Name: p.opts.Name, Version: Version,
		Describe: describe, CameBack: p.producer.Forget,
	})
	p.shutdown, p.shut = context.WithCancel(context.Background())
	return p
}

// WorkerID returns the worker's current id. It changes when the peer is evicted and comes back.
func (p *Peer) WorkerID() string { return p.fleet.ID() }

// Close stops the worker, as StopWorker does, and closes the connections that the peer has
// opened, but no Pool. It blocks for at most 2*CallTimeout+7 s. Until Run has returned,
// it does nothing and fails with ErrInvalid. Other calls fail with ErrShutdown afterwards.
func (p *Peer) Close() error {
	p.mu.Lock()
	running := p.running
	if !running {
		p.closed = true
		p.shut() // Run, called now, fails
	}
	p.mu.Unlock()
	if running {
		return wrap("close", errRunning)
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	err := wrap("stop worker", p.alone(ctx, func() error { return p.stopWorker(ctx) }))
	if errors.Is(err, ErrNotStarted) {
		err = nil
	}
	p.lines.Close()
	p.flushLog()
	return err
}

// flushLog logs what limits have left out so far, and waits until it is written.
func (p *Peer) flushLog() {
	p.engine.Flush()
	p.producer.Flush()
	p.log.Flush()
}

var errRunning = fmt.Errorf("%w: Run has not returned; end its context, or call Shutdown", ErrInvalid)

func (p *Peer) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// A Queue is a handle to one queue. Handles are cheap.
type Queue struct {
	peer *Peer
	name string
	id   string // the name, or what tells its failed queue from it
	keys store.Keys
	bad  error
}

// Queue returns a handle to the queue. It does no I/O. A name has 1 to 255 bytes and no
// braces, spaces or control bytes; otherwise methods fail with ErrBadName.
func (p *Peer) Queue(name string) *Queue {
	q := &Queue{peer: p, name: name, id: name, keys: p.space.Queue(name), bad: p.bad}
	if err := store.CheckName(name); err != nil && q.bad == nil {
		q.bad = badName("queue", name, err)
	}
	return q
}

// badName is the error of a name that cannot be that of what it is for.
func badName(what, name string, err error) error {
	if len(name) > store.MaxName {
		return fmt.Errorf("%w: %w: %s: %w", ErrBadName, ErrTooLarge, what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrBadName, what, err)
}

// store is the queue for who serves it.
func (q *Queue) store() *store.Served {
	return &store.Served{Lines: q.peer.lines, Name: q.name, ID: q.id, Keys: q.keys}
}

// served is the queue for the engine.
func (q *Queue) served() *engine.Queue {
	return q.peer.engine.Queue(q.store(), engine.Options{MaxCrashes: defaultCrashes, Keep: defaultKeepFailed},
		func(ctx context.Context) error { return q.peer.producer.Haul(ctx, q.target()) })
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// wrap makes err an error of the verb on the queue. It is called once, at the
// exported edge.
func (q *Queue) wrap(verb string, err error) error { return wrapOn(q.name, verb, err) }

func wrapOn(queue, verb string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(fmt.Sprintf("%s on %.*q", verb, store.MaxName, queue), err)
}

// describe does so for the fleet, whose errors may be of no queue.
func describe(verb, queue string, err error) error {
	if queue == "" {
		return wrap(verb, err)
	}
	return wrapOn(queue, verb, err)
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return &verbError{verb, public(err)}
}

// A verbError says what could not be done.
type verbError struct {
	verb string
	err  error
}

func (e *verbError) Error() string {
	return "worqr: " + e.verb + ": " + strings.ReplaceAll(e.err.Error(), "worqr: ", "")
}

func (e *verbError) Unwrap() error { return e.err }

// public adds the sentinel that stands for an internal error.
func public(err error) error {
	switch err = logs.WithoutInput(err); {
	case errors.Is(err, store.ErrUnknown) && !errors.Is(err, ErrUnknownOutcome): // it may be that of a call within
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrForgotten):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrEvicted), errors.Is(err, store.ErrStale):
		return ErrEvicted
	case errors.Is(err, store.ErrDuplicate):
		return ErrDuplicate
	case store.IsFull(err) && !errors.Is(err, errFull):
		return fmt.Errorf("%w: %w", errFull, err)
	case store.IsDenied(err) && !errors.Is(err, ErrDenied):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case errors.Is(err, store.ErrClosed) && !errors.Is(err, ErrShutdown):
		return fmt.Errorf("%w: %w", ErrShutdown, err)
	}
	return err
}

// errFull is why Redis refuses what needs memory.
var errFull = errors.New("there is no memory left in Redis; raise its maxmemory, or try again when workers have caught up")

// PeerStats counts what a peer has done since it was created.
type PeerStats struct {
	Started         int64 // tasks passed to a handler, or returned by StartTask
	Finished        int64
	Stopped         int64 // returned to the front after they had started
	Canceled        int64 // ended because they were canceled
	Retried         int64 // attempts that ended with a retry
	Failed          int64 // moved to the failed queue
	Dropped         int64 // dropped from a full failed queue (HandleOptions.KeepFailed)
	TakenOver       int64 // taken over by another worker, or ended too late
	HandlerErrors   int64 // panics included
	WorkersEvicted  int64 // by this peer
	TasksReturned   int64 // of evicted workers
	TimesEvicted    int64
	RunningHandlers int64
	StuckHandlers   int64 // handlers that were abandoned and haven't returned
}

// Stats returns the counters of this process. It does no I/O.
func (p *Peer) Stats() PeerStats {
	c, f := p.engine.Counts(), p.fleet.Counts()
	return PeerStats{
		Started: c.Started.Load(), Finished: c.Finished.Load(), Stopped: c.Stopped.Load(),
		Canceled: c.Canceled.Load(), TakenOver: c.Lost.Load(), HandlerErrors: c.Failures.Load(),
		WorkersEvicted: f.Swept.Load(), TasksReturned: f.Returned.Load(), TimesEvicted: f.Evicted.Load(),
		RunningHandlers: c.Running.Load(), Retried: c.Retried.Load(), Failed: c.Failed.Load(), Dropped: c.Dropped.Load(), StuckHandlers: c.Stuck.Load(),
	}
}

// beat is the time between two beats.
func (o *Options) beat() time.Duration { return engine.LeaseOf(o.Lease).Beat }

// A FailureLog says which failures of handlers a peer logs.
type FailureLog int

const (
	// LogLimited logs up to 20 failures a second for a queue and 50 for the peer, then their
	// number.
	LogLimited FailureLog = iota
	// LogAll logs every failure, unless the Logger can't keep up.
	LogAll
	// LogPanics logs panics only, as LogLimited does.
	LogPanics
)
