package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// A membership is that of a worker id in a queue.
type membership struct {
	queue keys.Queue
	id    string
}

// A stay is what ends a membership: its last round, and the token of the queue that
// its join named.
type stay struct {
	round, asked int64
	unsure       bool // the answer to the join was lost, and no round was made
}

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

// belong has the worker be a member where it is to be, until it ends: it comes back
// when it was evicted, leaves and joins. Beats do not wait for that.
func (w *worker) belong() {
	beat := w.peer.opts.beat()
	w.repeat(beat, beat, w.turn, &w.outside, "cannot join queues or renew the registration; retrying", func(ctx context.Context) (time.Duration, error) { return beat, w.look(ctx) })
}

// look is one turn of belong.
func (w *worker) look(ctx context.Context) error {
	if w.isToPrune() {
		w.loops.Go(func() {
			if err := store.PruneSome(w.ctx, w.peer.calls, w.peer.space); err != nil {
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
	if err := w.loosenAll(ctx); err != nil {
		w.peer.log.Debug("worqr: leaving queues", "err", err)
	}
	return cmp.Or(w.joinAll(ctx), w.announce(ctx))
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
	slices.SortFunc(missing, func(a, b *Queue) int { return strings.Compare(a.id, b.id) }) // so that the first error is always that of the same
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
	// A join whose answer was lost is repeated. To leave instead would have all other
	// joins that are under way be asked for again: where Redis is slow, nobody would join.
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.name
	}
	if unsure := w.unsure(queues, id); len(unsure) > 0 {
		if _, of, err := w.ask(ctx, id, unsure); errors.Is(err, redisconn.ErrUnknown) {
			return of, err
		}
		w.mu.Lock()
		queues = slices.DeleteFunc(queues, func(q *Queue) bool { return w.members[q.id] != nil })
		w.mu.Unlock()
	}
	queues = slices.DeleteFunc(queues, func(q *Queue) bool {
		e := w.loosen(ctx, membership{q.keys, id})
		if e != nil && err == nil {
			of, err = q, e
		}
		return e != nil
	})
	if w.isSpent(queues, id) {
		p.evicted(id) // which has the others be joined again, too
		if err := w.comeBack(ctx); err != nil {
			return nil, err
		}
		id = p.WorkerID()
	}
	asked := queues
	for tries := 0; len(asked) > 0 && tries < maxAsks; tries++ {
		again, q, e := w.ask(ctx, id, asked)
		if e != nil && err == nil {
			of, err = q, e
		}
		asked = again
	}
	if len(asked) > 0 && err == nil {
		of, err = asked[0], errCrowd
	}
	if e := store.List(ctx, p.control, p.space, names...); e != nil {
		p.log.Debug("worqr: queues are not listed", "queues", len(names), "err", e)
		w.outdate()
	}
	if e := w.register(ctx, w.peer.control, id); e != nil {
		p.log.Debug("worqr: the registration is not up to date", "err", e)
		w.outdate()
	}
	return of, err
}

const maxAsks = 100 // for a place among a queue's workers, while others go

var errCrowd = errors.New("others keep leaving the queue at the same time; try again")

// ask asks once for a membership of each of the queues. It returns those that are
// to be asked again, since a worker went meanwhile, and otherwise as joinThese.
func (w *worker) ask(ctx context.Context, id string, queues []*Queue) (again []*Queue, of *Queue, err error) {
	p := w.peer
	calls, stays, repeated := make([]redisconn.Call, len(queues)), make([]stay, len(queues)), make([]bool, len(queues))
	for i, q := range queues {
		calls[i] = store.TokenCall(q.keys)
	}
	for i, reply := range p.control.Do(ctx, calls...) {
		if stays[i].asked, err = store.ReadToken(reply); err != nil {
			return nil, queues[i], err
		}
	}
	w.mu.Lock()
	for i, q := range queues {
		m := membership{q.keys, id}
		if repeated[i] = w.loose[m].unsure; repeated[i] {
			stays[i] = w.loose[m] // the same once more
		} else {
			stays[i].round = w.numbers[m] + 2 // the last one before is then too old
			stays[i].unsure = true            // until we know
			w.loose[m] = stays[i]
		}
		calls[i] = store.JoinCall(q.keys, id, p.opts.granted(), stays[i].asked, stays[i].round)
	}
	w.mu.Unlock()
	for i, reply := range p.control.Do(ctx, calls...) {
		q, m := queues[i], membership{queues[i].keys, id}
		joined, e := store.ReadJoin(reply)
		switch {
		case joined:
			e = w.joined(q, id, stays[i])
		case e == nil && repeated[i]: // or the first one was carried out, and the worker failed
			w.mu.Lock()
			w.loose[m] = stay{round: stays[i].round, asked: stays[i].asked}
			w.mu.Unlock()
		case e == nil:
			again = append(again, q)
			w.tight(m)
		case errors.Is(e, store.ErrEvicted):
			w.spend(m)
		case !errors.Is(e, redisconn.ErrUnknown):
			w.tight(m)
		}
		if e != nil && err == nil {
			of, err = q, e
		}
	}
	return again, of, err
}

// unsure are those of the queues of which the worker may be a member, by a join whose
// answer was lost.
func (w *worker) unsure(queues []*Queue, id string) (unsure []*Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range queues {
		if w.loose[membership{q.keys, id}].unsure {
			unsure = append(unsure, q)
		}
	}
	return unsure
}

// joined begins the rounds with a queue of which the worker, by that id, has
// become a member.
func (w *worker) joined(q *Queue, id string, s stay) error {
	p := w.peer
	p.mu.Lock()
	service := p.services[q.id]
	p.mu.Unlock()
	var serve *engine.Queue
	if service != nil {
		serve = service.Queue
	} else {
		serve = q.served()
	}
	r := &serving{queue: q, id: id, asked: s.asked}
	r.Session = serve.Join(engine.Membership{Worker: id, Asked: s.asked, Round: s.round, Evicted: func() { p.evicted(id) }})
	w.mu.Lock()
	if w.id != id || w.evicted || w.closing { // meanwhile
		w.mu.Unlock()
		w.forsake(r, ErrEvicted)
		return ErrEvicted
	}
	delete(w.loose, membership{q.keys, id})
	w.members[q.id], w.wanted[q.id] = r, q
	w.compare = time.Now().Add(p.opts.beat()) // joins come together
	w.mu.Unlock()
	if service != nil {
		r.Wake()
	}
	return nil
}

// spend notes that an id may have been failed on a queue, where it is to work no
// more.
func (w *worker) spend(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.loose, m)
	if m.id == w.id {
		w.spent[m] = true
	}
}

// tight notes that a membership is not there.
func (w *worker) tight(m membership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.loose, m)
}

// isSpent reports whether the id may have been failed on one of the queues.
func (w *worker) isSpent(queues []*Queue, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(queues, func(q *Queue) bool { return w.spent[membership{q.keys, id}] })
}

// forsake ends the rounds of a membership that is to be left. Some may have been made
// until they have ended.
func (w *worker) forsake(r *serving, why error) {
	r.End(why)
	r.Unlisten()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loose[membership{r.queue.keys, r.id}] = r.stay()
}

// loosen leaves a queue if the worker may be a member of it and should not. It
// is called before the worker joins, so that what a lost call has left behind
// does not mix with what follows.
func (w *worker) loosen(ctx context.Context, m membership) error {
	w.mu.Lock()
	s, ok := w.loose[m]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	_, err := store.Leave(ctx, w.peer.control, m.queue, m.id, s.asked, s.round)
	switch {
	case errors.Is(err, store.ErrEvicted):
		w.spend(m)
	case err != nil:
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.loose, m)
	w.numbers[m] = max(w.numbers[m], s.round) // or a copy of the leave ends what follows
	return nil
}

// loosenAll leaves every queue of which the worker may be a member and should
// not, many at a time.
func (w *worker) loosenAll(ctx context.Context) error {
	w.mu.Lock()
	joins := map[membership]bool{} // to be repeated
	for _, q := range w.wanted {
		joins[membership{q.keys, w.id}] = !w.closing && !w.evicted
	}
	var ms []membership
	for m, s := range w.loose {
		if !s.unsure || !joins[m] {
			ms = append(ms, m)
		}
	}
	w.mu.Unlock()
	errs := make([]error, len(ms))
	var leaving sync.WaitGroup
	for i, m := range ms {
		leaving.Go(func() { errs[i] = w.loosen(ctx, m) })
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
	w.joining <- struct{}{} // also when ctx has ended: then the worker leaves anyway
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
	err := r.Leave(ctx)
	m := membership{r.queue.keys, r.id}
	w.mu.Lock()
	if w.members[queue] == r {
		delete(w.members, queue)
	}
	w.numbers[m] = r.stay().round
	w.loose[m] = r.stay()
	w.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrEvicted):
		w.spend(m)
		err = nil
	case err == nil:
		w.tight(m)
	}
	r.Unlisten()
	w.mu.Lock()
	closing := w.closing
	w.mu.Unlock()
	if closing {
		return err // the registration goes
	}
	if err := w.register(ctx, w.peer.control, r.id); err != nil {
		w.peer.log.Debug("worqr: the registration is not up to date", "err", err)
		w.outdate()
	}
	return err
}
