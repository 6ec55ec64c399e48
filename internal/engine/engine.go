// Package engine serves queues: it does what one peer does with one queue, from the start of a task
// until its outcome is stored. It uses Redis only through internal/store. It sends no heartbeats
// and writes no registrations: internal/fleet does both. It also joins queues for the engine, and
// passes on the answers to heartbeats.
//
// # Words
//
//   - An Engine has what the served queues of one peer share.
//   - A Queue is one queue of one peer. It has the handler and the slots, and outlives the
//     incarnations of the worker.
//   - A Session is one membership of one worker: its rounds, and the tasks it holds.
//   - A round is one call of the script step: it reports outcomes, and asks for tasks.
//     An exchange is a round with the callers that wait for its answer. A talk is the goroutine
//     that makes rounds; it runs only while there is something to send.
//   - An Attempt is one start of a task, and a run is one handler call for it.
//   - An ending is a request to end an attempt. A slot is room for a handler.
//   - A task is prefetched, or ready, when it is held and no handler has begun it.
//
// # The interface of a session
//
// The code that sends heartbeats and joins queues needs only these:
//
//	q.Join(View, Membership)      the worker has become a member; begins and returns a Session
//	s.Pulse(pulse, sent)          a heartbeat sent at that time was answered
//	s.Unheard()                   a heartbeat wasn't answered
//	s.Refused()                   a heartbeat's answer was that the worker isn't a member
//	s.Wake() bool                 ask for tasks; false if the session has ended
//	s.Start(ctx, n)               up to n tasks for a caller that serves the queue by hand
//	s.Drain()                     closes Attempt.Draining
//	s.Interrupt()                 ends all contexts with ErrShutdown
//	s.Abandon()                   disowns handlers that still run
//	s.Leave(ctx) error            sends what is unsent, returns all tasks, leaves
//	s.End(why)                    ends it without Redis, as after an eviction
//	s.Unlisten()                  no more messages; call it after Leave or End
//	s.Last() round                for the leave or the next join
//	s.Mark() Mark                 call it before you read the last token of the queue
//	s.Compare(last, mark)         it was read; reports lost writes
//
// The engine calls three callbacks: Membership.Evicted, Config.StuckChanged and Config.LostWrites,
// all without a lock. A Trace is called under the lock, and only queues the event.
//
// # Locks
//
// A queue and its sessions share one lock, Queue.mu, which Session.mu points to. It's a monitor:
// code that holds it defers whatever must not happen under the lock until Unlock. While it's held,
// nothing is logged, no handler, callback or method of an error is called, and nothing waits or
// does I/O. Three locks are taken under it, one at a time: the one of internal/capacity; a
// connection's, to ask whether it exists; and the one of a Trace's event queue. A run has its own
// lock, since its handler may return just as Grace ends. The link has one, too. No lock is taken
// under these. Methods that end in Locked expect the lock.
//
// What a round contains (compose.go), what an answer means (answer.go), which slots and tasks are
// taken (slots.go) and what a talk does next (talk.go) depend only on the state and the time. Their
// tests need no Redis and no clock.
package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/tracing"
)

type Config struct {
	Log          *logs.Log
	Capacity     *capacity.Capacity
	Failures     FailurePolicy
	Lease        Lease
	CallTimeout  time.Duration
	MaxResult    int    // bytes
	StuckChanged func() // called without a lock when the number of stuck handlers changes

	// LostWrites, if not nil, is called without a lock when it's evident that Redis has lost writes
	// of a queue.
	LostWrites func(queue, sign string)
	Trace      *tracing.Caller
}

// An Engine has what the served queues of one peer share.
type Engine struct {
	Config
	failures *failures

	link       link        // the distance to Redis, as measured by rounds
	risk       atomic.Bool // the peer holds a task that would fail after one more crash
	losses     *rollback
	background sync.WaitGroup // all goroutines except those of handlers

	mu     sync.Mutex         // protects the field below; nothing is locked under it
	counts map[string]*Counts // by queue name
}

// New returns an Engine. It does no I/O and starts nothing.
func New(c Config) *Engine {
	return &Engine{
		Config: c, failures: newFailures(c.Log, c.Failures), losses: newRollback(c.Log, c.Lease), counts: map[string]*Counts{},
	}
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

// Flush logs the counts of suppressed lines.
func (e *Engine) Flush() {
	e.failures.flush()
	e.losses.flush()
}
