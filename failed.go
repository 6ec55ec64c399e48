package worqr

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// A FailedTask is a task in the failed queue.
type FailedTask struct {
	ID       string // for RequeueFailed and DeleteFailed: of the attempt that failed; for FailureCrashed, a generated id
	Payload  []byte
	Key      string // "" if it was on the list
	Kind     FailureKind
	Error    string    // the text of the last error, of which the first 4,096 bytes are kept
	Retries  int       // attempts that failed before the last
	Crashes  int       // workers that died holding it
	WorkerID string    // that had it last; for FailureCrashed, the one that found it so
	FailedAt time.Time // when it failed, by the clock of Redis
}

func failure(g *store.Grave) *FailedTask {
	return &FailedTask{
		ID: strings.TrimPrefix(g.Entry, keyMark), Payload: g.Payload, Key: strings.TrimPrefix(g.From, keyMark),
		Kind: FailureKind(g.Kind), Error: g.Reason, Retries: g.Retries, Crashes: g.Crashes,
		WorkerID: g.Worker, FailedAt: time.UnixMilli(g.At),
	}
}

// failed is the failed queue of q: a queue of the same kind, with keys of its
// own. No name contains a space, so it is told from every other.
func (q *Queue) failed() *Queue {
	return &Queue{peer: q.peer, name: q.name, id: q.name + " (failed)", keys: q.keys.Failed(), bad: q.bad}
}

// Failed yields the failed tasks, newest first. With OnFailed, those that it no longer
// retries come first. Those that it will retry come last, in order of their retry,
// latest first. Those that it's working on are left out. Failed reads a page at a time,
// about a mebibyte of payloads, so it's no snapshot: each task that stays where it is
// comes once, and tasks that fail meanwhile don't. It ends after the first error.
func (q *Queue) Failed(ctx context.Context) iter.Seq2[FailedTask, error] {
	return func(yield func(FailedTask, error) bool) {
		if q.bad != nil {
			yield(FailedTask{}, q.wrap("list failed tasks", q.bad))
			return
		}
		for entries, err := range q.graveyard().pages(ctx) {
			if err != nil {
				yield(FailedTask{}, q.wrap("list failed tasks", err))
				return
			}
			keys := q.graves(entries)
			read := func(i int) redisconn.Call { return redisconn.Command("HGETALL", keys[i]) }
			for i, reply := range q.peer.sized(ctx, keys, read) {
				t, err := readFailed(entries[i].name, reply)
				if err != nil {
					yield(FailedTask{}, q.wrap("list failed tasks", err))
					return
				}
				if t != nil && !yield(*t, nil) {
					return
				}
			}
		}
	}
}

// graveyard reads the entries of the failed queue, newest first.
func (q *Queue) graveyard() *ranking {
	return &ranking{peer: q.peer, key: q.keys.Failed().Schedule(), reverse: true}
}

// graves are the keys of entries of the failed queue.
func (q *Queue) graves(entries []ranked) []string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = q.keys.Failed().Keyed(e.name)
	}
	return keys
}

// readFailed makes a failed task of its hash, or nil if it has gone.
func readFailed(entry string, reply redisconn.Reply) (*FailedTask, error) {
	f, err := redis.StringMap(reply.Value, reply.Err)
	if err != nil {
		return nil, err
	}
	if _, waits := f["payload"]; !waits {
		return nil, nil
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(f[name], 10, 64) // what people wrote there is 0
		return n
	}
	return failure(&store.Grave{
		Entry: entry, Payload: []byte(f["payload"]), Kind: store.Kind(f["kind"]), Reason: f["reason"],
		Retries: int(number("tries")), Crashes: int(number("deaths")), Worker: f["worker"], At: number("at"), From: f["from"],
	}), nil
}

// RequeueFailed runs the failed tasks with these ids again, with their counts back at
// zero: it puts them at the back of the queue, or under their key, due at once. Without
// an id it does nothing; RequeueAllFailed takes them all.
// It returns how many it put back. Those with a key under which something else waits
// or runs stay, and so do those that OnFailed works on. A failed task holds no
// lock: an equal one may have been enqueued by EnqueueUnique since, and what is
// put back is not unique any more. When it fails, some may have been put back; it
// may be repeated.
func (q *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	n, err := q.exhume(ctx, ids, q.requeue)
	return n, q.wrap("requeue failed tasks", err)
}

// RequeueAllFailed is RequeueFailed for all failed tasks. It works through them page by
// page, newest first, and ends even while others keep failing; those that fail
// meanwhile may stay.
func (q *Queue) RequeueAllFailed(ctx context.Context) (int, error) {
	n, err := q.exhumeAll(ctx, q.requeue)
	return n, q.wrap("requeue all failed tasks", err)
}

// DeleteFailed drops the failed tasks with these ids for good. Without an id it does
// nothing; DeleteAllFailed drops them all. It returns how many it dropped; those that
// OnFailed works on stay. When it fails, some may have been dropped; it may be repeated.
func (q *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	n, err := q.exhume(ctx, ids, q.unbury)
	return n, q.wrap("delete failed tasks", err)
}

// DeleteAllFailed is DeleteFailed for all failed tasks. It works through them page by
// page, newest first, and ends even while others keep failing; those that fail
// meanwhile may stay.
func (q *Queue) DeleteAllFailed(ctx context.Context) (int, error) {
	n, err := q.exhumeAll(ctx, q.unbury)
	return n, q.wrap("delete all failed tasks", err)
}

// requeue puts a page of failed tasks back.
func (q *Queue) requeue(ctx context.Context, entries []ranked) (int, error) {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.name
	}
	n, err := store.Requeue(ctx, q.peer.calls, q.keys, names)
	if n > 0 {
		q.list(ctx, false)
	}
	return n, err
}

// unbury drops a page of failed tasks.
func (q *Queue) unbury(ctx context.Context, entries []ranked) (n int, err error) {
	remove := func(i int) redisconn.Call { return store.RemoveCall(q.keys.Failed(), entries[i].name) }
	for _, reply := range q.peer.sized(ctx, q.graves(entries), remove) {
		removed, e := redis.Int(reply.Value, reply.Err)
		n += removed
		err = errors.Join(err, e)
	}
	return n, err
}

// exhume does something with the named failed tasks, a page at a time.
func (q *Queue) exhume(ctx context.Context, ids []string, do func(context.Context, []ranked) (int, error)) (n int, err error) {
	if q.bad != nil {
		return 0, q.bad
	}
	if len(ids) > MaxBatchSize {
		return 0, tooLarge("%d ids at once; at most %d", len(ids), MaxBatchSize)
	}
	for some := range slices.Chunk(ids, page) {
		entries := make([]ranked, len(some))
		for i, id := range some {
			entries[i].name = keyMark + id
		}
		done, err := do(ctx, entries)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// exhumeAll does something with all failed tasks, a page at a time. Tasks fail with the
// present time and it goes back in time, so it ends.
func (q *Queue) exhumeAll(ctx context.Context, do func(context.Context, []ranked) (int, error)) (n int, err error) {
	if q.bad != nil {
		return 0, q.bad
	}
	all := q.graveyard()
	for entries, err := range all.pages(ctx) {
		if err != nil {
			return n, err
		}
		done, err := do(ctx, entries)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
