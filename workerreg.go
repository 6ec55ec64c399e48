package worqr

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/store"
)

// StartWorker registers the peer and starts heartbeats. Call it instead of Run, or
// before Run to fail fast: Run keeps trying. Whether this fails or not, you may call
// Run afterwards. It returns once the registration is stored; when it fails, nothing
// has been started. It does nothing if the worker is started already. It fails with
// ErrEvictionPolicy where a full Redis would evict tasks, and warns where that might be. It
// also fails where Redis is older than 6.2. It checks both only if it may ask (INFO
// memory and server).
//
// From then on the worker survives every outage of Redis. If it is evicted, it comes
// back under a new id and works on the same queues.
func (p *Peer) StartWorker(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.bad != nil {
		return wrap("start worker", p.bad)
	}
	return wrap("start worker", p.fleet.Start(ctx))
}

// StopWorker returns all tasks to the front of their queues, leaves and stops
// beating. After it returns, no goroutine of the worker exists. The contexts of
// tasks end with ErrShutdown. When ctx ends or Redis fails first, it stops all
// the same and returns the error; then peers return the tasks once the lease
// has lapsed. It fails with ErrNotStarted when the worker is not started, and
// does nothing but fail while Run has not returned.
func (p *Peer) StopWorker(ctx context.Context) error {
	if p.isRunning() {
		return wrap("stop worker", errRunning)
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.isRunning() { // it began meanwhile
		return wrap("stop worker", errRunning)
	}
	return p.stopWorker(ctx)
}

// stopWorker does it for who holds p.starting.
func (p *Peer) stopWorker(ctx context.Context) error {
	err := p.fleet.Stop(ctx)
	p.flushLog()
	return wrap("stop worker", err)
}

// StartWork joins those who serve the queue, so that StartTask may be called.
// It fails with ErrNotStarted when the worker is not started, and does nothing
// when it works on the queue. A queue with a handler is served by Run: before and
// after Run, StartWork fails with ErrInvalid for it.
func (q *Queue) StartWork(ctx context.Context) error {
	p := q.peer
	switch {
	case q.bad != nil:
		return q.wrap("start work", q.bad)
	case p.fleet.IsStarted() && !p.isRunning() && p.handles(q.id):
		return q.wrap("start work", errHandled)
	}
	return q.wrap("start work", p.fleet.Join(ctx, q.joined()))
}

var errHandled = fmt.Errorf("%w: the queue has a handler; call Run, which serves it", ErrInvalid)

// handles reports whether a queue has a handler.
func (p *Peer) handles(queue string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[queue] != nil
}

// StopWork returns our running tasks of the queue to its front and leaves those
// who serve it. The contexts of the tasks end with ErrShutdown, before others can
// start them. It fails with
// ErrNotWorking when the worker does not work on the queue; when it fails
// otherwise, also since ctx has ended, peers return the tasks once the lease has
// lapsed. It waits for what this peer joins or leaves at the moment, which may take
// until a third of the lease after ctx has ended.
func (q *Queue) StopWork(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("stop work", q.bad)
	}
	return q.wrap("stop work", q.peer.fleet.Leave(ctx, q.id))
}

// joined is the queue for the fleet.
func (q *Queue) joined() *fleet.Queue {
	p := q.peer
	p.mu.Lock()
	service := p.services[q.id]
	p.mu.Unlock()
	if service != nil {
		return &fleet.Queue{Served: q.store(), Engine: service.Queue, Handled: true}
	}
	return &fleet.Queue{Served: q.store(), Engine: q.served()}
}

// A Worker is a registered peer.
type Worker struct {
	ID            string
	Name          string
	Host          string
	PID           int
	StartedAt     time.Time // by the clock of the peer
	Version       string    // of this library
	Queues        []string  // that it serves
	Lease         time.Duration
	StuckHandlers int // handlers that ignore that their context has ended
}

// Workers yields the registered peers, but not those that were silent for two leases,
// malformed entries, or registrations above a mebibyte. It ends after the first error.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[Worker, error] {
	return listed(store.Workers(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list workers", err) }, func(w store.Worker) Worker { return Worker(w) })
}

// Queues yields the names of the queues that were served or filled by this library, and
// not deleted since, in no order. It ends after the first error.
func (p *Peer) Queues(ctx context.Context) iter.Seq2[string, error] {
	return listed(store.Queues(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list queues", err) }, func(name string) string { return name })
}
