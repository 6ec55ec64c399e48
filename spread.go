package worqr

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Spread returns a handle to the queue split into n parts, 1 to 256, over the nodes of a Redis
// Cluster. Use it for every call: Peer.Queue alone means the plain queue, which is one more part.
// All programs must use the same n. Order holds, and tokens rise, within a part.
func (q *Queue) Spread(n int) *Queue {
	s := *q
	s.spread = nil
	switch {
	case s.bad != nil:
	case n < 1 || n > store.MaxParts:
		s.bad = fmt.Errorf("%w: Spread(%d): it must be 1 to %d", ErrInvalid, n, store.MaxParts)
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
	rest  *Queue // the plain queue: tasks enqueued before it was spread, or by programs that don't spread it
	turn  atomic.Uint32

	last  atomic.Pointer[record] // nil until it's read
	wider atomic.Int64           // others' larger number, once logged
	quiet sync.Map               // ids of parts that didn't answer the last request for tasks
}

// A record says over how many parts others have spread a queue.
type record struct {
	parts int // 0 if there is no such record, or it can't be read
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

// all returns the parts of the queue.
func (q *Queue) all() []*Queue {
	if q.spread == nil {
		return []*Queue{q}
	}
	return append(q.spread.parts[:len(q.spread.parts):len(q.spread.parts)], q.spread.rest)
}

// with returns the parts of the queue, and those of others that have spread it over n.
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

// known returns the parts of the queue, and those of others that have spread it over another
// number. An operation that must not miss any asks for a fresh number. If the Redis user may not
// read it, known returns the queue's own parts.
func (q *Queue) known(ctx context.Context, fresh bool) ([]*Queue, error) {
	if q.spread == nil || q.bad != nil {
		return q.all(), nil
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
	if last := q.spread.last.Load(); last != nil && !fresh { // better than failing
		return q.with(last.parts), nil
	}
	return nil, err
}

// next returns the part whose turn it is.
func (q *Queue) next() *Queue {
	if q.spread == nil {
		return q
	}
	return q.spread.parts[q.spread.turn.Add(1)%uint32(len(q.spread.parts))]
}

// of returns the part of a nonce or the payload of a unique task. It fails if others have spread the
// queue over another number of parts: they would look elsewhere.
func (q *Queue) of(ctx context.Context, what []byte) (*Queue, error) {
	if q.spread == nil {
		return q, nil
	}
	if err := q.agree(ctx); err != nil {
		return nil, err
	}
	return q.spread.parts[store.PartOf(what, len(q.spread.parts))], nil
}

// ofKey returns the part of a key. The key of an added task says which one that is.
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

// fresh returns the part for a task under a new key, its number, and how many there are. It's the
// part whose turn it is, or that of what makes a call unrepeatable.
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

// agreeEach is how long a peer relies on the number of parts that it has read.
const agreeEach = time.Minute

// agree fails if others have spread the queue over another number of parts.
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
		return fmt.Errorf("%w: this program spreads the queue over %d parts, and others over %d; use the same number everywhere; docs/operations.md says how to change it", ErrInvalid, n, said)
	}
	return nil
}

// toServe returns the parts that a peer serves, including those of others that have spread the
// queue over more. So peers can be replaced one by one when the number changes.
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

// whole returns the queue as others have spread it, if this handle isn't spread: a caller who asks
// about a task may know only the name.
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

// mostAtOnce is how many parts each works on at the same time.
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
