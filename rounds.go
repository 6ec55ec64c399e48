package worqr

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

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

const (
	maxStarts   = 1000 // tasks started by one round
	maxOutcomes = 1000 // tasks ended by one round
	firstAsk    = 4    // starts asked for after a quiet time
	worthwhile  = 32   // ends for which a second round is sent
)

// rounds is the conversation of one worker with one queue, from join to leave: what
// comes up while a round is under way gathers for the next. A round carries the
// ends of processes, acknowledgements of cancels and the wish for tasks.
//
//	wake, free slot, end of a task, cancel ─▶ kick ─▶ converse:
//	    compose ─▶ send ─▶ the answer ─▶ apply ─▶ tasks to their takers, and again
//
// While tasks flow, a second round is sent behind the first, on a connection of its
// own, so that neither side waits for the other.
//
// It owns what the worker holds on the queue. A goroutine runs only while
// there is something to say.
type rounds struct {
	queue   *Queue
	worker  string          // id
	base    context.Context // parent of the tasks' contexts
	serve   *service        // takes tasks on its own; nil when the queue is not handled
	ctx     context.Context // ends with the rounds
	stop    context.CancelFunc
	asked   int64                   // the token that the join named
	hauling atomic.Bool             // a batch is being moved to the queue
	batch   string                  // the next one, as the last beat saw it; for beats only
	ear     *redisconn.Subscription // set by listen
	upset   logs.Outage             // about rounds
	odd     logs.Outage             // about a queue that cannot be read

	mu        sync.Mutex    // protects the fields below
	silence   chan struct{} // closed when there is nothing more to say; nil while silent
	ended     error         // why there will be no more rounds
	closing   bool          // start nothing any more
	silent    bool          // say nothing any more
	held      map[string]*Task
	refused   []*Task       // held, and to go back, which Redis has refused
	outcomes  []*settlement // to be said
	wants     []*want       // to be said
	look      bool          // ask for tasks, or pass the wake-up on
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
	clock     *time.Timer // has the worker look when the next task is due
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
	enough    int      // outcomes for which a second round is to be sent; 0 while none is

	gathered chan struct{} // has an element when there are enough, or nothing need wait; holds one
}

func newRounds(base context.Context, q *Queue, worker string, serve *service, s stay) *rounds {
	r := &rounds{
		queue: q, worker: worker, serve: serve, base: base, asked: s.asked, number: s.round, answered: s.round, token: s.asked, seen: s.asked, said: s.asked,
		held: map[string]*Task{}, gathered: make(chan struct{}, 1), ask: firstAsk, look: serve != nil, renewed: time.Now(),
	}
	r.turned = sync.NewCond(&r.mu)
	r.dropped.Log, r.dropped.Queue = q.peer.log, q.id
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.clock = time.AfterFunc(time.Hour, func() { r.poke() })
	r.clock.Stop()
	if serve != nil && serve.options().Exclusive {
		r.fence = time.AfterFunc(r.queue.peer.exclusive(), r.unsure)
	}
	return r
}

// start asks for up to n tasks.
func (r *rounds) start(ctx context.Context, n int) ([]*Task, error) {
	w := &want{n: n, got: make(chan taken, 1)}
	r.mu.Lock()
	if r.ended != nil || r.closing {
		defer r.mu.Unlock()
		return nil, r.refuse()
	}
	r.wants = append(r.wants, w)
	r.hurry()
	r.kick()
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
		r.giveBack(t)
	}
	r.kick()
	return nil, cause
}

// await waits for the answer to a request that becomes part of a round, until ctx ends
// or Redis is silent: rounds are repeated.
func await[T any](ctx context.Context, r *rounds, answer <-chan T) (T, error) {
	p := r.queue.peer
	timer := timers.Get().(*time.Timer)
	timer.Reset(p.opts.CallTimeout)
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
		if p.work[0].Silent() && p.work[1].Silent() {
			return none, errSilent
		}
		timer.Reset(p.opts.CallTimeout / 4)
	}
}

// timers are stopped ones.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

var errSilent = fmt.Errorf("no answer from Redis: %w", os.ErrDeadlineExceeded)

// refuse is why a request cannot be made any more. r.mu is held.
func (r *rounds) refuse() error {
	if r.ended != nil {
		return r.ended
	}
	return ErrNotWorking
}

// settle ends a process.
func (r *rounds) settle(ctx context.Context, t *Task, o store.Outcome) settled {
	s := &settlement{Outcome: t.outcome(o), done: make(chan settled, 1)}
	r.say(s)
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
		return settled{err: fmt.Errorf("%w: %w", redisconn.ErrUnknown, cause), unknown: true} // not under r.mu: it calls the cause
	}
}

// unsay takes back a settlement, and tells whether it was not said yet.
func (r *rounds) unsay(s *settlement) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.outcomes, s)
	if i >= 0 {
		r.outcomes = slices.Delete(r.outcomes, i, i+1)
	}
	return i >= 0
}

// say has a settlement be part of the next round.
func (r *rounds) say(s *settlement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		s.tell(settled{err: lost(r.ended)})
		return
	}
	r.outcomes = append(r.outcomes, s)
	r.kick()
	if s.done != nil || s.Verb == store.Stop {
		r.hurry()
	}
	if r.enough > 0 && len(r.outcomes) >= r.enough {
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

// poke has the worker look at the queue, and tells whether it will.
func (r *rounds) poke() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = true
	r.kick()
	return r.ended == nil && !r.silent
}

// kick begins to talk when there is something to say. r.mu is held.
func (r *rounds) kick() {
	if r.silence == nil && r.ended == nil && !r.silent && r.due() {
		r.silence = make(chan struct{})
		r.queue.peer.background.Go(r.converse)
	}
}

// hush ends the talk. r.mu is held.
func (r *rounds) hush() {
	close(r.silence)
	r.silence = nil
	r.turned.Broadcast()
}

// due reports whether there is something to say. r.mu is held.
func (r *rounds) due() bool {
	return len(r.outcomes) > 0 || len(r.wants) > 0 || len(r.cancels.received) > 0 || r.acknowledges() || r.look
}

// acknowledges reports whether there is something to say of cancels. r.mu is held.
func (r *rounds) acknowledges() bool {
	return r.said < r.seen && len(r.held) > 0 && r.unmatched == 0
}

// free reports whether the handler can take a task. r.mu is held.
func (r *rounds) free() bool { return r.serve != nil && !r.closing && r.serve.wants() }

// vacate gives back the slots of an exchange for which no task came. r.mu is
// held.
func (r *rounds) vacate(e *exchange) {
	if r.serve != nil && e != nil {
		r.serve.unreserve(e.slots, true)
		r.serve.answered(e.Ahead)
		e.slots = nil
	}
}

// apply takes in the answer to a round. It is false when the rounds have ended
// meanwhile: what was started is not ours.
func (r *rounds) apply(e *exchange, a *store.Answer) bool {
	if a.Dropped > 0 {
		r.queue.peer.counts.dropped.Add(int64(a.Dropped))
		r.dropped.Add(a.Dropped, e.Keep)
	}
	begun := make([]*Task, len(a.Started))
	for i, s := range a.Started {
		begun[i] = newTask(r, e.Start[i], s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		for _, t := range begun {
			t.cancel(ErrShutdown) // nobody has it
		}
		return false
	}
	for i, s := range e.outcomes {
		what := store.Gone
		if i < len(a.Settled) {
			what = a.Settled[i]
		}
		r.settled(s, what, e.repeated, a.Trouble)
	}
	r.renew(e.sent)
	late := !r.sure() && len(a.Started) > 0
	if late && r.serve != nil {
		r.serve.recalls.Add(1) // nor may what is under way overtake these
	}
	tasks := make([]*Task, 0, len(a.Started))
	for i, s := range a.Started {
		t := begun[i]
		r.token = max(r.token, s.Token)
		r.held[t.AttemptID] = t
		if t.known != nil {
			r.queue.peer.background.Go(func() { r.identify(t) })
		}
		if s.Bytes > 0 {
			o := t.outcome(store.Outcome{Verb: store.Fail, Kind: store.Broken,
				Reason: fmt.Sprintf("the payload of %d bytes does not reach a worker: replies with it are lost", s.Bytes)})
			r.outcomes = append(r.outcomes, &settlement{Outcome: o, ours: true})
			continue
		}
		if late {
			r.giveBack(t) // others may have it, or it was canceled there
			continue
		}
		if e.Crashes > 0 && s.Crashes >= max(e.Crashes-1, 1) {
			if t.risky = r.queue.peer.risk.CompareAndSwap(false, true); !t.risky {
				r.giveBack(t) // one has started on another queue meanwhile
				continue
			}
		}
		tasks = append(tasks, t)
	}
	full := len(a.Started) == len(e.Start) || a.Cut || len(e.slots) > 0 && len(a.Started) >= len(e.Start)-e.Ahead
	tasks = r.distribute(e, tasks, a, late)
	asked := len(e.slots) + e.Ahead
	if a.Last > e.Number {
		asked = 0 // it was overtaken, and so it brings nothing: more may be there
	} else {
		r.flowing = asked > 0 && full
	}
	if asked > 0 {
		if a.Cut {
			r.ask = max(firstAsk, len(tasks)+len(tasks)/4) // not much more fits into a round
		} else if full {
			r.ask = min(2*r.ask, maxStarts)
		} else {
			r.ask = max(firstAsk, len(tasks))
		}
	}
	var trouble error
	if a.Trouble != "" {
		trouble = errors.New(a.Trouble)
	}
	r.odd.Note(r.queue.peer.log, "tasks cannot be started", trouble, "queue", r.queue.id)
	if a.Buried > 0 {
		r.queue.peer.counts.failed.Add(int64(a.Buried))
		r.queue.peer.log.Error("worqr: workers died holding tasks; these are in the failed queue now, listed by Failed",
			"queue", r.queue.id, "tasks", a.Buried, "kind", FailureCrashed, "MaxCrashes", e.Crashes)
	}
	r.hand(e, tasks, full || a.Again)
	if a.Hungry > 0 && r.serve != nil && r.serve.options().Prefetch <= 0 {
		r.recall()
	}
	r.clock.Stop()
	if a.Due >= 0 {
		r.clock.Reset(max(a.Due, 50*time.Microsecond))
	}

	said(e.Stopping, r.held)
	r.said = max(r.said, e.Said)
	covered(a.Cancels, r.held)
	r.postpone(a.Cancels)
	if a.Seen < e.Seen {
		r.queue.peer.log.Error("worqr: Redis has lost writes: its tokens went back", "queue", r.queue.id)
		r.seen, r.said = a.Seen, min(r.said, a.Seen)
	}
	r.seen = max(r.seen, a.Seen)
	if a.Passed != nil {
		r.passed = *a.Passed
	}
	if slices.ContainsFunc(e.Outcomes, func(o store.Outcome) bool { return o.Verb == store.Finish }) {
		r.heard = a.Heard
	}
	r.watched = a.Watched
	if a.Last < e.answered {
		r.lostWrites("a round that was answered is not known")
	}
	r.answered = e.Number
	r.turned.Broadcast()
	r.talked = time.Now()
	r.cancels.learn(e.Heard, a.Tokens, r.held)
	if len(a.Cancels)+len(e.Heard) > 0 {
		r.dropReady()
	}

	if a.Rank == 0 {
		r.listens = time.Now().Add(2 * r.queue.peer.opts.beat())
	}
	r.look = r.look || a.Again || asked > 0 && full && (r.free() || !r.closing && r.serve.roomy())
	return true
}

// leave says what is still to be said, returns all tasks to the front and ends
// the membership. When ctx ends first, the peers do that once the lease lapses.
func (r *rounds) leave(ctx context.Context) error {
	defer r.queue.peer.capacity.Pass()
	r.mu.Lock()
	r.closing = true
	r.hurry()
	r.look = r.serve != nil // to be taken off the idle workers
	r.kick()
	r.mu.Unlock()
	if err := r.quiet(ctx); err != nil {
		r.end(ErrNotWorking)
		return err
	}
	r.interrupt() // before others can start them
	err := twice(func() error {
		s := r.stay()
		n, err := store.Leave(ctx, r.queue.peer.control, r.queue.keys, r.worker, s.asked, s.round)
		r.queue.peer.counts.stopped.Add(int64(n))
		return err
	})
	r.end(ErrNotWorking)
	return err
}

// stay is what ends the membership.
func (r *rounds) stay() stay {
	r.mu.Lock()
	defer r.mu.Unlock()
	return stay{round: r.number, asked: r.asked}
}

// highest is the highest token that was seen.
func (r *rounds) highest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// twice repeats a call whose reply was lost, and which may be repeated.
func twice(call func() error) error {
	err := call()
	if errors.Is(err, redisconn.ErrUnknown) {
		err = call()
	}
	return err
}

// quiet waits until there is nothing more to say, and has nothing be said any
// more: a round after the last would make the leave come too late.
func (r *rounds) quiet(ctx context.Context) error {
	for {
		r.mu.Lock()
		silence := r.silence
		r.silent = silence == nil
		r.mu.Unlock()
		if silence == nil {
			return nil
		}
		select {
		case <-silence:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end makes err the answer to every request from now on.
func (r *rounds) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		return
	}
	r.ended = err
	r.turned.Broadcast()
	r.stop()
	if r.fence != nil {
		r.fence.Stop()
	}
	r.clock.Stop()
	r.dropped.Flush()
	if r.serve != nil {
		r.serve.forgo()
	}
	for _, s := range r.outcomes {
		s.tell(settled{err: lost(err)})
	}
	for _, w := range r.wants {
		w.lose(mishap{err: err})
	}
	r.outcomes, r.wants = nil, nil
	cause := ErrShutdown
	if errors.Is(err, ErrEvicted) {
		cause = ErrEvicted
		r.queue.peer.counts.lost.Add(int64(len(r.held)))
	}
	for _, t := range r.held {
		t.end(cause)
		r.safe(t)
	}
	clear(r.held)
	if r.serve != nil {
		r.serve.withdraw(func(t *Task) bool { return t.rounds == r })
	}
}

// interrupt ends the contexts of all tasks: the time to drain is over.
func (r *rounds) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.held {
		t.end(ErrShutdown)
	}
}

// ousted ends the rounds of a worker that a beat found to be no member.
func (r *rounds) ousted() {
	r.mu.Lock()
	closing := r.closing
	r.mu.Unlock()
	if !closing {
		r.end(ErrEvicted)
		r.queue.peer.capacity.Pass()
		r.queue.peer.evicted(r.worker)
	}
}

// desert disowns the handlers of tasks that are still held though the time to shut
// down is over, and logs how many with the stack of one: at once, since the program
// may end when Run has.
func (r *rounds) desert() {
	r.mu.Lock()
	held := slices.Collect(maps.Values(r.held))
	r.mu.Unlock()
	var one *attempt
	handlers := 0
	for _, t := range held {
		if a := t.attempt.Load(); a != nil && a.forsake(context.Cause(a.ctx)) {
			one = a
			handlers++
		}
	}
	if one != nil {
		r.queue.peer.log.Error("worqr: handlers didn't return after their context ended and are abandoned",
			"queue", r.queue.id, "process", one.task.AttemptID, "handlers", handlers, "cause", context.Cause(one.ctx), "grace", one.opts.Grace, "stack", stackOf(one.label))
	}
}
