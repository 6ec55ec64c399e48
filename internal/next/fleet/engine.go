package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/worqr/worqr/internal/next/store"
)

// What internal/next/engine has; until it's there, these stand for it.

// Errors of memberships.
var (
	ErrNotWorking   = errors.New("worqr: the queue isn't served")
	ErrEvicted      = errors.New("worqr: worker evicted")
	ErrShutdown     = errors.New("worqr: the worker shuts down")
	ErrLeaseExpired = errors.New("worqr: the lease has expired")
)

// A Lease is how long a worker may be silent.
type Lease struct {
	Beat  time.Duration // between two heartbeats
	Grant time.Duration // how long a heartbeat extends the lease; 0 is forever
	Sure  time.Duration // how long after a renewal the lease certainly holds
}

// LeaseOf returns the lease for a duration; a negative one never ends.
func LeaseOf(d time.Duration) Lease {
	if d < 0 {
		return Lease{Beat: time.Second, Sure: 1<<63 - 1}
	}
	return Lease{Beat: d / 3, Grant: d * 2 / 3, Sure: d / 10 * 9}
}

// A Membership is what a worker and Redis agreed on when it joined.
type Membership struct {
	Worker  string
	Asked   int64
	Round   int64
	Evicted func()
	Beat    func()
}

// A Mark is what a session knew of the tokens.
type Mark any

// A Session is one membership of one worker.
type Session interface {
	Pulse(p *store.Pulse, sent time.Time)
	Unheard()
	Refused()
	Wake() bool
	Leave(ctx context.Context) error
	End(why error)
	Unlisten()
	Last() int64
	Mark() Mark
	Compare(last int64, since Mark)
}

// An EngineQueue is one queue of the engine.
type EngineQueue interface {
	Join(v *store.View, m Membership) Session
}

// An Engine has what the queues of a peer share.
type Engine interface {
	Wait()
	Pass()
	Stuck() int64
}
