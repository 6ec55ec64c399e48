package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// forsake ends the session of a membership before the worker leaves. Rounds may be sent until the
// session has ended.
func (w *worker) forsake(m *member, why error) {
	m.End(why)
	m.Unlisten()
	w.doubt(m)
}

// doubt records that a membership may still exist after its session has ended.
func (w *worker) doubt(m *member) {
	s := m.stay()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubtful[m.membership()] = s
}

// doubts reports whether doubt has recorded the membership.
func (w *worker) doubts(m *member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, noted := w.doubtful[m.membership()]
	return noted
}

// settle leaves a queue if the worker may still be a member and shouldn't be. It's called before
// the worker joins, so that the effects of a lost call don't reach the new membership.
func (w *worker) settle(ctx context.Context, m membership) error {
	w.mu.Lock()
	s, ok := w.doubtful[m]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	_, err := store.Leave(ctx, w.fleet.Lines.Control, m.queue, m.id, s.asked, s.round)
	switch {
	case errors.Is(err, store.ErrEvicted):
		w.burn(m)
	case err != nil:
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubtful, m)
	w.numbers[m] = max(w.numbers[m], s.round) // otherwise a copy of the leave would end the next membership
	return nil
}

// settleThese calls settle for queues, concurrently if they are on different nodes. It returns an
// error for each.
func (w *worker) settleThese(ctx context.Context, id string, queues []*Queue) []error {
	errs := make([]error, len(queues))
	var homes sync.WaitGroup
	for _, of := range w.fleet.Lines.Control.Homes(keysOf(queues)) {
		homes.Go(func() {
			for _, i := range of {
				errs[i] = w.settle(ctx, membership{queues[i].Keys, id})
			}
		})
	}
	homes.Wait()
	return errs
}

// settleAll concurrently leaves every queue that the worker may be a member of and shouldn't be.
func (w *worker) settleAll(ctx context.Context) error {
	w.mu.Lock()
	joins := map[membership]bool{} // they will be repeated
	for _, q := range w.wanted {
		joins[membership{q.Keys, w.id}] = !w.closing && !w.evicted
	}
	var ms []membership
	for m, s := range w.doubtful {
		if !s.unsure || !joins[m] {
			ms = append(ms, m)
		}
	}
	w.mu.Unlock()
	errs := make([]error, len(ms))
	var leaving sync.WaitGroup
	for i, m := range ms {
		leaving.Go(func() { errs[i] = w.settle(ctx, m) })
	}
	leaving.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", ms[i].queue.Workers(), err)
		}
	}
	return joined(errs)
}

func (w *worker) part(ctx context.Context, queue string) error {
	// If ctx has ended, the worker still leaves, unless a join hangs: that join may be calling a
	// method of a Pool's error which makes the worker leave.
	turn, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*w.fleet.lease.Beat, cancel) })()
	if err := w.await(turn); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer w.pass()
	w.mu.Lock()
	m := w.members[queue]
	wanted := w.wanted[queue] != nil
	delete(w.wanted, queue)
	w.mu.Unlock()
	if m == nil {
		if wanted {
			return nil // it was evicted and won't come back
		}
		return engine.ErrNotWorking
	}
	err := m.Leave(ctx)
	w.fleet.left(m, err)
	s := m.stay()
	w.mu.Lock()
	if w.members[queue] == m {
		delete(w.members, queue)
	}
	w.numbers[m.membership()] = s.round
	w.doubtful[m.membership()] = s
	w.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrEvicted):
		w.burn(m.membership())
		err = nil
	case err == nil:
		w.isNone(m.membership())
	}
	m.Unlisten()
	w.mu.Lock()
	closing := w.closing
	w.mu.Unlock()
	if !closing { // otherwise the registration will be removed
		w.showSelf(ctx, m.id)
	}
	return err
}
