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
	"github.com/worqr/worqr/internal/logs"

	"github.com/worqr/worqr/internal/redisconn"
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
	if p.present() != nil {
		return nil
	}
	if err := p.checkRedis(ctx); err != nil {
		return wrap("start worker", err)
	}
	p.mu.Lock()
	if p.used {
		p.id = newID()
	}
	p.used = true
	w := newWorker(p, p.id)
	p.mu.Unlock()
	if err := w.register(ctx, p.calls, w.id); err != nil {
		if errors.Is(err, redisconn.ErrUnknown) { // it may be there
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.beat())
			defer cancel()
			_ = p.unregister(tidy, w.id) // as well as can be done
		}
		return wrap("start worker", err)
	}
	p.mu.Lock()
	p.worker = w
	p.mu.Unlock()
	w.loops.Go(w.keep)
	w.loops.Go(w.belong)
	return nil
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
	w, id := p.present(), p.WorkerID()
	if w == nil {
		return wrap("stop worker", ErrNotStarted)
	}
	err := w.leave(ctx)
	for _, l := range p.work {
		l.Abort()
	}
	p.control.Abort()
	p.engine.Wait()
	p.mu.Lock()
	p.worker = nil
	p.mu.Unlock()
	if err == nil {
		p.log.Info("worqr: stopped", "worker", id)
	} else {
		p.log.Warn("worqr: stopped without leaving; peers return its tasks once its lease has lapsed", "worker", id, "err", err)
	}
	p.flushLog()
	return wrap("stop worker", err)
}

// present is the started worker, or nil.
func (p *Peer) present() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

// StartWork joins those who serve the queue, so that StartTask may be called.
// It fails with ErrNotStarted when the worker is not started, and does nothing
// when it works on the queue. A queue with a handler is served by Run: before and
// after Run, StartWork fails with ErrInvalid for it.
func (q *Queue) StartWork(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("start work", q.bad)
	}
	w := q.peer.present()
	switch {
	case w == nil:
		return q.wrap("start work", fmt.Errorf("%w; call StartWorker first", ErrNotStarted))
	case !q.peer.isRunning() && q.peer.handles(q.id):
		return q.wrap("start work", errHandled)
	}
	return q.wrap("start work", w.join(ctx, q))
}

var errHandled = fmt.Errorf("%w: the queue has a handler; call Run, which serves it", ErrInvalid)

// handles reports whether a queue has a handler.
func (p *Peer) handles(queue string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[queue] != nil
}

// wants reports whether the worker works on a queue, or is to.
func (w *worker) wants(queue string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted[queue] != nil
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
	w := q.peer.present()
	if w == nil {
		return q.wrap("stop work", ErrNotWorking)
	}
	return q.wrap("stop work", w.part(ctx, q.id))
}

// session is that of the present worker with the queue.
func (q *Queue) session() (*engine.Session, error) {
	w := q.peer.present()
	if w == nil {
		return nil, fmt.Errorf("%w; call StartWorker and StartWork first", ErrNotWorking)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := w.members[q.id]; {
	case r != nil:
		return r.Session, nil
	case w.wanted[q.id] != nil:
		return nil, fmt.Errorf("%w, and is coming back", ErrEvicted)
	}
	return nil, fmt.Errorf("%w; call StartWork first", ErrNotWorking)
}

// A serving is a session, and with which queue.
type serving struct {
	*engine.Session
	queue *Queue
	id    string // of the worker
	asked int64  // the token that the join named
}

// stay is what ends the membership.
func (m *serving) stay() stay {
	round, _ := m.Last()
	return stay{round: round, asked: m.asked}
}

// A worker is a started peer: its registration and its beats. Its id changes
// each time it was evicted; everything else stays.
type worker struct {
	peer    *Peer
	ctx     context.Context
	stop    context.CancelFunc
	last    context.Context // outlives ctx, for what nobody else will see to
	hasten  context.CancelFunc
	turn    chan struct{} // has the worker look at once where it belongs; holds one
	loops   sync.WaitGroup
	started time.Time
	upset   logs.Outage // about beats
	outside logs.Outage // about joins

	joining chan struct{} // has an element during a join or a leave, which hold it before mu

	mu       sync.Mutex // protects the fields below
	id       string
	evicted  bool
	closing  bool
	outdated bool              // the registration, or the names of the queues, could not be written
	wanted   map[string]*Queue // to be served, whatever happens
	members  map[string]*serving
	numbers  map[membership]int64 // last rounds of what was left under this id
	spent    map[membership]bool  // where this id may have been failed
	loose    map[membership]stay  // memberships that may be there and should not
	compare  time.Time            // when to compare leases with other peers; zero: it was done
	warned   map[string]bool      // queues of which it was said that leases differ
	dead     obituaries           // to be buried
	prune    time.Time            // when to look for the dead on the roster; zero: they are off, as far as we know

	redis   int64   // ms of Redis time when the last beat was answered; owned by the keeper
	witness witness // likewise
	beats   string  // the id under which it beat last; likewise
}

func newWorker(p *Peer, id string) *worker {
	w := &worker{
		peer: p, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		wanted: map[string]*Queue{}, members: map[string]*serving{},
		numbers: map[membership]int64{}, spent: map[membership]bool{}, loose: map[membership]stay{},
		warned: map[string]bool{}, dead: obituaries{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.last, w.hasten = context.WithCancel(context.Background())
	w.pruneLater()
	return w
}

// want has the worker join the queue and stay joined.
func (w *worker) want(q *Queue) {
	w.mu.Lock()
	w.wanted[q.id] = q
	w.mu.Unlock()
	w.hurry()
}

// hurry has the worker look at once where it belongs.
func (w *worker) hurry() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// leave leaves every queue, still beating meanwhile, and ends the worker.
func (w *worker) leave(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	if w.await(ctx) == nil { // a join that is under way has ended; no other begins
		w.pass()
	}
	w.mu.Lock()
	members := slices.Collect(maps.Values(w.members))
	w.mu.Unlock()
	errs := make([]error, len(members))
	var leaving sync.WaitGroup
	for i, r := range members {
		leaving.Go(func() {
			if err := r.Leave(ctx); !errors.Is(err, store.ErrEvicted) {
				errs[i] = r.queue.wrap("leave", err)
			}
		})
	}
	leaving.Wait()
	w.stop()
	stop := context.AfterFunc(ctx, w.hasten)
	w.loops.Wait()
	stop()
	w.hasten()
	for _, r := range members {
		r.Unlisten()
	}
	errs = append(errs, w.loosenAll(ctx))
	if slices.Contains(errs, nil) && ctx.Err() != nil { // Redis answers, and one queue has taken up all the time
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), w.peer.opts.beat())
		defer cancel()
	}
	if err := joined(append(errs, w.peer.unregister(ctx, w.id))); err != nil {
		return fmt.Errorf("this could not be told to Redis, so peers return its tasks once its lease has lapsed: %w", err)
	}
	return nil
}

// keep beats until the worker ends.
func (w *worker) keep() {
	w.repeat(0, w.peer.opts.beat()/4, nil, &w.upset, "heartbeats fail; retrying", func(ctx context.Context) (next time.Duration, err error) {
		at, err := w.beat(ctx)
		return min(redisconn.Jitter(w.peer.opts.beat()/5)+w.peer.opts.beat()*4/5, at), err
	})
}

// repeat does something until the worker ends: at first after a time, then when that
// has told to, sooner where it fails, and whenever there is a turn. Where it fails it
// waits for most, at most.
func (w *worker) repeat(first, most time.Duration, turn <-chan struct{}, upset *logs.Outage, says string, do func(context.Context) (next time.Duration, err error)) {
	retry := redisconn.NewBackoff()
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-timer.C:
		case <-turn:
		}
		ctx, cancel := context.WithTimeout(w.ctx, 2*w.peer.opts.beat())
		next, err := do(ctx)
		cancel()
		switch {
		case w.ctx.Err() != nil:
			return
		case err != nil:
			next = min(retry.Next(), most, next)
		default:
			retry.Reset()
		}
		upset.Note(w.peer.log, says, err, "worker", w.peer.WorkerID())
		timer.Reset(next)
	}
}
