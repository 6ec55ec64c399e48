package worqr

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
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
	if err := q.haul(ctx); err != nil && !foreignType(err) {
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
	receipt, err := store.CancelKey(ctx, q.peer.calls, q.keys, keyMark+key)
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
		case <-time.After(redisconn.Jitter(pause)):
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

const (
	maxHeard    = 100  // cancels asked for by one round
	maxStopping = 1000 // tasks of which one round says that they run though they are canceled
)

// cancels is what a worker has received of cancels on the cancel channel and has
// still to look up.
//
// The truth is in Redis: entries of the cancel log come with the answers to rounds, and
// cover the tasks with a lower token. A message only makes the worker ask, with its
// next round, for the token of that cancel. If none is on record, the message came from
// somebody who keeps no records, and then, best effort, it stops what was held when
// it came. So what covers nothing that is held isn't kept.
type cancels struct {
	received map[hash]map[string]bool // processes held when its message came
}

// readCancel returns the digests that a message may be about: it may be meant as a payload
// even if it reads as a digest.
func readCancel(message []byte) []hash {
	_, digest, _ := store.ReadCancel(message)
	named, _ := readHash(digest)
	if literal := hashOf(message); literal != named {
		return []hash{named, literal}
	}
	return []hash{named}
}

// receive takes in a message.
func (c *cancels) receive(about []hash, held map[string]*Task) {
	for _, h := range about {
		c.note(h, held)
		for _, t := range held {
			switch {
			case t.isKnown() || t.flooded:
			case len(t.messages) == maxUnmatched:
				t.flooded = true
			default:
				t.messages = append(t.messages, h)
			}
		}
	}
}

func (c *cancels) note(h hash, held map[string]*Task) {
	for id, t := range held {
		if !t.isKnown() || t.digest != h {
			continue
		}
		if c.received == nil {
			c.received = map[hash]map[string]bool{}
		}
		if c.received[h] == nil {
			c.received[h] = map[string]bool{}
		}
		c.received[h][id] = true
	}
}

// ask returns what to look up, at most n digests.
func (c *cancels) ask(n int) (digests []string) {
	for h := range c.received {
		if len(digests) == n {
			break
		}
		digests = append(digests, h.String())
	}
	return digests
}

// learn takes in the tokens of what was asked for.
func (c *cancels) learn(digests []string, tokens []int64, held map[string]*Task) {
	for i, d := range digests {
		h, _ := readHash(d)
		processes := c.received[h]
		delete(c.received, h)
		for id, t := range held {
			if t.isKnown() && t.digest == h && (i < len(tokens) && t.Token < tokens[i] || i < len(tokens) && tokens[i] == 0 && processes[id]) {
				t.end(ErrCanceled)
			}
		}
	}
}

// covered stops what entries of the log cover. The worker then says of each such task
// that it still runs (stopping).
func covered(entries []store.Cancellation, held map[string]*Task) {
	if len(entries) == 0 {
		return
	}
	payloads, keys := make(map[hash]store.Cancellation, len(entries)), map[string]store.Cancellation{}
	for _, e := range entries {
		if h, ok := readHash(e.Name); ok {
			payloads[h] = e
		} else {
			keys[e.Name] = e
		}
	}
	for _, t := range held {
		if t.isKnown() {
			if e, ok := payloads[t.digest]; ok {
				t.cover(e)
			}
		}
		if e, ok := keys[t.entry]; ok && t.entry != "" {
			t.cover(e)
		}
	}
}

// cover ends the task if it was started before the cancel.
func (t *Task) cover(e store.Cancellation) {
	if t.Token < e.Token {
		t.end(ErrCanceled)
		t.covered = append(t.covered, e)
	}
}

// stopping returns what to say of the cancels up to the last one that the worker was told
// of: which tasks they cover and still run, at most n; and up to which cancel that is all.
// Of what has a digest that isn't known yet it can't be told: then that is less.
func stopping(held map[string]*Task, seen int64, n int) (runs []store.Stopping, said int64) {
	said = seen
	for id, t := range held {
		if len(t.logged) > 0 {
			said = min(said, t.Token)
		}
		for _, c := range t.covered {
			if len(runs) == n {
				said = min(said, t.Token) // a cancel from before may be waited for, too; up to there none covers it
				continue
			}
			runs = append(runs, store.Stopping{Name: c.Name, Process: id})
		}
	}
	return runs, said
}

// said notes that what stopping returned was said.
func said(runs []store.Stopping, held map[string]*Task) {
	for _, s := range runs {
		if t := held[s.Process]; t != nil {
			t.covered = slices.DeleteFunc(t.covered, func(c store.Cancellation) bool { return c.Name == s.Name })
		}
	}
}
