package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

const (
	maxStarts   = 1000 // tasks started by one round
	maxOutcomes = 1000 // tasks ended by one round
	firstAsk    = 4    // starts asked for after a quiet time
)

// rounds is the conversation of one worker with one queue, from join to leave:
// one round at a time, and what comes up meanwhile gathers for the next. A
// round carries the ends of processes, acknowledgements of cancels and the
// wish for tasks.
//
//	wake, free slot, end of a task, cancel ─▶ kick ─▶ converse:
//	    compose ─▶ script.Step ─▶ apply ─▶ tasks to their takers, and again
//
// It owns what the worker holds on the queue. A goroutine runs only while
// there is something to say.
type rounds struct {
	queue  *Queue
	worker string          // id
	base   context.Context // parent of the tasks' contexts
	serve  *service        // takes tasks on its own; nil when the queue is not handled
	ctx    context.Context // ends with the rounds
	stop   context.CancelFunc
	ear    *listener // set by listen
	upset  complaint

	mu       sync.Mutex    // protects the fields below
	silence  chan struct{} // closed when there is nothing more to say; nil while silent
	ended    error         // why there will be no more rounds
	closing  bool          // start nothing any more
	held     map[string]*Task
	outcomes []*settlement // to be said
	wants    []*want       // to be said
	acks     []script.Cancellation
	look     bool // ask for tasks, or pass the wake-up on
	number   int64
	applied  int64 // the last token of a start that we know of
	seen     int64 // the last cancel that we were told of
	ask      int
	cancels  cancels
	listens  time.Time // until when we answer for producers that only publish
	renewed  time.Time // when the last answered round or beat was sent
	fence    *time.Timer
	strays   int // beats in a row that found a different number held
}

// A settlement is the wish to end a process.
type settlement struct {
	task *Task
	verb script.Verb
	done chan settled // gets one answer
}

type settled struct {
	what script.Settled
	err  error
}

// A want is the wish for up to n tasks.
type want struct {
	n    int
	got  chan taken // gets one answer
	gone bool       // nobody waits any more; protected by rounds.mu
}

type taken struct {
	tasks []*Task
	err   error
}

func newRounds(q *Queue, worker string, serve *service) *rounds {
	r := &rounds{
		queue: q, worker: worker, serve: serve, base: context.Background(),
		held: map[string]*Task{}, ask: firstAsk, look: serve != nil, renewed: time.Now(),
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	if serve != nil {
		r.base = serve.base
		if serve.opts.Exclusive {
			r.fence = time.AfterFunc(r.queue.peer.exclusive(), r.unsure)
		}
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
	r.kick()
	r.mu.Unlock()
	select {
	case t := <-w.got:
		return t.tasks, t.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	w.gone = true // tasks that come now are put back
	r.wants = slices.DeleteFunc(r.wants, func(o *want) bool { return o == w })
	r.mu.Unlock()
	select {
	case t := <-w.got:
		return t.tasks, t.err // both were ready
	default:
		return nil, context.Cause(ctx)
	}
}

// refuse is why a request cannot be made any more. r.mu is held.
func (r *rounds) refuse() error {
	if r.ended != nil {
		return r.ended
	}
	return ErrNotWorking
}

// settle ends a process.
func (r *rounds) settle(ctx context.Context, t *Task, verb script.Verb) (script.Settled, error) {
	s := &settlement{t, verb, make(chan settled, 1)}
	r.mu.Lock()
	if r.ended != nil {
		defer r.mu.Unlock()
		return "", lost(r.ended)
	}
	r.outcomes = append(r.outcomes, s)
	r.kick()
	r.mu.Unlock()
	select {
	case d := <-s.done:
		return d.what, d.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.outcomes, s); i >= 0 { // not said yet
		r.outcomes = slices.Delete(r.outcomes, i, i+1)
		return "", context.Cause(ctx)
	}
	select {
	case d := <-s.done:
		return d.what, d.err // both were ready
	default:
		return "", fmt.Errorf("%w: %w", redisconn.ErrUnknown, context.Cause(ctx))
	}
}

// lost is the error of a task whose rounds ended with err.
func lost(err error) error {
	if errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// poke has the worker look at the queue.
func (r *rounds) poke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = true
	r.kick()
}

// kick begins to talk when there is something to say. r.mu is held.
func (r *rounds) kick() {
	if r.silence == nil && r.ended == nil && r.due() {
		r.silence = make(chan struct{})
		r.queue.peer.background.Go(r.converse)
	}
}

// hush ends the talk. r.mu is held.
func (r *rounds) hush() {
	close(r.silence)
	r.silence = nil
}

// due reports whether there is something to say. r.mu is held.
func (r *rounds) due() bool {
	return len(r.outcomes) > 0 || len(r.wants) > 0 || len(r.acks) > 0 || r.look
}

// An exchange is a round with those who wait for its answer.
type exchange struct {
	script.Round
	outcomes []*settlement
	wants    []*want
	asked    int  // tasks for the handler, beyond those for wants
	repeated bool // it may have been answered before, and the reply lost
}

func (r *rounds) converse() {
	retry := newBackoff()
	var e *exchange
	for {
		if e == nil {
			if e = r.compose(); e == nil {
				return
			}
		}
		sent := time.Now()
		answer, err := script.Step(r.ctx, r.queue.peer.work, r.queue.keys, &e.Round)
		switch {
		case r.ctx.Err() != nil:
			r.abandon(e)
			return
		case err == nil:
			r.upset.about(r.queue.peer.log, "rounds fail", nil, "queue", r.queue.name)
			retry.reset()
			r.apply(e, answer, sent)
			e = nil
			continue
		case errors.Is(err, script.ErrEvicted), errors.Is(err, script.ErrStale):
			r.evicted(e)
			return
		case errors.Is(err, redisconn.ErrUnknown):
			// Once more at once: all of it may be repeated. The callers hear
			// of it when that does not help either.
			if !e.repeated {
				e.repeated = true
				continue
			}
			r.release(e, err)
		case e.repeated: // was carried out, or not, the first time
			r.release(e, fmt.Errorf("%w: %w", redisconn.ErrUnknown, err))
		default:
			r.restore(e, err)
			e = nil
		}
		r.upset.about(r.queue.peer.log, "rounds fail", err, "queue", r.queue.name)
		if !r.persist(e) {
			return
		}
		select {
		case <-r.ctx.Done():
			r.abandon(e)
			return
		case <-time.After(retry.next()):
		}
	}
}

// abandon ends a talk whose rounds were ended meanwhile: nobody knows whether
// the last one was carried out.
func (r *rounds) abandon(e *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.hush()
	if e == nil {
		return
	}
	r.answer(e, fmt.Errorf("%w: %w", r.ended, redisconn.ErrUnknown))
}

// evicted ends the rounds: the worker is no member any more.
func (r *rounds) evicted(e *exchange) {
	r.mu.Lock()
	why := ErrEvicted
	if r.closing {
		why = ErrNotWorking
	}
	r.answer(e, why)
	r.hush()
	r.mu.Unlock()
	r.end(why)
	if why == ErrEvicted {
		r.queue.peer.evicted(r.worker)
	}
}

// persist reports whether to try again after a failure: a round is still to be
// answered, or somebody wants something. Otherwise it ends the talk; the next
// beat looks again.
func (r *rounds) persist(e *exchange) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e != nil || len(r.outcomes) > 0 || len(r.wants) > 0 || len(r.acks) > 0 {
		return true
	}
	r.hush()
	return false
}

// compose makes the next round out of what has gathered, or ends the talk.
func (r *rounds) compose() *exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil || !r.due() {
		r.hush()
		return nil
	}
	e := &exchange{}
	n := min(len(r.outcomes), maxOutcomes)
	e.outcomes, r.outcomes = r.outcomes[:n:n], slices.Clone(r.outcomes[n:])
	// What goes back goes newest first, so that the oldest ends foremost.
	slices.SortStableFunc(e.outcomes, func(a, b *settlement) int {
		switch stopA, stopB := a.verb == script.Stop, b.verb == script.Stop; {
		case stopA && stopB:
			return cmp.Compare(b.task.Token, a.task.Token)
		case stopA:
			return 1
		case stopB:
			return -1
		}
		return 0
	})
	for _, s := range e.outcomes {
		e.Outcomes = append(e.Outcomes, script.Outcome{Process: s.task.ID, Token: s.task.Token, Verb: s.verb, Result: s.task.Result})
	}
	e.Acks, r.acks = r.acks, nil
	starts := 0
	for len(r.wants) > 0 && starts+r.wants[0].n <= maxStarts {
		starts += r.wants[0].n
		e.wants, r.wants = append(e.wants, r.wants[0]), r.wants[1:]
	}
	if free := r.free(); free > 0 {
		e.asked = min(free, r.ask, maxStarts-starts)
		e.Idle = true
	}
	for range starts + e.asked {
		e.Start = append(e.Start, newID())
	}
	r.look = false
	r.number++
	e.Worker, e.Number, e.Lease, e.Seen = r.worker, r.number, r.queue.peer.opts.granted(), r.seen
	return e
}

// free is how many tasks the handler can take. r.mu is held.
func (r *rounds) free() int {
	if r.serve == nil || r.closing {
		return 0
	}
	return r.serve.free()
}

// restore undoes a round that was not carried out. Callers get the error.
func (r *rounds) restore(e *exchange, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks = append(e.Acks, r.acks...)
	r.answer(e, err)
}

// release lets the callers of a round go whose answer is still to come.
func (r *rounds) release(e *exchange, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer(e, err)
}

// answer tells the callers of a round that it failed. r.mu is held.
func (r *rounds) answer(e *exchange, err error) {
	end := err
	if r.ended != nil || errors.Is(err, ErrEvicted) || errors.Is(err, ErrNotWorking) {
		end = lost(err)
	}
	for _, s := range e.outcomes {
		select {
		case s.done <- settled{err: end}:
		default:
		}
	}
	for _, w := range e.wants {
		w.gone = true
		select {
		case w.got <- taken{err: err}:
		default:
		}
	}
}

// apply takes in the answer to a round that was sent at the given time.
func (r *rounds) apply(e *exchange, a *script.Answer, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range e.outcomes {
		what := script.Gone
		if i < len(a.Settled) {
			what = a.Settled[i]
		}
		r.settled(s, what, e.repeated, a.Trouble)
	}
	tasks := make([]*Task, len(a.Started))
	for i, s := range a.Started {
		tasks[i] = newTask(r, e.Start[i], s)
		r.held[tasks[i].ID] = tasks[i]
		r.applied = max(r.applied, s.Token)
	}
	r.queue.peer.counts.started.Add(int64(len(tasks)))
	full := len(tasks) == len(e.Start)
	tasks = r.distribute(e, tasks, a.Trouble)
	if e.asked > 0 {
		if full {
			r.ask = min(2*r.ask, maxStarts)
		} else {
			r.ask = max(firstAsk, len(tasks))
		}
	}
	if a.Trouble != "" {
		r.upset.about(r.queue.peer.log, "tasks cannot be started", errors.New(a.Trouble), "queue", r.queue.name)
	}
	r.hand(tasks)

	for _, c := range a.Cancels {
		r.cancels.told(c)
	}
	r.seen = max(r.seen, a.Seen)
	r.cancels.foreign(r.held, e.Number)
	r.acks = append(r.acks, r.cancels.apply(r.held)...)

	if a.Rank == 0 {
		r.listens = time.Now().Add(2 * r.queue.peer.opts.beat())
	}
	r.renew(sent)
	r.look = r.look || a.Again || e.asked > 0 && full && r.free() > 0
}

// settled answers one wish to end a process. r.mu is held.
func (r *rounds) settled(s *settlement, what script.Settled, repeated bool, trouble string) {
	c := &r.queue.peer.counts
	if what == script.Gone && repeated {
		what = script.OK // the first copy of the round did it
	}
	if what == script.Refused {
		s.done <- settled{err: errors.New(trouble)}
		return
	}
	switch {
	case what == script.Gone:
	case what == script.Canceled || s.verb == script.Drop:
		c.canceled.Add(1)
	case s.verb == script.Finish:
		c.finished.Add(1)
	default:
		c.stopped.Add(1)
	}
	if t := r.held[s.task.ID]; t != nil && t.Token == s.task.Token {
		delete(r.held, t.ID)
		t.cancel(context.Canceled)
	}
	select {
	case s.done <- settled{what: what}:
	default: // the caller was let go
	}
}

// distribute gives tasks to those who asked for some, and returns the rest.
// r.mu is held.
func (r *rounds) distribute(e *exchange, tasks []*Task, trouble string) []*Task {
	for _, w := range e.wants {
		if w.gone {
			continue
		}
		n := min(w.n, len(tasks))
		t := taken{tasks: tasks[:n:n]}
		switch {
		case n == 0 && trouble != "":
			t.err = errors.New(trouble)
		case n == 0:
			t.err = ErrNoTask
		}
		tasks = tasks[n:]
		w.got <- t
	}
	return tasks
}

// hand gives tasks to the handler, and what it cannot take back to the queue.
// r.mu is held.
func (r *rounds) hand(tasks []*Task) {
	n := 0
	if r.serve != nil && !r.closing {
		n = r.serve.reserve(len(tasks))
	}
	for _, t := range tasks[:n] {
		r.serve.take(t)
	}
	for _, t := range tasks[n:] {
		r.outcomes = append(r.outcomes, &settlement{t, script.Stop, make(chan settled, 1)})
	}
}

// hear takes in a message from a channel of the queue.
func (r *rounds) hear(kind keys.Kind, message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "wake":
		r.look = true
	case keys.KindWork:
		// From a producer that only pushes and publishes. Everybody hears it;
		// the worker that was longest idle answers for all.
		r.look = r.look || time.Now().Before(r.listens)
	case keys.KindCancel:
		if len(r.held) == 0 && r.silence == nil {
			return
		}
		r.cancels.hear(message, r.held, r.number+1)
		r.look = true
	}
	r.kick()
}

// resync follows a confirmed subscription: messages may have been missed.
func (r *rounds) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels.missed()
	r.look = true
	r.kick()
}

// pulse takes in the answer to a beat that was sent at the given time.
func (r *rounds) pulse(p *script.Pulse, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew(sent)
	if p.Rank == 0 {
		r.listens = time.Now().Add(2 * r.queue.peer.opts.beat())
	}
	r.look = r.look || p.Canceled > r.seen || p.Waiting > 0 && r.free() > 0
	r.kick()
	if p.Held == len(r.held) {
		r.strays = 0
		return
	}
	if r.strays++; r.strays == 2 {
		r.strays = 0
		known := r.applied
		r.queue.peer.background.Go(func() { r.reconcile(known) })
	}
}

// renew notes that the lease was renewed by something sent at the given time.
// r.mu is held.
func (r *rounds) renew(sent time.Time) {
	if sent.After(r.renewed) {
		r.renewed = sent
		if r.fence != nil && r.ended == nil {
			r.fence.Reset(time.Until(sent.Add(r.queue.peer.exclusive())))
		}
	}
}

// unsure ends the contexts of what an exclusive handler runs: from now on
// others may be running it.
func (r *rounds) unsure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.renewed) < r.queue.peer.exclusive() {
		return // renewed meanwhile
	}
	for _, t := range r.held {
		t.cancel(ErrEvicted)
	}
}

// reconcile compares what Redis believes this worker to hold with what it
// holds, after two beats found that the numbers differ: what we do not know of
// goes back to the front, what is no longer ours ends. Rounds are under way
// meanwhile; only starts up to the token known, which were taken in before,
// are looked at.
func (r *rounds) reconcile(known int64) {
	theirs := map[string]int64{}
	for from := 0; ; from += page {
		pairs, err := redis.Int64Map(r.queue.read(r.ctx, "ZRANGE", r.queue.keys.Working(r.worker), from, from+page-1, "WITHSCORES"))
		if err != nil {
			return // the next beats will find the same
		}
		maps.Copy(theirs, pairs)
		if len(pairs) < page {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.queue.peer.log
	for id, token := range theirs {
		if r.held[id] == nil && token <= known {
			log.Warn("worqr: putting back a task whose start we do not know of", "queue", r.queue.name, "process", id)
			stray := &Task{ID: id, Queue: r.queue.name, Token: token, rounds: r}
			r.outcomes = append(r.outcomes, &settlement{stray, script.Stop, make(chan settled, 1)})
		}
	}
	for id, t := range r.held {
		if _, ok := theirs[id]; !ok && t.Token <= known {
			log.Warn("worqr: stopping a task whose start Redis has lost", "queue", r.queue.name, "process", id)
			r.queue.peer.counts.lost.Add(1)
			delete(r.held, id)
			t.cancel(ErrEvicted)
		}
	}
	r.kick()
}

// leave says what is still to be said, returns all tasks to the front and ends
// the membership. When ctx ends first, the peers do that once the lease lapses.
func (r *rounds) leave(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	r.look = r.serve != nil // to be taken off the idle workers
	r.kick()
	r.mu.Unlock()
	if err := r.quiet(ctx); err != nil {
		r.end(ErrNotWorking)
		return err
	}
	n, err := script.Leave(ctx, r.queue.peer.control, r.queue.keys, r.worker)
	if errors.Is(err, redisconn.ErrUnknown) { // it may be repeated
		n, err = script.Leave(ctx, r.queue.peer.control, r.queue.keys, r.worker)
	}
	r.queue.peer.counts.stopped.Add(int64(n))
	r.end(ErrNotWorking)
	return err
}

// quiet waits until there is nothing more to say.
func (r *rounds) quiet(ctx context.Context) error {
	r.mu.Lock()
	silence := r.silence
	r.mu.Unlock()
	if silence == nil {
		return nil
	}
	select {
	case <-silence:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
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
	r.stop()
	if r.fence != nil {
		r.fence.Stop()
	}
	for _, s := range r.outcomes {
		s.done <- settled{err: lost(err)}
	}
	for _, w := range r.wants {
		w.got <- taken{err: err}
	}
	r.outcomes, r.wants = nil, nil
	cause := ErrShutdown
	if errors.Is(err, ErrEvicted) {
		cause = ErrEvicted
		r.queue.peer.counts.lost.Add(int64(len(r.held)))
	}
	for _, t := range r.held {
		t.cancel(cause)
	}
	clear(r.held)
}

// A backoff is the time between tries: doubling from 50 ms to a second, full
// jitter.
type backoff struct{ last time.Duration }

func newBackoff() *backoff { return &backoff{} }

func (b *backoff) reset() { b.last = 0 }

func (b *backoff) next() time.Duration {
	b.last = min(max(50*time.Millisecond, 2*b.last), time.Second)
	return jitter(b.last)
}

// jitter is a random time from half of d to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
