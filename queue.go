package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Len returns how many tasks wait, including added and scheduled ones.
func (q *Queue) Len(ctx context.Context) (int, error) {
	n, err := q.sum(ctx, func(part *Queue) (int, error) { return store.Len(ctx, q.peer.reads, part.keys) })
	return n, q.wrap("count", err)
}

// Peek returns the payload of the next task to start, or ErrNoTask when nothing is due.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	var payload []byte
	parts, err := q.known(ctx, false)
	if err != nil {
		return nil, q.wrap("peek", err)
	}
	for _, part := range parts {
		if payload, err = store.Peek(ctx, q.peer.reads, part.keys); !errors.Is(err, store.ErrEmpty) {
			break
		}
	}
	if errors.Is(err, store.ErrEmpty) {
		err = ErrNoTask
	}
	return payload, q.wrap("peek", err)
}

// Tasks yields the waiting payloads, front first, except tasks whose key is running.
func (q *Queue) Tasks(ctx context.Context) iter.Seq2[[]byte, error] {
	rows := rowsOf(ctx, q, store.Tasks, store.InTurn)
	return listed(rows, q.bad, q.wrapper("list tasks"), func(payload []byte) []byte { return payload })
}

// listed converts the rows of a listing of the store for callers.
func listed[T, U any](rows iter.Seq2[T, error], bad error, wrap func(error) error, public func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		var none U
		if bad != nil {
			yield(none, wrap(bad))
			return
		}
		for row, err := range rows {
			if err != nil {
				yield(none, wrap(err))
				return
			}
			if !yield(public(row), nil) {
				return
			}
		}
	}
}

// rowsOf lists the rows of all parts, combined by join.
func rowsOf[T any](ctx context.Context, q *Queue, rows func(context.Context, store.Runner, store.Keys) iter.Seq2[T, error],
	join func(parts []iter.Seq2[T, error], yield func(T, error) bool)) iter.Seq2[T, error] {
	if q.spread == nil {
		return rows(ctx, q.peer.reads, q.keys)
	}
	return func(yield func(T, error) bool) {
		parts, err := q.known(ctx, false)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		lists := make([]iter.Seq2[T, error], len(parts))
		for i, part := range parts {
			lists[i] = rows(ctx, q.peer.reads, part.keys)
		}
		join(lists, yield)
	}
}

func (q *Queue) wrapper(verb string) func(error) error {
	return func(err error) error { return q.wrap(verb, err) }
}

// Running yields the tasks that workers hold, running or prefetched.
func (q *Queue) Running(ctx context.Context) iter.Seq2[inspect.RunningTask, error] {
	rows := rowsOf(ctx, q, store.Running, store.InTurn)
	return listed(rows, q.bad, q.wrapper("list running tasks"), func(t store.RunningTask) inspect.RunningTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return inspect.RunningTask{AttemptID: t.Attempt, WorkerID: t.Worker, Payload: t.Payload, Key: t.Key, Token: t.Token, StartedAt: store.StartedAt(t.Attempt),
			Headers: c.Headers, EnqueuedAt: store.Moment(c.Since), LastError: t.Error,
			Attempt: t.Retries + t.Crashes + 1, Retries: t.Retries, Crashes: t.Crashes, DueAt: store.Moment(t.Due)}
	})
}

// add adds the counts of a part. All workers serve each part, and a worker that is idle on one part
// may be busy on another.
func add(s *inspect.QueueStats, part inspect.QueueStats) {
	s.Waiting, s.Scheduled, s.Running, s.Failed = s.Waiting+part.Waiting, s.Scheduled+part.Scheduled, s.Running+part.Running, s.Failed+part.Failed
	s.Silent = (s.Silent || s.Workers == 0) && (part.Silent || part.Workers == 0) && s.Workers+part.Workers > 0
	s.Workers, s.IdleWorkers, s.Paused = max(s.Workers, part.Workers), max(s.IdleWorkers, part.IdleWorkers), s.Paused || part.Paused
	s.Oldest, s.Tokens = max(s.Oldest, part.Oldest), s.Tokens+part.Tokens
}

// Stats reads the counts of the queue.
func (q *Queue) Stats(ctx context.Context) (inspect.QueueStats, error) {
	var s inspect.QueueStats
	var mu sync.Mutex // protects s
	err := q.each(ctx, false, func(part *Queue) error {
		c, err := store.Count(ctx, q.peer.reads, part.keys)
		mu.Lock()
		defer mu.Unlock()
		add(&s, inspect.QueueStats(c))
		return err
	})
	return s, q.wrap("stats", err)
}

// Pause keeps tasks of the queue from starting until Resume. OnFailed still runs.
func (q *Queue) Pause(ctx context.Context) error {
	return q.change(ctx, "Pause", "pause", func(part *Queue) error { return store.Pause(ctx, q.peer.calls, part.keys) })
}

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	return q.change(ctx, "Resume", "resume", func(part *Queue) error { return store.Resume(ctx, q.peer.calls, part.keys) })
}

// Delete drops all waiting tasks, possibly including some added meanwhile. It fails if tasks
// arrive too fast. Running tasks, failed tasks and a pause stay. Recurring tasks end unless a
// running peer has registered them with Every.
func (q *Queue) Delete(ctx context.Context) error {
	return q.change(ctx, "Delete", "delete", func(part *Queue) error {
		if err := store.Delete(ctx, q.peer.calls, part.keys); err != nil {
			return err
		}
		if !part.keys.IsFailed() {
			if err := store.EndRecurring(ctx, q.peer.calls, part.keys); err != nil && !store.IsDenied(err) {
				return err
			}
		}
		return q.peer.producer.Unlist(ctx, part.target())
	})
}

// change applies do to all parts of the queue, for a method that Trace.Changed reports.
func (q *Queue) change(ctx context.Context, method, verb string, do func(part *Queue) error) error {
	if q.bad != nil {
		return q.wrap(verb, q.bad)
	}
	done := q.changes(method, "")
	return done(0, q.wrap(verb, q.each(ctx, true, do)))
}

func (p *Peer) Format(s fmt.State, _ rune) { logs.Show(s, "peer", p) }

func (p *Peer) LogValue() slog.Value {
	if p == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("id", p.WorkerID()))
}

func (q Queue) Format(s fmt.State, _ rune) { logs.Show(s, "queue", q) }

func (q Queue) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", q.name))
}

// Spread returns a handle to the queue split into n parts, 1 to 256, over the nodes of a Redis
// Cluster. Use this handle for every call: Peer.Queue alone means the unspread queue, which is one
// more part. All programs must use the same n. Order and rising tokens are guaranteed only within a
// part. docs/operations.md lists what else differs.
func (q *Queue) Spread(n int) *Queue {
	s := *q
	s.spread = nil
	switch {
	case s.bad != nil:
	case n < 1 || n > store.MaxParts:
		s.bad = fmt.Errorf("%w: Spread(%d): n must be between 1 and %d", ErrInvalid, n, store.MaxParts)
	case n > 1 && len(q.name) > store.MaxWhole:
		s.bad = badName("queue", q.name, fmt.Errorf("the name has %d bytes; the limit for a queue that is spread is %d", len(q.name), store.MaxWhole))
	case n > 1:
		s.spread = &spread{rest: q.part(q.name)}
		s.spread.turn.Store(rand.Uint32())
		for i := range n {
			s.spread.parts = append(s.spread.parts, q.part(store.Part(q.name, i, n)))
		}
		q.peer.spreads.Add(q.name, n)
	}
	return &s
}

// A spread is the parts of a queue.
type spread struct {
	parts []*Queue
	rest  *Queue // the unspread queue: tasks enqueued before the spread, or by programs that don't spread it
	turn  atomic.Uint32

	last  atomic.Pointer[record] // nil until it's read
	wider atomic.Int64           // other programs' larger number, once logged
	quiet sync.Map               // ids of parts that didn't answer the last request for tasks
}

// A record is the number of parts over which other programs have spread a queue.
type record struct {
	parts int // 0 if there is no record, or it can't be read
	at    time.Time
}

// recent returns the last record if it's still recent, or nil.
func (q *Queue) recent() *record {
	if last := q.spread.last.Load(); last != nil && time.Since(last.at) < q.peer.spreads.Each {
		return last
	}
	return nil
}

// part returns the queue or part with this name in Redis.
func (q *Queue) part(name string) *Queue {
	return &Queue{peer: q.peer, name: q.name, id: name, in: name, keys: q.peer.space.Queue(name), bad: q.bad}
}

func (q *Queue) all() []*Queue {
	if q.spread == nil {
		return []*Queue{q}
	}
	return append(q.spread.parts[:len(q.spread.parts):len(q.spread.parts)], q.spread.rest)
}

// with returns the parts of the queue and, if other programs have spread it over n, their parts.
func (q *Queue) with(n int) []*Queue {
	all := q.all()
	if n < 2 || n > store.MaxParts || q.spread != nil && n == len(q.spread.parts) {
		return all
	}
	for i := range n {
		part := q.part(store.Part(q.name, i, n))
		if q.keys.IsFailed() {
			part = part.failed()
		}
		if !slices.ContainsFunc(all, func(o *Queue) bool { return o.id == part.id }) {
			all = append(all, part)
		}
	}
	return all
}

// known returns the parts of the queue, including further ones if other programs have spread it
// over another number. An operation that must not miss any passes fresh. If the Redis user may not
// read that number, known returns the queue's own parts. It fails if the queue's name is bad.
func (q *Queue) known(ctx context.Context, fresh bool) ([]*Queue, error) {
	if q.bad != nil || q.spread == nil {
		return q.all(), q.bad
	}
	if last := q.recent(); last != nil && !fresh {
		return q.with(last.parts), nil
	}
	now := time.Now()
	said, err := store.SpreadOver(ctx, q.peer.reads, q.peer.space, q.name)
	if err == nil {
		q.spread.last.Store(&record{said, now})
		return q.with(said), nil
	}
	if last := q.spread.last.Load(); last != nil && !fresh { // an old number is better than failing
		return q.with(last.parts), nil
	}
	return nil, err
}

// next returns the parts in turn.
func (q *Queue) next() *Queue {
	if q.spread == nil {
		return q
	}
	return q.spread.parts[q.spread.turn.Add(1)%uint32(len(q.spread.parts))]
}

// of returns the part for a nonce or for the payload of a unique task. It fails if other programs
// have spread the queue over another number of parts: they would look elsewhere.
func (q *Queue) of(ctx context.Context, what []byte) (*Queue, error) {
	if q.spread == nil {
		return q, nil
	}
	if err := q.agree(ctx); err != nil {
		return nil, err
	}
	return q.spread.parts[store.PartOf(what, len(q.spread.parts))], nil
}

// ofKey returns the part for a key. The key of an added task contains its part.
func (q *Queue) ofKey(ctx context.Context, key string) (*Queue, error) {
	part, err := q.of(ctx, []byte(key))
	if err != nil || q.spread == nil {
		return part, err
	}
	if i, ok := store.AddedPart(key, len(q.spread.parts)); ok {
		return q.spread.parts[i], nil
	}
	return part, nil
}

// fresh returns the part for a task under a new key, the part's number, and the number of parts.
// Without once, parts take turns; with it, the part depends on once.
func (q *Queue) fresh(ctx context.Context, once string) (part *Queue, i, n int, err error) {
	if q.spread == nil {
		return q, 0, 1, nil
	}
	if err := q.agree(ctx); err != nil {
		return nil, 0, 0, err
	}
	n = len(q.spread.parts)
	if i = store.PartOf([]byte(once), n); once == "" {
		i = int(q.spread.turn.Add(1) % uint32(n))
	}
	return q.spread.parts[i], i, n, nil
}

// agreeEach is how long a peer relies on the number of parts it last read.
const agreeEach = time.Minute

// agree fails if other programs have spread the queue over another number of parts.
func (q *Queue) agree(ctx context.Context) error {
	if q.spread == nil || q.bad != nil {
		return nil
	}
	n := len(q.spread.parts)
	if last := q.recent(); last != nil && last.parts == n {
		return nil
	}
	now := time.Now()
	said, err := store.Spread(ctx, q.peer.calls, q.peer.space, q.name, n, false)
	if err != nil {
		return err
	}
	q.spread.last.Store(&record{said, now})
	if said != n {
		return fmt.Errorf("%w: this program spreads the queue over %d parts, and other programs over %d; use the same number everywhere; docs/operations.md says how to change it", ErrInvalid, n, said)
	}
	return nil
}

// tell records over how many parts the queue is spread, so that a peer that knows only its name
// sees all of it. It's called once in a while, and a failure is harmless.
func (q *Queue) tell(ctx context.Context) {
	if q.spread == nil || !q.peer.spreads.Due(q.name) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = store.Spread(ctx, q.peer.calls, q.peer.space, q.name, len(q.spread.parts), false)
}

// toServe returns the parts that a peer serves, including further ones if other programs have
// spread the queue over more, so that peers can be replaced one by one when the number changes.
func (q *Queue) toServe(ctx context.Context) ([]*Queue, error) {
	n := len(q.spread.parts)
	said, err := store.Spread(ctx, q.peer.calls, q.peer.space, q.name, n, true)
	if err != nil || said <= n || said > store.MaxParts {
		return q.all(), err
	}
	if q.spread.wider.Swap(int64(said)) != int64(said) {
		q.peer.log.Warn("worqr: other peers spread this queue over more parts; serving those, too", "queue", q.name, "parts", said, "ours", n)
	}
	return q.with(said), nil
}

// whole returns the queue as other programs have spread it, if this handle isn't spread: a caller
// that asks about a task may know only the name.
func (q *Queue) whole(ctx context.Context) (*Queue, error) {
	if q.spread != nil || q.bad != nil {
		return q, nil
	}
	now := time.Now()
	n, err := store.SpreadOver(ctx, q.peer.reads, q.peer.space, q.name)
	if err != nil || n < 2 || n > store.MaxParts {
		return q, err
	}
	s := q.Spread(n)
	if s.spread != nil {
		s.spread.last.Store(&record{n, now})
	}
	return s, nil
}

// mostAtOnce is how many parts each works on concurrently.
const mostAtOnce = 16

// each calls do for all known parts, several at a time, and returns the first error.
func (q *Queue) each(ctx context.Context, fresh bool, do func(part *Queue) error) error {
	parts, err := q.known(ctx, fresh)
	if err != nil {
		return err
	}
	return eachOf(parts, do)
}

func eachOf(parts []*Queue, do func(part *Queue) error) error {
	if len(parts) == 1 {
		return do(parts[0])
	}
	var all sync.WaitGroup
	errs := make([]error, len(parts))
	room := make(chan struct{}, mostAtOnce)
	for i, part := range parts {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			errs[i] = do(part)
		})
	}
	all.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, store.ErrUnknown) }); i >= 0 {
		return errs[i] // a part may have changed
	}
	return cmp.Or(errs...)
}

// sum calls do for all known parts, and adds up the counts.
func (q *Queue) sum(ctx context.Context, do func(part *Queue) (int, error)) (int, error) {
	var n atomic.Int64
	err := q.each(ctx, false, func(part *Queue) error {
		some, err := do(part)
		n.Add(int64(some))
		return err
	})
	return int(n.Load()), err
}
