package worqr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Run joins the queues that have handlers and serves them until ctx ends or Shutdown is called;
// Handle and Unhandle work meanwhile. Then it drains: it takes no more tasks, lets handlers keep
// running for Options.Drain, ends the contexts of the rest with ErrShutdown, returns their tasks to
// the front, and leaves, all within Drain+Grace+5 s.
//
// Run survives every failure of Redis. It returns StartWorker's errors, and fails if it abandoned
// handlers, couldn't leave cleanly, is called twice or never reached Redis.
func (p *Peer) Run(ctx context.Context) error {
	if p.bad != nil {
		return wrap("run", p.bad)
	}
	if err := p.begin(ctx); err != nil {
		return wrap("run", err)
	}
	defer func() {
		p.mu.Lock()
		p.running = false
		p.mu.Unlock()
		close(p.ended)
	}()
	fetch, stop := context.WithCancel(ctx) // ends when no more tasks may start
	defer stop()
	defer context.AfterFunc(p.shutdown, stop)()

	if started, err := p.persist(fetch); !started {
		return err
	}
	defer p.recur(fetch)()
	queues := p.open()
	if len(queues) == 0 {
		p.log.Warn("worqr: no queue has a handler, so nothing is served")
	}
	p.log.Info("worqr: serving", "worker", p.WorkerID(), "queues", queues, "version", Version)
	p.serve(fetch)
	services := p.shutting()
	for _, s := range p.fleet.Sessions() {
		s.Drain() // including queues served by hand
	}
	if n := p.engine.Counts.Sum().Running.Load(); n > 0 {
		p.log.Info("worqr: draining", "handlers", n, "for", p.opts.Drain)
	}
	patience, cancel := context.WithTimeout(context.Background(), max(p.opts.Drain, 0))
	stuck := int64(0)
	if p.drain(patience, services) {
		stuck = p.engine.Counts.Sum().Running.Load() // includes handlers that ended their tasks themselves
	}
	cancel()

	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	store, cancel := context.WithTimeout(leave, leaveTimeout/2)
	defer cancel()
	for _, s := range services {
		s.Stored(store)
	}
	err := wrap("stop worker", p.alone(leave, func() error { return p.stopWorker(leave) }))
	p.removals.Wait()
	p.scribe.wait(leave)
	if stuck+p.engine.Counts.Sum().Stuck.Load() > 0 { // the log says how many
		err = errors.Join(err, wrap("run", errAbandoned))
	}
	return err
}

// open begins to serve the queues that have handlers, and returns their names.
func (p *Peer) open() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = true
	p.changedLocked()
	return slices.Sorted(maps.Keys(p.services))
}

// changedLocked makes Run notice queues that got a handler.
func (p *Peer) changedLocked() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// current returns the handled queues that Run serves, except those whose previous handler is still
// leaving.
func (p *Peer) current() (all []*service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.services {
		if p.leaving[s.queue.id] == nil {
			all = append(all, s)
		}
	}
	return all
}

// shutting marks the peer as draining: from now on, handlers are neither added nor removed. It
// returns the queues that may have tasks.
func (p *Peer) shutting() []*service {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving, p.draining = false, true
	all := slices.Collect(maps.Values(p.services))
	for id, l := range p.leaving {
		for _, s := range l.services {
			if s.queue.id == id {
				all = append(all, s)
			}
		}
	}
	return all
}

// serve serves the queues that have handlers until ctx ends.
func (p *Peer) serve(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range p.current() {
			s.serve()
		}
		select {
		case <-ctx.Done():
		case <-p.changed:
		}
	}
}

// A service is a queue with a handler.
type service struct {
	queue *Queue
	*engine.Queue
	batches *batches // nil if its handler takes tasks one by one

	mu      sync.Mutex // protects the fields below
	wanted  bool       // being served, or served until StopWork
	stopped bool       // by StopWork
	removed bool       // by Unhandle
}

func (q *Queue) handled(h Handler, o engine.Options) *service {
	s := &service{queue: q, Queue: q.serving()}
	s.Serve(func(ctx context.Context, a *engine.Attempt) ([]byte, error) {
		t := taskOf(q.name, a)
		err := h(ctx, t)
		return t.Result, err
	}, o)
	return s
}

// handledBy is the context key for the queue's id in the contexts of its handlers.
type handledBy struct{}

func (s *service) setBase(ctx context.Context) {
	s.SetBase(context.WithValue(ctx, handledBy{}, s.queue.id))
}

// serve makes the worker join the queue, unless it has, was stopped or was removed.
func (s *service) serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted || s.stopped || s.removed {
		return
	}
	s.wanted = true
	s.queue.peer.fleet.Want(s.queue.joined(s))
}

// stop prevents serve from joining the queue again. It does nothing if s is nil.
func (s *service) stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = s.wanted // otherwise there is nothing to stop yet
}

// remove prevents serve from joining the queue for good, and reports whether it has.
func (s *service) remove() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	return s.wanted
}

// isRemoved reports whether Unhandle has removed the handler.
func (s *service) isRemoved() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed
}

// resume undoes stop.
func (s *service) resume() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = false
	}
}

// runs returns the service of a queue that Run serves, or nil.
func (p *Peer) runs(queue string) *service {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return nil
	}
	return p.services[queue]
}

// begin marks the peer as running. A peer runs only once.
func (p *Peer) begin(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shutdown.Err() != nil {
		return ErrShutdown
	}
	if p.ran {
		return fmt.Errorf("%w: Run was already called; create another Peer", ErrInvalid)
	}
	for _, s := range p.services {
		if s.queue.bad != nil {
			return s.queue.bad
		}
	}
	p.base = context.WithoutCancel(ctx)
	for _, s := range p.services {
		s.setBase(p.base)
	}
	p.ran, p.running = true, true
	return nil
}

// reminder is how often Run logs that it still can't start.
const reminder = time.Minute

// persist retries until the worker has started. It logs a lasting error, and repeats that once a
// minute, in case someone is watching. If ctx ends before anything has failed, there is no error.
func (p *Peer) persist(ctx context.Context) (started bool, _ error) {
	var upset logs.Outage
	var failed error // the last failure that isn't the end of ctx
	began := time.Now()
	said := began
	for retry := store.NewBackoff(); ; {
		tried := time.Now()
		err := p.StartWorker(ctx)
		if err == nil {
			upset.Note(p.log, "can't start the worker; retrying", nil)
			return true, nil
		}
		if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
			return false, failed
		}
		failed = err
		if ctx.Err() != nil || errors.Is(err, ErrEvictionPolicy) || errors.Is(err, ErrProtocol) || errors.Is(err, fleet.ErrOld) || store.IsMisplaced(err) {
			return false, err
		}
		upset.Note(p.log, "can't start the worker; retrying", err)
		if time.Since(tried) >= time.Second { // not a blip, so log it now
			upset.Note(p.log, "can't start the worker; retrying", err)
		}
		if time.Since(said) >= reminder {
			said = time.Now()
			p.log.Error("worqr: still can't start the worker; retrying", "for", said.Sub(began).Round(time.Second), "err", err)
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(retry.Next()):
		}
	}
}

// leaveTimeout is how long Run tries to store the last outcomes, and to leave the fleet in Redis. If the time is up, the
// fleet makes a last try, which takes up to another second.
const leaveTimeout = 4 * time.Second

// drain makes queues take no more tasks, and waits for their handlers. Once patience ends, it ends
// the contexts of the slow ones, and finally abandons them. It reports whether it abandoned any.
func (p *Peer) drain(patience context.Context, services []*service) (abandoned bool) {
	for _, s := range services {
		s.Drain()
	}
	done := make(chan struct{})
	go func() {
		for _, s := range services {
			s.HandlersDone()
		}
		close(done)
	}()
	select {
	case <-done:
		return false
	case <-patience.Done():
	}
	var sessions []*engine.Session
	grace := time.Duration(0)
	for _, s := range services {
		grace = max(grace, s.Grace())
		if r, err := p.fleet.Session(s.queue.id); err == nil {
			sessions = append(sessions, r)
		}
	}
	for _, s := range sessions {
		s.Interrupt()
	}
	select {
	case <-done:
		return false
	case <-time.After(grace):
	}
	for _, s := range sessions {
		s.Abandon()
	}
	select { // the waiter must be gone before a new handler of the queue can begin
	case <-done:
	case <-time.After(50 * time.Millisecond): // a handler that has ended its task itself can't be abandoned
	}
	return true
}

// Shutdown makes Run drain and return, and waits for it. If ctx ends first, Run keeps draining.
// Before Run, it makes Run fail with ErrShutdown.
func (p *Peer) Shutdown(ctx context.Context) error {
	p.shut()
	p.mu.Lock()
	ran := p.ran
	p.mu.Unlock()
	if !ran {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return wrap("shutdown", context.Cause(ctx))
	}
}
