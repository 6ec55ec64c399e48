package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A Handler works on one task. Returning nil finishes it. An error puts it back
// to the front of the queue, after a short pause; so does a panic, which does
// not harm the peer. Failures are logged, at most one a second. As many tasks
// that always fail as there are handlers in the fleet therefore hold up the
// queue: cancel them.
//
// The context ends when the task is no longer to be worked on, and
// context.Cause tells why: ErrCanceled, the task was canceled and will not run
// again; ErrEvicted, this peer was given up for dead and others may be running
// the task now; ErrShutdown, the time to drain is over and the task goes back
// to the front. It carries the values of Run's context.
//
// A handler must be prepared for a task that has run before, in part or in
// whole: delivery is at least once. Where that matters beyond what the handler
// can see, hand t.Token to the system that it changes and have that refuse
// lower tokens.
type Handler func(ctx context.Context, t *Task) error

// HandleOptions are what a handler can be told. Nil and the zero value are
// valid. All of it applies when a task is taken: a change needs no migration
// of what waits.
type HandleOptions struct {
	// Concurrency is how many tasks of the queue run at once; 0 is GOMAXPROCS,
	// which is little for handlers that mostly wait.
	Concurrency int
	// Grace is how long Run waits, once it has ended the contexts of handlers
	// because the time to drain is over, for them to return; 0 is 10 s. After
	// that it returns without them.
	Grace time.Duration
	// Exclusive ends the context before any other peer can start the task,
	// whether Redis can be reached or not. Without it, handlers go on through
	// an outage of Redis.
	Exclusive bool
}

const defaultGrace = 10 * time.Second

// Handle has Run serve the queue with h, Concurrency tasks at a time. It is called before Run, once for each
// queue. It panics if h is nil, an option is negative, the queue has a handler,
// or Run was called.
func (q *Queue) Handle(h Handler, opts *HandleOptions) {
	var o HandleOptions
	if opts != nil {
		o = *opts
	}
	switch {
	case h == nil:
		panic(fmt.Sprintf("worqr: the handler of %q is nil", q.name))
	case o.Concurrency < 0 || o.Grace < 0:
		panic(fmt.Sprintf("worqr: a negative option for the handler of %q", q.name))
	}
	o.Concurrency = cmp.Or(o.Concurrency, runtime.GOMAXPROCS(0))
	o.Grace = cmp.Or(o.Grace, defaultGrace)

	q.peer.mu.Lock()
	defer q.peer.mu.Unlock()
	switch {
	case q.peer.ran:
		panic(fmt.Sprintf("worqr: Handle for %q after Run", q.name))
	case q.peer.services[q.name] != nil:
		panic(fmt.Sprintf("worqr: %q has a handler", q.name))
	}
	q.peer.services[q.name] = &service{queue: q, handler: h, opts: o, drained: make(chan struct{}), stored: make(chan struct{}, 1)}
}

// A service is a handled queue of a peer. It outlives the incarnations of the
// worker, and so do the handlers that run.
type service struct {
	queue   *Queue
	handler Handler
	opts    HandleOptions
	base    context.Context // parent of the tasks' contexts; set by Run
	drained chan struct{}   // closed when draining begins
	upset   complaint

	handlers sync.WaitGroup // that have not returned
	stored   chan struct{}  // has an element when an end was stored; holds one

	mu       sync.Mutex // protects the fields below
	running  int
	ending   int // tasks whose end is to be stored
	draining bool
	said     time.Time // when a failure was logged
	unsaid   int       // failures since
}

// free is how many more tasks may run.
func (s *service) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	return s.opts.Concurrency - s.running
}

// reserve takes up to n free slots and returns how many it got.
func (s *service) reserve(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0
	}
	n = min(n, s.opts.Concurrency-s.running)
	s.running += n
	s.handlers.Add(n)
	s.queue.peer.counts.running.Add(int64(n))
	return n
}

// release gives back the slot of a handler that has returned, and whose task is
// about to end.
func (s *service) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.ending++
	s.queue.peer.counts.running.Add(-1)
	s.handlers.Done()
}

// end notes that the end of a task was stored.
func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending--
	select {
	case s.stored <- struct{}{}:
	default:
	}
}

// store waits until the ends of all tasks whose handlers have returned are
// stored, or ctx ends.
func (s *service) store(ctx context.Context) {
	for {
		s.mu.Lock()
		ending := s.ending
		s.mu.Unlock()
		if ending == 0 {
			return
		}
		select {
		case <-s.stored:
		case <-ctx.Done():
			return
		}
	}
}

func (s *service) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain has nothing be taken any more.
func (s *service) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	close(s.drained)
}

// take runs a task in a reserved slot.
func (s *service) take(t *Task) {
	go func() {
		err := errGoexit
		defer func() { // also when the handler ends its goroutine
			if v := recover(); v != nil {
				err = &panicError{v, debug.Stack()}
			}
			s.settle(t, err)
		}()
		err = s.handler(t.ctx, t)
	}()
}

// A panicError is the error of a handler that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// complain logs that a handler failed, at most once a second.
func (s *service) complain(t *Task, err error) {
	s.mu.Lock()
	s.unsaid++
	failures, said := s.unsaid, time.Since(s.said) >= time.Second
	if said {
		s.unsaid, s.said = 0, time.Now()
	}
	s.mu.Unlock()
	if !said {
		return
	}
	attrs := []any{"queue", s.queue.name, "process", t.ID, "failures", failures, "err", err}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, "stack", string(p.stack))
	}
	s.queue.peer.log.Error("worqr: handlers failed; their tasks go back to the front", attrs...)
}

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit")

// freed has the queue's rounds look, if a slot became free that belonged to an
// earlier incarnation; otherwise the end of the task has done so.
func (q *Queue) freed(of *rounds) {
	if r, err := q.rounds(); err == nil && r != of {
		r.poke()
	}
}

// settle ends the task of a handler that returned err.
func (s *service) settle(t *Task, err error) {
	cause := context.Cause(t.ctx)
	switch {
	case err == nil:
	case errors.Is(cause, ErrCanceled), errors.Is(cause, ErrEvicted), errors.Is(cause, ErrShutdown):
	default:
		s.queue.peer.counts.failures.Add(1)
		s.complain(t, err)
		select { // so that a task that cannot succeed does not spin
		case <-time.After(jitter(failurePause)):
		case <-t.ctx.Done():
		case <-s.drained:
		}
		cause = context.Cause(t.ctx)
	}
	s.release() // before the end is told, so that the same round asks for the next task
	defer s.end()
	switch {
	case err == nil:
		s.insist(t, t.Finish)
	case errors.Is(cause, ErrCanceled):
		s.insist(t, t.drop)
	case s.isDraining():
		// It stays ours until the worker leaves, which puts all that is left
		// back in its order.
	default:
		s.insist(t, t.Stop)
	}
	s.queue.freed(t.rounds)
}

// failurePause is the longest time for which the task of a handler that failed
// is held before it goes back.
const failurePause = 500 * time.Millisecond

// insist repeats the end of a task until it is stored or the task is no longer
// ours: the worker was evicted or has left.
func (s *service) insist(t *Task, end func(context.Context) error) {
	for retry := newBackoff(); ; {
		err := end(context.Background())
		if err == nil || errors.Is(err, ErrLost) {
			s.upset.about(s.queue.peer.log, "ends of tasks cannot be stored", nil, "queue", s.queue.name)
			return
		}
		s.upset.about(s.queue.peer.log, "ends of tasks cannot be stored", err, "queue", s.queue.name)
		select {
		case <-time.After(retry.next()):
		case <-t.rounds.ctx.Done():
		}
	}
}
