package worqr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"

	"github.com/worqr/worqr/internal/store"
)

// Limits of one call.
const (
	// MaxPayloadSize is the most that Options.MaxPayload may be, in bytes.
	MaxPayloadSize = 512 << 20
	// DefaultMaxPayload is Options.MaxPayload by default, in bytes.
	DefaultMaxPayload = 64 << 20
	// MaxBatchSize is how many payloads one call may enqueue.
	MaxBatchSize = 100_000

	nonceWindow = 10 * time.Minute
)

// Enqueue adds the payloads to the back of the queue, in their order: all of them, or none
// if it fails. It wakes idle workers. You may change the payloads once it has returned.
//
// When the reply was lost it fails with ErrUnknownOutcome, and repeating it may add the
// tasks twice; EnqueueOnce doesn't. It fails with ErrInvalid when there is no payload, and
// with ErrTooLarge beyond MaxBatchSize or Options.MaxPayload.
func (q *Queue) Enqueue(ctx context.Context, payloads ...[]byte) error {
	return q.wrap("enqueue", q.produce(ctx, payloads, func() (alone bool, err error) {
		if store.Spans(payloads) {
			_, err := q.enqueueBatch(ctx, store.Batch{ID: store.NewID()}, payloads)
			return true, err
		}
		copied := store.Copy(payloads)
		return q.behind(ctx, func() (bool, error) { return q.back().Enqueue(ctx, q.peer.calls, copied) })
	}))
}

// EnqueueOnce is an Enqueue that may be repeated: within ten minutes, only the first call
// with the nonce, 1 to MaxKeySize bytes, enqueues. Fresh is true for that one.
func (q *Queue) EnqueueOnce(ctx context.Context, nonce string, payloads ...[]byte) (fresh bool, err error) {
	switch {
	case nonce == "":
		return false, q.wrap("enqueue once", fmt.Errorf("%w: the nonce is empty", ErrInvalid))
	case len(nonce) > MaxKeySize:
		return false, q.wrap("enqueue once", tooLarge("a nonce of %d bytes; at most %d", len(nonce), MaxKeySize))
	}
	err = q.produce(ctx, payloads, func() (alone bool, err error) {
		if store.Spans(payloads) {
			fresh, err = q.enqueueBatch(ctx, store.Batch{ID: store.NewID(), Nonce: nonce, Window: nonceWindow}, payloads)
			return fresh, err
		}
		copied := store.Copy(payloads)
		return q.behind(ctx, func() (alone bool, err error) {
			fresh, alone, err = store.EnqueueOnce(ctx, q.peer.calls, q.keys, nonce, nonceWindow, copied)
			return alone, err
		})
	})
	return fresh, q.wrap("enqueue once", err)
}

// EnqueueUnique adds the payload to the back of the queue. It fails with ErrDuplicate while
// an equal payload that EnqueueUnique added waits or runs.
func (q *Queue) EnqueueUnique(ctx context.Context, payload []byte) error {
	payloads := [][]byte{payload}
	return q.wrap("enqueue unique", q.produce(ctx, payloads, func() (alone bool, err error) {
		copied := bytes.Clone(payload)
		return q.behind(ctx, func() (bool, error) { return store.EnqueueUnique(ctx, q.peer.calls, q.keys, copied) })
	}))
}

// produce checks the payloads, has them sent, and makes sure that the queue is
// listed; send tells whether nothing else is there of it. What is sent must be copies: the
// connection may read the bytes after a call that was cut short has returned, when they
// are the caller's again.
func (q *Queue) produce(ctx context.Context, payloads [][]byte, send func() (alone bool, err error)) error {
	switch {
	case q.bad != nil:
		return q.bad
	case len(payloads) == 0:
		return fmt.Errorf("%w: there is no payload", ErrInvalid)
	case len(payloads) > MaxBatchSize:
		return tooLarge("%d payloads at once; at most %d, so split them", len(payloads), MaxBatchSize)
	}
	for i, p := range payloads {
		if most := q.peer.opts.MaxPayload; len(p) > most {
			which := "the payload"
			if len(payloads) > 1 {
				which = fmt.Sprintf("payload %d of %d", i+1, len(payloads))
			}
			return tooLarge("%s has %d bytes; at most %d, so store it elsewhere and enqueue where", which, len(p), most)
		}
	}
	alone, err := send()
	if err != nil {
		if errors.Is(err, store.ErrUnknown) {
			q.back().listed.Store(0) // nobody knows whether it was alone
		}
		return err
	}
	q.list(ctx, alone)
	return nil
}

// tooLarge is the error of what is over a limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %w: "+format, append([]any{ErrInvalid, ErrTooLarge}, args...)...)
}

// mostBacks is for how many queues a peer remembers what it knows of their back.
const mostBacks = 1000

// A back is where a peer adds payloads to a queue.
type back struct {
	*store.Back
	listed  atomic.Int64  // when the queue was put into the registry, in ns; 0 is never
	denied  atomic.Bool   // this user may not do that
	foreign atomic.Int64  // when something else was in the place of the registry, in ns; 0 is never
	unmoved atomic.Int64  // batches were accepted that may be in the queue or not; it grows with each, and is 0 once all are there
	hauls   logs.Outage   // about moving them
	turn    chan struct{} // holds one: who moves them
}

// back returns that of the queue.
func (q *Queue) back() *back {
	p := q.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.backs[q.id]
	if b == nil {
		b = &back{Back: store.NewBack(q.keys), turn: make(chan struct{}, 1)}
		if p.backs == nil {
			p.backs = map[string]*back{}
		}
		if len(p.backs) >= mostBacks {
			for name := range p.backs { // any: what it knew is found out again
				delete(p.backs, name)
				break
			}
		}
		p.backs[q.id] = b
	}
	return b
}

// forget forgets what is known of queues: Redis may have lost everything.
func (p *Peer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.backs)
}

// relist is how often a peer lists a queue that it adds to, should its name have been lost.
const relist = time.Minute

// list puts the queue's name into the registry: where the queue is alone, since a Delete may
// just have taken it off, and else once a minute for each peer. Whoever serves the queue
// lists it, too, so nothing is lost when this fails or ctx ends. A user who may not is
// not denied it again, and where something else is in the registry's place, it is tried again
// in a minute. It is a plain command, so that a user can be allowed it and nothing else.
func (q *Queue) list(ctx context.Context, alone bool) {
	b, now := q.back(), time.Now().UnixNano()
	recent := func(at int64) bool { return at != 0 && now-at < int64(relist) }
	last := b.listed.Load()
	first := !recent(last) && b.listed.CompareAndSwap(last, now) // of those who find it late
	if b.denied.Load() || recent(b.foreign.Load()) || !alone && !first {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	switch err := store.AddName(ctx, q.peer.calls, q.peer.space, q.name); {
	case err == nil:
	case store.IsDenied(err):
		b.denied.Store(true)
	case store.IsWrongType(err):
		b.foreign.Store(now)
	default:
		b.listed.Store(0)
	}
}
