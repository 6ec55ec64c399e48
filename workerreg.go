package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/counts"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/store"
)

// StartWorker registers the peer and starts heartbeats. Call it instead of Run, or before Run to
// fail fast. It fails with ErrEvictionPolicy or ErrProtocol, or if Redis is older than 6.2; then
// nothing has started.
func (p *Peer) StartWorker(ctx context.Context) error {
	if p.bad != nil {
		return wrap("start worker", p.bad)
	}
	return wrap("start worker", p.alone(ctx, func() error {
		err := p.fleet.Start(ctx)
		if err == nil && p.isClosed() { // Close didn't wait for this
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

// alone makes sure that only one caller at a time starts or stops the worker. It fails if ctx ends
// first. It isn't a lock: both operations wait for Redis, and so for a Pool, which may call them.
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

// StopWorker ends the contexts of tasks with ErrShutdown, returns the tasks to the front, and
// leaves. If ctx ends or Redis fails first, it still stops, and returns the error. It fails with
// ErrNotStarted, and with ErrInvalid while Run is running.
func (p *Peer) StopWorker(ctx context.Context) error {
	if p.isRunning() {
		return wrap("stop worker", errRunning)
	}
	return wrap("stop worker", p.alone(ctx, func() error {
		if p.isRunning() { // it began in the meantime
			return errRunning
		}
		return p.stopWorker(ctx)
	}))
}

// stopWorker stops the worker; see alone.
func (p *Peer) stopWorker(ctx context.Context) error {
	err := p.fleet.Stop(ctx)
	p.flushLog()
	return err
}

// StartWork joins the queue's workers, for StartTask, or to serve it again after StopWork during
// Run. It fails with ErrNotStarted, and with ErrInvalid if the queue has a handler and Run hasn't
// been called.
func (q *Queue) StartWork(ctx context.Context) error {
	p := q.peer
	switch {
	case q.bad != nil:
		return q.wrap("start work", q.bad)
	case p.fleet.IsStarted() && !p.isRunning() && p.handles(q.id):
		return q.wrap("start work", errHandled)
	}
	s := p.runs(q.id)
	if s == nil && p.handles(q.id) {
		return q.wrap("start work", errLeaving)
	}
	err := p.fleet.Join(ctx, q.joined(s))
	switch {
	case s.isRemoved(): // Unhandle was called in the meantime
		err = errors.Join(errLeaving, p.fleet.Leave(ctx, q.id))
	case err == nil:
		s.resume()
	}
	return q.wrap("start work", err)
}

var errRunning = fmt.Errorf("%w: Run is still running; end its context or call Shutdown first", ErrInvalid)

var errHandled = fmt.Errorf("%w: the queue has a handler; call Run, which serves it", ErrInvalid)

var errLeaving = fmt.Errorf("%w: Unhandle is still leaving the queue; call Unhandle again to wait for it", ErrInvalid)

func (p *Peer) handles(queue string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[queue] != nil || p.leaving[queue] != nil
}

// StopWork stops serving the queue until StartWork: it ends the contexts of this peer's tasks with
// ErrShutdown and returns them to the front. If ctx ends first, tasks whose outcomes aren't stored
// run again. It fails with ErrNotWorking if the peer isn't serving it.
func (q *Queue) StopWork(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("stop work", q.bad)
	}
	p := q.peer
	p.runs(q.id).stop()
	err := p.fleet.Leave(ctx, q.id)
	if p.isRunning() && p.handles(q.id) && !errors.Is(err, ErrNotWorking) {
		p.log.Info("worqr: no longer serving a queue; StopWork was called", "queue", q.id, "worker", p.WorkerID())
	}
	return q.wrap("stop work", err)
}

// serving returns a new queue of the engine.
func (q *Queue) serving() *engine.Queue {
	return q.peer.engine.Queue(q.name, q.id, engine.Options{MaxCrashes: defaultCrashes, Keep: defaultKeepFailed})
}

// joined describes the queue for the fleet. The service is nil if it has no handler.
func (q *Queue) joined(s *service) *fleet.Queue {
	of := &fleet.Queue{View: q.peer.lines.Serve(q.name, q.id, q.keys)}
	if of.Handled = s != nil; of.Handled {
		of.Engine = s.Queue
	} else {
		of.Engine = q.serving()
	}
	return of
}

// Workers yields the registered peers, except those silent for over two leases.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[inspect.Worker, error] {
	return listed(store.Workers(ctx, p.reads, p.space), p.bad, func(err error) error { return wrap("list workers", err) }, func(w inspect.Worker) inspect.Worker { return w })
}

// Queues yields the names of queues that were served or enqueued to, and not deleted since.
func (p *Peer) Queues(ctx context.Context) iter.Seq2[string, error] {
	return listed(store.Queues(ctx, p.reads, p.space), p.bad, func(err error) error { return wrap("list queues", err) }, func(name string) string { return name })
}

// Stats returns the peer's counters, over all queues.
func (p *Peer) Stats() inspect.PeerStats {
	s, f := statsOf(p.engine.Counts.Sum()), p.fleet.Counts()
	s.EnqueuesRefused, s.ClockAhead = p.producer.Refused.Load(), p.fleet.ClockAhead()
	s.WorkersEvicted, s.TasksReturned, s.TimesEvicted = f.WorkersEvicted.Load(), f.TasksReturned.Load(), f.TimesEvicted.Load()
	return s
}

// StatsOf is Stats for one queue, including OnFailed. What isn't about a
// queue is zero.
func (p *Peer) StatsOf(queue string) inspect.PeerStats {
	return statsOf(p.engine.Counts.Sum(queue, p.Queue(queue).failed().id))
}

func statsOf(c *counts.Counts) inspect.PeerStats {
	return inspect.PeerStats{
		Started: c.Started.Load(), Finished: c.Finished.Load(), Stopped: c.Stopped.Load(), Canceled: c.Canceled.Load(),
		Retried: c.Retried.Load(), Snoozed: c.Snoozed.Load(), Failed: c.Failed.Load(), Expired: c.Expired.Load(), Dropped: c.Dropped.Load(),
		TakenOver: c.Lost.Load(), HandlerErrors: c.Failures.Load(), RunningHandlers: c.Running.Load(), StuckHandlers: c.Stuck.Load(),
		LostWrites: c.LostWrites.Load(),
	}
}

// Ping checks that Redis, or each master of a cluster, answers. If one doesn't, or ctx ends first,
// it fails with ErrUnreachable.
func (p *Peer) Ping(ctx context.Context) error {
	if p.bad != nil {
		return wrap("ping", p.bad)
	}
	err := p.lines.Ping(ctx)
	if store.IsAway(err) || err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return wrap("ping", err)
}

// LastBeat returns when the last answered heartbeat was sent, or the worker was started, by this
// peer's clock. In a cluster, the node that has been silent longest counts. It's zero while the
// worker isn't started.
func (p *Peer) LastBeat() time.Time { return p.fleet.LastBeat() }

// Ready returns nil while the worker is a member of all its queues and its lease is valid.
// Otherwise it fails with ErrNotStarted, ErrNotWorking (a queue isn't joined yet), ErrEvicted,
// ErrLeaseExpired or ErrShutdown (Run is draining).
func (p *Peer) Ready() error { return wrap("not ready", p.unready()) }

func (p *Peer) unready() error {
	p.mu.Lock()
	over := p.draining || p.closed || p.shutdown.Err() != nil
	serving, handles := p.serving, len(p.services) > 0
	p.mu.Unlock()
	switch {
	case p.bad != nil:
		return p.bad
	case over:
		return ErrShutdown
	case !p.fleet.IsStarted():
	case handles && !serving:
		return errUnserved
	}
	for _, s := range p.current() {
		if s.isMissing() {
			return fleet.NotJoined(s.queue.name)
		}
	}
	return p.fleet.Unfit()
}

var errUnserved = fmt.Errorf("%w: Run hasn't started serving yet", ErrNotWorking)

// isMissing reports whether Run has yet to serve the queue. The fleet knows which queues it has yet
// to join.
func (s *service) isMissing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.removed && !s.wanted
}

// Livez returns a handler for a liveness probe: 200, or 503 if the heartbeat goroutine is stuck and
// only a restart helps. It never asks Redis.
func (p *Peer) Livez() http.Handler {
	return probe(func() error { return wrap("not alive", p.fleet.Stuck()) })
}

// Readyz returns a handler for a readiness probe: 200 while Ready returns nil, otherwise 503 with
// its error.
func (p *Peer) Readyz() http.Handler { return probe(p.Ready) }

func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}

// Unhandle removes the queue's handler, and OnFailed: the peer returns tasks that haven't begun,
// waits for the rest, and leaves the queue. If ctx ends first, it ends the handlers' contexts with
// ErrShutdown and returns ctx's cause; leaving takes up to Grace+5 s more. Then a task
// whose outcome isn't stored yet may run again.
//
// It fails with ErrNotWorking without a handler, and with ErrInvalid in a handler of the queue.
func (q *Queue) Unhandle(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("unhandle", q.bad)
	}
	return q.wrap("unhandle", q.peer.unhandle(ctx, q.id, q.failed().id))
}

func (p *Peer) unhandle(ctx context.Context, queue, failed string) error {
	if of := ctx.Value(handledBy{}); of == queue || of == failed {
		return errOwnHandler
	}
	p.mu.Lock()
	s, f, l, draining := p.services[queue], p.services[failed], p.leaving[queue], p.draining
	if !draining {
		delete(p.services, queue)
		delete(p.services, failed)
	}
	if s != nil && l == nil && p.serving {
		l = p.leaveLocked(s, f)
	}
	p.mu.Unlock()
	switch {
	case draining:
		select {
		case <-p.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case l == nil && s == nil:
		return fmt.Errorf("%w: the queue has no handler", ErrNotWorking)
	case l == nil:
		return nil // not served yet
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		l.hasten()
		return context.Cause(ctx)
	}
}

var (
	errOwnHandler = fmt.Errorf("%w: called with a handler's context: Unhandle would wait for that handler; call it in a goroutine with another context", ErrInvalid)
	errAbandoned  = errors.New("a handler didn't return after its context ended and was abandoned")
)

// A leaving is a queue whose handler Unhandle has removed, until the peer has left it.
type leaving struct {
	services []*service
	patience context.Context // ends when their contexts should end
	hasten   context.CancelFunc
	done     chan struct{} // closed when the queue is left
	err      error         // set before done is closed
}

// leaveLocked begins to leave a queue. The handler of its failed tasks may be nil.
func (p *Peer) leaveLocked(s, failed *service) *leaving {
	l := &leaving{services: []*service{s}, done: make(chan struct{})}
	if failed != nil {
		l.services = append(l.services, failed)
	}
	for _, s := range l.services {
		p.leaving[s.queue.id] = l
	}
	l.patience, l.hasten = context.WithCancel(context.Background())
	p.removals.Go(func() { p.leave(l) })
	return l
}

// leave drains and leaves a queue. After that, a new handler may serve it.
func (p *Peer) leave(l *leaving) {
	defer l.hasten()
	var errs []error
	if p.drain(l.patience, l.services) {
		errs = append(errs, errAbandoned)
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, s := range l.services {
		s.Stored(ctx)
		if !s.remove() {
			continue
		}
		if err := p.fleet.Leave(ctx, s.queue.id); !errors.Is(err, ErrNotWorking) { // StopWork was called, or the worker never joined it
			errs = append(errs, err)
		}
	}
	l.err = errors.Join(errs...)
	p.log.Info("worqr: no longer serving a queue; Unhandle was called", "queue", l.services[0].queue.id, "worker", p.WorkerID())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range l.services {
		delete(p.leaving, s.queue.id)
	}
	close(l.done)
	p.changedLocked()
}
