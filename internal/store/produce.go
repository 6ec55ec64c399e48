package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	enqueue       = load("enqueue")
	enqueueOnce   = load("enqueue_once")
	enqueueUnique = load("enqueue_unique")
	rouse         = load("rouse")
	pause         = load("pause")
	resume        = load("resume")
	deleteQueue   = load("delete")
	put           = load("put")
	removeEntry   = load("remove")
	requeue       = load("requeue")
)

// A Back is the back of a queue, where payloads are added. It remembers whether
// the queue was long.
type Back struct {
	enqueue *redisconn.Head
	push    redisconn.Call
	rouse   redisconn.Call
	channel string      // of observers
	long    atomic.Bool // so many waited that nobody is idle
}

// long is how many tasks wait where nobody is idle. Were somebody, he would have
// been woken for the first of them, and would have woken the next.
const long = 100

// NewBack returns the back of the queue.
func NewBack(q keys.Queue) *Back {
	channel := q.Channel(keys.KindEnqueue)
	return &Back{
		enqueue: enqueue.Head([]string{q.Waiting(), q.Idle(), q.Batches(), q.Workers()}, q.Wake(""), channel),
		push:    redisconn.Command("LPUSH", q.Waiting()),
		rouse:   rouse.Call([]string{q.Idle()}, q.Wake("")),
		channel: channel,
	}
}

// Enqueue adds payloads to the back of the queue, all or none. The call may
// become one with those of others. While the queue is long it does what a
// producer in any language would: nobody needs to be woken. It fails with ErrUnmoved
// where a batch is to be moved to the queue first, if the script looks for one. Alone
// tells, here and below, that nothing waited and nobody serves the queue: it may have been
// deleted, and its name taken off the list of queues.
func (b *Back) Enqueue(ctx context.Context, l *redisconn.Line, payloads []any) (alone bool, err error) {
	if !b.long.Load() || !l.Free() {
		before, err := redis.Int(do(ctx, l, b.enqueue.Call(payloads)))
		if err == nil {
			b.long.Store(before >= long)
		}
		return before < 0, err
	}
	count := len(payloads)
	size, err := redis.Int(first(l.Do(ctx, b.push.With(payloads), redisconn.Command("PUBLISH", b.channel, count))))
	if err != nil {
		b.long.Store(false) // observers are not told again of what was refused
		return false, err
	}
	if b.long.Store(size-count >= long); size == count {
		woken, _ := redis.Int(do(ctx, l, b.rouse.With([]any{count}))) // else the next beats find the tasks
		alone = woken == 0
	}
	return alone, nil
}

// first is the first of replies; the others are of no importance.
func first(replies []redisconn.Reply) (any, error) { return replies[0].Value, Refusal(replies[0].Err) }

// EnqueueOnce is Enqueue unless it has been done with this nonce within the
// window; fresh tells. It always looks for a batch.
func EnqueueOnce(ctx context.Context, r Runner, q keys.Queue, nonce string, window time.Duration, payloads []any) (fresh, alone bool, err error) {
	call := enqueueOnce.Call([]string{q.Waiting(), q.Idle(), q.Once(nonce), q.Batches(), q.Workers()},
		q.Wake(""), q.Channel(keys.KindEnqueue), window.Milliseconds())
	n, err := redis.Int(do(ctx, r, call.With(payloads)))
	return n > 0, n == 2, err
}

// EnqueueUnique adds the payload unless an equal unique one waits or runs;
// then it fails with ErrDuplicate. It always looks for a batch.
func EnqueueUnique(ctx context.Context, r Runner, q keys.Queue, payload []byte) (alone bool, err error) {
	n, err := redis.Int(do(ctx, r, enqueueUnique.Call([]string{q.Waiting(), q.Idle(), q.Unique(), q.Gaps(), q.Batches(), q.Workers()},
		q.Wake(""), q.Channel(keys.KindEnqueue), payload, named(payload))))
	return n == 2, err
}

// named is the digest of a large payload, to be said to a script, which would take long to
// compute it. That of a small one would cost more to say.
func named(payload []byte) string {
	if len(payload) <= Large {
		return ""
	}
	sum := sha1.Sum(payload)
	return hex.EncodeToString(sum[:])
}

// Pause keeps every worker from starting tasks.
func Pause(ctx context.Context, r Runner, q keys.Queue) error {
	_, err := do(ctx, r, pause.Call([]string{q.Paused()}))
	return err
}

// Resume ends a pause and wakes idle workers.
func Resume(ctx context.Context, r Runner, q keys.Queue) error {
	_, err := do(ctx, r, resume.Call(shared(q), prefixes(q)...))
	return err
}

// stalls is how many calls in a row may fail to leave less than any before them. Then others
// put as fast as these delete.
const stalls = 100

// Delete drops what waits, in batches, too, and the locks on it. What others put meanwhile
// may go as well. If they put so fast that something of before may be left, it fails.
func Delete(ctx context.Context, r Runner, q keys.Queue) error {
	cursor, list, least, stalled := "0", 1, int64(math.MaxInt64), 0
	for {
		d := decode(do(ctx, r, deleteQueue.Call(append(shared(q), q.Batches()), prefixes(q, q.Channel(keys.KindDelete), cursor, list, q.Batch(""))...)))
		next, left, batches := d.string(), d.int(), d.int()
		if d.err != nil {
			return d.err
		}
		if left < least {
			least, stalled = left, 0
		} else if stalled++; least > 0 && stalled >= stalls {
			return fmt.Errorf("others add tasks as fast as they are deleted, and %d still wait: stop them, and call Delete again", left)
		}
		switch {
		case least == 0 && next == "0": // once nothing was left; what is there now is new
			return nil
		case least > 0 && batches > 0:
			cursor, list = "0", 2
		default:
			cursor, list = next, 0
		}
	}
}

// When says whether the time of what waits under a key changes.
type When string

// The rules: always; never; only to a later time; only to an earlier time.
const (
	Always  When = "always"
	Never   When = "never"
	Later   When = "later"
	Earlier When = "earlier"
)

// A Change is what is put under a key.
type Change struct {
	Payload     []byte
	At          int64 // ms of Redis time; 0 is now
	When        When
	KeepPayload bool
	KeepCounts  bool
}

// Put gives the entry something to do, or changes what waits there.
func Put(ctx context.Context, r Runner, q keys.Queue, entry string, c Change) (alone bool, err error) {
	n, err := redis.Int(do(ctx, r, put.Call(shared(q), prefixes(q, entry, c.Payload, c.At, string(c.When),
		flag(c.KeepPayload), flag(c.KeepCounts), q.Channel(keys.KindEnqueue), named(c.Payload))...)))
	return n == 2, err
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// RemoveCall is the call of one removal; several travel together. Its reply
// tells whether something waited.
func RemoveCall(q keys.Queue, entry string) redisconn.Call {
	return removeEntry.Call(shared(q), prefixes(q, entry)...)
}

// Remove drops the entry that waits, and reports whether one was waiting.
func Remove(ctx context.Context, r Runner, q keys.Queue, entry string) (bool, error) {
	return redis.Bool(r.One(ctx, RemoveCall(q, entry)))
}

// Requeue puts the named entries of the failed queue back to where they came
// from, and tells how many could be.
func Requeue(ctx context.Context, r Runner, q keys.Queue, entries []string) (requeued int, err error) {
	head, tail := q.Failed().Around()
	for len(entries) > 0 {
		args := prefixes(q, head, tail, q.Channel(keys.KindEnqueue))
		for _, e := range entries {
			args = append(args, e)
		}
		d := decode(do(ctx, r, requeue.Call(shared(q), args...)))
		n, looked := int(d.int()), int(d.int())
		if d.err == nil && (looked < 1 || looked > len(entries)) {
			d.err = fmt.Errorf("the reply tells of %d entries of %d", looked, len(entries))
		}
		if d.err != nil {
			return requeued, d.err
		}
		requeued, entries = requeued+n, entries[looked:]
	}
	return requeued, nil
}
