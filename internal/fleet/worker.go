package fleet

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
	"github.com/worqr/worqr/internal/store"
)

const page = 100 // queues or workers in one exchange

// A worker is a started peer: its registration and its heartbeats. Its id changes each time it's
// evicted; everything else stays.
type worker struct {
	fleet   *Fleet
	ctx     context.Context
	stop    context.CancelFunc
	last    context.Context // outlives ctx, for final cleanup
	hasten  context.CancelFunc
	turn    chan struct{} // wakes the worker to join queues now; capacity 1
	loops   sync.WaitGroup
	started time.Time
	outside logs.Outage // failed joins

	joining chan struct{} // holds a value during a join or leave, which takes it before mu

	absent bool // it comes back under a new id and hasn't joined all its queues; protected by joining

	mu       sync.Mutex // protects the fields below
	id       string
	evicted  bool
	closing  bool
	moved    bool              // the server was replaced, and tokens haven't been compared since
	calm     time.Time         // until then, such changes are deferred
	recheck  bool              // a deferred change must be handled
	outdated bool              // the registration or the names of the queues couldn't be written
	wanted   map[string]*Queue // queues to serve, even after failures and evictions
	members  map[string]*member
	numbers  map[membership]int64 // last rounds of memberships that this id has left
	burned   map[membership]bool  // queues from which this id may have been evicted
	doubtful map[membership]stay  // memberships that may exist and shouldn't
	dead     map[string]bool      // workers evicted recently
	prune    time.Time            // when to look for dead workers on the roster; zero: none are known
	circles  map[string]*circle   // by home
	shifted  time.Time            // when slots last changed owners or another server replaced the previous one
	list     time.Time            // when to list the queues again; zero: never
}

// A membership identifies a worker id's membership of a queue.
type membership struct {
	queue store.Keys
	id    string
}

// A stay holds what is needed to end a membership: its last round, and the token of the queue that
// the join specified.
type stay struct {
	round, asked int64
	unsure       bool // the answer to the join was lost, and no round was sent
}

// A member is a membership with its session.
type member struct {
	*engine.Session
	queue *Queue
	id    string // of the worker
	asked int64  // the token that the join specified

	// Protected by worker.mu.
	circle *circle   // the circle that sends its heartbeats
	spared time.Time // no worker is evicted from the queue before this time, since it came from another node
}

func (m *member) membership() membership { return membership{m.queue.Keys, m.id} }

// stay returns what is needed to end the membership.
func (m *member) stay() stay {
	return stay{round: m.Last(), asked: m.asked}
}

func newWorker(f *Fleet, id string) *worker {
	w := &worker{
		fleet: f, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		wanted: map[string]*Queue{}, members: map[string]*member{},
		numbers: map[membership]int64{}, burned: map[membership]bool{}, doubtful: map[membership]stay{},
		dead: map[string]bool{}, circles: map[string]*circle{},
	}
	if f.Lines.InCluster() {
		w.list = time.Now().Add(listEvery)
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.last, w.hasten = context.WithCancel(context.Background())
	w.pruneLater()
	return w
}

// want makes the worker join the queue and stay joined.
func (w *worker) want(q *Queue) {
	w.mu.Lock()
	w.wanted[q.ID] = q
	w.mu.Unlock()
	w.hurry()
}

// hurry makes the worker join its queues now.
func (w *worker) hurry() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// leave leaves every queue, while heartbeats continue, and ends the worker.
func (w *worker) leave(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	if w.await(ctx) == nil { // a join in progress has ended, and no other begins
		w.pass()
	}
	w.mu.Lock()
	members := slices.Collect(maps.Values(w.members))
	w.mu.Unlock()
	errs, once := make([]error, len(members)), make([]bool, len(members)) // whether to try once more
	var leaving sync.WaitGroup
	for i, m := range members {
		leaving.Go(func() {
			err := m.Leave(ctx)
			w.fleet.left(m, err)
			switch {
			case errors.Is(err, store.ErrEvicted):
				return
			case w.fleet.isAway(err) && ctx.Err() == nil:
				once[i] = true
				w.doubt(m)
			}
			errs[i] = w.fleet.Describe("leave", m.queue.Name, err)
		})
	}
	leaving.Wait()
	w.stop()
	w.ended(ctx)
	for _, m := range members {
		m.Unlisten()
	}
	again, enough := context.WithTimeout(ctx, lastTries)
	defer enough()
	err := w.retry(again, func() error { return w.settleAll(ctx) })
	for i, m := range members {
		if once[i] && !w.doubts(m) {
			errs[i] = nil
		}
	}
	errs = append(errs, err)
	if slices.Contains(errs, nil) && ctx.Err() != nil { // Redis answers, and one queue has used up all the time
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), w.fleet.lease.Beat)
		defer cancel()
	}
	err = w.retry(again, func() error { return w.fleet.unregister(ctx, w.id) })
	if err := joined(append(errs, err)); err != nil {
		return fmt.Errorf("leave: Redis didn't confirm it; peers will return this worker's tasks when its lease expires: %w", err)
	}
	return nil
}

// lastTries is how long a stopping worker tries to reach Redis. That's enough for Redis or a proxy
// to restart. Otherwise peers would count its end as a crash.
const lastTries = 2 * time.Second

// ended waits for the loops. When ctx ends, or after lastTries, it cancels their calls, and after
// another lastTries it gives up, for the same reason as engine.Engine.Wait.
func (w *worker) ended(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.loops.Wait()
	}()
	defer w.hasten()
	select {
	case <-done:
		return
	case <-ctx.Done():
	case <-time.After(lastTries):
	}
	w.hasten()
	select {
	case <-done:
	case <-time.After(lastTries): // their calls fail immediately
	}
}

// retry retries a function while Redis is down, until ctx ends.
func (w *worker) retry(ctx context.Context, do func() error) error {
	for retry := store.NewBackoff(); ; {
		err := do()
		if err == nil || !w.fleet.isAway(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retry.Next()):
		}
	}
}

// isAway reports whether an error means that Redis doesn't answer.
func (f *Fleet) isAway(err error) bool { return err != nil && f.Log.Away != nil && f.Log.Away(err) }

// belong maintains the worker's memberships until it ends: it joins and leaves queues, and comes
// back after an eviction. Heartbeats don't wait for that.
func (w *worker) belong() {
	every := w.fleet.lease.Beat
	w.repeat(every, every, w.turn, &w.outside, "can't join queues or renew the registration; retrying", func(ctx context.Context) (time.Duration, error) {
		return every, w.look(ctx)
	})
}

// patience is how long one turn may take. It's longer in a cluster, where each step may wait for a
// node that is down, and the other nodes still need the steps after it.
func (w *worker) patience() time.Duration {
	if w.fleet.Lines.InCluster() {
		return 8 * w.fleet.lease.Beat
	}
	return 2 * w.fleet.lease.Beat
}

// repeat calls do after first, then each time after the interval that do returned, and whenever
// turn fires. After an error it calls do sooner, within most. It ends with the worker, or when do
// returns errLeft.
func (w *worker) repeat(first, most time.Duration, turn <-chan struct{}, upset *logs.Outage, says string, do func(context.Context) (next time.Duration, err error), attrs ...any) {
	retry := store.NewBackoff()
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-timer.C:
		case <-turn:
		}
		ctx, cancel := context.WithTimeout(w.ctx, w.patience())
		next, err := do(ctx)
		cancel()
		switch {
		case w.ctx.Err() != nil, errors.Is(err, errLeft):
			return
		case err != nil:
			next = min(retry.Next(), most, next)
		default:
			retry.Reset()
		}
		upset.Note(w.fleet.Log, says, err, append([]any{"worker", w.fleet.ID()}, attrs...)...)
		timer.Reset(next)
	}
}
