package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

const page = 100 // queues or workers in one exchange

// A worker is a started peer: its registration and its memberships. Its id changes each time it's
// evicted; everything else stays.
type worker struct {
	fleet   *Fleet
	ctx     context.Context
	stop    context.CancelFunc
	turn    chan struct{} // begins a turn of the run loop now; capacity 1
	loops   sync.WaitGroup
	started time.Time
	outside logs.Outage // failed joins

	joining chan struct{} // holds a value during a join or leave, which takes it before mu

	absent bool      // it comes back under a new id and hasn't joined all its queues; protected by joining
	former []*member // of the evicted id, whose tokens haven't been compared since; protected by joining

	mu         sync.Mutex // protects the fields below
	id         string
	evicted    bool
	closing    bool
	moved      bool              // the server was replaced, and tokens haven't been compared since
	announced  time.Time         // when the registration and the names of the queues were written; zero: they are out of date
	wanted     map[string]*Queue // queues to serve, even after failures and evictions
	members    map[string]*member
	rounds     map[store.Keys]int64 // the last number that this id has used up on a queue without a session
	owed       map[membership]int64 // memberships to end, unless they are to be joined again, and their last rounds
	stuckSince time.Time            // when the first of its handlers got stuck; zero if none is
	dead       map[string]time.Time // workers on the roster that were evicted, and when
	prune      time.Time            // when to look for dead workers on the roster
	nodes      map[string]*node     // by home
}

// A membership identifies a worker id's membership of a queue.
type membership struct {
	queue store.Keys
	id    string
}

// A member is a membership with its session.
type member struct {
	session *engine.Session
	queue   *Queue
	id      string // of the worker

	// Protected by worker.mu.
	node   *node     // that sends its heartbeats
	due    time.Time // when to send a heartbeat, even if those of other queues aren't due; zero: with them
	spared time.Time // until then, no worker is evicted from the queue, since it came from another node
	busy   bool      // at the last heartbeat, tasks waited or ran, or some had been enqueued
}

func (m *member) membership() membership { return membership{m.queue.Keys, m.id} }

func newWorker(f *Fleet, id string) *worker {
	w := &worker{
		fleet: f, id: id, started: time.Now(), announced: time.Now(),
		turn: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		wanted: map[string]*Queue{}, members: map[string]*member{}, rounds: map[store.Keys]int64{},
		owed: map[membership]int64{}, dead: map[string]time.Time{}, nodes: map[string]*node{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.prune = w.started.Add(w.pruneSoon())
	return w
}

// hurry begins a turn of the run loop now.
func (w *worker) hurry() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// patience is how long one turn may take. It's longer in a cluster, where each step may wait for a
// node that is down, and the other nodes still need the steps after it.
func (w *worker) patience() time.Duration {
	if w.fleet.Lines.InCluster() {
		return 8 * w.fleet.times.Beat
	}
	return 2 * w.fleet.times.Beat
}

// belong is the run loop. It maintains the worker's memberships until the worker ends: it joins and
// leaves queues, and comes back after an eviction. Heartbeats don't wait for that. What is urgent begins a turn at once;
// others are rarer if heartbeats are.
func (w *worker) belong() {
	f, beat := w.fleet, w.fleet.times.Beat
	every := min(beat, max(time.Second, beat/100))
	retry := store.NewBackoff()
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-timer.C:
		case <-w.turn:
		}
		ctx, cancel := context.WithTimeout(w.ctx, w.patience())
		err := w.maintain(ctx)
		w.tidy(ctx)
		cancel()
		if w.ctx.Err() != nil {
			return
		}
		w.outside.Note(f.Log, "can't join queues or renew the registration; retrying", err, "worker", f.ID())
		if err == nil {
			retry.Reset()
			timer.Reset(every)
		} else {
			timer.Reset(min(retry.Next(), every))
		}
	}
}

// await takes joining. It fails if ctx ends first, since a join may take as long as Redis does.
func (w *worker) await(ctx context.Context) error {
	select {
	case w.joining <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) pass() { <-w.joining }

// maintain is one turn of the run loop.
func (w *worker) maintain(ctx context.Context) error {
	if w.await(ctx) != nil {
		return nil // another join is taking a while
	}
	defer w.pass()
	w.compareTokens(ctx)
	w.comeBack(ctx)
	if err := w.settleAll(ctx, w.fleet.Lines.Control); err != nil {
		w.fleet.Log.Debug("worqr: leaving queues", "err", err)
	}
	if err := w.readmitted(ctx); err != nil {
		return err
	}
	err := w.joinAll(ctx)
	if err == nil {
		w.served()
	}
	return cmp.Or(err, w.announce(ctx))
}

// readmitted fails if an evicted worker may not serve again because the fleet has moved on to a
// newer protocol. In a cluster, the node that stores it may be down; that doesn't keep the worker
// from serving queues on other nodes. The caller holds w.joining.
func (w *worker) readmitted(ctx context.Context) error {
	if !w.absent {
		return nil
	}
	err := w.fleet.agree(ctx)
	if w.fleet.Lines.InCluster() && (w.fleet.isAway(err) || errors.Is(err, store.ErrUnknown)) {
		w.fleet.Log.Debug("worqr: can't read the fleet's protocol", "err", err)
		return nil
	}
	return err
}

// isAway reports whether an error means that Redis doesn't answer.
func (f *Fleet) isAway(err error) bool { return err != nil && f.Log.Away != nil && f.Log.Away(err) }

// wasEvicted is called when a call finds that the worker is no longer a member.
func (w *worker) wasEvicted(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id == id && !w.closing {
		w.evicted = true
		w.hurry()
	}
}

// comeBack gives an evicted worker a new id. It drops all tasks that the worker held: other workers
// have taken them over, or will, since the worker then leaves the queues from which it wasn't
// evicted. The caller holds w.joining.
func (w *worker) comeBack(ctx context.Context) {
	f := w.fleet
	w.mu.Lock()
	if !w.evicted || w.closing {
		w.mu.Unlock()
		return
	}
	old, id, members := w.id, store.NewID(), w.members
	w.id, w.evicted, w.members = id, false, map[string]*member{}
	clear(w.rounds)
	w.mu.Unlock()
	w.absent = true
	f.mu.Lock()
	f.id = id
	f.mu.Unlock()
	f.CameBack()

	f.counts.TimesEvicted.Add(1)
	queues := slices.Sorted(maps.Keys(members))
	f.Log.Warn("worqr: this worker was evicted; coming back under a new id", "worker", old, "new", id, "name", f.Name, "queues", queues)
	f.Trace.Evicted(worqrtrace.Worker{At: time.Now(), WorkerID: old, NewID: id, Name: f.Name, Queues: publics(queues)})
	for _, m := range members {
		w.forsake(m, engine.ErrEvicted)
	}
	f.Engine.Capacity.Pass() // the units of the ended sessions
	w.former = slices.Collect(maps.Values(members))
	w.compareFormer(ctx)
	if err := store.Unregister(ctx, f.Lines.Control, f.Space, old); err != nil {
		f.Log.Debug("worqr: removing the old registration", "err", err) // it expires
	}
	w.outdate() // it isn't registered until the end of the turn
}

// served logs that an evicted worker serves again. The caller holds w.joining.
func (w *worker) served() {
	w.mu.Lock()
	id, queues, closing := w.id, slices.Sorted(maps.Keys(w.members)), w.closing
	w.mu.Unlock()
	if w.absent && !closing {
		w.fleet.Log.Info("worqr: serving again under the new id", "worker", id, "queues", queues)
		w.absent = false
	}
}

// compareTokens looks for lost writes if the server has changed. If Redis doesn't answer, it tries
// again in the next turn. The caller holds w.joining.
func (w *worker) compareTokens(ctx context.Context) {
	w.mu.Lock()
	moved, members := w.moved, slices.Collect(maps.Values(w.members))
	w.moved = false
	w.mu.Unlock()
	if moved && !w.lookForLoss(ctx, members) {
		w.mu.Lock()
		w.moved = true
		w.mu.Unlock()
	}
	w.compareFormer(ctx)
}

// compareFormer looks for lost writes on the queues from which the worker was evicted. The caller holds w.joining.
func (w *worker) compareFormer(ctx context.Context) {
	if len(w.former) > 0 && w.lookForLoss(ctx, w.former) {
		w.former = nil
	}
}

// lookForLoss makes sessions report if Redis has lost a token that they had seen. A token never
// decreases, and rises when a worker is evicted. It's read before the worker leaves, which raises
// it, too. If other workers have raised it that far in the meantime, the loss goes unnoticed. It
// reports whether Redis answered.
func (w *worker) lookForLoss(ctx context.Context, all []*member) (sure bool) {
	queues, marks := make([]store.Keys, len(all)), make([]int64, len(all))
	for i, m := range all {
		queues[i], marks[i] = m.queue.Keys, m.session.Mark()
	}
	sure = true
	tokens, errs := store.Tokens(ctx, w.fleet.Lines.Control, queues)
	for i, m := range all {
		if errs[i] != nil || tokens[i] < 0 {
			sure = false
			continue
		}
		m.session.Compare(tokens[i], marks[i])
	}
	return sure
}
