package worqr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Run joins the queues that have handlers and serves them until ctx ends or Shutdown is
// called. Then it drains: it takes no more tasks, lets handlers go on for Options.Drain,
// ends the contexts of the others with ErrShutdown, returns their tasks to the front, and
// leaves. That takes at most Drain+Grace+5 s.
//
// Run survives every failure of Redis. It fails if it couldn't leave cleanly, if handlers
// were abandoned, if it never reached Redis, with ErrEvictionPolicy, if Redis is older than
// 6.2, or if called twice.
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
	fetch, stop := context.WithCancel(ctx) // ends when there is to be no more work
	defer stop()
	defer context.AfterFunc(p.shutdown, stop)()

	var queues []string
	for id := range p.services {
		queues = append(queues, id)
	}
	slices.Sort(queues)
	if len(queues) == 0 {
		p.log.Warn("worqr: no queue has a handler, so nothing is served")
	}
	if err := p.persist(fetch); err != nil {
		return err
	}
	for _, s := range p.services {
		p.fleet.Want(s.queue.joined())
	}
	p.log.Info("worqr: serving", "worker", p.WorkerID(), "queues", queues, "version", Version)
	<-fetch.Done()
	stuck := p.drain()

	end := context.WithoutCancel(ctx)
	store, cancel := context.WithTimeout(end, leaveTimeout/2)
	defer cancel()
	for _, s := range p.services {
		s.Stored(store)
	}
	leave, cancel := context.WithTimeout(end, leaveTimeout/2)
	defer cancel()
	err := wrap("stop worker", p.alone(leave, func() error { return p.stopWorker(leave) }))
	switch stuck += p.engine.Counts().Stuck.Load(); {
	case stuck == 1:
		err = errors.Join(err, errors.New("worqr: run: a handler didn't return after its context ended and was abandoned"))
	case stuck > 1:
		err = errors.Join(err, fmt.Errorf("worqr: run: %d handlers didn't return after their context ended and were abandoned", stuck))
	}
	return err
}

// begin makes this the run of the peer.
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
		s.SetBase(context.WithoutCancel(ctx))
	}
	p.ran, p.running = true, true
	return nil
}

// reminder is how often Run says that it still cannot start.
const reminder = time.Minute

// persist starts the worker, however long that takes. Somebody waits for it, so it
// says again and again what is wrong.
func (p *Peer) persist(ctx context.Context) error {
	var upset logs.Outage
	began := time.Now()
	said := began
	for retry := store.NewBackoff(); ; {
		err := p.StartWorker(ctx)
		if err == nil {
			upset.Note(p.log, "cannot start the worker; retrying", nil)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrEvictionPolicy) || errors.Is(err, fleet.ErrOld) {
			return err
		}
		upset.Note(p.log, "cannot start the worker; retrying", err)
		if time.Since(said) >= reminder {
			said = time.Now()
			p.log.Error("worqr: still cannot start the worker; retrying", "for", said.Sub(began).Round(time.Second), "err", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retry.Next()):
		}
	}
}

// leaveTimeout is how long Run tries to tell Redis that it has ended.
const leaveTimeout = 5 * time.Second

// drain takes no more tasks and waits for the handlers, in the end with force.
// It returns how many are left.
func (p *Peer) drain() (stuck int64) {
	grace := time.Duration(0)
	var sessions []*engine.Session
	for _, s := range p.services {
		s.Drain()
		grace = max(grace, s.Options().Grace)
		if r, err := p.fleet.Session(s.queue.id); err == nil {
			sessions = append(sessions, r)
		}
	}
	if n := p.engine.Counts().Running.Load(); n > 0 {
		p.log.Info("worqr: draining", "handlers", n, "for", p.opts.Drain)
	}
	done := make(chan struct{})
	go func() {
		for _, s := range p.services {
			s.HandlersDone()
		}
		close(done)
	}()
	select {
	case <-done:
		return 0
	case <-time.After(max(p.opts.Drain, 0)):
	}
	for _, s := range sessions {
		s.Interrupt()
	}
	select {
	case <-done:
		return 0
	case <-time.After(grace):
	}
	for _, s := range sessions {
		s.Abandon()
	}
	return p.engine.Counts().Running.Load() // of those whose tasks they have ended themselves
}

// Shutdown makes Run drain and return, and waits for that. When ctx ends first, Run goes on
// draining. Called before Run, it makes Run fail with ErrShutdown.
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
