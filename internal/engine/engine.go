// Package engine serves queues: it does what one peer does with one queue, from the start of a task
// until its outcome is stored. It uses Redis only through the methods of a store.View, as
// docs/protocol.md describes. It sends no heartbeats and writes no registrations: internal/fleet does both. It also
// joins queues for the engine, and passes on the answers to heartbeats.
//
// # Words
//
//   - An Engine has what the served queues of one peer share (engine.go).
//   - A Queue is one queue of one peer. It has the handler (queue.go), and the slots and prefetched tasks
//     (slots.go), and outlives the incarnations of the worker.
//   - A Session is one membership of one worker, from join to leave (session.go). It has the lease (lease.go),
//     what shows that Redis has lost writes (losses.go), and what must stop (stops.go).
//   - The state of a session is what the worker holds, what the next round says, and which rounds are in flight.
//     It changes when a round is made (round.go), when one is answered (answer.go), and by requests: an ending
//     ends an attempt, and a want is that of a caller who serves the queue by hand (callers.go).
//   - An Attempt is one run of a task (attempt.go), and a run is the call of a handler for it (run.go).
//   - A slot is room for a handler. A task is prefetched when it's held and no handler has begun it.
//
// # Locks
//
// A queue and its sessions share one lock, Queue.mu, which Session.mu points to. While it's held, nothing is logged, no
// handler, callback or method of an error is called, and nothing waits or does I/O: who
// releases it then does that. A log line is only put aside, so neither a heartbeat nor the goroutine that reads replies ever calls a
// logger. Two locks are taken under it, one at a time: the one of internal/capacity, and that of a Trace's events.
// internal/invoke has one for each call of a handler, which is never taken under it: a goroutine does. No lock is taken under
// these. Methods that end in Locked expect the lock, as do those of state and lease. The engine calls back Membership.Evicted and Beat,
// Config.StuckChanged and LostWrites, all without a lock. A Trace is called under the lock, and only queues the event.
//
// What a round contains (round.go), what an answer means (answer.go), and which slots and tasks are taken (slots.go)
// depend on the state, the time, the options, the units of capacity left and Engine.risk, and start nothing but timers and goroutines.
// So their tests need no Redis and no clock. What a handler's error means is decided by internal/verdict, and how much
// is prefetched by internal/prefetch.
package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/counts"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

// Errors that the root package exports under the same names.
var (
	ErrNoTask       = errors.New("worqr: no task")
	ErrNotWorking   = errors.New("worqr: this worker doesn't serve the queue")
	ErrNotOwner     = errors.New("worqr: this worker no longer holds the task; another may be running it")
	ErrEvicted      = errors.New("worqr: worker evicted")
	ErrLeaseExpired = errors.New("worqr: lease expired: Redis didn't answer in time")
	ErrCanceled     = errors.New("worqr: the task was canceled")
	ErrTimeout      = errors.New("worqr: the attempt took too long")
	ErrShutdown     = errors.New("worqr: the peer is shutting down")
)

// A Config is what the queues of one peer share.
type Config struct {
	Log          *logs.Log
	Capacity     *capacity.Capacity
	Failures     logs.FailurePolicy
	Labels       logs.Labels
	Lease        Lease
	CallTimeout  time.Duration
	MaxPayload   int    // bytes; larger payloads of other programs fail as malformed
	MaxResult    int    // bytes; larger results aren't stored
	StuckChanged func() // called without a lock when the number of stuck handlers changes

	// LostWrites, if not nil, is called without a lock when it's evident that Redis has lost writes of a queue.
	LostWrites func(queue, sign string)
	Trace      *tracing.Caller
}

// An Engine has what the served queues of one peer share.
type Engine struct {
	Config
	Counts counts.All

	risk       atomic.Bool // the peer holds a task that would fail after one more crash
	failures   *logs.Failures
	losses     *logs.Rollback
	background sync.WaitGroup // all goroutines except those of handlers
}

// New returns an Engine. It does no I/O and starts nothing.
func New(c Config) *Engine {
	if c.MaxPayload <= 0 || c.MaxPayload > store.MaxDigested {
		c.MaxPayload = store.MaxDigested
	}
	return &Engine{Config: c, failures: logs.NewFailures(c.Log, c.Failures), losses: logs.NewRollback(c.Log, c.Lease.Beat)}
}

// Wait waits until no goroutine of the engine runs, except those of handlers. It doesn't wait
// forever: a goroutine may be calling a method of a Pool's error, which may itself call Wait.
func (e *Engine) Wait() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.background.Wait()
	}()
	select {
	case <-done:
	case <-time.After(max(e.CallTimeout+time.Second, e.CallTimeout)): // the sum may overflow
	}
}

// Flush logs the counts of suppressed lines, and which queues have lost writes.
func (e *Engine) Flush() {
	e.failures.Flush()
	e.losses.Flush()
}
