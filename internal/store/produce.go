package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// One call enqueues at most MaxPayloads payloads with MaxBytes in total, unless it's a single one.
const (
	MaxPayloads = 5000
	MaxBytes    = 2 << 20
)

// Enqueue adds payloads to the back of the queue, all or none. Here and below, alone means that nothing waited and no worker serves the
// queue: it may have been deleted, and its name taken off the list of queues.
func Enqueue(ctx context.Context, r Runner, q keys.Queue, payloads []any) (alone bool, err error) {
	return enqueued(r.One(ctx, enqueue.call(q, "payload", payloads)))
}

func enqueued(v any, err error) (alone bool, _ error) {
	a := enqueue.read(v, err)
	return a.int("before") < 0, a.err
}

// EnqueueOnce enqueues unless a call with this nonce has done so within the window; fresh reports
// whether it enqueued.
func EnqueueOnce(ctx context.Context, r Runner, q keys.Queue, nonce string, window time.Duration, payloads []any) (fresh, alone bool, err error) {
	a := enqueueOnce.ask(ctx, r, q, "once", nonce, "window", window.Milliseconds(), "payload", payloads)
	n := a.int("fresh")
	return n > 0, n == 2, a.err
}

// Pause keeps every worker from starting tasks.
func Pause(ctx context.Context, r Runner, q keys.Queue) error {
	return pause.ask(ctx, r, q).err
}

// Resume ends a pause and wakes idle workers.
func Resume(ctx context.Context, r Runner, q keys.Queue) error {
	return resume.ask(ctx, r, q).err
}

// stalls is how many calls in a row may make no progress. More mean that others add tasks as fast as
// Delete drops them.
const stalls = 100

// Delete drops all waiting tasks. It may drop tasks
// added meanwhile. If they arrive so fast that earlier ones may be left, it fails.
func Delete(ctx context.Context, r Runner, q keys.Queue) error {
	list, least, stalled := 1, int64(math.MaxInt64), 0
	for {
		a := deleteQueue.ask(ctx, r, q, "list", list)
		left := a.int("left")
		if a.err != nil {
			return a.err
		}
		if left == 0 { // tasks that wait now are new
			return nil
		}
		if left < least {
			least, stalled = left, 0
		} else if stalled++; stalled >= stalls {
			return fmt.Errorf("tasks are added as fast as they are deleted, still waiting: %d; stop the producers and call Delete again", left)
		}
		list = 0
	}
}

// When says whether a Put changes the time of the task that waits under its key.
type When string

// The rules: always; never; only to a later time; only to an earlier time; always, and a recurring
// task gets one occurrence more than its schedule has.
const (
	Always  When = "always"
	Never   When = "never"
	Later   When = "later"
	Earlier When = "earlier"
	Extra   When = "extra"
	Unique  When = "unique" // nothing waits or runs under the entry yet
)

// A Change is what Put puts under a key.
type Change struct {
	Payload     []byte
	At          int64 // ms of Redis time; 0 is now
	When        When
	KeepPayload bool
	KeepCounts  bool
	Card        []byte // nil: none
	ByKey       bool   // the key alone identifies the task: cancels of its payload don't cover it
}

// Put schedules a task under the entry, or changes the one that waits there.
func Put(ctx context.Context, r Runner, q keys.Queue, entry string, c Change) (alone bool, err error) {
	_, alone, err = PutOnce(ctx, r, q, entry, "", 0, c)
	return alone, err
}

// PutOnce puts unless the nonce was used within the window. If it was, first is the entry, or the
// name of the added task, that was put or added with it; otherwise "". Without a window it always
// puts.
func PutOnce(ctx context.Context, r Runner, q keys.Queue, entry, nonce string, window time.Duration, c Change) (first string, alone bool, err error) {
	a := put.ask(ctx, r, q, "once", nonce, "entry", entry, "payload", c.Payload, "at", c.At, "when", string(c.When),
		"keep", flag(c.KeepPayload), "counts", flag(c.KeepCounts), "card", c.Card, "by_key", flag(c.ByKey),
		"window", window.Milliseconds())
	fresh := a.int("fresh")
	first = a.string("first")
	return first, fresh == 2, a.err
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// RemoveCall returns the call of one removal; several can be sent together. Its reply says whether
// a task waited.
func RemoveCall(q keys.Queue, entry string) redisconn.Call {
	return removeEntry.call(q, "entry", entry)
}

// Remove drops the entry that waits, and reports whether one was waiting.
func Remove(ctx context.Context, r Runner, q keys.Queue, entry string) (bool, error) {
	return redis.Bool(r.One(ctx, RemoveCall(q, entry)))
}

// Requeue puts the named entries of the failed queue back where they came
// from, and returns how many.
func Requeue(ctx context.Context, r Runner, q keys.Queue, entries []string) (requeued int, err error) {
	head, tail := q.Failed().Around()
	for len(entries) > 0 {
		a := requeue.ask(ctx, r, q, "head", head, "tail", tail, "entry", entries)
		n, looked := int(a.int("requeued")), int(a.int("looked"))
		if a.err == nil && (looked < 1 || looked > len(entries)) {
			a.err = fmt.Errorf("the reply covers %d of %d entries", looked, len(entries))
		}
		if a.err != nil {
			return requeued, a.err
		}
		requeued, entries = requeued+n, entries[looked:]
	}
	return requeued, nil
}
