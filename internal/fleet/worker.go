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

// A worker is a started peer: its registration and its beats. Its id changes
// each time it was evicted; everything else stays.
type worker struct {
	fleet   *Fleet
	ctx     context.Context
	stop    context.CancelFunc
	last    context.Context // outlives ctx, for what nobody else will see to
	hasten  context.CancelFunc
	turn    chan struct{} // wakes the worker, which joins what it should at once; holds one
	loops   sync.WaitGroup
	started time.Time
	upset   logs.Outage // about beats
	outside logs.Outage // about joins

	joining chan struct{} // has an element during a join or a leave, which hold it before mu
	absent  bool          // it comes back under a new id and has not joined all its queues; joining is held

	mu       sync.Mutex // protects the fields below
	id       string
	evicted  bool
	closing  bool
	outdated bool              // the registration, or the names of the queues, could not be written
	wanted   map[string]*Queue // to be served, whatever happens
	members  map[string]*member
	numbers  map[membership]int64 // last rounds of what was left under this id
	burned   map[membership]bool  // where this id may have been failed
	doubtful map[membership]stay  // memberships that may be there and should not
	compare  time.Time            // when to compare leases with other peers; zero: it was done
	warned   map[string]bool      // queues of which it was said that leases differ
	dead     evictions            // to be reported
	prune    time.Time            // when to look for the dead on the roster; zero: they are off, as far as we know

	redis   int64   // ms of Redis time when the last beat was answered; owned by the keeper
	witness witness // likewise
	beats   string  // the id under which it beat last; likewise
}

// A membership is that of a worker id in a queue.
type membership struct {
	queue store.Keys
	id    string
}

// A stay is what ends a membership: its last round, and the token of the queue that
// its join named.
type stay struct {
	round, asked int64
	unsure       bool // the answer to the join was lost, and no round was made
}

// A member is a membership with its session.
type member struct {
	*engine.Session
	queue *Queue
	id    string // of the worker
	asked int64  // the token that the join named
}

func (m *member) membership() membership { return membership{m.queue.Keys, m.id} }

// stay is what ends the membership.
func (m *member) stay() stay {
	round, _ := m.Last()
	return stay{round: round, asked: m.asked}
}

func newWorker(f *Fleet, id string) *worker {
	w := &worker{
		fleet: f, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		wanted: map[string]*Queue{}, members: map[string]*member{},
		numbers: map[membership]int64{}, burned: map[membership]bool{}, doubtful: map[membership]stay{},
		warned: map[string]bool{}, dead: evictions{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.last, w.hasten = context.WithCancel(context.Background())
	w.pruneLater()
	return w
}

// want has the worker join the queue and stay joined.
func (w *worker) want(q *Queue) {
	w.mu.Lock()
	w.wanted[q.ID] = q
	w.mu.Unlock()
	w.hurry()
}

// hurry makes the worker join what it should at once.
func (w *worker) hurry() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
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
	errs, once := make([]error, len(members)), make([]bool, len(members)) // once more
	var leaving sync.WaitGroup
	for i, m := range members {
		leaving.Go(func() {
			err := m.Leave(ctx)
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
	err := w.insist(again, func() error { return w.settleAll(ctx) })
	for i, m := range members {
		if once[i] && !w.doubts(m) {
			errs[i] = nil
		}
	}
	errs = append(errs, err)
	if slices.Contains(errs, nil) && ctx.Err() != nil { // Redis answers, and one queue has taken up all the time
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), w.fleet.lease.Beat)
		defer cancel()
	}
	err = w.insist(again, func() error { return w.fleet.unregister(ctx, w.id) })
	if err := joined(append(errs, err)); err != nil {
		return fmt.Errorf("leave: Redis could not be told, so peers return its tasks when its lease expires: %w", err)
	}
	return nil
}

// lastTries is how long a worker that ends tries to say so. Redis, or what is in front of it,
// restarts in that time, and else peers take the worker for one that has crashed.
const lastTries = 2 * time.Second

// ended waits for the loops, and hastens them when ctx ends, or after a while. Then it goes on
// without them: one may look at an error of a Pool, whose methods may be who waits.
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
	case <-time.After(lastTries): // their calls fail at once
	}
}

// insist does something again while Redis is away, until ctx ends.
func (w *worker) insist(ctx context.Context, do func() error) error {
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

// isAway reports whether an error says that Redis doesn't answer.
func (f *Fleet) isAway(err error) bool { return err != nil && f.Log.Away != nil && f.Log.Away(err) }

// keep beats until the worker ends.
func (w *worker) keep() {
	every := w.fleet.lease.Beat
	w.repeat(0, every/4, nil, &w.upset, "heartbeats fail; retrying", func(ctx context.Context) (next time.Duration, err error) {
		at, err := w.beat(ctx)
		return min(store.Jitter(every/5)+every*4/5, at), err
	})
}

// belong has the worker be a member where it is to be, until it ends: it comes back
// when it was evicted, leaves and joins. Beats do not wait for that.
func (w *worker) belong() {
	every := w.fleet.lease.Beat
	w.repeat(every, every, w.turn, &w.outside, "cannot join queues or renew the registration; retrying", func(ctx context.Context) (time.Duration, error) {
		return every, w.look(ctx)
	})
}

// repeat does something until the worker ends: at first after a time, then when that
// has told to, sooner where it fails, and whenever there is a turn. Where it fails it
// waits for most, at most.
func (w *worker) repeat(first, most time.Duration, turn <-chan struct{}, upset *logs.Outage, says string, do func(context.Context) (next time.Duration, err error)) {
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
		ctx, cancel := context.WithTimeout(w.ctx, 2*w.fleet.lease.Beat)
		next, err := do(ctx)
		cancel()
		switch {
		case w.ctx.Err() != nil:
			return
		case err != nil:
			next = min(retry.Next(), most, next)
		default:
			retry.Reset()
		}
		upset.Note(w.fleet.Log, says, err, "worker", w.fleet.ID())
		timer.Reset(next)
	}
}
