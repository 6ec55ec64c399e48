package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// await locks the worker's memberships, and pass unlocks them: only one join or leave is in
// progress at a time. It fails if ctx ends first, since a join may take as long as Redis does.
func (w *worker) await(ctx context.Context) error {
	select {
	case w.joining <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) pass() { <-w.joining }

func (w *worker) join(ctx context.Context, q *Queue) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	defer w.pass()
	if err := w.readmitted(ctx); err != nil {
		return err
	}
	_, err := w.joinThese(ctx, []*Queue{q})
	return err
}

// look is one iteration of belong.
func (w *worker) look(ctx context.Context) error {
	if w.pruneIsDue() {
		w.loops.Go(func() {
			if err := store.PruneSome(w.ctx, w.fleet.Lines.Calls, w.fleet.Space); err != nil {
				w.pruneLater()
			}
		})
	}
	if w.await(ctx) != nil {
		return nil // another join is taking a while
	}
	defer w.pass()
	w.compareTokens(ctx)
	if err := w.comeBack(ctx); err != nil {
		return err
	}
	if err := w.readmitted(ctx); err != nil {
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

// readmitted fails if an evicted worker may not serve again because the fleet has moved on to a
// newer protocol. The caller holds w.joining.
func (w *worker) readmitted(ctx context.Context) error {
	if !w.absent {
		return nil
	}
	return w.agree(ctx)
}

// agree checks the fleet's protocol for a worker that has served before. In a cluster, the node
// that stores it may be down; that doesn't keep the worker from serving queues on other nodes.
func (w *worker) agree(ctx context.Context) error {
	err := w.fleet.agree(ctx)
	if w.fleet.Lines.InCluster() && (w.fleet.isAway(err) || errors.Is(err, store.ErrUnknown)) {
		w.fleet.Log.Debug("worqr: can't read the fleet's protocol", "err", err)
		return nil
	}
	return err
}

// returned logs that an evicted worker serves again. The caller holds w.joining.
func (w *worker) returned() {
	w.mu.Lock()
	id, queues, closing := w.id, slices.Collect(maps.Keys(w.members)), w.closing
	w.mu.Unlock()
	if w.absent && !closing {
		w.fleet.Log.Info("worqr: serving again under the new id", "worker", id, "queues", slices.Sorted(slices.Values(queues)))
		w.absent = false
	}
}

// joinAll joins the wanted queues that the worker isn't a member of. The caller holds w.joining.
func (w *worker) joinAll(ctx context.Context) error {
	w.mu.Lock()
	var missing []*Queue
	for name, q := range w.wanted {
		if w.members[name] == nil && !w.closing {
			missing = append(missing, q)
		}
	}
	w.mu.Unlock()
	slices.SortFunc(missing, func(a, b *Queue) int { return strings.Compare(a.ID, b.ID) }) // so that the first error always has the same queue
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

// A trouble is the first error of several joins, and its queue if it concerns only one.
type trouble struct {
	of  *Queue
	err error
}

// add records an error, unless there is one already.
func (t *trouble) add(of *Queue, err error) {
	if t.err == nil && err != nil {
		t.of, t.err = of, err
	}
}

// joinThese makes the worker a member of queues, all in a few exchanges. It returns the first
// error, and its queue if it concerns only one. The caller holds w.joining.
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
	// A join whose answer was lost is repeated. If the worker left instead, all other joins in
	// progress would have to start again: with a slow Redis, no worker would ever join.
	var first trouble
	if unsure := w.unsure(queues, id); len(unsure) > 0 {
		_, t := w.askEverywhere(ctx, id, unsure)
		away := errors.Is(t.err, store.ErrUnknown)
		if away && !w.fleet.Lines.InCluster() {
			return t.of, t.err
		}
		if queues = w.missing(queues); away { // other nodes may be up
			first = t
			unsure = w.unsure(queues, id)
			queues = slices.DeleteFunc(queues, func(q *Queue) bool { return slices.Contains(unsure, q) })
		}
	}
	unsettled := w.settleThese(ctx, id, queues)
	for i, err := range unsettled {
		first.add(queues[i], err)
	}
	settled := 0
	queues = slices.DeleteFunc(queues, func(*Queue) bool { settled++; return unsettled[settled-1] != nil })
	if w.isBurned(queues, id) {
		w.fleet.evicted(id) // this makes the worker rejoin its other queues, too
		if err := w.comeBack(ctx); err != nil {
			return nil, err
		}
		id = w.fleet.ID()
	}
	asked := queues
	for tries := 0; len(asked) > 0 && tries < maxAsks; tries++ {
		again, t := w.askEverywhere(ctx, id, asked)
		first.add(t.of, t.err)
		asked = again
	}
	if len(asked) > 0 {
		first.add(asked[0], errCrowd)
	}
	w.show(ctx, id, names)
	return first.of, first.err
}

const maxAsks = 100 // attempts to join a queue while other workers leave it

var errCrowd = errors.New("other workers keep leaving the queue; try again")

func (w *worker) missing(queues []*Queue) []*Queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(queues, func(q *Queue) bool { return w.members[q.ID] != nil })
}

// show makes the worker and its queues visible to people and tools.
func (w *worker) show(ctx context.Context, id string, names []string) {
	f := w.fleet
	if err := store.List(ctx, f.Lines.Control, f.Space, names...); err != nil {
		f.Log.Debug("worqr: can't list queues", "queues", len(names), "err", err)
		w.outdate()
	}
	w.showSelf(ctx, id)
}

// showSelf writes the registration, or schedules another attempt.
func (w *worker) showSelf(ctx context.Context, id string) {
	if err := w.register(ctx, w.fleet.Lines.Control, id); err != nil {
		w.fleet.Log.Debug("worqr: can't update the registration", "err", err)
		w.outdate()
	}
}

// askEverywhere asks once for a membership of each queue, on all nodes concurrently, so that a node
// that is down delays only its own queues. It returns the queues to ask for again because a worker
// has left in the meantime, and the first error.
func (w *worker) askEverywhere(ctx context.Context, id string, queues []*Queue) (again []*Queue, first trouble) {
	homes := w.fleet.Lines.Control.Homes(keysOf(queues))
	type answer struct {
		again []*Queue
		trouble
	}
	answers := make([]answer, len(homes))
	var asking sync.WaitGroup
	for i, of := range homes {
		some := make([]*Queue, len(of))
		for j, k := range of {
			some[j] = queues[k]
		}
		asking.Go(func() { answers[i].again, answers[i].trouble = w.ask(ctx, id, some) })
	}
	asking.Wait()
	for _, a := range answers {
		again = append(again, a.again...)
		first.add(a.of, a.err)
	}
	return again, first
}

// ask does what askEverywhere does, for the queues of one node.
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
		case err == nil && repeated[i]: // or the first join was carried out, and the worker was evicted since
			w.mu.Lock()
			w.doubtful[m] = stay{round: stays[i].round, asked: stays[i].asked}
			w.mu.Unlock()
		case err == nil:
			again = append(again, q)
			w.isNone(m)
		case errors.Is(err, store.ErrEvicted):
			w.burn(m)
		case !errors.Is(err, store.ErrUnknown) && !repeated[i]: // a refused repetition says nothing about the first join
			w.isNone(m)
		}
		first.add(q, err)
	}
	return again, first
}

// plan returns the joins to send: a join whose answer was lost is repeated unchanged.
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
			round: w.numbers[m] + store.Lanes, // makes the previous round too old
			asked: tokens[i], unsure: true,    // until the answer comes
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

// unsure returns the queues that the worker may have joined by a join whose answer was lost.
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

// joined begins the session with a queue that the worker has joined under id.
func (w *worker) joined(q *Queue, id string, s stay) error {
	m := &member{queue: q, id: id, asked: s.asked}
	m.Session = q.Engine.Join(q.View, engine.Membership{Worker: id, Asked: s.asked, Round: s.round, Evicted: func() { w.fleet.evicted(id) }})
	w.mu.Lock()
	if w.id != id || w.evicted || w.closing { // it happened in the meantime
		why := engine.ErrEvicted
		if w.closing {
			why = ErrNotStarted // no reason for a warning
		}
		w.mu.Unlock()
		w.forsake(m, why)
		return why
	}
	delete(w.doubtful, m.membership())
	w.members[q.ID], w.wanted[q.ID] = m, q
	m.circle = w.circles[store.Somewhere] // until its node is known
	w.fleet.Trace.Joined(traced(q.ID, id))
	w.mu.Unlock()
	if q.Handled {
		m.Wake()
	}
	return nil
}

// burn records that an id may have been evicted from a queue, and so must not work there again.
func (w *worker) burn(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubtful, m)
	if m.id == w.id {
		w.burned[m] = true
	}
}

// isNone clears the doubt about a membership: it doesn't exist.
func (w *worker) isNone(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubtful, m)
}

// isBurned reports whether the id may have been evicted from one of the queues.
func (w *worker) isBurned(queues []*Queue, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(queues, func(q *Queue) bool { return w.burned[membership{q.Keys, id}] })
}
