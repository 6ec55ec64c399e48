package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/store"
)

// StartWorker registers the peer and starts heartbeats. Call it instead of Run, or before
// Run to fail fast. When it fails, nothing has started. It fails with ErrEvictionPolicy
// where a full Redis would evict tasks, and if Redis is older than 6.2.
func (p *Peer) StartWorker(ctx context.Context) error {
	if p.bad != nil {
		return wrap("start worker", p.bad)
	}
	return wrap("start worker", p.alone(ctx, func() error {
		err := p.fleet.Start(ctx)
		if err == nil && p.isClosed() { // Close has not waited for this
			_ = p.fleet.Stop(ctx)
			err = ErrShutdown
		}
		return err
	}))
}

func (p *Peer) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// alone starts or stops the worker while nobody else does. It fails when ctx ends before that
// is so. It isn't a lock: both wait for Redis, and so for a Pool, which may call them.
func (p *Peer) alone(ctx context.Context, do func() error) error {
	select {
	case p.starting <- struct{}{}: // also when ctx has ended
	default:
		select {
		case p.starting <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-p.starting }()
	return do()
}

// StopWorker ends the contexts of tasks with ErrShutdown, returns the tasks to the front of
// their queues and leaves. If ctx ends or Redis fails first, it stops anyway and returns the
// error. It fails with ErrNotStarted, and with ErrInvalid until Run has returned.
func (p *Peer) StopWorker(ctx context.Context) error {
	if p.isRunning() {
		return wrap("stop worker", errRunning)
	}
	return wrap("stop worker", p.alone(ctx, func() error {
		if p.isRunning() { // it began meanwhile
			return errRunning
		}
		return p.stopWorker(ctx)
	}))
}

// stopWorker does it for who is alone.
func (p *Peer) stopWorker(ctx context.Context) error {
	err := p.fleet.Stop(ctx)
	p.flushLog()
	return err
}

// StartWork joins the workers of the queue, so that you can call StartTask. It fails with
// ErrNotStarted, and with ErrInvalid if the queue has a handler and Run hasn't been called.
// While Run is running, it resumes serving a queue after StopWork.
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

// StopWork ends the contexts of this peer's tasks on the queue with ErrShutdown, returns
// the tasks to the front and stops serving the queue, until StartWork. If ctx ends first,
// tasks whose ends aren't stored run again. It fails with ErrNotWorking if the peer isn't
// serving it.
func (q *Queue) StopWork(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("stop work", q.bad)
	}
	p := q.peer
	err := p.fleet.Leave(ctx, q.id)
	if p.isRunning() && p.handles(q.id) && !errors.Is(err, ErrNotWorking) {
		p.log.Info("worqr: no longer serving a queue; StopWork was called", "queue", q.id, "worker", p.WorkerID())
	}
	return q.wrap("stop work", err)
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
	Version       string
	Queues        []string
	Lease         time.Duration
	StuckHandlers int
}

// Workers yields the registered peers, except those silent for more than two leases.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[Worker, error] {
	return listed(store.Workers(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list workers", err) }, func(w store.Worker) Worker { return Worker(w) })
}

// Queues yields the names of queues that were served, or filled by this library, and not
// deleted since.
func (p *Peer) Queues(ctx context.Context) iter.Seq2[string, error] {
	return listed(store.Queues(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list queues", err) }, func(name string) string { return name })
}
