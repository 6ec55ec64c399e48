package worqr

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/logs"
)

// EngineConfig is what an engine is given.
type EngineConfig struct {
	Log          *logs.Log
	Capacity     *capacity.Capacity
	Failures     FailurePolicy
	Lease        Lease
	CallTimeout  time.Duration
	MaxResult    int    // bytes
	StuckChanged func() // the number of handlers that ignore their context; called without a lock
}

// An engine is what the served queues of one peer share.
type engine struct {
	BeforeDigest func(payload []byte) // a place where tests stop; else nil

	log          *logs.Log
	capacity     *capacity.Capacity
	failures     *failures
	lease        Lease
	callTimeout  time.Duration
	maxResult    int
	stuckChanged func()

	link       link        // what the rounds tell of the way to Redis
	risk       atomic.Bool // a task is held whose next death would be its last
	counts     Counts
	background sync.WaitGroup // all goroutines but those of handlers
}

// Counts are counters of what was done.
type Counts struct {
	Started, Finished, Stopped, Canceled, Retried, Failed, Dropped, Stuck, Lost, Failures, Running atomic.Int64
}

// newEngine returns an engine. It does no I/O and starts nothing.
func newEngine(c EngineConfig) *engine {
	return &engine{
		log: c.Log, capacity: c.Capacity, failures: newFailures(c.Log, c.Failures),
		lease: c.Lease, callTimeout: c.CallTimeout, maxResult: c.MaxResult, stuckChanged: c.StuckChanged,
	}
}

// Counts are what was done since the engine was made.
func (e *engine) Counts() *Counts { return &e.counts }

// Wait waits until no goroutine of the engine runs, but those of handlers.
func (e *engine) Wait() { e.background.Wait() }

// Flush logs what limits have left out so far.
func (e *engine) Flush() { e.failures.flush() }
