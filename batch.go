package worqr

import (
	"context"
	"errors"

	"github.com/worqr/worqr/internal/store"
)

// enqueueBatch enqueues more payloads than one call takes. When it returns they are
// accepted, or none is. If they can't be moved to the queue now, whoever serves the queue
// or enqueues to it moves them.
func (q *Queue) enqueueBatch(ctx context.Context, batch store.Batch, payloads [][]byte) (fresh bool, err error) {
	fresh, err = batch.Enqueue(ctx, q.peer.calls, q.keys, payloads)
	unknown := errors.Is(err, store.ErrUnknown)
	if err != nil && !unknown {
		return false, err
	}
	b := q.back()
	b.unmoved.Add(1)
	if !unknown {
		_ = q.catchUp(ctx, b) // if it fails, that is logged
	}
	return fresh, err
}

// behind sends what goes to the back of the queue. Batches that were accepted before are
// moved there first.
func (q *Queue) behind(ctx context.Context, send func() (alone bool, err error)) (alone bool, err error) {
	b := q.back()
	for {
		if err := q.catchUp(ctx, b); err != nil {
			return false, store.NotEnqueued(err)
		}
		alone, err := send()
		if !errors.Is(err, store.ErrUnmoved) {
			return alone, err
		}
		b.unmoved.Add(1)
	}
}

// catchUp moves the batches of which the peer knows. One caller does, and the others wait:
// pages that travel together would keep Redis busy with all of them at once.
func (q *Queue) catchUp(ctx context.Context, b *back) error {
	if b.unmoved.Load() == 0 {
		return nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n := b.unmoved.Load()
	if n == 0 {
		return nil
	}
	if err := q.haul(ctx); err != nil {
		return err
	}
	b.unmoved.CompareAndSwap(n, 0) // unless this peer has enqueued another one meanwhile
	return nil
}

// haul moves accepted batches to the queue, and logs when that fails, and when the tasks
// of a batch are gone.
func (q *Queue) haul(ctx context.Context) error {
	damage, err := store.Haul(ctx, q.peer.calls, q.keys)
	if log := q.peer.log; damage.Batches > 0 && q.peer.damage.Allow(q.id) {
		log.Error("worqr: the tasks of accepted batches are gone, or something else is in their place; call Check",
			"queue", q.id, "batches", damage.Batches, "key", damage.Key)
	}
	if err != nil && ctx.Err() != nil {
		return err // the caller's time is over, which says nothing of Redis; who is next goes on
	}
	q.back().hauls.Note(q.peer.log, "an accepted batch cannot be moved to its queue; the next heartbeats and enqueues try again", err, "queue", q.id)
	return err
}

// maxDamages is how many lines a second a peer logs about damaged batches.
const maxDamages = 5
