package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

func (w *worker) join(ctx context.Context, q *Queue) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	defer w.pass()
	if err := w.readmitted(ctx); err != nil {
		return err
	}
	if err := w.settleWorked(ctx, q.Keys); err != nil {
		return err
	}
	return w.joinThese(ctx, []*Queue{q}, func(_ *Queue, err error) error { return err })
}

// joinAll joins the wanted queues that the worker isn't a member of. The caller holds w.joining.
func (w *worker) joinAll(ctx context.Context) error {
	w.mu.Lock()
	var missing []*Queue
	for _, q := range w.wanted {
		missing = append(missing, q)
	}
	w.mu.Unlock()
	slices.SortFunc(missing, func(a, b *Queue) int { return strings.Compare(a.ID, b.ID) }) // so that the first error always has the same queue
	var first error
	for some := range slices.Chunk(missing, page) {
		err := w.joinThese(ctx, some, func(q *Queue, err error) error { return w.fleet.Describe("start work", q.Name, err) })
		if errors.Is(err, ErrNotStarted) {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// joinThese makes the worker a member of queues, all in a few exchanges, on all nodes concurrently,
// so that a node that is down delays only its own queues. It returns the first error, which describe has wrapped.
// The caller holds w.joining.
func (w *worker) joinThese(ctx context.Context, queues []*Queue, describe func(q *Queue, err error) error) error {
	w.mu.Lock()
	id, closing := w.id, w.closing
	missing := slices.DeleteFunc(slices.Clone(queues), func(q *Queue) bool { return w.members[q.ID] != nil })
	w.mu.Unlock()
	switch {
	case closing:
		return ErrNotStarted
	case len(missing) == 0:
		return nil
	}
	homes := w.fleet.Lines.Control.Homes(keysOf(missing))
	errs := make([]error, len(homes))
	each(homes, func(i int, indexes []int) {
		some := make([]*Queue, len(indexes))
		for j, k := range indexes {
			some[j] = missing[k]
		}
		errs[i] = w.joinAt(ctx, id, some, describe)
	})
	w.outdate()
	if err := w.announce(ctx); err != nil {
		w.fleet.Log.Debug("worqr: can't list queues or update the registration", "queues", len(missing), "err", err) // retried
	}
	return cmp.Or(errs...)
}

func keysOf(queues []*Queue) []store.Keys {
	all := make([]store.Keys, len(queues))
	for i, q := range queues {
		all[i] = q.Keys
	}
	return all
}

const maxTries = 100 // tries to join a queue while other workers leave it

var errCrowd = errors.New("other workers keep leaving the queue; try again")

// joinAt makes the worker a member of queues of one node. Each try uses up a number. So a try whose answer was lost
// needs no care: if it was carried out, the next one succeeds as well, and a late copy of it changes nothing. It
// returns the first error.
func (w *worker) joinAt(ctx context.Context, id string, queues []*Queue, describe func(q *Queue, err error) error) (first error) {
	fail := func(q *Queue, err error) {
		if first == nil && err != nil {
			first = describe(q, err)
		}
	}
	control := w.fleet.Lines.Control
	for tries := 0; len(queues) > 0; tries++ {
		if tries == maxTries {
			fail(queues[0], errCrowd)
			return first
		}
		tokens, errs := store.Tokens(ctx, control, keysOf(queues))
		var asked []*Queue
		var joins []store.Join
		var unsure []bool // an earlier try may have been carried out
		for i, q := range queues {
			if errs[i] != nil {
				fail(q, errs[i])
				continue
			}
			round, owed := w.nextRound(membership{q.Keys, id})
			asked, unsure = append(asked, q), append(unsure, owed)
			joins = append(joins, store.Join{Queue: q.Shared, Asked: max(tokens[i], 0), Round: round})
		}
		answers, errs := store.JoinAll(ctx, control, id, w.fleet.times.Grant, joins)
		queues = nil
		for i, q := range asked {
			err := errs[i]
			refused := err == nil && answers[i] == store.JoinLate || err != nil && !errors.Is(err, store.ErrUnknown)
			if refused && !unsure[i] {
				w.forgetJoin(membership{q.Keys, id}, joins[i].Round)
			}
			switch {
			case err != nil:
			case answers[i] == store.IsMember:
				err = w.joined(q, id, joins[i])
			case answers[i] == store.JoinWaits: // an earlier membership hasn't ended yet
				if _, err = store.Leave(ctx, control, q.Shared, id, joins[i].Round); err == nil {
					queues = append(queues, q)
				}
			default:
				queues = append(queues, q)
			}
			fail(q, err)
		}
	}
	return first
}

// nextRound returns the next number for a join, and whether the membership may exist already. Until the join is
// answered, it may.
func (w *worker) nextRound(m membership) (round int64, owed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, owed := w.owed[m]
	round = max(w.rounds[m.queue], last) + 1
	w.owed[m] = round
	return round, owed
}

// forgetJoin records that a join wasn't carried out, so there's nothing to leave.
func (w *worker) forgetJoin(m membership, round int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owed, m)
	w.rounds[m.queue] = round
}

// joined begins the session with a queue that the worker has joined under id.
func (w *worker) joined(q *Queue, id string, j store.Join) error {
	m := &member{queue: q, id: id}
	m.session = q.Engine.Join(q.View, engine.Membership{
		Worker: id, Asked: j.Asked, Round: j.Round, Evicted: func() { w.wasEvicted(id) }, Beat: func() { w.beatNow(q.ID) },
	})
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
	delete(w.owed, m.membership())
	w.members[q.ID], w.wanted[q.ID] = m, q
	m.node, m.due = w.nodes[store.Somewhere], time.Now() // until its node is known; the lease began when the join arrived
	m.node.soon()
	w.fleet.Trace.Joined(traced(q.ID, id))
	w.mu.Unlock()
	if q.Handled {
		m.session.Wake()
	}
	return nil
}
