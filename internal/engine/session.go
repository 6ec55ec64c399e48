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

// A View is a worker's access to a queue; *store.View is one. Its methods may be called concurrently.
type View interface {
	// Send sends a round behind those that were sent before. It doesn't block. It calls done once, later and
	// in order, on the goroutine that reads all replies.
	Send(r *store.Round, done func(*store.Replied))
	// Silent reports whether the queue's server has given no sign of life for the timeout of calls.
	Silent() bool
	// Fetch reads the task of an attempt; nil if the attempt has ended.
	Fetch(ctx context.Context, attempt string) (*store.Fetched, error)
	// CanceledAt returns the last token when a payload was canceled; negative: it wasn't.
	CanceledAt(ctx context.Context, payload store.Digest) (token int64, err error)
	// Held returns what a worker holds, according to Redis: attempt → token.
	Held(ctx context.Context, worker string) (map[string]int64, error)
	// Leave ends the membership, and returns how many tasks went back.
	Leave(ctx context.Context, worker string, round int64) (returned int, err error)
	// Listen calls told for each message, and synced after each gap, until stop is called. Neither may block.
	Listen(worker string, told func(n store.Notice, message []byte), synced func()) (stop func())
}

// A Membership is what a worker and Redis agreed on when it joined.
type Membership struct {
	Worker  string
	Asked   int64  // the token that the join specified
	Round   int64  // rounds are numbered from the next one
	Evicted func() // a round or a heartbeat was refused, or the worker needs a new id; called once, without a lock
	Beat    func() // a heartbeat is wanted now; called without a lock; must not block. nil: none
}

// A Session is one membership of a worker in a queue, from join to leave. Whatever arrives while rounds are in
// flight goes into the next one:
//
//	wake, free slot, end of a task, answer ─▶ nudge ─▶ run: receive ─▶ apply ─▶ tasks to their takers
//	                                                        transmit ─▶ compose ─▶ Send
type Session struct {
	engine   *Engine
	queue    *Queue
	view     View
	member   Membership
	base     context.Context // parent of the tasks' contexts
	ctx      context.Context // ends with the session
	stop     context.CancelFunc
	draining chan struct{} // closed when the worker begins to leave
	poked    chan struct{} // holds a value when run has something to do; capacity 1
	upset    logs.Outage   // failed rounds
	dropped  logs.Loss
	retry    store.Backoff // of failed rounds; used by run
	refusals time.Time     // since when Redis refuses what it will soon accept; zero: it doesn't. Used by run

	mu      *monitor // the queue's; protects the fields below
	state            // what is held, said and in flight
	lease   lease
	marks   marks
	stops   stops
	deaf    func()        // ends the subscription made by listen
	drains  bool          // draining is closed
	quiet   chan struct{} // closed when nothing is said or in flight; nil if nobody waits for that
	clock   *time.Timer   // fires when the claimed time has come
	looking bool          // Redis is being asked what the worker holds
	passes  int           // heartbeats since that was last compared
}

func newSession(q *Queue, v View, m Membership) *Session {
	q.mu.Lock()
	base, exclusive := q.base, q.opts.Exclusive
	q.mu.Unlock()
	s := &Session{
		mu: &q.mu, engine: q.engine, queue: q, view: v, member: m, base: base, draining: make(chan struct{}), poked: make(chan struct{}, 1),
		state: newState(m.Round, q.serves()), marks: marks{token: m.Asked, round: m.Round}, stops: newStops(),
		lease: lease{sure: q.engine.Lease.Sure, renewed: time.Now()},
	}
	s.dropped.Log, s.dropped.Queue = q.engine.Log, q.id
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.clock = time.AfterFunc(time.Hour, func() { s.Wake() })
	s.clock.Stop()
	if q.serves() && exclusive {
		s.lease.fence = time.AfterFunc(s.lease.sure, s.unsure)
	}
	return s
}

// run sends rounds and handles answers until the session has ended.
func (s *Session) run() {
	for {
		select {
		case <-s.poked:
		case <-s.ctx.Done():
			return
		}
		s.receive()
		s.transmit()
	}
}

// nudge wakes run.
func (s *Session) nudge() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// noteLocked has something logged, once the lock is released.
func (s *Session) noteLocked(say func()) { s.engine.notes.Add(say) }

// transmit sends what there is to send.
func (s *Session) transmit() {
	for {
		s.mu.Lock()
		r := s.nextLocked(time.Now())
		s.mu.Unlock()
		if r == nil {
			return
		}
		s.view.Send(&r.Round, func(a *store.Replied) {
			r.answer.Store(a)
			s.nudge()
		})
	}
}

// Start takes up to n tasks for a caller. It blocks until Redis has answered. It fails with ErrNoTask if there are
// none.
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
	s.mu.Unlock()
	s.nudge()
	t, cause := await(ctx, s, w.got)
	if cause == nil {
		return s.given(ctx, t)
	}
	s.mu.Lock()
	select {
	case t := <-w.got: // both were ready
		s.mu.Unlock()
		return s.given(ctx, t)
	default:
	}
	defer s.mu.Unlock()
	w.gone = true // tasks that still arrive are returned
	s.wants = slices.DeleteFunc(s.wants, func(o *want) bool { return o == w })
	for _, t := range w.have {
		s.giveBackLocked(t)
	}
	return nil, cause
}

// given prepares tasks for the caller that asked for them: it reads large ones.
func (s *Session) given(ctx context.Context, got taken) (tasks []*Attempt, err error) {
	for _, t := range got.tasks {
		why := t.fetch(ctx)
		s.mu.Lock()
		switch bad, ok := why.(*unfit); {
		case why == nil:
			t.beganLocked(time.Now())
			tasks = append(tasks, t)
		case ok:
			s.sayLocked(t.unbegun(bad.End))
		default:
			s.giveBackLocked(t)
			err = why
		}
		s.mu.Unlock()
	}
	switch {
	case len(tasks) > 0:
		return tasks, nil
	case err != nil:
		return nil, err
	case got.err == nil:
		return nil, ErrNoTask
	}
	return nil, got.err
}

// await waits for the answer to a request that becomes part of a round. It stops when ctx ends or
// Redis is silent: rounds themselves are repeated until they're answered.
func await[T any](ctx context.Context, s *Session, answer <-chan T) (T, error) {
	patience := s.engine.CallTimeout
	timer := timers.Get().(*time.Timer)
	timer.Reset(patience)
	defer timers.Put(timer)
	defer timer.Stop()
	due := time.Now().Add(patience)
	var none T
	for {
		select {
		case got := <-answer:
			return got, nil
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-timer.C:
		}
		now := time.Now()
		if stood := now.Sub(due) > patience/4; !stood && s.view.Silent() { // a process that stood still has heard nothing
			return none, errSilent
		}
		timer.Reset(patience / 4)
		due = now.Add(patience / 4)
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
	i := slices.Index(s.say, end)
	if i >= 0 {
		s.say = slices.Delete(s.say, i, i+1)
		s.calmLocked()
	}
	return i >= 0
}

// sayLocked adds an ending to the next round.
func (s *Session) sayLocked(end *ending) {
	if s.ended != nil {
		end.tellLocked(settled{err: lost(s.ended)})
		return
	}
	s.say = append(s.say, end)
	if n := len(s.flight); n == 0 || n < maxFlight && len(s.say) >= s.worth() {
		s.nudge()
	}
}

// giveBackLocked returns an unbegun task to the front.
func (s *Session) giveBackLocked(t *Attempt) { s.sayLocked(t.unbegun(store.End{Verb: store.Stop})) }

// recallLocked returns the ready tasks. Those of rounds in flight follow them, so that they don't overtake these.
func (s *Session) recallLocked() {
	s.recalls++
	for _, t := range s.queue.withdrawLocked(func(t *Attempt) bool { return t.session == s }) {
		s.giveBackLocked(t)
	}
}

// Wake makes the worker ask for tasks, and reports whether it will.
func (s *Session) Wake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookLocked()
}

func (s *Session) lookLocked() bool {
	s.look = true
	s.nudge()
	return s.ended == nil && !s.silent
}

// listen makes the session receive messages about work and cancels.
func (s *Session) listen() {
	stop := s.view.Listen(s.member.Worker, s.notify, func() { s.Wake() }) // earlier messages may have been missed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = stop
}

// Unlisten ends the subscription made by listen.
func (s *Session) Unlisten() {
	s.mu.Lock()
	stop := s.deaf
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// notify handles a message from a channel of the queue.
func (s *Session) notify(n store.Notice, message []byte) {
	switch {
	case n == store.IsCanceled:
		s.canceled(message)
	case n == store.Woken && string(message) == store.AskHeartbeat:
		if s.member.Beat != nil {
			s.member.Beat()
		}
	case n == store.Woken:
		s.Wake()
	case n == store.Work:
		// From a producer that only pushes and publishes. All workers receive it; the one that has
		// been idle longest responds for all, and those respond that don't know their rank yet.
		s.mu.Lock()
		defer s.mu.Unlock()
		if time.Now().Before(s.lease.first) || s.idle && s.talked.After(s.lease.ranked) {
			s.lookLocked()
		}
	}
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

// Leave sends everything that hasn't been sent, returns all tasks to the front and ends the
// membership. If ctx ends first, other peers return the tasks once the lease expires.
func (s *Session) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.closing, s.patient = true, time.Now().Add(s.engine.CallTimeout)
	s.drainLocked()
	s.queue.forgoLocked()
	s.mu.Unlock()
	if err := s.hush(ctx); err != nil {
		s.End(ErrNotWorking)
		return err
	}
	s.Interrupt() // before other workers can start them
	n, err := s.view.Leave(ctx, s.member.Worker, s.Last())
	s.queue.counts.Stopped.Add(int64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(ErrNotWorking, err == nil)
	return err
}

// hush waits until everything is said and answered, and then silences the session: another round would make the
// leave a late copy.
func (s *Session) hush(ctx context.Context) error {
	for {
		s.mu.Lock()
		quiet := s.quietLocked()
		s.mu.Unlock()
		if quiet == nil {
			return nil
		}
		s.nudge()
		select {
		case <-quiet:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// quietLocked silences the session if nothing is said or in flight. Otherwise it returns what to wait for.
func (s *Session) quietLocked() <-chan struct{} {
	if s.silent = s.silent || s.ended != nil || len(s.say)+len(s.flight) == 0; s.silent {
		return nil
	}
	if s.quiet == nil {
		s.quiet = make(chan struct{})
	}
	return s.quiet
}

// calmLocked wakes hush, if nothing is said or in flight.
func (s *Session) calmLocked() {
	if s.quiet != nil && (s.silent || s.ended != nil || len(s.say)+len(s.flight) == 0) {
		close(s.quiet)
		s.quiet = nil
	}
}

// End makes every later request fail with err.
func (s *Session) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(err, false)
}

// Refused ends the session after a heartbeat found that the worker is no longer a member.
func (s *Session) Refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictedLocked()
}

// evictedLocked ends the session: the worker is no longer a member, or must not be one. Whoever is about to leave
// knows already.
func (s *Session) evictedLocked() {
	if s.ended != nil {
		return
	}
	if s.closing {
		s.endLocked(ErrNotWorking, false)
		return
	}
	s.endLocked(ErrEvicted, false)
	s.engine.background.Go(s.member.Evicted)
}

// endLocked ends the session. returned reports that its tasks are at the front, since the worker has left.
func (s *Session) endLocked(err error, returned bool) {
	if s.ended != nil {
		return
	}
	s.ended = err
	if s.queue.session == s {
		s.queue.session = nil
	}
	s.stop()
	s.lease.stop()
	s.clock.Stop()
	s.noteLocked(s.dropped.Flush)
	s.queue.forgoLocked()
	for _, r := range s.flight {
		s.vacateLocked(r)
		s.loseLocked(r, err)
	}
	for _, end := range s.say {
		end.tellLocked(settled{err: lost(err)})
	}
	for _, w := range s.wants {
		w.loseLocked(err, false)
	}
	s.say, s.wants, s.flight = nil, nil, nil
	cause := ErrShutdown
	if err == ErrEvicted {
		cause = ErrEvicted
		s.queue.counts.Lost.Add(int64(len(s.held)))
	}
	s.queue.withdrawLocked(func(t *Attempt) bool { return t.session == s })
	for _, t := range s.held {
		if returned {
			t.returnedLocked(cause)
		} else {
			t.lostLocked(cause)
		}
		t.endLocked(cause)
		s.safeLocked(t)
	}
	clear(s.held)
	s.calmLocked()
}

// loseLocked tells the callers of a round in flight that the session has ended.
func (s *Session) loseLocked(r *round, err error) {
	for _, end := range r.ends {
		end.tellLocked(settled{err: lost(&pair{err, store.ErrUnknown}), unknown: true})
	}
	for _, w := range r.wants {
		w.loseLocked(err, true)
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

// lose ends the context of a task that another worker may have.
func (s *Session) lose(t *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.endLocked(ErrEvicted)
}

// safeLocked records that a risky task has ended, so another may start.
func (s *Session) safeLocked(t *Attempt) {
	if t.risky {
		t.risky = false
		s.engine.risk.Store(false)
		if s.queue.serves() {
			s.look = true
			s.nudge()
		}
	}
}

// maxPayload returns the size of the largest payload that a handler gets.
func (e *Engine) maxPayload() int {
	if e.MaxPayload <= 0 {
		return store.MaxDigested
	}
	return min(e.MaxPayload, store.MaxDigested)
}

// isUnknown reports whether Redis may have carried out what failed with err. A Pool's error is user code
// whose methods may use the peer, so call it without a lock.
func isUnknown(err error) bool { return errors.Is(err, store.ErrUnknown) }
