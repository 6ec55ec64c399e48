package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

const (
	firstAsk   = 4  // tasks to ask for after a lull
	worthwhile = 32 // outcomes that justify another round
)

// A Membership is what a worker and Redis agreed on when it joined.
type Membership struct {
	Worker  string
	Asked   int64  // the token that the join specified
	Round   int64  // rounds are numbered from the next one
	Evicted func() // a round or a beat was refused; called once, without a lock; must not block
}

// A Session is one membership of a worker in a queue, from join to leave. Whatever arrives
// while a round is in flight goes into the next one. A round carries outcomes, acknowledgements of
// cancels and requests for tasks.
//
//	wake, free slot, end of a task, cancel ─▶ wakeLocked ─▶ runRounds:
//	    compose ─▶ send ─▶ the answer ─▶ apply ─▶ tasks to their takers, and again
//
// While tasks flow, a second round is sent behind the first, on another connection, so that neither
// side waits for the other. If Redis is far away, up to four are in flight.
//
// The session keeps the tasks that the worker holds on the queue. A goroutine runs only while there
// is something to send.
type Session struct {
	engine *Engine
	queue  *Queue
	view   *store.View
	member Membership
	base   context.Context // parent of the tasks' contexts
	ctx    context.Context // ends with the session
	stop   context.CancelFunc
	deaf   func()      // ends the subscription made by listen
	upset  logs.Outage // failed rounds
	odd    logs.Outage // a queue that can't be read

	mu       *monitor      // the queue's; protects the fields below
	draining chan struct{} // closed when the worker begins to leave; not replaced
	idle     chan struct{} // closed when there is nothing more to send; nil between talks
	ended    error         // why there are no more rounds
	closing  bool          // start no more tasks
	returned bool          // its tasks are at the front, since the worker has left
	silent   bool          // send no more rounds
	drains   bool          // draining is closed
	held     map[string]*Attempt
	recalls  int        // how many times ready tasks were recalled
	refused  []*Attempt // tasks still held because Redis refused to take them back
	outbox   []*ending  // endings to send
	wants    []*want    // requests to send
	troubled bool       // according to the last answer, nothing could be started
	look     bool       // ask for tasks, or pass the wake-up on
	number   int64
	talked   time.Time // when a round was last made or answered
	seen     int64     // the last cancel that an answer contained
	said     int64     // the last cancel for which we've told Redis which of our tasks it covers
	answered int64     // the last answered round
	token    int64     // the highest token seen on the queue since Redis last lost some
	losses   int       // how many times it did
	granted  int64     // ms of Redis time until which the lease holds, according to the last answered beat
	pulsed   time.Time // when that answer was handled
	ask      int
	cancels  cancels
	listens  time.Time // end of the period in which this worker answers for producers that only publish
	renewed  time.Time // when the last answered round or beat was sent
	fence    *time.Timer
	clock    *time.Timer // fires when the next task is due, and wakes the worker
	mismatch mismatch
	dropped  logs.Loss
	passed   store.Passed
	passing  time.Time  // when passed was reset
	heard    bool       // according to the last answer, observers want events of finished tasks
	turned   *sync.Cond // signaled when a round is answered and when a talk ends
	flow     flow
	far      distance // as of the last answered round
	flowing  bool     // the last answer brought all that was asked for
	enough   int      // outcomes that justify another round; 0 if no other round may be sent

	gathered chan struct{} // holds a value when enough outcomes have gathered, or nothing must wait; capacity 1
}

func newSession(q *Queue, v *store.View, m Membership) *Session {
	q.mu.Lock()
	base, exclusive := q.base, q.opts.Exclusive
	q.mu.Unlock()
	s := &Session{
		mu: &q.mu, engine: q.engine, queue: q, view: v, member: m, base: base, number: m.Round, answered: m.Round, token: m.Asked, seen: m.Asked, said: m.Asked,
		held: map[string]*Attempt{}, cancels: cancels{map[hash]map[string]bool{}}, draining: make(chan struct{}), gathered: make(chan struct{}, 1), ask: firstAsk, look: q.serves(), renewed: time.Now(),
	}
	s.turned = sync.NewCond(s.mu)
	s.dropped.Log, s.dropped.Queue = q.engine.Log, q.id
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.clock = time.AfterFunc(time.Hour, func() { s.Wake() })
	s.clock.Stop()
	if q.serves() && exclusive {
		s.fence = time.AfterFunc(s.engine.Lease.Sure, s.unsure)
	}
	return s
}

func (s *Session) Start(ctx context.Context, n int) (all []*Attempt, err error) {
	err = retry(ctx, s.engine.CallTimeout, func() error {
		all, err = s.start(ctx, n)
		return err
	})
	return all, err
}

func (s *Session) start(ctx context.Context, n int) ([]*Attempt, error) {
	w := &want{n: n, got: make(chan taken, 1)}
	s.mu.Lock()
	if s.ended != nil || s.closing {
		defer s.mu.Unlock()
		return nil, s.refuseLocked()
	}
	s.wants = append(s.wants, w)
	s.hurryLocked()
	s.wakeLocked()
	s.mu.Unlock()
	t, cause := await(ctx, s, w.got)
	if cause == nil {
		return s.given(t.tasks), t.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case t := <-w.got: // both were ready
		s.mu.Unlock()
		defer s.mu.Lock()
		return s.given(t.tasks), t.err
	default:
	}
	w.gone = true // tasks that still arrive are returned
	s.wants = slices.DeleteFunc(s.wants, func(o *want) bool { return o == w })
	for _, t := range w.have {
		s.giveBackLocked(t)
	}
	s.wakeLocked()
	return nil, cause
}

// await waits for the answer to a request that becomes part of a round. It stops when ctx ends or
// Redis is silent: rounds themselves are repeated until they're answered.
func await[T any](ctx context.Context, s *Session, answer <-chan T) (T, error) {
	patience := s.engine.CallTimeout
	timer := timers.Get().(*time.Timer)
	timer.Reset(patience)
	defer timers.Put(timer)
	defer timer.Stop()
	var none T
	for {
		select {
		case got := <-answer:
			return got, nil
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-timer.C:
		}
		if s.view.Silent() {
			return none, errSilent
		}
		timer.Reset(patience / 4)
	}
}

// timers holds stopped timers.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

var errSilent = fmt.Errorf("no answer from Redis: %w", os.ErrDeadlineExceeded)

// refuseLocked returns why the session accepts no more requests.
func (s *Session) refuseLocked() error {
	if s.ended != nil {
		return s.ended
	}
	return ErrNotWorking
}

// settle waits until Redis has answered an ending.
func (s *Session) settle(ctx context.Context, end *ending) settled {
	d, cause := await(ctx, s, end.done)
	if cause == nil {
		return d
	}
	if s.unsay(end) {
		return settled{err: cause}
	}
	select {
	case d := <-end.done:
		return d // both were ready
	default:
		return settled{err: fmt.Errorf("%w: %w", store.ErrUnknown, cause), unknown: true} // not under s.mu: calls cause's methods
	}
}

// unsay withdraws an ending, and reports whether it hadn't been sent yet.
func (s *Session) unsay(end *ending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.outbox, end)
	if i >= 0 {
		s.outbox = slices.Delete(s.outbox, i, i+1)
	}
	return i >= 0
}

// sayLocked adds an ending to the next round.
func (s *Session) sayLocked(end *ending) {
	if s.ended != nil {
		end.tellLocked(settled{err: lost(s.ended)})
		return
	}
	s.outbox = append(s.outbox, end)
	s.wakeLocked()
	if end.done != nil || end.Verb == store.Stop {
		s.hurryLocked()
	}
	if s.enough > 0 && len(s.outbox) >= s.enough {
		s.enough = 0
		s.nudge()
	}
}

// lost returns the error of a task whose rounds ended with err.
func lost(err error) error { return &pair{ErrNotOwner, err} }

// A pair joins two errors. It formats lazily, because pairs are made under locks and a Pool's error
// is user code that may call the peer.
type pair struct{ first, second error }

func (p *pair) Error() string   { return p.first.Error() + ": " + p.second.Error() }
func (p *pair) Unwrap() []error { return []error{p.first, p.second} }

// Wake makes the worker ask for tasks, and reports whether it will.
func (s *Session) Wake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookLocked()
}

func (s *Session) lookLocked() bool {
	s.look = true
	s.wakeLocked()
	return s.ended == nil && !s.silent
}

// wakeLocked starts the talk if there is something to send.
func (s *Session) wakeLocked() {
	if s.idle == nil && s.ended == nil && !s.silent && s.dueLocked() {
		s.idle = make(chan struct{})
		s.engine.background.Go(s.runRounds)
	}
}

func (s *Session) stopLocked() {
	close(s.idle)
	s.idle = nil
	s.turned.Broadcast()
}

// dueLocked reports whether there is something to send.
func (s *Session) dueLocked() bool {
	return len(s.outbox) > 0 || len(s.wants) > 0 || len(s.cancels.received) > 0 || s.acknowledgesLocked() || s.look
}

// acknowledgesLocked reports whether there is something to report about cancels.
func (s *Session) acknowledgesLocked() bool {
	return s.said < s.seen && len(s.held) > 0
}

// freeLocked reports whether the handler can take a task.
func (s *Session) freeLocked() bool { return s.queue.serves() && !s.closing && s.queue.wantsLocked() }

// vacateLocked gives back the slots for which an exchange got no task.
func (s *Session) vacateLocked(e *exchange) {
	if s.queue.serves() && e != nil && !e.lent {
		s.queue.unreserveLocked(e.slots, true)
		s.queue.asked -= e.Ahead
		e.slots = nil
	}
}

// Leave sends everything that hasn't been sent, returns all tasks to the front and ends the
// membership. If ctx ends first, other peers return the tasks once the lease expires.
func (s *Session) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.drainLocked()
	s.hurryLocked()
	s.look = s.queue.serves() // so that Redis no longer counts the worker as idle
	s.wakeLocked()
	s.mu.Unlock()
	if err := s.quiet(ctx); err != nil {
		s.End(ErrNotWorking)
		return err
	}
	s.Interrupt() // before other workers can start them
	n, err := s.view.Leave(ctx, s.member.Worker, s.member.Asked, s.Last())
	s.queue.counts.Stopped.Add(int64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = err == nil
	s.endLocked(ErrNotWorking)
	return err
}

// Drain closes Attempt.Draining: the worker begins to leave.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainLocked()
}

func (s *Session) drainLocked() {
	if !s.drains {
		s.drains = true
		close(s.draining)
	}
}

// Last returns the last round, which ends the membership.
func (s *Session) Last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// quiet waits until the session is idle and then silences it: another round would make the leave
// stale.
func (s *Session) quiet(ctx context.Context) error {
	for {
		s.mu.Lock()
		idle := s.idle
		s.silent = idle == nil
		s.mu.Unlock()
		if idle == nil {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// End makes every later request fail with err.
func (s *Session) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(err)
}

func (s *Session) endLocked(err error) {
	if s.ended != nil {
		return
	}
	s.ended = err
	if s.queue.session == s {
		s.queue.session = nil
	}
	s.turned.Broadcast()
	s.stop()
	if s.fence != nil {
		s.fence.Stop()
	}
	s.clock.Stop()
	s.mu.laterLocked(s.dropped.Flush)
	if s.queue.serves() {
		s.queue.forgoLocked()
	}
	for _, end := range s.outbox {
		end.tellLocked(settled{err: lost(err)})
	}
	for _, w := range s.wants {
		w.loseLocked(mishap{err: err})
	}
	s.outbox, s.wants = nil, nil
	cause := ErrShutdown
	if errors.Is(err, ErrEvicted) {
		cause = ErrEvicted
		s.queue.counts.Lost.Add(int64(len(s.held)))
	}
	for _, t := range s.held {
		if s.returned {
			t.returnedLocked(cause)
		} else {
			t.lostLocked(cause)
		}
		t.endLocked(cause)
		s.safeLocked(t)
	}
	clear(s.held)
	if s.queue.serves() {
		s.queue.withdrawLocked(func(t *Attempt) bool { return t.session == s })
	}
}

// Interrupt ends the contexts of all tasks, when the time to drain is up.
func (s *Session) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.held {
		t.endLocked(ErrShutdown)
	}
}

// Refused ends the session after a heartbeat found that the worker is no longer a member.
func (s *Session) Refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing && s.ended == nil { // otherwise the worker knows already
		s.endLocked(ErrEvicted)
		s.mu.laterLocked(s.member.Evicted)
	}
}

// Abandon disowns the handlers of tasks that are still held when the time to shut down is up. It
// logs their number and the stack of one, immediately, since the program may exit when Run returns.
func (s *Session) Abandon() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	s.mu.Unlock()
	var one *run
	handlers := 0
	for _, t := range held {
		if r := t.run.Load(); r != nil && r.forsake(context.Cause(r.ctx)) {
			one = r
			handlers++
		}
	}
	if one != nil {
		s.engine.Log.Error("worqr: handlers didn't return after their context ended and are abandoned",
			one.task.named("handlers", handlers, "cause", context.Cause(one.ctx), "grace", one.opts.Grace, "stack", stackOf(one.label))...)
	}
}
