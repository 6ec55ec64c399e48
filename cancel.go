package worqr

import (
	"bytes"
	"context"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Cancel removes every copy of the payload that waits, with a key or without, and stops
// those that run, in whatever process: their contexts end with ErrCanceled as the cause,
// and they never run again, even if their worker dies.
//
// It works in pages of 10,000 copies, fewer of large payloads, of keys, or beside unique
// tasks; up to one page is removed in one step. While more are removed, workers may start
// copies, which are then stopped. A copy that is enqueued at that time may be removed,
// too; one that is enqueued afterwards isn't touched.
//
// It blocks until Redis has answered or ctx ends; the report's Wait blocks until what ran
// has ended. A page takes Redis 2 to 3 ms and the time to find its copies, 2 ms for
// 100,000 other tasks of 50 bytes in front of them. When it fails halfway, copies may be
// left; call it again.
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

// CancelKey removes what waits under the key and stops what runs of it, as Cancel does
// for a payload. What is put under the key afterwards isn't touched. It fails with
// ErrInvalid when the key makes no sense.
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

// A CancelReport tells what a cancel did. The fields are set by Cancel and
// Wait; it is not safe for concurrent use.
type CancelReport struct {
	Removed  int // copies that waited
	Stopped  int // copies that ran and were stopped; after Wait
	Finished int // copies that finished before they could be stopped; after Wait

	queue   *Queue
	receipt store.Receipt
}

// Wait blocks until nothing that ran when the task was canceled still runs, and then
// fills in Stopped and Finished. Later cancels don't prolong it. It fails when ctx ends
// or Redis can't be reached; then you may call it again. If a worker died, it waits until
// another has returned its tasks, without a deadline forever if no peer is left. It fails
// with ErrUnknownOutcome when Redis has lost the keys that tell whether anything still runs.
//
// The figures are kept for a minute after the last copy has ended. They include what
// later cancels of the same payload stopped until then.
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
