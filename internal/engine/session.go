package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A Membership is what a worker and Redis agreed on when it joined.
type Membership struct {
	Worker  string
	Asked   int64  // the token that the join specified
	Round   int64  // starts are numbered from the next one
	Evicted func() // a round or a heartbeat was refused, or the worker needs a new id; called once, without a lock
	Beat    func() // a heartbeat is wanted now; called without a lock; must not block. nil: none
}

// A Session is one membership of a worker in a queue, from join to leave. Whatever arrives while rounds are in
// flight goes into the next one:
//
//	wake, free slot, end of a task, answer ─▶ nudge ─▶ loop: receive ─▶ apply ─▶ tasks to their takers
//	                                                         transmit ─▶ compose ─▶ Send
type Session struct {
	engine    *Engine
	queue     *Queue
	view      *store.View
	member    Membership
	base      context.Context // parent of the tasks' contexts
	ctx       context.Context // ends with the session
	stop      context.CancelFunc
	draining  chan struct{} // closed when the queue begins to drain, or the worker to leave it
	poked     chan struct{} // holds a value when loop has something to do; capacity 1
	upset     logs.Outage   // failed rounds
	retry     store.Backoff // of failed rounds; used by loop
	postponed time.Time     // since when Redis refuses what it will soon accept; zero: it doesn't. Used by loop
	failed    time.Time     // when a round last failed; used by loop
	silenced  chan struct{} // closed when the session is silent
	deaf      func()        // ends the subscription; set before Join returns

	mu          *monitor // the queue's; protects the fields below
	state                // what is held, said and in flight
	lease       lease
	marks       marks
	stops       stops
	clock       *time.Timer // fires when the claimed time has come
	reconciling bool        // Redis is being asked what the worker holds
	uncompared  int         // heartbeats since that was last compared
}

func newSession(q *Queue, v *store.View, m Membership) *Session {
	q.mu.Lock()
	base, exclusive := q.base, q.opts.Exclusive
	q.mu.Unlock()
	s := &Session{
		mu: &q.mu, engine: q.engine, queue: q, view: v, member: m, base: base,
		draining: make(chan struct{}), poked: make(chan struct{}, 1), silenced: make(chan struct{}),
		state: newState(m.Round, q.serves()), marks: marks{token: m.Asked, round: m.Round},
		lease: lease{sure: q.engine.Lease.Sure, renewed: time.Now()}, stops: stops{attempts: map[string]int64{}},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.clock = time.AfterFunc(time.Hour, func() { s.Wake() })
	s.clock.Stop()
	if q.serves() && exclusive {
		s.lease.expiry = time.AfterFunc(s.lease.sure, s.unsure)
	}
	return s
}

// loop sends rounds and handles answers until the session has ended.
func (s *Session) loop() {
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

// nudge wakes loop.
func (s *Session) nudge() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// transmit sends what there is to send.
func (s *Session) transmit() {
	for {
		s.mu.Lock()
		r := s.nextRoundLocked(time.Now())
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

// sayLocked adds an ending to the next round.
func (s *Session) sayLocked(end *ending) {
	if s.ended != nil {
		end.tellLocked(lost(s.ended))
		return
	}
	s.say = append(s.say, end)
	if n := len(s.flight); n == 0 || n < maxFlight && len(s.say) >= s.worth() {
		s.nudge()
	}
}

// giveBackLocked returns an unbegun task to the front.
func (s *Session) giveBackLocked(t *Attempt) { s.sayLocked(t.unbegun(store.End{Verb: store.Stop})) }

// recallLocked returns the prefetched tasks. Those of rounds in flight follow them, so that they don't overtake these.
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
	return s.wakeLocked()
}

func (s *Session) wakeLocked() bool {
	s.woken = true
	s.nudge()
	return s.ended == nil && !s.silent
}

// Unlisten ends the subscription to messages about work and cancels. Call it after Leave or End.
func (s *Session) Unlisten() { s.deaf() }

// notify handles a message from a channel of the queue.
func (s *Session) notify(n store.Notice, message []byte) {
	switch {
	case n == store.IsCanceled:
		s.stopPayload(message)
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
			s.wakeLocked()
		}
	}
}

// Drain closes Attempt.Draining: the queue begins to drain, or the worker to leave it.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainLocked()
}

func (s *Session) drainLocked() {
	select {
	case <-s.draining:
	default:
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
	s.closing = true
	s.drainLocked()
	s.queue.forgoLocked()
	s.hushLocked()
	s.mu.Unlock()
	s.nudge()
	select {
	case <-s.silenced:
	case <-ctx.Done():
		s.End(ErrNotWorking)
		return context.Cause(ctx)
	}
	s.Interrupt() // before other workers can start them
	n, err := s.view.Leave(ctx, s.member.Worker, s.Last())
	s.queue.counts.Stopped.Add(int64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(ErrNotWorking, err == nil)
	return err
}

// hushLocked silences a session that is about to leave once everything is said and answered: another round would make
// the leave a late copy.
func (s *Session) hushLocked() {
	if s.closing && len(s.say)+len(s.flight) == 0 {
		s.silenceLocked()
	}
}

func (s *Session) silenceLocked() {
	if !s.silent {
		s.silent = true
		close(s.silenced)
	}
}

// End makes every later request fail with err.
func (s *Session) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(err, false)
}

// Evicted ends the session after a heartbeat found that the worker is no longer a member.
func (s *Session) Evicted() {
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
	if s.lease.expiry != nil {
		s.lease.expiry.Stop()
	}
	s.clock.Stop()
	s.queue.forgoLocked()
	s.loseFlightLocked(err)
	for _, end := range slices.Concat(s.say, s.refused) {
		end.tellLocked(lost(err))
	}
	for _, w := range s.wants {
		w.tellLocked(nil, err)
	}
	s.say, s.refused, s.wants = nil, nil, nil
	s.silenceLocked()
	cause := ErrShutdown
	if err == ErrEvicted {
		cause = ErrEvicted
		s.queue.counts.Lost.Add(int64(len(s.held)))
	}
	s.queue.withdrawLocked(func(t *Attempt) bool { return t.session == s })
	for _, t := range s.held {
		outcome := worqrtrace.Lost
		if returned && !t.away { // otherwise a lost reply may have ended it
			outcome = worqrtrace.Stopped
		}
		t.overLocked(outcome, cause)
		s.releaseLocked(t, cause)
	}
}

// loseFlightLocked gives up the rounds in flight. Tasks that were started for callers are lost, and other workers count a
// crash for each; so their error matches store.ErrUnknown, too.
func (s *Session) loseFlightLocked(why error) {
	unknown := &pair{why, store.ErrUnknown}
	for _, r := range s.flight {
		s.vacateRoundLocked(r)
		s.queue.coming -= r.ahead()
		for _, end := range r.ends {
			end.tellLocked(lost(unknown))
		}
		for _, w := range r.wants {
			w.tellLocked(nil, unknown)
		}
	}
	s.flight = nil
}

// Interrupt ends the contexts of all tasks, when the time to drain is up.
func (s *Session) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.held {
		t.interruptLocked(ErrShutdown)
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
		if r := t.run.Load(); r != nil && r.forsake(context.Cause(r.call.Context())) {
			one = r
			handlers++
		}
	}
	if one != nil {
		s.engine.Log.Error("worqr: handlers didn't return after their context ended and are abandoned",
			one.task.named("handlers", handlers, "cause", context.Cause(one.call.Context()), "grace", one.opts.Grace, "stack", one.call.Stack())...)
	}
}
