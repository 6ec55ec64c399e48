// Package worqr is a peer-to-peer work queue on Redis. Every replica of a service embeds it; Redis
// is the only server.
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
// A task is a unit of work; its payload is raw bytes. A queue has a first-in, first-out list of raw tasks,
// from Enqueue, and named tasks, from Add: those that are ready, in the order in which they became so, and
// a schedule of later ones and of retries. Raw tasks and ready named ones take turns. An attempt is one
// run of a task. A worker is a registered peer. It renews its lease with heartbeats; when the lease
// expires, it's evicted, and its tasks start again before others.
//
// # Guarantees
//
// Delivery is at least once: a task runs again if its worker dies or is cut off before the outcome
// is stored. Each attempt has a fencing token, and Redis records at most one outcome per token.
// Tasks start in the order they were enqueued. A canceled task never runs again. A Redis outage
// never evicts a worker. With default settings, a killed process's tasks start again within 4.5 s.
// docs/guarantees.md has the conditions.
//
// # Calls
//
// Methods are safe for concurrent use, except CancelReport's. Methods with a context block until
// Redis answers or the context ends, and fail if Redis is silent for [Options.CallTimeout];
// StartWorker, StartWork and CancelReport.Wait may take twice that. After [ErrUnknownOutcome], the call may
// have taken effect. After any other error, it hasn't. Three exceptions: calls on many tasks, such as
// Cancel, Delete and FailWorker, may be partly done; with an [OnceError], Add has added the other
// tasks; StopWorker, StopWork, Unhandle and Close stop even if Redis fails. Listings read a page at a
// time, aren't snapshots, and stop after the first error. Printed or logged values never show
// payloads, keys or results, except as [Options.LogKeys] says. Most result types are in package inspect, those for [Options.Trace] in
// worqrtrace.
package worqr

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/await"
	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/inbox"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/recur"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
	"github.com/worqr/worqr/worqrtrace"
)

// Scripts returns the Lua scripts that peers run, by name. In a cluster, some have a part more. Read them to see what
// runs in Redis, find one in the slow log by its SHA-1, or load them into the server of a test.
func Scripts() map[string]string {
	all := map[string]string{}
	for _, v := range store.Verbs() {
		all[v.Name] = v.Source()
	}
	return all
}

// Version is the version of this library.
const Version = "0.3.0-dev"

// Errors to match with errors.Is. Errors from Redis are wrapped unchanged.
var (
	// ErrNoTask: the queue is empty or paused.
	ErrNoTask     = engine.ErrNoTask
	ErrDuplicate  = errors.New("worqr: duplicate: an equal unique task is waiting or running")
	ErrNotStarted = fleet.ErrNotStarted  // call StartWorker or Run first
	ErrNotWorking = engine.ErrNotWorking // call StartWork, or Handle and Run, first
	ErrNotOwner   = engine.ErrNotOwner   // this worker no longer holds the task; another may be running it
	ErrEvicted    = engine.ErrEvicted    // this worker was evicted; its tasks may run elsewhere
	// ErrLeaseExpired: Redis was silent for nine tenths of the lease; see Exclusive.
	ErrLeaseExpired = engine.ErrLeaseExpired
	ErrCanceled     = engine.ErrCanceled            // the task won't run again
	ErrTimeout      = engine.ErrTimeout             // see HandleOptions.Timeout
	ErrShutdown     = engine.ErrShutdown            // also after Close
	ErrBadName      = errors.New("worqr: bad name") // of a queue or prefix
	ErrInvalid      = errors.New("worqr: invalid argument")
	ErrTooLarge     = errors.New("worqr: too large") // also matches ErrInvalid or ErrBadName
	// ErrUnknownOutcome: the reply was lost. You may repeat EnqueueOnce, Add with a Once or Key for each task, and a Task's methods.
	ErrUnknownOutcome = errors.New("worqr: the outcome is unknown")
	// ErrEvictionPolicy: a full Redis would evict tasks. Set maxmemory-policy noeviction.
	ErrEvictionPolicy = fleet.ErrEvictionPolicy
	ErrProtocol       = errors.New("worqr: incompatible protocol")  // other versions are running
	ErrUnreachable    = errors.New("worqr: Redis can't be reached") // returned by Ping
	ErrDenied         = errors.New("worqr: permission denied")      // to the Redis user; see docs/security.md
	ErrLogin          = errors.New("worqr: login refused")          // the user or the password is wrong
	// ErrNoResult: the key is unknown, or its task's result isn't kept or has expired.
	ErrNoResult = await.ErrNoResult
	ErrNotEnded = errors.New("worqr: the task hasn't ended") // a task waits or runs under the key
)

// A Pool provides connections. From a *redis.Pool, worqr takes only the dial function, not the
// limits. GetContext must not call the peer's methods. See docs/options.md.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// Options configure a Peer. A zero field means the default. See docs/options.md.
type Options struct {
	// Prefix starts every key and channel name; "" is "worqr". Each fleet on a server needs its
	// own, even in different databases.
	Prefix string
	Name   string // shown next to the worker's id, and as who paused a queue; "" is host:pid
	// Version is that of your service, up to 100 bytes: Deploys has the time when it first ran. "" is that of the build:
	// the name and the version of the main module, or the VCS revision.
	Version string
	// Lease is how long this peer may be silent before other peers take its tasks; 0 is 3 s,
	// negative is forever. Use one Lease for all peers of a queue.
	Lease    time.Duration
	Drain    time.Duration // how long handlers get once Run's context ends; 0 is 25 s, negative none
	Capacity int           // maximum total Weight of running tasks; 0 is no limit
	// CallTimeout is how long a call waits while Redis sends nothing; 0 is 5 s. Each MiB of
	// payload adds a second.
	CallTimeout time.Duration
	MaxPayload  int           // limit for enqueued payloads, in bytes; 0 is DefaultMaxPayload
	MaxResult   int           // limit for results in events and Queue.Result, in bytes; 0 is 1 MiB, the most
	DialTimeout time.Duration // for TCP and TLS, then login; 0 is 2 s
	TLSConfig   *tls.Config   // for Open; it must not change afterwards
	// Credentials, if set, returns the login for each new connection of Open. It must be safe
	// for concurrent use, and return when ctx ends.
	Credentials         func(ctx context.Context) (user, password string, err error)
	SentinelCredentials func(ctx context.Context) (user, password string, err error)
	Logger              *slog.Logger // nil is slog.Default
	FailureLog          FailureLog
	// LogKeys and LogHeaders add the key and the headers with these names to log lines about a task, up to 100 bytes
	// of each. Without them, such lines have only the header "type", which Mux uses.
	LogKeys    bool
	LogHeaders []string          // copied
	Trace      *worqrtrace.Trace // copied
	// NoHistory keeps this peer from writing what Queue.History and Deploys return.
	NoHistory bool
	// Sources report on what is built on worqr, to Check, the exporters in contrib, and the dashboard.
	Sources []inspect.Source // copied
}

const (
	defaultLease = 3 * time.Second
	defaultDrain = 25 * time.Second
	shortest     = 150 * time.Millisecond // of a lease
	shortestCall = 10 * time.Millisecond
	longestLease = 365 * 24 * time.Hour

	defaultMaxResult = 1 << 20 // bytes
	longestVersion   = 100     // bytes
)

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	host, _ := os.Hostname() // only for humans to read
	c.Name = cmp.Or(c.Name, fmt.Sprintf("%s:%d", host, os.Getpid()))
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	c.CallTimeout = cmp.Or(c.CallTimeout, store.DefaultTimeout)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxResult = cmp.Or(c.MaxResult, defaultMaxResult)
	c.Version = cmp.Or(c.Version, built())
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (o *Options) check() error {
	if err := store.CheckPrefix(o.Prefix); err != nil {
		return badName("prefix", o.Prefix, err)
	}
	switch {
	case o.Lease > 0 && (o.Lease < shortest || o.Lease > longestLease):
		return fmt.Errorf("%w: Lease %v isn't between %v and 365 days; a negative one never expires", ErrInvalid, o.Lease, shortest)
	case o.CallTimeout < shortestCall:
		return fmt.Errorf("%w: CallTimeout %v is below the minimum of %v", ErrInvalid, o.CallTimeout, shortestCall)
	case o.DialTimeout != 0 && o.DialTimeout < shortestCall:
		return fmt.Errorf("%w: DialTimeout %v is below the minimum of %v", ErrInvalid, o.DialTimeout, shortestCall)
	case o.Capacity < 0:
		return fmt.Errorf("%w: Capacity %d is negative; 0 means no limit", ErrInvalid, o.Capacity)
	case o.MaxPayload < 0 || o.MaxPayload > MaxPayloadSize:
		return fmt.Errorf("%w: MaxPayload %d isn't between 1 and %d bytes; 0 means %d", ErrInvalid, o.MaxPayload, MaxPayloadSize, DefaultMaxPayload)
	case o.MaxResult < 0 || o.MaxResult > defaultMaxResult:
		return fmt.Errorf("%w: MaxResult %d isn't between 1 and %d bytes; 0 means %d", ErrInvalid, o.MaxResult, defaultMaxResult, defaultMaxResult)
	case len(o.Version) > longestVersion:
		return fmt.Errorf("%w: Version has %d bytes; the limit is %d", ErrInvalid, len(o.Version), longestVersion)
	case o.FailureLog < LogLimited || o.FailureLog > LogPanics:
		return fmt.Errorf("%w: unknown FailureLog %d", ErrInvalid, o.FailureLog)
	}
	return checkSources(o.Sources)
}

// A Peer is one member of the fleet.
type Peer struct {
	opts  Options
	bad   error // why the peer can't be used
	space store.Space
	log   *logs.Log
	trace *tracing.Caller

	lines    *store.Lines
	calls    store.Runner // over lines, for producers' calls
	reads    store.Runner // like calls, for calls that change nothing
	producer *store.Producer
	capacity *capacity.Capacity
	engine   *engine.Engine
	fleet    *fleet.Fleet

	scribe    *scribe
	recurring *recur.Schedules
	sources   []inspect.Source // guarded

	inboxes inbox.All  // of Events
	ends    *await.Hub // for Wait

	shutdown context.Context // ends when Shutdown is called
	shut     context.CancelFunc
	ended    chan struct{} // closed when Run has returned

	starting chan struct{}  // holds a value while the worker starts or stops
	removals sync.WaitGroup // of handlers, while Run serves

	mu       sync.Mutex          // protects the fields below
	ran      bool                // Run was called
	running  bool                // Run is running
	closed   bool                // Close was called, and the peer wasn't running
	services map[string]*service // by queue
	serving  bool                // Run serves services
	draining bool                // Run has begun to drain
	base     context.Context     // of handlers, without its end; nil before Run
	changed  chan struct{}       // holds a value when services were added; capacity 1
	leaving  map[string]*leaving // by queue: handlers that Unhandle has removed and that haven't ended
	wraps    []func(Handler) Handler
}

// Open returns a peer for the Redis at url: redis://[[user]:password@]host[:port][/db],
// unix:///path[?db=n], redis+cluster://[[user]:password@]host[:port],... or
// redis+sentinel://[[user]:password@]host[:port],.../master[/db][?sentinel=[user]:password]. Write
// rediss for TLS. A login without a colon is a password. Open does no I/O.
func Open(url string, opts *Options) (*Peer, error) {
	var access store.Access
	if opts != nil {
		access = store.Access{
			TLS: opts.TLSConfig, DialTimeout: opts.DialTimeout, Credentials: opts.Credentials, SentinelCredentials: opts.SentinelCredentials,
		}
	}
	servers, err := store.Open(url, access)
	if err != nil {
		return nil, wrap("open", fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	p := newPeer(servers, opts)
	if p.bad != nil {
		return nil, wrap("open", p.bad)
	}
	return p, nil
}

// New returns a peer that gets its connections from pool, and does no I/O. It panics if pool is
// nil; methods report invalid options.
func New(pool Pool, opts *Options) *Peer {
	if p, ok := pool.(*redis.Pool); pool == nil || ok && p == nil {
		panic("worqr: New needs a pool")
	}
	p := newPeer(store.DialPool(pool), opts)
	if p.bad == nil && (p.opts.Credentials != nil || p.opts.SentinelCredentials != nil) {
		p.bad = fmt.Errorf("%w: Credentials have no effect with New: the pool logs in", ErrInvalid)
	}
	return p
}

func newPeer(servers *store.Servers, opts *Options) *Peer {
	o := opts.withDefaults()
	p := &Peer{
		opts:     o,
		capacity: capacity.New(o.Capacity),
		services: map[string]*service{},
		changed:  make(chan struct{}, 1),
		leaving:  map[string]*leaving{},
		ended:    make(chan struct{}),
		starting: make(chan struct{}, 1),
	}
	p.bad = p.opts.check()
	p.space = store.SpaceAt(servers, p.opts.Prefix)
	p.log = logs.New(p.opts.Logger)
	p.scribe = &scribe{peer: p}
	p.trace = tracing.New(worqrtrace.Join(p.scribe.trace(), p.opts.Trace), p.log)
	for _, s := range p.opts.Sources {
		p.sources = append(p.sources, guard(s, p.log))
	}
	p.lines = store.NewLines(servers, p.log, p.opts.CallTimeout, p.opts.beat())
	p.calls = p.lines.Calls
	p.reads = store.Reads(p.calls, 0)
	p.producer = store.NewProducer(p.calls, p.space, p.log)
	p.engine = engine.New(engine.Config{
		Log: p.log, Capacity: p.capacity, Failures: logs.FailurePolicy(p.opts.FailureLog),
		Labels: logs.Labels{Keys: p.opts.LogKeys, Headers: slices.Clone(p.opts.LogHeaders)}, Lease: engine.LeaseOf(p.opts.Lease),
		CallTimeout: p.opts.CallTimeout, MaxPayload: MaxPayloadSize, MaxResult: p.opts.MaxResult, StuckChanged: func() { p.fleet.Announce() },
		LostWrites: p.scribe.lost, Trace: p.trace,
	})
	p.recurring = recur.New(recur.Config{Calls: p.calls, Log: p.log, Beat: p.opts.beat(), List: p.producer.List, Ended: p.scribe.ended, Begun: p.scribe.begun})
	p.fleet = fleet.New(fleet.Config{
		Lines: p.lines, Space: p.space, Log: p.log, Engine: p.engine, Lease: p.opts.Lease, Name: p.opts.Name, Version: Version, Protocol: store.Ours,
		Service: p.opts.Version, NoHistory: p.opts.NoHistory,
		Describe: describe, CameBack: p.producer.Forget, Trace: p.trace, Over: p.recurring.Over,
	})
	servers.OnChange(p.fleet.Changed)
	p.ends = await.New(await.Config{Listen: p.lines.AwaitEnd, Timeout: p.opts.CallTimeout,
		Ask: func(ctx context.Context, q store.Keys, names []string) ([]store.Fate, error) {
			return store.Ends(ctx, p.reads, q, names)
		}})
	p.shutdown, p.shut = context.WithCancel(context.Background())
	return p
}

// WorkerID returns the worker's id, which changes after each eviction.
func (p *Peer) WorkerID() string { return p.fleet.ID() }

// Close stops the worker, as StopWorker does, and closes the peer's own connections, not a Pool. It
// blocks for at most 2*CallTimeout+7 s. While Run is running, it does nothing and fails with
// ErrInvalid. Afterwards, other calls fail with ErrShutdown.
func (p *Peer) Close() error {
	p.mu.Lock()
	running := p.running
	if !running {
		p.closed = true
		p.shut() // Run fails if it's called after this
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
	p.scribe.wait(ctx)
	p.lines.Close()
	p.flushLog()
	return err
}

// flushLog logs the counts of suppressed lines, and waits until they are written.
func (p *Peer) flushLog() {
	p.engine.Flush()
	p.fleet.Flush()
	p.trace.Flush()
	p.log.Flush()
}

func (p *Peer) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// A Queue is a handle to one queue. Handles are cheap.
type Queue struct {
	peer *Peer
	name string
	id   string // name, or a different one for its failed queue
	keys store.Keys
	bad  error
}

// Queue returns a handle to the queue. A name has 1 to 255 bytes of UTF-8 and no
// braces, spaces or control bytes; otherwise methods fail with ErrBadName.
func (p *Peer) Queue(name string) *Queue {
	q := &Queue{peer: p, name: name, id: name, keys: p.space.Queue(name), bad: p.bad}
	q.bad = cmp.Or(q.bad, checkName(name))
	return q
}

// CheckName fails with ErrBadName if no queue can have the name.
func CheckName(name string) error { return wrap("check name", checkName(name)) }

func checkName(name string) error {
	if err := store.CheckName(name); err != nil {
		return badName("queue", name, err)
	}
	return nil
}

// badName returns the error for a name that isn't allowed.
func badName(what, name string, err error) error {
	if len(name) > store.MaxName {
		return fmt.Errorf("%w: %w: %s: %w", ErrBadName, ErrTooLarge, what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrBadName, what, err)
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// wrap adds the verb and the queue to err. It's called once, at the API boundary.
func (q *Queue) wrap(verb string, err error) error { return describe(verb, q.name, err) }

// describe adds the verb and the queue to err, unless it belongs to none.
func describe(verb, queue string, err error) error {
	if err != nil && queue != "" {
		verb = fmt.Sprintf("%s on %.*q", verb, store.MaxName, queue)
	}
	return wrap(verb, err)
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return &verbError{verb, public(err)}
}

// A verbError is an error with the operation that failed.
type verbError struct {
	verb string
	err  error
}

func (e *verbError) Error() string {
	return "worqr: " + e.verb + ": " + strings.ReplaceAll(e.err.Error(), "worqr: ", "")
}

func (e *verbError) Unwrap() error { return e.err }

// public adds the exported sentinel to an internal error.
func public(err error) error {
	switch err = logs.WithoutInput(err); {
	case errors.Is(err, store.ErrUnknown) && !errors.Is(err, ErrUnknownOutcome): // a nested call may have added it
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrLost):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case errors.Is(err, store.ErrNoMember):
		return ErrEvicted
	case errors.Is(err, store.ErrDuplicate):
		return ErrDuplicate
	case errors.Is(err, store.ErrTooLarge) && !errors.Is(err, ErrTooLarge):
		return fmt.Errorf("%w: %w: %w", ErrInvalid, ErrTooLarge, err)
	case errors.Is(err, store.ErrProtocol):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	case store.IsMisplaced(err) && !errors.Is(err, ErrInvalid):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case store.IsFull(err) && !errors.Is(err, errFull):
		return fmt.Errorf("%w: %w", errFull, err)
	case store.IsDenied(err) && !errors.Is(err, ErrDenied):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case store.IsBadLogin(err) && !errors.Is(err, ErrLogin):
		return fmt.Errorf("%w: %w", ErrLogin, err)
	case errors.Is(err, store.ErrClosed) && !errors.Is(err, ErrShutdown):
		return fmt.Errorf("%w: %w", ErrShutdown, err)
	}
	return err
}

// errFull means that Redis refuses commands that need memory.
var errFull = errors.New("the Redis server is out of memory; raise maxmemory, or retry once workers have caught up")

// beat returns the time between two heartbeats.
func (o *Options) beat() time.Duration { return engine.LeaseOf(o.Lease).Beat }
