package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"

	"github.com/worqr/worqr/internal/store"
)

const (
	MaxStarts   = 1000 // tasks started by one round
	maxOutcomes = 1000 // tasks ended by one round
	firstAsk    = 4    // starts asked for after a quiet time
	worthwhile  = 32   // ends for which another round is sent
)

// A Membership is what a join has agreed with Redis.
type Membership struct {
	Worker  string
	Asked   int64  // the token that the join named
	Round   int64  // rounds are numbered from the next one
	Evicted func() // a round or a beat was refused; called once, without a lock, and must not block
}

// A Session is the conversation of one worker with one queue, from join to leave: what
// comes up while a round is under way gathers for the next. A round carries the
// ends of processes, acknowledgements of cancels and the wish for tasks.
//
//	wake, free slot, end of a task, cancel ─▶ wakeLocked ─▶ runRounds:
//	    compose ─▶ send ─▶ the answer ─▶ apply ─▶ tasks to their takers, and again
//
// While tasks flow, a second round is sent behind the first, on a connection of its
// own, so that neither side waits for the other; far from Redis, up to four are under way.
//
// It owns what the worker holds on the queue. A goroutine runs only while
// there is something to say.
type Session struct {
	engine  *Engine
	queue   *Queue
	member  Membership
	base    context.Context // parent of the tasks' contexts
	ctx     context.Context // ends with the session
	stop    context.CancelFunc
	hauling atomic.Bool // a batch is being moved to the queue
	batch   string      // the next one, as the last beat saw it; for beats only
	deaf    func()      // ends what listen has begun
	upset   logs.Outage // about rounds
	odd     logs.Outage // about a queue that cannot be read

	mu        *monitor      // that of the queue; protects the fields below
	idle      chan struct{} // closed when there is nothing more to say; nil while silent
	ended     error         // why there will be no more rounds
	closing   bool          // start nothing any more
	silent    bool          // say nothing any more
	held      map[string]*Attempt
	refused   []*Attempt // held, and to go back, which Redis has refused
	outbox    []*ending  // to be said
	wants     []*want    // to be said
	troubled  bool       // nothing could be started, by the last answer
	look      bool       // ask for tasks, or pass the wake-up on
	number    int64
	talked    time.Time // when a round was last made or answered
	seen      int64     // the last cancel that an answer brought
	said      int64     // the last cancel of which we have said what it covers of what we hold
	unmatched int       // tasks held of which it isn't known yet which of the known cancels cover them
	answered  int64     // the last round that was
	token     int64     // the highest that was seen, of the queue
	granted   int64     // ms of Redis time: the lease holds until then, by the last answered beat
	ask       int
	cancels   cancels
	listens   time.Time // until when we answer for producers that only publish
	renewed   time.Time // when the last answered round or beat was sent
	fence     *time.Timer
	clock     *time.Timer // fires when the next task is due, and wakes the worker
	mismatch  mismatch
	dropped   logs.Loss
	passed    store.Passed
	passing   time.Time  // when passed began
	heard     bool       // observers hear of finished tasks, by the last answer
	watched   bool       // there are locks, crashes or cancels, likewise
	turned    *sync.Cond // told when a round was answered, and when a talk ends
	flow      flow
	far       distance // when the last round was answered
	flowing   bool     // the last answer brought all that was asked for
	enough    int      // outcomes for which another round is to be sent; 0 while none is

	gathered chan struct{} // has an element when there are enough, or nothing need wait; holds one
}

func newSession(q *Queue, m Membership) *Session {
	q.mu.Lock()
	base, exclusive := q.base, q.opts.Exclusive
	q.mu.Unlock()
	r := &Session{
		mu: &q.mu, engine: q.engine, queue: q, member: m, base: base, number: m.Round, answered: m.Round, token: m.Asked, seen: m.Asked, said: m.Asked,
		held: map[string]*Attempt{}, gathered: make(chan struct{}, 1), ask: firstAsk, look: q.serves(), renewed: time.Now(),
	}
	r.turned = sync.NewCond(r.mu)
	r.dropped.Log, r.dropped.Queue = q.engine.log, q.id
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.clock = time.AfterFunc(time.Hour, func() { r.Wake() })
	r.clock.Stop()
	if q.serves() && exclusive {
		r.fence = time.AfterFunc(r.engine.lease.Sure, r.unsure)
	}
	return r
}

// Start asks for up to n tasks.
func (r *Session) Start(ctx context.Context, n int) ([]*Attempt, error) {
	w := &want{n: n, got: make(chan taken, 1)}
	r.mu.Lock()
	if r.ended != nil || r.closing {
		defer r.mu.Unlock()
		return nil, r.refuseLocked()
	}
	r.wants = append(r.wants, w)
	r.hurryLocked()
	r.wakeLocked()
	r.mu.Unlock()
	t, cause := await(ctx, r, w.got)
	if cause == nil {
		return identified(t.tasks), t.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case t := <-w.got: // both were ready
		r.mu.Unlock()
		defer r.mu.Lock()
		return identified(t.tasks), t.err
	default:
	}
	w.gone = true // tasks that come now are put back
	r.wants = slices.DeleteFunc(r.wants, func(o *want) bool { return o == w })
	for _, t := range w.have {
		r.giveBackLocked(t)
	}
	r.wakeLocked()
	return nil, cause
}

// await waits for the answer to a request that becomes part of a round, until ctx ends
// or Redis is silent: rounds are repeated.
func await[T any](ctx context.Context, r *Session, answer <-chan T) (T, error) {
	patience := r.engine.callTimeout
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
		if r.queue.store.Silent() {
			return none, errSilent
		}
		timer.Reset(patience / 4)
	}
}

// timers are stopped ones.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

var errSilent = fmt.Errorf("no answer from Redis: %w", os.ErrDeadlineExceeded)

// refuseLocked is why a request cannot be made any more.
func (r *Session) refuseLocked() error {
	if r.ended != nil {
		return r.ended
	}
	return ErrNotWorking
}

// settle waits for the answer to what was said.
func (r *Session) settle(ctx context.Context, s *ending) settled {
	d, cause := await(ctx, r, s.done)
	if cause == nil {
		return d
	}
	if r.unsay(s) {
		return settled{err: cause}
	}
	select {
	case d := <-s.done:
		return d // both were ready
	default:
		return settled{err: fmt.Errorf("%w: %w", store.ErrUnknown, cause), unknown: true} // not under r.mu: it calls the cause
	}
}

// unsay takes back a settlement, and tells whether it was not said yet.
func (r *Session) unsay(s *ending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.outbox, s)
	if i >= 0 {
		r.outbox = slices.Delete(r.outbox, i, i+1)
	}
	return i >= 0
}

// sayLocked has an ending be part of the next round.
func (r *Session) sayLocked(s *ending) {
	if r.ended != nil {
		s.tellLocked(settled{err: lost(r.ended)})
		return
	}
	r.outbox = append(r.outbox, s)
	r.wakeLocked()
	if s.done != nil || s.Verb == store.Stop {
		r.hurryLocked()
	}
	if r.enough > 0 && len(r.outbox) >= r.enough {
		r.enough = 0
		r.nudge()
	}
}

// lost is the error of a task whose rounds ended with err.
func lost(err error) error { return &pair{ErrNotOwner, err} }

// A pair is two errors in one. Its text is made when somebody asks for it, since pairs are
// made under locks: the error of a Pool is user code, which may use the peer.
type pair struct{ first, second error }

func (p *pair) Error() string   { return p.first.Error() + ": " + p.second.Error() }
func (p *pair) Unwrap() []error { return []error{p.first, p.second} }

// Wake makes the worker look at the queue, and reports whether it will.
func (r *Session) Wake() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookLocked()
}

func (r *Session) lookLocked() bool {
	r.look = true
	r.wakeLocked()
	return r.ended == nil && !r.silent
}

// wakeLocked begins to talk when there is something to say.
func (r *Session) wakeLocked() {
	if r.idle == nil && r.ended == nil && !r.silent && r.dueLocked() {
		r.idle = make(chan struct{})
		r.engine.background.Go(r.runRounds)
	}
}

// stopLocked ends the talk.
func (r *Session) stopLocked() {
	close(r.idle)
	r.idle = nil
	r.turned.Broadcast()
}

// dueLocked reports whether there is something to say.
func (r *Session) dueLocked() bool {
	return len(r.outbox) > 0 || len(r.wants) > 0 || len(r.cancels.received) > 0 || r.acknowledgesLocked() || r.look
}

// acknowledgesLocked reports whether there is something to say of cancels.
func (r *Session) acknowledgesLocked() bool {
	return r.said < r.seen && len(r.held) > 0 && r.unmatched == 0
}

// freeLocked reports whether the handler can take a task.
func (r *Session) freeLocked() bool { return r.queue.serves() && !r.closing && r.queue.wantsLocked() }

// vacateLocked gives back the slots of an exchange for which no task came.
func (r *Session) vacateLocked(e *exchange) {
	if r.queue.serves() && e != nil {
		r.queue.unreserveLocked(e.slots, true)
		r.queue.answeredLocked(e.Ahead)
		e.slots = nil
	}
}

// Leave says what is still to be said, returns all tasks to the front and ends
// the membership. When ctx ends first, the peers do that once the lease lapses.
func (r *Session) Leave(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	r.hurryLocked()
	r.look = r.queue.serves() // to be taken off the idle workers
	r.wakeLocked()
	r.mu.Unlock()
	if err := r.quiet(ctx); err != nil {
		r.End(ErrNotWorking)
		return err
	}
	r.Interrupt() // before others can start them
	round, _ := r.Last()
	n, err := r.queue.store.Leave(ctx, r.member.Worker, r.member.Asked, round)
	r.engine.counts.Stopped.Add(int64(n))
	r.End(ErrNotWorking)
	return err
}

// Last is the last round, which ends the membership, and the highest token that was seen.
func (r *Session) Last() (round, token int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number, r.token
}

// quiet waits until there is nothing more to say, and has nothing be said any
// more: a round after the last would make the leave come too late.
func (r *Session) quiet(ctx context.Context) error {
	for {
		r.mu.Lock()
		idle := r.idle
		r.silent = idle == nil
		r.mu.Unlock()
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

// End makes err the answer to every request from now on.
func (r *Session) End(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(err)
}

func (r *Session) endLocked(err error) {
	if r.ended != nil {
		return
	}
	r.ended = err
	if r.queue.session == r {
		r.queue.session = nil
	}
	r.turned.Broadcast()
	r.stop()
	if r.fence != nil {
		r.fence.Stop()
	}
	r.clock.Stop()
	r.mu.laterLocked(r.dropped.Flush)
	if r.queue.serves() {
		r.queue.forgoLocked()
	}
	for _, s := range r.outbox {
		s.tellLocked(settled{err: lost(err)})
	}
	for _, w := range r.wants {
		w.loseLocked(mishap{err: err})
	}
	r.outbox, r.wants = nil, nil
	cause := ErrShutdown
	if errors.Is(err, ErrEvicted) {
		cause = ErrEvicted
		r.engine.counts.Lost.Add(int64(len(r.held)))
	}
	for _, t := range r.held {
		t.endLocked(cause)
		r.safeLocked(t)
	}
	clear(r.held)
	if r.queue.serves() {
		r.queue.withdrawLocked(func(t *Attempt) bool { return t.session == r })
	}
}

// Interrupt ends the contexts of all tasks: the time to drain is over.
func (r *Session) Interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.held {
		t.endLocked(ErrShutdown)
	}
}

// Refused ends the session of a worker that a beat found to be no member.
func (r *Session) Refused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing && r.ended == nil { // else the worker knows
		r.endLocked(ErrEvicted)
		r.mu.laterLocked(r.member.Evicted)
	}
}

// Abandon disowns the handlers of tasks that are still held though the time to shut
// down is over, and logs how many with the stack of one: at once, since the program
// may end when Run has.
func (r *Session) Abandon() {
	r.mu.Lock()
	held := slices.Collect(maps.Values(r.held))
	r.mu.Unlock()
	var one *run
	handlers := 0
	for _, t := range held {
		if a := t.run.Load(); a != nil && a.forsake(context.Cause(a.ctx)) {
			one = a
			handlers++
		}
	}
	if one != nil {
		r.engine.log.Error("worqr: handlers didn't return after their context ended and are abandoned",
			one.task.named("handlers", handlers, "cause", context.Cause(one.ctx), "grace", one.opts.Grace, "stack", stackOf(one.label))...)
	}
}
