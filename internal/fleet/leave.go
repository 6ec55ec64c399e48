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

// forsake ends the session of a membership that is to be left. Rounds may have been made
// until it has ended.
func (w *worker) forsake(m *member, why error) {
	m.End(why)
	m.Unlisten()
	w.doubt(m)
}

// doubt notes that a membership whose session has ended may still be there.
func (w *worker) doubt(m *member) {
	s := m.stay()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubtful[m.membership()] = s
}

// doubts reports whether that is noted.
func (w *worker) doubts(m *member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, noted := w.doubtful[m.membership()]
	return noted
}

// settle leaves a queue if the worker may be a member of it and should not. It
// is called before the worker joins, so that what a lost call has left behind
// does not mix with what follows.
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
	w.numbers[m] = max(w.numbers[m], s.round) // or a copy of the leave ends what follows
	return nil
}

// settleAll leaves every queue of which the worker may be a member and should
// not, many at a time.
func (w *worker) settleAll(ctx context.Context) error {
	w.mu.Lock()
	joins := map[membership]bool{} // to be repeated
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

// part leaves one queue.
func (w *worker) part(ctx context.Context, queue string) error {
	// When ctx has ended the worker leaves anyway, unless a join hangs: it may look at an
	// error of a Pool, whose methods may be who leaves.
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
			return nil // evicted, and not to come back
		}
		return engine.ErrNotWorking
	}
	err := m.Leave(ctx)
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
	if !closing { // else the registration goes
		w.showSelf(ctx, m.id)
	}
	return err
}
