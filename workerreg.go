package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// StartWorker registers the peer, has it beat and listen, for use without Run.
// It returns once the registration is stored; when it fails, nothing has been
// started. It does nothing when the worker is started. It fails with ErrPolicy
// where a full Redis would evict tasks, as far as it is allowed to ask (INFO
// memory), and warns where that might be.
//
// From then on the worker outlives every outage of Redis. When it was given up
// for dead it comes back under a new id, and works on the same queues.
func (p *Peer) StartWorker(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.bad != nil {
		return wrap("start worker", p.bad)
	}
	if p.present() != nil {
		return nil
	}
	if err := p.checkPolicy(ctx); err != nil {
		return wrap("start worker", err)
	}
	p.mu.Lock()
	if p.used {
		p.id = newID()
	}
	p.used = true
	w := newWorker(p, p.id)
	p.mu.Unlock()
	if err := w.register(ctx, w.id); err != nil {
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
	p.background.Go(w.keep)
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
	return p.stopWorker(ctx)
}

func (p *Peer) stopWorker(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	w := p.present()
	if w == nil {
		return wrap("stop worker", ErrNotStarted)
	}
	err := w.leave(ctx)
	for _, l := range p.work {
		l.Abort()
	}
	p.control.Abort()
	p.background.Wait()
	p.mu.Lock()
	p.worker = nil
	p.mu.Unlock()
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
// when it works on the queue.
func (q *Queue) StartWork(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("start work", q.bad)
	}
	w := q.peer.present()
	if w == nil {
		return q.wrap("start work", ErrNotStarted)
	}
	return q.wrap("start work", w.join(ctx, q))
}

// StopWork returns our running tasks of the queue to its front and leaves those
// who serve it. The contexts of the tasks end with ErrShutdown. It fails with
// ErrNotWorking when the worker does not work on the queue; when it fails
// otherwise, peers return the tasks once the lease has lapsed.
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

// rounds is the conversation of the present worker with the queue.
func (q *Queue) rounds() (*rounds, error) {
	w := q.peer.present()
	if w == nil {
		return nil, ErrNotWorking
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := w.members[q.id]; {
	case r != nil:
		return r, nil
	case w.wanted[q.id] != nil:
		return nil, fmt.Errorf("%w, and is coming back", ErrEvicted)
	}
	return nil, ErrNotWorking
}

// A worker is a started peer: its registration and its beats. Its id changes
// each time it was evicted; everything else stays.
type worker struct {
	peer    *Peer
	ctx     context.Context
	stop    context.CancelFunc
	turn    chan struct{} // has the keeper look at once; holds one
	kept    chan struct{} // closed when the keeper has ended
	started time.Time
	upset   complaint

	joining chan struct{} // has an element during a join or a leave, which hold it before mu

	mu       sync.Mutex // protects the fields below
	id       string
	evicted  bool
	closing  bool
	outdated bool              // the registration, or the names of the queues, could not be written
	wanted   map[string]*Queue // to be served, whatever happens
	members  map[string]*rounds
	numbers  map[string]int64     // last rounds of queues that were left under this id
	loose    map[membership]int64 // memberships that may be there and should not, with their last rounds

	redis  int64     // ms of Redis time when beaten was answered; owned by the keeper
	pruned bool      // the roster; owned by the keeper
	steady time.Time // since when beats have succeeded without a gap; owned by the keeper
	beaten time.Time // when the last answered beat was sent; likewise
}

// A membership is that of a worker id in a queue.
type membership struct {
	queue keys.Queue
	id    string
}

func newWorker(p *Peer, id string) *worker {
	w := &worker{
		peer: p, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), kept: make(chan struct{}), joining: make(chan struct{}, 1),
		wanted: map[string]*Queue{}, members: map[string]*rounds{},
		numbers: map[string]int64{}, loose: map[membership]int64{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// want has the keeper join the queue and stay joined.
func (w *worker) want(q *Queue) {
	w.mu.Lock()
	w.wanted[q.id] = q
	w.mu.Unlock()
	w.hurry()
}

// hurry has the keeper look at once.
func (w *worker) hurry() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// await waits until no join and no leave is under way, and holds up others until
// pass is called. It fails when ctx ends first: what is under way may take as long
// as Redis does.
func (w *worker) await(ctx context.Context) error {
	select {
	case w.joining <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) pass() { <-w.joining }

// join makes the worker a member of the queue.
func (w *worker) join(ctx context.Context, q *Queue) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	defer w.pass()
	_, err := w.joinThese(ctx, []*Queue{q})
	return err
}

// joinThese makes the worker a member of queues, all in a few exchanges. It
// returns the first error, and the queue if it was of one. w.joining is held.
func (w *worker) joinThese(ctx context.Context, queues []*Queue) (of *Queue, err error) {
	p := w.peer
	w.mu.Lock()
	id, closing := w.id, w.closing
	queues = slices.DeleteFunc(queues, func(q *Queue) bool { return w.members[q.id] != nil })
	w.mu.Unlock()
	switch {
	case closing:
		return nil, ErrNotStarted
	case len(queues) == 0:
		return nil, nil
	}
	queues = slices.DeleteFunc(queues, func(q *Queue) bool {
		e := w.loosen(ctx, membership{q.keys, id})
		if e != nil && err == nil {
			of, err = q, e
		}
		return e != nil
	})
	if len(queues) == 0 {
		return of, err
	}
	now, e := script.Now(ctx, p.control)
	if e != nil {
		return nil, e
	}
	// A copy of the request that arrives later must not bring back a worker
	// that was failed meanwhile.
	late := now + cmp.Or(p.opts.granted(), 10*time.Second).Milliseconds()
	joins, names := make([]redisconn.Call, len(queues)), make([]string, len(queues))
	numbers := make([]int64, len(queues))
	w.mu.Lock()
	for i, q := range queues {
		numbers[i] = w.numbers[q.id] + 2             // the last one before is then too old
		w.loose[membership{q.keys, id}] = numbers[i] // until we know
		joins[i], names[i] = script.JoinCall(q.keys, id, p.opts.granted(), late, numbers[i]), q.name
	}
	w.mu.Unlock()
	for i, reply := range p.control.Do(ctx, joins...) {
		e := script.Refusal(reply.Err)
		if e == nil {
			e = w.joined(queues[i], id, numbers[i])
		}
		if e != nil && err == nil {
			of, err = queues[i], e
		}
	}
	if e := script.List(ctx, p.control, p.space, names...); e != nil {
		p.log.Debug("worqr: queues are not listed", "queues", len(names), "err", e)
		w.outdate()
	}
	if e := w.register(ctx, id); e != nil {
		p.log.Debug("worqr: the registration is not up to date", "err", e)
		w.outdate()
	}
	return of, err
}

// joined begins the rounds with a queue of which the worker, by that id, has
// become a member.
func (w *worker) joined(q *Queue, id string, number int64) error {
	p := w.peer
	p.mu.Lock()
	serve := p.services[q.id]
	p.mu.Unlock()
	r := newRounds(q, id, serve, number)
	r.listen()
	w.mu.Lock()
	if w.id != id || w.evicted || w.closing { // meanwhile
		w.mu.Unlock()
		r.end(ErrEvicted)
		r.unlisten()
		return ErrEvicted
	}
	delete(w.loose, membership{q.keys, id})
	w.members[q.id], w.wanted[q.id] = r, q
	w.mu.Unlock()
	if serve != nil {
		r.poke()
	}
	return nil
}

// loosen leaves a queue if the worker may be a member of it and should not. It
// is called before the worker joins, so that what a lost call has left behind
// does not mix with what follows.
func (w *worker) loosen(ctx context.Context, m membership) error {
	w.mu.Lock()
	number, ok := w.loose[m]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	if _, err := script.Leave(ctx, w.peer.control, m.queue, m.id, number); err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.loose, m)
	w.mu.Unlock()
	return nil
}

// loosenAll leaves every queue of which the worker may be a member and should
// not.
func (w *worker) loosenAll(ctx context.Context) (err error) {
	w.mu.Lock()
	ms := slices.Collect(maps.Keys(w.loose))
	w.mu.Unlock()
	for _, m := range ms {
		err = cmp.Or(w.loosen(ctx, m), err)
	}
	return err
}

// part leaves one queue.
func (w *worker) part(ctx context.Context, queue string) error {
	w.joining <- struct{}{} // also when ctx has ended: then it is left all the same
	defer w.pass()
	w.mu.Lock()
	r := w.members[queue]
	wanted := w.wanted[queue] != nil
	delete(w.wanted, queue)
	w.mu.Unlock()
	if r == nil {
		if wanted {
			return nil // evicted, and not to come back
		}
		return ErrNotWorking
	}
	err := r.leave(ctx)
	w.mu.Lock()
	if w.members[queue] == r {
		delete(w.members, queue)
	}
	w.numbers[queue] = r.last()
	if err != nil {
		w.loose[membership{r.queue.keys, r.worker}] = r.last()
	}
	w.mu.Unlock()
	r.unlisten()
	if err := w.register(ctx, r.worker); err != nil {
		w.peer.log.Debug("worqr: the registration is not up to date", "err", err)
		w.outdate()
	}
	return err
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
		leaving.Go(func() { errs[i] = r.leave(ctx) })
	}
	leaving.Wait()
	w.stop()
	<-w.kept
	for _, r := range members {
		r.unlisten()
	}
	if err := cmp.Or(append(errs, w.loosenAll(ctx), w.peer.unregister(ctx, w.id))...); err != nil {
		return fmt.Errorf("this could not be told to Redis, so peers return its tasks once its lease has lapsed: %w", err)
	}
	return nil
}

// keep beats until the worker ends, and brings it back when it was evicted.
func (w *worker) keep() {
	defer close(w.kept)
	retry := newBackoff()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-timer.C:
		case <-w.turn:
		}
		next, err := w.round()
		switch {
		case w.ctx.Err() != nil:
			return
		case err != nil:
			next = min(retry.next(), next)
		default:
			retry.reset()
		}
		w.upset.about(w.peer.log, "beats fail", err, "worker", w.peer.ID())
		timer.Reset(next)
	}
}

// round is one turn of the keeper: come back, join what is to be joined, beat.
// It returns the time until the next.
func (w *worker) round() (next time.Duration, err error) {
	next = jitter(w.peer.opts.beat()/5) + w.peer.opts.beat()*4/5
	ctx, cancel := context.WithTimeout(w.ctx, 2*w.peer.opts.beat())
	defer cancel()
	if err := w.comeBack(ctx); err != nil {
		return next, err
	}
	select {
	case w.joining <- struct{}{}:
		if err := w.loosenAll(ctx); err != nil {
			w.peer.log.Debug("worqr: leaving queues", "err", err)
		}
		w.pass()
	default:
	}
	if lease := w.peer.opts.Lease; !w.pruned && lease > 0 && time.Since(w.started) > 2*lease {
		// Who has found a worker dead may itself have died before it could say
		// so. Once is enough: others start later.
		w.pruned = true
		w.peer.background.Go(func() { _ = w.peer.pruneSome(w.ctx) }) // as well as can be done
	}
	err = w.joinAll(ctx)
	at, beatErr := w.beat(ctx)
	return min(next, at), errors.Join(err, beatErr)
}

// joinAll joins the wanted queues of which the worker is no member.
func (w *worker) joinAll(ctx context.Context) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	defer w.pass()
	w.mu.Lock()
	var missing []*Queue
	for name, q := range w.wanted {
		if w.members[name] == nil && !w.closing {
			missing = append(missing, q)
		}
	}
	w.mu.Unlock()
	var first error
	for some := range slices.Chunk(missing, page) {
		of, err := w.joinThese(ctx, some)
		switch {
		case errors.Is(err, ErrNotStarted):
			return nil
		case of != nil:
			first = cmp.Or(first, of.wrap("start work", err))
		case err != nil:
			return cmp.Or(first, wrap("start work", err))
		}
	}
	return first
}
