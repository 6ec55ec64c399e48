package worqr

import (
	"bytes"
	"context"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Cancel removes every waiting copy of the payload and stops those that run, in whatever
// process: their contexts end with ErrCanceled, and they never run again, even if their
// worker dies. The report's Wait waits
// for those that ran. When Cancel fails halfway, call it again.
func (q *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if len(payload) > MaxPayloadSize {
		return nil, q.wrap("cancel", tooLarge("a payload of %d bytes; at most %d", len(payload), MaxPayloadSize))
	}
	payload = bytes.Clone(payload) // the connection may read it for longer than this call takes
	// What was accepted is canceled, too. Where a key is of another type, it is not in a batch,
	// or the next call fails.
	if err := q.haul(ctx); err != nil && !store.IsWrongType(err) {
		return nil, q.wrap("cancel", err)
	}
	receipt, err := store.Cancel(ctx, q.peer.calls, q.keys, payload)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: receipt.Removed, queue: q, receipt: receipt}, nil
}

// CancelKey removes what waits under the key and stops what runs, as Cancel does.
func (q *Queue) CancelKey(ctx context.Context, key string) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if err := checkKey(key); err != nil {
		return nil, q.wrap("cancel", err)
	}
	receipt, err := store.CancelKey(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: receipt.Removed, queue: q, receipt: receipt}, nil
}

// A CancelReport says what a cancel did. It isn't safe for concurrent use.
type CancelReport struct {
	Removed  int // copies that waited
	Stopped  int // copies that ran; set by Wait
	Finished int // copies that finished first; set by Wait

	queue   *Queue
	receipt store.Receipt
}

// Wait blocks until everything that was running at this cancel has ended, and sets Stopped
// and Finished. If a worker died, that takes until a peer has returned its tasks. When it
// fails you may call it again. ErrUnknownOutcome means that Redis has lost what still ran.
func (c *CancelReport) Wait(ctx context.Context) error {
	if c.receipt.Token == 0 {
		return nil // nothing ran
	}
	examine := time.Now().Add(examineEach)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		over, tally, err := c.receipt.IsOver(ctx, c.queue.peer.calls, c.queue.keys)
		if err == nil && over {
			c.Stopped, c.Finished = tally.Stopped, tally.Finished
			return nil
		}
		if err == nil && time.Now().After(examine) {
			examine = time.Now().Add(examineEach)
			err = c.examine(ctx)
		}
		if err != nil {
			return c.queue.wrap("wait for cancel", err)
		}
		select {
		case <-ctx.Done():
			return c.queue.wrap("wait for cancel", context.Cause(ctx))
		case <-time.After(store.Jitter(pause)):
		}
	}
}

// examineEach is how often Wait asks whether those it waits for can answer at all.
const examineEach = time.Second

// examine fails when nobody will ever say that the cancel is over.
func (c *CancelReport) examine(ctx context.Context) error {
	forgotten, err := c.receipt.IsForgotten(ctx, c.queue.peer.calls, c.queue.keys)
	if forgotten {
		return store.ErrForgotten
	}
	return err
}
