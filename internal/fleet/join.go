package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// await waits until no join and no leave is under way, and blocks others until
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

// look is one turn of belong.
func (w *worker) look(ctx context.Context) error {
	if w.isToPrune() {
		w.loops.Go(func() {
			if err := store.PruneSome(w.ctx, w.fleet.Lines.Calls, w.fleet.Space); err != nil {
				w.pruneLater()
			}
		})
	}
	if w.isToCompare() {
		w.loops.Go(func() { w.compareLeases(w.ctx) })
	}
	if w.await(ctx) != nil {
		return nil // somebody is at it, for long
	}
	defer w.pass()
	if err := w.comeBack(ctx); err != nil {
		return err
	}
	if err := w.settleAll(ctx); err != nil {
		w.fleet.Log.Debug("worqr: leaving queues", "err", err)
	}
	err := w.joinAll(ctx)
	if err == nil {
		w.returned()
	}
	return cmp.Or(err, w.announce(ctx))
}

// returned says that an evicted worker serves again. w.joining is held.
func (w *worker) returned() {
	w.mu.Lock()
	id, queues, closing := w.id, slices.Sorted(maps.Keys(w.members)), w.closing
	w.mu.Unlock()
	if w.absent && !closing {
		w.fleet.Log.Info("worqr: serving again under the new id", "worker", id, "queues", queues)
		w.absent = false
	}
}

// joinAll joins the wanted queues of which the worker is no member. w.joining is
// held.
func (w *worker) joinAll(ctx context.Context) error {
	w.mu.Lock()
	var missing []*Queue
	for name, q := range w.wanted {
		if w.members[name] == nil && !w.closing {
			missing = append(missing, q)
		}
	}
	w.mu.Unlock()
	slices.SortFunc(missing, func(a, b *Queue) int { return strings.Compare(a.ID, b.ID) }) // so that the first error is always that of the same
	var first error
	for some := range slices.Chunk(missing, page) {
		of, err := w.joinThese(ctx, some)
		switch {
		case errors.Is(err, ErrNotStarted):
			return nil
		case of != nil:
			first = cmp.Or(first, w.fleet.Describe("start work", of.Name, err))
		case err != nil:
			return cmp.Or(first, w.fleet.Describe("start work", "", err))
		}
	}
	return first
}

// A trouble is the first error of joins, and the queue if it was of one.
type trouble struct {
	of  *Queue
	err error
}

// add takes in an error, unless there was one before.
func (t *trouble) add(of *Queue, err error) {
	if t.err == nil && err != nil {
		t.of, t.err = of, err
	}
}

// joinThese makes the worker a member of queues, all in a few exchanges. It
// returns the first error, and the queue if it was of one. w.joining is held.
func (w *worker) joinThese(ctx context.Context, queues []*Queue) (of *Queue, err error) {
	w.mu.Lock()
	id, closing := w.id, w.closing
	w.mu.Unlock()
	queues = w.missing(queues)
	switch {
	case closing:
		return nil, ErrNotStarted
	case len(queues) == 0:
		return nil, nil
	}
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.Name
	}
	// A join whose answer was lost is repeated. To leave instead would have all other
	// joins that are under way be asked for again: where Redis is slow, nobody would join.
	if unsure := w.unsure(queues, id); len(unsure) > 0 {
		if _, t := w.ask(ctx, id, unsure); errors.Is(t.err, store.ErrUnknown) {
			return t.of, t.err
		}
		queues = w.missing(queues)
	}
	var first trouble
	queues = slices.DeleteFunc(queues, func(q *Queue) bool {
		err := w.settle(ctx, membership{q.Keys, id})
		first.add(q, err)
		return err != nil
	})
	if w.isBurned(queues, id) {
		w.fleet.evicted(id) // then the worker joins its other queues again, too
		if err := w.comeBack(ctx); err != nil {
			return nil, err
		}
		id = w.fleet.ID()
	}
	asked := queues
	for tries := 0; len(asked) > 0 && tries < maxAsks; tries++ {
		again, t := w.ask(ctx, id, asked)
		first.add(t.of, t.err)
		asked = again
	}
	if len(asked) > 0 {
		first.add(asked[0], errCrowd)
	}
	w.show(ctx, id, names)
	return first.of, first.err
}

const maxAsks = 100 // for a place among a queue's workers, while others go

var errCrowd = errors.New("other workers keep leaving the queue; try again")

// missing are those of the queues of which the worker is no member.
func (w *worker) missing(queues []*Queue) []*Queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(queues, func(q *Queue) bool { return w.members[q.ID] != nil })
}

// show has people and tools see the worker and its queues.
func (w *worker) show(ctx context.Context, id string, names []string) {
	f := w.fleet
	if err := store.List(ctx, f.Lines.Control, f.Space, names...); err != nil {
		f.Log.Debug("worqr: queues are not listed", "queues", len(names), "err", err)
		w.outdate()
	}
	w.showSelf(ctx, id)
}

// showSelf writes the registration, or has it be written later.
func (w *worker) showSelf(ctx context.Context, id string) {
	if err := w.register(ctx, w.fleet.Lines.Control, id); err != nil {
		w.fleet.Log.Debug("worqr: the registration is not up to date", "err", err)
		w.outdate()
	}
}

// ask asks once for a membership of each of the queues. It returns those that are
// to be asked again, since a worker went meanwhile, and the first error.
func (w *worker) ask(ctx context.Context, id string, queues []*Queue) (again []*Queue, first trouble) {
	f := w.fleet
	tokens, of, err := store.Tokens(ctx, f.Lines.Control, keysOf(queues))
	if err != nil {
		return nil, trouble{queues[of], err}
	}
	stays, repeated := w.plan(id, queues, tokens)
	joins := make([]store.Join, len(queues))
	for i, q := range queues {
		joins[i] = store.Join{Queue: q.Keys, Asked: stays[i].asked, Round: stays[i].round}
	}
	for i, j := range store.JoinAll(ctx, f.Lines.Control, id, f.lease.Grant, joins) {
		q, m, err := queues[i], membership{queues[i].Keys, id}, j.Err
		switch {
		case j.Joined:
			err = w.joined(q, id, stays[i])
		case err == nil && repeated[i]: // or the first one was carried out, and the worker failed
			w.mu.Lock()
			w.doubtful[m] = stay{round: stays[i].round, asked: stays[i].asked}
			w.mu.Unlock()
		case err == nil:
			again = append(again, q)
			w.isNone(m)
		case errors.Is(err, store.ErrEvicted):
			w.burn(m)
		case !errors.Is(err, store.ErrUnknown):
			w.isNone(m)
		}
		first.add(q, err)
	}
	return again, first
}

// plan is what to ask for: a join whose answer was lost is the same once more.
func (w *worker) plan(id string, queues []*Queue, tokens []int64) (stays []stay, repeated []bool) {
	stays, repeated = make([]stay, len(queues)), make([]bool, len(queues))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range queues {
		m := membership{q.Keys, id}
		if repeated[i] = w.doubtful[m].unsure; repeated[i] {
			stays[i] = w.doubtful[m]
			continue
		}
		stays[i] = stay{
			round: w.numbers[m] + store.Lanes, // the last one before is then too old
			asked: tokens[i], unsure: true,    // until we know
		}
		w.doubtful[m] = stays[i]
	}
	return stays, repeated
}

func keysOf(queues []*Queue) []store.Keys {
	all := make([]store.Keys, len(queues))
	for i, q := range queues {
		all[i] = q.Keys
	}
	return all
}

// unsure are those of the queues of which the worker may be a member, by a join whose
// answer was lost.
func (w *worker) unsure(queues []*Queue, id string) (unsure []*Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range queues {
		if w.doubtful[membership{q.Keys, id}].unsure {
			unsure = append(unsure, q)
		}
	}
	return unsure
}

// joined begins the session with a queue of which the worker, by that id, has
// become a member.
func (w *worker) joined(q *Queue, id string, s stay) error {
	m := &member{queue: q, id: id, asked: s.asked}
	m.Session = q.Engine.Join(engine.Membership{Worker: id, Asked: s.asked, Round: s.round, Evicted: func() { w.fleet.evicted(id) }})
	w.mu.Lock()
	if w.id != id || w.evicted || w.closing { // meanwhile
		why := engine.ErrEvicted
		if w.closing {
			why = ErrNotStarted // which is nothing to warn of
		}
		w.mu.Unlock()
		w.forsake(m, why)
		return why
	}
	delete(w.doubtful, m.membership())
	w.members[q.ID], w.wanted[q.ID] = m, q
	w.compare = time.Now().Add(w.fleet.lease.Beat) // joins come together
	w.mu.Unlock()
	if q.Handled {
		m.Wake()
	}
	return nil
}

// burn notes that an id may have been failed on a queue, where it is to work no
// more.
func (w *worker) burn(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubtful, m)
	if m.id == w.id {
		w.burned[m] = true
	}
}

// isNone notes that a membership is not there.
func (w *worker) isNone(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubtful, m)
}

// isBurned reports whether the id may have been failed on one of the queues.
func (w *worker) isBurned(queues []*Queue, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(queues, func(q *Queue) bool { return w.burned[membership{q.Keys, id}] })
}
