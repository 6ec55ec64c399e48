// Package worqr is a peer-to-peer work queue on Redis. Every replica of a
// service embeds it; there is no server but Redis.
//
// # Terms
//
// A task is a unit of work. Its payload is raw bytes. A queue is a first in, first
// out list of tasks. A worker, or peer, is one registered member of the fleet,
// normally one for each replica of a service. It renews its lease with a heartbeat
// every third of the lease. A worker whose lease expires is evicted, and its tasks
// return to the front of their queues.
//
// A queue has two lanes. The list has what Enqueue adds. The schedule
// has tasks with a key or a time, and those that wait to be retried. When due, they
// start before the list.
//
// An attempt, or run, is one start of a task until its end. Its id is the ID of a Task.
// Logs have it as process, which is also its name in Redis.
//
// # Quick start
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
// # Guarantees
//
// Delivery is at least once. A task runs again if its worker died, or was cut
// off, before the task's end was stored. Each start of a task has a token, and
// for each token at most one end is ever accepted: the calls of an evicted worker
// fail and have no effect.
//
// Tasks start in the order in which they were enqueued. Tasks of a worker that
// died, left or stopped them go back to the front, in the order in which they
// had been started.
//
// A task whose handler fails is retried later and doesn't block other tasks. After
// MaxRetries, or if workers keep dying while they hold it, it moves to the failed
// queue, with the reason. A task may have a key: then at most one runs under it at
// any time, and what is put in the meantime runs afterwards.
//
// A worker is evicted when it was silent for two thirds of its lease, and still is a
// third of a lease later, while Redis answered others all the time. An outage of Redis
// evicts nobody. Tasks of a killed process start again within 4.5 s at the defaults, if
// Redis answers within half a second, and if another peer of the queue survives and has
// been running for at least one lease. While connections keep being cut, about every
// 2 s, it takes up to three leases.
//
// When Redis doesn't answer for nine tenths of the lease, Exclusive handlers are
// stopped (ErrLeaseExpired), though nobody may have been evicted, and their tasks start
// a second time. Other handlers run on.
//
// A canceled task never runs again, wherever it was.
//
// # Concurrency
//
// All methods are safe for concurrent use. Methods that take a context block
// until Redis has answered or the context ends. They fail when Redis has given no
// sign of life for Options.CallTimeout, five seconds by default, and with large
// payloads a second more for each MiB; a check of an idle connection, dialing another
// and waiting behind other calls are included. A method that makes several calls, as
// FailWorker does, has that time for each. An answer that keeps coming, by 64 KiB a
// second at least, is read to its end, however long that takes; on connections of a
// Pool it has CallTimeout for all of it. A call that was sent and cut off by its
// context, or whose reply was lost, may have been carried out; then its error is
// ErrUnknownOutcome. With any other error it was not.
//
// # Redis
//
// Redis 6.2 or later. Valkey should work but isn't tested. All keys and
// channels begin with the prefix; docs/protocol.md describes them, and how other
// languages take part.
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

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// Version is the version of this library, as shown in a worker's registration.
const Version = "0.2.0-dev"

// The errors to match with errors.Is. Redis's own errors are wrapped unchanged.
var (
	// ErrNoTask: the queue is empty, or paused.
	ErrNoTask = engine.ErrNoTask
	// ErrDuplicate: an equal unique task is waiting or running.
	ErrDuplicate = errors.New("worqr: duplicate: an equal unique task is waiting or running")
	// ErrNotStarted: call StartWorker (or Run) first.
	ErrNotStarted = fleet.ErrNotStarted
	// ErrNotWorking: call StartWork on the queue (or Handle and Run) first.
	ErrNotWorking = engine.ErrNotWorking
	// ErrNotOwner: this worker no longer holds the task; another one may be running it.
	ErrNotOwner = engine.ErrNotOwner
	// ErrEvicted: another peer, or FailWorker, has evicted this worker, and others run
	// its tasks. It comes back by itself under a new id.
	ErrEvicted = engine.ErrEvicted
	// ErrLeaseExpired: the peer couldn't renew its lease for nine tenths of it, since
	// Redis didn't answer, so another peer may start the task. It's the cause with which
	// the context of an Exclusive handler ends then, and that of a prefetched task that
	// begins just then. The peer need not have been evicted: if it wasn't, the task goes
	// back to the front, and starts a second time in any case.
	ErrLeaseExpired = engine.ErrLeaseExpired
	// ErrCanceled: the task was canceled.
	ErrCanceled = engine.ErrCanceled
	// ErrTimeout: the attempt took too long.
	ErrTimeout = engine.ErrTimeout
	// ErrShutdown: the peer is shutting down, or has.
	ErrShutdown = engine.ErrShutdown
	// ErrBadName: a queue's name or a prefix is not allowed.
	ErrBadName = errors.New("worqr: bad name")
	// ErrInvalid: an option or an argument makes no sense.
	ErrInvalid = errors.New("worqr: bad option")
	// ErrTooLarge: a payload, a batch, a name, a key or a nonce is over its limit,
	// which the error tells. Nothing was sent. It comes with ErrInvalid, or with
	// ErrBadName.
	ErrTooLarge = errors.New("worqr: too large")
	// ErrUnknownOutcome: the call was sent and its reply was lost, so it may have been
	// carried out. Calls on a task, and EnqueueOnce, may be repeated. CancelReport.Wait
	// fails with it when Redis has lost what it waits for.
	ErrUnknownOutcome = errors.New("worqr: the outcome is unknown")
	// ErrEvictionPolicy: Redis has a maxmemory at which it would evict lists, so tasks would
	// be lost, and the worker does not start. Set maxmemory-policy to noeviction, or
	// take another Redis. Only StartWorker and Run ask.
	ErrEvictionPolicy = fleet.ErrEvictionPolicy
	// ErrDenied: the Redis user lacks a permission. docs/security.md has a rule for each
	// role.
	ErrDenied = errors.New("worqr: permission denied")
)

// A Pool hands out connections to Redis. The *redis.Pool of
// github.com/gomodule/redigo/redis is one.
//
// A peer keeps a few connections for as long as it lives: one for beats, one
// for rounds of work, one for everything else, and one that is subscribed. Once
// many tasks flow it adds a second one for rounds, and does without where that
// cannot be had. A *redis.Pool is asked to dial them, so that they do not count
// against its limits; any other Pool is asked for them by GetContext.
//
// The read timeout with which a pool dials does not count: the peer sets its own,
// Options.CallTimeout, and a third of the lease for beats. The driver has it for the whole
// of a reply. So a task whose payload takes longer to come never begins, and is asked
// for again and again; Open knows what comes, and waits. A pool can do the same
// with a net.Conn that extends its read deadline when something has come
// (redis.DialContextFunc).
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// Options configure a Peer. Nil means the defaults, and so does a zero field.
type Options struct {
	// Prefix is the namespace of every key and channel; "" is "worqr". Channels aren't
	// per database: fleets in several databases of one Redis need a prefix each, or
	// a cancel in one stops equal tasks in the other.
	Prefix string
	// Name is a human-readable name, shown next to the worker's id. "" is host:pid.
	Name string
	// Lease is the silence after which other peers take our tasks; 0 is 3 s,
	// and at least 150 ms. A beat is sent every third of it. A peer that dies
	// is evicted two thirds of a lease later at the earliest, and one and a
	// third at the latest. Shorter leases recover faster, and evict peers after
	// shorter pauses. All peers of a queue should have the same: whoever joins
	// later logs a warning if they don't, and Check reports it. A negative lease never
	// lapses: only FailWorker ends it.
	Lease time.Duration
	// Drain is how long handlers may go on once Run's context ends; 0 is 25 s,
	// negative is not at all.
	Drain time.Duration
	// Capacity is how many units all handlers together may occupy, each task as
	// many as the Weight of its queue; 0 means no limit. Priority says which
	// queue goes first. SetCapacity changes it.
	Capacity int
	// CallTimeout is how long a call waits for a sign of life from Redis before it
	// fails; 0 is 5 s, and at least 10 ms. Heartbeats wait for a third of the lease
	// instead. A context that ends sooner ends a call sooner.
	CallTimeout time.Duration
	// MaxPayload is the size in bytes of the largest payload that this peer
	// enqueues; 0 is DefaultMaxPayload, 64 MiB, and the constant MaxPayloadSize, 512 MiB,
	// is the most. A larger payload is refused with ErrTooLarge before anything is
	// sent. What others have enqueued is not measured.
	MaxPayload int
	// MaxResult is the size in bytes of the largest Task.Result that observers get; 0
	// is 1 MiB, and the constant MaxPayloadSize is the most. A task with a larger result
	// still finishes, and EventDone has the result's length and digest.
	MaxResult int
	// TLS configures rediss:// connections of Open; New's pool has its own. Nil, and
	// each field that is not set, is the default: to trust the authorities of the
	// system (RootCAs), to want a certificate for the host of the URL (ServerName),
	// TLS 1.2 or later (MinVersion), and to show none (Certificates). It must not
	// change afterwards.
	TLSConfig *tls.Config
	// Logger gets the peer's log lines; nil is slog.Default. They never contain
	// payloads, keys or passwords. The peer calls it from one goroutine that does nothing
	// else, so a slow Logger delays only the log; when 10,000 lines wait, further ones
	// are counted and left out. Run, StopWorker and Close wait up to a second for the
	// last lines to be written.
	Logger *slog.Logger
	// FailureLog says which failures of handlers are logged: LogLimited, the default,
	// LogAll or LogPanics.
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
	c.CallTimeout = cmp.Or(c.CallTimeout, redisconn.DefaultTimeout)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxResult = cmp.Or(c.MaxResult, defaultMaxResult)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (o *Options) check() error {
	if err := keys.CheckPrefix(o.Prefix); err != nil {
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
	space keys.Space
	log   *logs.Log

	calls    *redisconn.Line    // what producers and read-outs send
	work     [2]*redisconn.Line // rounds: the second, while one is under way on the first
	control  *redisconn.Line    // beats, joins, leaves: never behind payloads
	sub      *redisconn.Subscriber
	damage   logs.Limiter // about batches
	capacity *capacity.Capacity
	engine   *engine.Engine
	fleet    *fleet.Fleet

	shutdown context.Context // ends when Shutdown is called
	shut     context.CancelFunc
	ended    chan struct{} // closed when Run has returned

	starting sync.Mutex // held while the worker starts or stops

	mu       sync.Mutex          // protects the fields below
	ran      bool                // Run was called
	running  bool                // and has not returned
	services map[string]*service // by queue
	backs    map[string]*back    // by the queue's id; nil until one is needed
}

// Open returns a peer for the Redis at url: redis://[[user]:password@]host[:port][/db],
// rediss:// for TLS, or unix:///path[?db=n]. It does no I/O; the first call
// that needs a connection makes it. It fails when the URL or an option is not
// valid. Close releases the connections. Fleets in several databases of one Redis
// need a [Options.Prefix] each.
//
// A name alone is a password, as redis-cli has it: redis://hunter2@host logs in as the
// default user, with hunter2. In users, passwords and paths, @ : / ? # % are written as
// %40 %3A %2F %3F %23 %25. The error of a URL names its part that is wrong, and repeats
// nothing of it.
//
// Whether Redis would evict tasks (ErrEvictionPolicy) is asked where a worker starts. A peer
// that only produces does not ask: it would need the right to, and a round trip. For
// a Redis at which no worker has started yet, Check tells.
func Open(url string, opts *Options) (*Peer, error) {
	var config *tls.Config
	if opts != nil {
		config = opts.TLSConfig
	}
	dial, err := redisconn.FromURLWithTLS(url, config)
	if err != nil {
		return nil, wrap("open", fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	p := newPeer(dial, opts)
	if p.bad != nil {
		return nil, wrap("open", p.bad)
	}
	return p, nil
}

// New returns a peer that gets its connections from pool. It does no I/O and
// starts nothing. It panics if pool is nil; other bad options are reported by
// every method that can fail. For large payloads over slow links prefer Open: see
// [Pool].
func New(pool Pool, opts *Options) *Peer {
	if pool == nil {
		panic("worqr: New needs a pool")
	}
	return newPeer(redisconn.FromPool(pool), opts)
}

func newPeer(dial redisconn.Dial, opts *Options) *Peer {
	p := &Peer{
		opts:     opts.withDefaults(),
		capacity: capacity.New(opts.capacity()),
		services: map[string]*service{},
		ended:    make(chan struct{}),
	}
	p.bad = p.opts.check()
	p.space = keys.NewSpace(p.opts.Prefix)
	p.log = logs.New(p.opts.Logger)
	p.damage = logs.Limiter{Say: p.log.Error, What: "worqr: more batches are damaged", Each: maxDamages, All: maxDamages}
	p.calls = redisconn.NewLine(dial, p.opts.CallTimeout).Verified()
	p.work = [2]*redisconn.Line{redisconn.NewLine(dial, p.opts.CallTimeout), redisconn.NewLine(dial, p.opts.CallTimeout)}
	p.control = redisconn.NewLine(dial, p.opts.beat())
	p.sub = redisconn.NewSubscriber(dial, p.log)
	p.engine = engine.New(engine.Config{
		Log: p.log, Capacity: p.capacity, Failures: engine.FailurePolicy(p.opts.FailureLog), Lease: engine.LeaseOf(p.opts.Lease),
		CallTimeout: p.opts.CallTimeout, MaxResult: p.opts.MaxResult, StuckChanged: func() { p.fleet.Announce() },
	})
	p.fleet = fleet.New(fleet.Config{
		Lines: p.lines(), Space: p.space, Log: p.log, Engine: p.engine, Lease: p.opts.Lease, Name: p.opts.Name, Version: Version,
		Describe: describe, CameBack: p.forget,
	})
	p.shutdown, p.shut = context.WithCancel(context.Background())
	return p
}

// ID returns the worker id of the present incarnation. It changes when the
// peer was evicted and has come back.
func (p *Peer) WorkerID() string { return p.fleet.ID() }

// Close stops the worker if StartWorker has started it, as StopWorker does, and
// closes the connections that the peer has opened; a Pool that was given stays
// open. Calls that need Redis fail with ErrShutdown afterwards. It blocks until what is
// under way has ended: up to twice CallTimeout where Redis doesn't answer. While Run has
// not returned it does nothing and fails: end Run's context, or call Shutdown, first.
func (p *Peer) Close() error {
	p.mu.Lock()
	running := p.running
	if !running {
		p.shut() // Run, called now, fails
	}
	p.mu.Unlock()
	if running {
		return wrap("close", errRunning)
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	p.starting.Lock()
	defer p.starting.Unlock()
	err := p.stopWorker(ctx)
	if errors.Is(err, ErrNotStarted) {
		err = nil
	}
	p.sub.Close()
	p.calls.Close()
	for _, l := range p.work {
		l.Close()
	}
	p.control.Close()
	p.flushLog()
	return err
}

// flushLog logs what limits have left out so far, and waits until it is written.
func (p *Peer) flushLog() {
	p.engine.Flush()
	p.damage.Flush()
	p.log.Flush()
}

var errRunning = fmt.Errorf("%w: Run has not returned; end its context, or call Shutdown", ErrInvalid)

func (p *Peer) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// A Queue is a handle to one queue. Handles are cheap and may be made anywhere.
type Queue struct {
	peer *Peer
	name string
	id   string // the name, or what tells its failed queue from it
	keys keys.Queue
	bad  error
}

// Queue returns a handle to the queue. It does no I/O. Names are not empty, at
// most 255 bytes, and contain no braces, spaces or control bytes; the methods
// of a handle with another name fail with ErrBadName.
func (p *Peer) Queue(name string) *Queue {
	q := &Queue{peer: p, name: name, id: name, keys: p.space.Queue(name), bad: p.bad}
	if err := keys.CheckName(name); err != nil && q.bad == nil {
		q.bad = badName("queue", name, err)
	}
	return q
}

// badName is the error of a name that cannot be that of what it is for.
func badName(what, name string, err error) error {
	if len(name) > keys.MaxName {
		return fmt.Errorf("%w: %w: %s: %w", ErrBadName, ErrTooLarge, what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrBadName, what, err)
}

// lines are the connections for who serves queues.
func (p *Peer) lines() *store.Lines {
	return &store.Lines{Calls: p.calls, Work: p.work, Control: p.control, Sub: p.sub}
}

// store is the queue for who serves it.
func (q *Queue) store() *store.Served {
	return &store.Served{Lines: q.peer.lines(), Name: q.name, ID: q.id, Keys: q.keys}
}

// served is the queue for the engine.
func (q *Queue) served() *engine.Queue {
	return q.peer.engine.Queue(q.store(), engine.Options{MaxCrashes: defaultCrashes, Keep: defaultKeepFailed}, q.haul)
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
	return wrap(fmt.Sprintf("%s on %.*q", verb, keys.MaxName, queue), err)
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
	case errors.Is(err, redisconn.ErrUnknown) && !errors.Is(err, ErrUnknownOutcome): // it may be that of a call within
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrForgotten):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrEvicted), errors.Is(err, store.ErrStale):
		return ErrEvicted
	case errors.Is(err, store.ErrDuplicate):
		return ErrDuplicate
	case redisconn.Denied(err) && !errors.Is(err, ErrDenied):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case errors.Is(err, redisconn.ErrClosed) && !errors.Is(err, ErrShutdown):
		return fmt.Errorf("%w: %w", ErrShutdown, err)
	}
	return err
}

// Stats are counters of what a peer has done since it was made.
type PeerStats struct {
	Started         int64 // tasks handed to a handler or a caller; not what is only held ahead
	Finished        int64
	Stopped         int64 // put back to the front after they were started
	Canceled        int64 // ended because they were canceled
	Retried         int64 // attempts that ended with a retry
	Failed          int64 // put into the failed queue
	Dropped         int64 // from the failed queue for good, since it was full (HandleOptions.KeepFailed)
	TakenOver       int64 // taken away from us, or ended by us too late
	HandlerErrors   int64 // handlers that returned an error or panicked
	WorkersEvicted  int64 // workers that this peer has evicted, each once, however many queues it served
	TasksReturned   int64 // tasks put back to the front for failed workers
	TimesEvicted    int64 // times that this peer was evicted
	RunningHandlers int64 // handlers running now
	StuckHandlers   int64 // handlers that were disowned and still have not returned
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

// granted is how long a beat keeps the lease from lapsing; 0 is forever.
func (o *Options) granted() time.Duration { return engine.LeaseOf(o.Lease).Grant }
