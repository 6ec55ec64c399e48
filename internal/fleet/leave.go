package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// lastTries is how long a stopping worker repeats what Redis hasn't confirmed. That's enough for Redis or a proxy
// to restart, or to be slow for a while. Otherwise peers would count its end as a crash.
const lastTries = 4 * time.Second

// lastTry is the same if its context has ended.
const lastTry = time.Second

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
	ids := append(slices.Collect(maps.Keys(w.dead)), w.id) // dead workers may stay: their registrations expire
	w.mu.Unlock()
	errs := make([]error, len(members))
	each(members, func(i int, m *member) { errs[i] = w.end(ctx, m) })
	w.stop()
	w.ended()
	for _, m := range members {
		m.session.Unlisten()
	}

	tidy, cancel := context.WithTimeout(ctx, lastTries)
	if ctx.Err() != nil { // Redis may answer, and one queue has used up all the time
		tidy, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	}
	defer cancel()
	calls := w.fleet.Lines.Calls // which wait longer than a heartbeat may take
	last := w.retry(tidy, func() error { return w.settleAll(tidy, calls) })
	try, cancel := context.WithTimeout(tidy, lastTry) // if Redis was away until now, there's no time left
	defer cancel()
	if err := w.retry(try, func() error { return store.Unregister(try, calls, w.fleet.Space, ids...) }); err != nil {
		w.fleet.Log.Debug("worqr: removing the registration", "err", err) // it expires
	}
	w.mu.Lock()
	for i, m := range members {
		if _, owed := w.owed[m.membership()]; !owed { // the leave was repeated
			errs[i] = nil
		}
	}
	w.mu.Unlock()
	if err := combined(append(errs, last)); err != nil {
		return fmt.Errorf("leave: Redis didn't confirm it; peers will return this worker's tasks when its lease expires: %w", err)
	}
	return nil
}

func each[T any](all []T, do func(i int, one T)) {
	var doing sync.WaitGroup
	for i, one := range all {
		doing.Go(func() { do(i, one) })
	}
	doing.Wait()
}

// end leaves a queue, and ends its session. If that fails, the membership is owed. After an eviction, there's nothing
// left to do.
func (w *worker) end(ctx context.Context, m *member) error {
	err := m.session.Leave(ctx)
	w.fleet.left(m, err)
	if errors.Is(err, engine.ErrEvicted) || errors.Is(err, store.ErrNoMember) {
		err = nil
	}
	last, why := m.session.Last(), w.fleet.Describe("leave", m.queue.Name, err) // calls methods of the error
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rounds[m.queue.Keys] = last
	if err != nil {
		w.owed[m.membership()] = last
	}
	return why
}

// forsake ends the session of a membership before the worker leaves. Rounds may be sent until the
// session has ended.
func (w *worker) forsake(m *member, why error) {
	m.session.End(why)
	m.session.Unlisten()
	round := m.session.Last()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owed[m.membership()] = round
}

// settleAll leaves every queue that the worker may be a member of and shouldn't be. Those that it's going to join
// again under the same id stay: the join does all that's needed, after settleWorked.
func (w *worker) settleAll(ctx context.Context, by store.Runner) error {
	w.mu.Lock()
	again := map[membership]bool{}
	for _, q := range w.wanted {
		again[membership{q.Keys, w.id}] = !w.closing && !w.evicted
	}
	var owed []membership
	for m := range w.owed {
		if !again[m] {
			owed = append(owed, m)
		}
	}
	w.mu.Unlock()
	errs := make([]error, len(owed))
	each(owed, func(i int, m membership) {
		if err := w.settle(ctx, by, m); err != nil {
			errs[i] = fmt.Errorf("%s: %w", m.queue.Workers(), err)
		}
	})
	return combined(errs)
}

// settleWorked ends a membership under which the worker has worked and that it couldn't leave. So what it held can start
// when it has joined again. One whose join wasn't answered holds nothing, and a leave would delay the joins of others.
func (w *worker) settleWorked(ctx context.Context, queue store.Keys) error {
	w.mu.Lock()
	m := membership{queue, w.id}
	round, owed := w.owed[m]
	worked := owed && round == w.rounds[queue]
	w.mu.Unlock()
	if !worked {
		return nil
	}
	return w.settle(ctx, w.fleet.Lines.Control, m)
}

func (w *worker) settle(ctx context.Context, by store.Runner, m membership) error {
	w.mu.Lock()
	round := w.owed[m]
	w.mu.Unlock()
	_, err := store.Leave(ctx, by, store.SharedOf(m.queue), m.id, round)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owed, m)
	if m.id == w.id {
		w.rounds[m.queue] = max(w.rounds[m.queue], round) // otherwise a copy of the leave would end the next membership
	}
	return nil
}

// part leaves one queue.
func (w *worker) part(ctx context.Context, queue string) error {
	// If ctx has ended, the worker still leaves, unless a join hangs: that join may be calling a
	// method of a Pool's error which makes the worker leave.
	turn, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.patience())
	defer cancel()
	if err := w.await(turn); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer w.pass()
	w.mu.Lock()
	m := w.members[queue]
	wanted := w.wanted[queue] != nil
	delete(w.wanted, queue)
	w.mu.Unlock()
	if m == nil && wanted {
		return nil // it was evicted, or never joined, and won't come back
	}
	if m == nil {
		return engine.ErrNotWorking
	}
	err := w.end(ctx, m)
	w.mu.Lock()
	if w.members[queue] == m {
		delete(w.members, queue)
	}
	w.mu.Unlock()
	m.session.Unlisten()
	w.outdate()
	if err := w.announce(context.WithoutCancel(ctx)); err != nil {
		w.fleet.Log.Debug("worqr: can't update the registration", "err", err) // retried
	}
	return err
}

// ended waits for the loops, whose calls have been canceled. It doesn't wait forever, for the same
// reason as the engine's Wait.
func (w *worker) ended() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.loops.Wait()
	}()
	select {
	case <-done:
	case <-time.After(2 * lastTry):
	}
}

// retry retries a function while Redis is down, or refuses calls that it will soon accept, until ctx ends.
func (w *worker) retry(ctx context.Context, do func() error) error {
	for retry := store.NewBackoff(); ; {
		err := do()
		if err == nil || !w.fleet.isAway(err) && !store.IsRepeatable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retry.Next()):
		}
	}
}
