package store

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Producer adds tasks to queues, for all callers of a peer. It makes sure that the queues
// are listed, and that batches that were accepted before are moved to them first.
type Producer struct {
	calls  *redisconn.Line
	space  Space
	log    *logs.Log
	damage logs.Limiter // about batches

	mu  sync.Mutex
	all map[string]*known // by the queue's id; protected by mu
}

// mostKnown is for how many queues a producer remembers what it knows of them.
const mostKnown = 1000

// A known is what a producer knows of a queue.
type known struct {
	*Back
	listed  atomic.Int64  // when the queue was put into the registry, in ns; 0 is never
	denied  atomic.Bool   // this user may not do that
	foreign atomic.Int64  // when something else was in the place of the registry, in ns; 0 is never
	unmoved atomic.Int64  // batches were accepted that may be in the queue or not; it grows with each, and is 0 once all are there
	hauls   logs.Outage   // about moving them
	turn    chan struct{} // holds one: who moves them
}

// A Target is a queue to which tasks are added.
type Target struct {
	Name string
	ID   string // the name, or what tells its failed queue from it
	Keys Keys
}

// maxDamages is how many lines a second are logged about damaged batches.
const maxDamages = 5

// NewProducer returns a producer. It does no I/O.
func NewProducer(l *Lines, s Space, log *logs.Log) *Producer {
	return &Producer{
		calls: l.Calls, space: s, log: log, all: map[string]*known{},
		damage: logs.Limiter{Say: log.Error, What: "worqr: more batches are damaged", Each: maxDamages, All: maxDamages},
	}
}

// Flush logs what limits have left out so far.
func (p *Producer) Flush() { p.damage.Flush() }

// of is what is known of a queue. It may be forgotten during a call: what comes of that is
// noted with what is known then.
func (p *Producer) of(q Target) *known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ofLocked(q)
}

// accepted notes that a batch may be there that is not moved, and returns what is known now.
func (p *Producer) accepted(q Target) *known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.ofLocked(q)
	k.unmoved.Add(1)
	return k
}

func (p *Producer) ofLocked(q Target) *known {
	k := p.all[q.ID]
	if k == nil {
		k = &known{Back: NewBack(q.Keys), turn: make(chan struct{}, 1)}
		if len(p.all) >= mostKnown {
			for id := range p.all { // any: what it knew is found out again
				delete(p.all, id)
				break
			}
		}
		p.all[q.ID] = k
	}
	return k
}

// Forget forgets what is known of queues: Redis may have lost everything.
func (p *Producer) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.all)
}

// What is sent must be copies: the connection may read the bytes after a call that was cut
// short has returned, when they are the caller's again.

// Enqueue adds payloads to the back of the queue.
func (p *Producer) Enqueue(ctx context.Context, q Target, payloads [][]byte) error {
	if Spans(payloads) {
		return p.add(ctx, q, func() (bool, error) {
			_, err := p.batch(ctx, q, Batch{ID: NewID()}, payloads)
			return true, err
		})
	}
	copied := redisconn.Copy(payloads)
	return p.behind(ctx, q, func(k *known) (bool, error) { return k.Enqueue(ctx, p.calls, copied) })
}

// EnqueueOnce does so once for a nonce within a time. Fresh is true for the call that did.
func (p *Producer) EnqueueOnce(ctx context.Context, q Target, nonce string, window time.Duration, payloads [][]byte) (fresh bool, err error) {
	if Spans(payloads) {
		err = p.add(ctx, q, func() (bool, error) {
			fresh, err = p.batch(ctx, q, Batch{ID: NewID(), Nonce: nonce, Window: window}, payloads)
			return fresh, err
		})
		return fresh, err
	}
	copied := redisconn.Copy(payloads)
	err = p.behind(ctx, q, func(*known) (alone bool, err error) {
		fresh, alone, err = EnqueueOnce(ctx, p.calls, q.Keys, nonce, window, copied)
		return alone, err
	})
	return fresh, err
}

// EnqueueUnique adds a payload to the back of the queue, unless ErrDuplicate.
func (p *Producer) EnqueueUnique(ctx context.Context, q Target, payload []byte) error {
	copied := bytes.Clone(payload)
	return p.behind(ctx, q, func(*known) (bool, error) { return EnqueueUnique(ctx, p.calls, q.Keys, copied) })
}

// Put puts a task under an entry.
func (p *Producer) Put(ctx context.Context, q Target, entry string, c Change) error {
	c.Payload = bytes.Clone(c.Payload)
	return p.add(ctx, q, func() (bool, error) { return Put(ctx, p.calls, q.Keys, entry, c) })
}

// add has something sent, and makes sure that the queue is listed; send tells whether
// nothing else is there of it.
func (p *Producer) add(ctx context.Context, q Target, send func() (alone bool, err error)) error {
	alone, err := send()
	return p.added(ctx, q, alone, err)
}

// behind has something sent to the back of the queue. Batches that were accepted before are
// moved there first.
func (p *Producer) behind(ctx context.Context, q Target, send func(*known) (alone bool, err error)) error {
	for k := p.of(q); ; k = p.accepted(q) {
		if err := p.catchUp(ctx, q, k); err != nil {
			return p.added(ctx, q, false, NotEnqueued(err))
		}
		alone, err := send(k)
		if !errors.Is(err, ErrUnmoved) {
			return p.added(ctx, q, alone, err)
		}
	}
}

// added takes in what came of it.
func (p *Producer) added(ctx context.Context, q Target, alone bool, err error) error {
	k := p.of(q)
	if errors.Is(err, ErrUnknown) {
		k.listed.Store(0) // nobody knows whether it was alone
	}
	if err == nil {
		p.list(ctx, q, k, alone)
	}
	return err
}

// batch enqueues more payloads than one call takes. When it returns they are
// accepted, or none is. If they can't be moved to the queue now, whoever serves the queue
// or enqueues to it moves them.
func (p *Producer) batch(ctx context.Context, q Target, b Batch, payloads [][]byte) (fresh bool, err error) {
	fresh, err = b.Enqueue(ctx, p.calls, q.Keys, payloads)
	unknown := errors.Is(err, ErrUnknown)
	if err != nil && !unknown {
		return false, err
	}
	k := p.accepted(q)
	if !unknown {
		_ = p.catchUp(ctx, q, k) // if it fails, that is logged
	}
	return fresh, err
}

// catchUp moves the batches of which the peer knows. One caller does, and the others wait:
// pages that travel together would keep Redis busy with all of them at once.
func (p *Producer) catchUp(ctx context.Context, q Target, k *known) error {
	if k.unmoved.Load() == 0 {
		return nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n := k.unmoved.Load()
	if n == 0 {
		return nil
	}
	if err := p.Haul(ctx, q); err != nil {
		return err
	}
	k.unmoved.CompareAndSwap(n, 0) // unless this peer has enqueued another one meanwhile
	return nil
}

// Haul moves accepted batches to the queue, and logs when that fails, and when the tasks
// of a batch are gone.
func (p *Producer) Haul(ctx context.Context, q Target) error {
	damage, err := Haul(ctx, p.calls, q.Keys)
	if damage.Batches > 0 && p.damage.Allow(q.ID) {
		p.log.Error("worqr: tasks of accepted batches are missing or overwritten; call Check",
			"queue", q.ID, "batches", damage.Batches, "key", damage.Key)
	}
	if err != nil && ctx.Err() != nil {
		return err // the caller's time is over, which says nothing of Redis; who is next goes on
	}
	p.of(q).hauls.Note(p.log, "an accepted batch cannot be moved to its queue; the next heartbeats and enqueues try again", err, "queue", q.ID)
	return err
}

// relist is how often a queue is listed to which tasks are added, should its name have been
// lost.
const relist = time.Minute

// List has the queue be listed, unless it was of late.
func (p *Producer) List(ctx context.Context, q Target) { p.list(ctx, q, p.of(q), false) }

// list puts the queue's name into the registry: where the queue is alone, since a Delete may
// just have taken it off, and else once a minute for each peer. Whoever serves the queue
// lists it, too, so nothing is lost when this fails or ctx ends. A user who may not is
// not denied it again, and where something else is in the registry's place, it is tried again
// in a minute.
func (p *Producer) list(ctx context.Context, q Target, k *known, alone bool) {
	now := time.Now().UnixNano()
	recent := func(at int64) bool { return at != 0 && now-at < int64(relist) }
	last := k.listed.Load()
	first := !recent(last) && k.listed.CompareAndSwap(last, now) // of those who find it late
	if k.denied.Load() || recent(k.foreign.Load()) || !alone && !first {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	switch err := AddName(ctx, p.calls, p.space, q.Name); {
	case err == nil:
	case IsDenied(err):
		k.denied.Store(true)
	case IsWrongType(err):
		k.foreign.Store(now)
	default:
		k.listed.Store(0)
	}
}

// Unlist takes the queue off the registry if nothing of it is left, as far as the user may:
// who can't list can't unlist.
func (p *Producer) Unlist(ctx context.Context, q Target) error {
	p.of(q).listed.Store(0)
	err := Unlist(ctx, p.calls, p.space, q.Keys, q.Name)
	if IsWrongType(err) || IsDenied(err) {
		return nil
	}
	return err
}
