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
	"github.com/worqr/worqr/internal/script"
)

// A FailedTask is a task in the failed queue.
type FailedTask struct {
	ID      string // for RequeueFailed and DeleteFailed: of the process that failed; of kind crashed, a name of its own
	Payload []byte
	Key     string // "" if it was on the list
	Kind    FailureKind
	Reason  string    // the text of the last error, of which the first 4,096 bytes are kept
	Retries int       // attempts that failed before the last
	Crashes int       // workers that died holding it
	Worker  string    // that had it last; of kind crashed, the one that found it so
	At      time.Time // when it failed, by the clock of Redis
}

func failure(g *script.Grave) *FailedTask {
	return &FailedTask{
		ID: strings.TrimPrefix(g.Entry, keyMark), Payload: g.Payload, Key: strings.TrimPrefix(g.From, keyMark),
		Kind: FailureKind(g.Kind), Reason: g.Reason, Retries: g.Retries, Crashes: g.Crashes,
		Worker: g.Worker, At: time.UnixMilli(g.At),
	}
}

// failed is the failed queue of q: a queue of the same kind, with keys of its
// own. No name contains a space, so it is told from every other.
func (q *Queue) failed() *Queue {
	return &Queue{peer: q.peer, name: q.name, id: q.name + " (failed)", keys: q.keys.Failed(), bad: q.bad}
}

// Failed yields the failed tasks, newest first. Those that OnFailed has given up
// come before the others, then those that it is to try again, latest first; those
// that it works on are left out. It reads a page at a time, so it is no snapshot,
// and ends after the first error.
func (q *Queue) Failed(ctx context.Context) iter.Seq2[FailedTask, error] {
	return func(yield func(FailedTask, error) bool) {
		for graves, err := range q.graves(ctx) {
			if err != nil {
				yield(FailedTask{}, q.wrap("list failed tasks", err))
				return
			}
			tasks, err := q.dig(ctx, graves)
			if err != nil {
				yield(FailedTask{}, q.wrap("list failed tasks", err))
				return
			}
			for _, t := range tasks {
				if !yield(t, nil) {
					return
				}
			}
		}
	}
}

// graves yields the entries of the failed queue, a page at a time, newest first,
// each once.
func (q *Queue) graves(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		seen := map[string]bool{}
		for from := 0; ; from += page {
			graves, err := redis.Strings(q.read(ctx, "ZRANGE", q.keys.Failed().Schedule(), from, from+page-1, "REV"))
			if err != nil {
				yield(nil, err)
				return
			}
			n := len(graves)
			graves = slices.DeleteFunc(graves, func(g string) bool { return seen[g] })
			for _, g := range graves {
				seen[g] = true
			}
			if len(graves) > 0 && !yield(graves, nil) || n < page {
				return
			}
		}
	}
}

// dig reads failed tasks; those that have gone are left out.
func (q *Queue) dig(ctx context.Context, graves []string) (tasks []FailedTask, err error) {
	calls := make([]redisconn.Call, len(graves))
	for i, g := range graves {
		calls[i] = redisconn.Command("HGETALL", q.keys.Failed().Keyed(g))
	}
	for i, reply := range q.peer.calls.Do(ctx, calls...) {
		f, err := redis.StringMap(reply.Value, reply.Err)
		if err != nil {
			return nil, err
		}
		if _, waits := f["payload"]; !waits {
			continue
		}
		number := func(name string) int64 {
			n, _ := strconv.ParseInt(f[name], 10, 64) // what people wrote there is 0
			return n
		}
		tasks = append(tasks, *failure(&script.Grave{
			Entry: graves[i], Payload: []byte(f["payload"]), Kind: script.Kind(f["kind"]), Reason: f["reason"],
			Retries: int(number("tries")), Crashes: int(number("deaths")), Worker: f["worker"], At: number("at"), From: f["from"],
		}))
	}
	return tasks, nil
}

// RequeueFailed has failed tasks done after all, with counts that begin anew: at
// the back of the queue, or under their key, at once. With no id, all of them.
// It returns how many it was; those with a key under which something else waits
// or runs stay, and so do those that OnFailed works on. A failed task holds no
// lock: an equal one may have been enqueued by EnqueueUnique since, and what is
// put back is not unique any more. When it fails, some may have been put back; it
// may be repeated.
func (q *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	n, err := q.exhume(ctx, ids, func(graves []string) (int, error) {
		return script.Requeue(ctx, q.peer.calls, q.keys, graves)
	})
	if n > 0 {
		q.list()
	}
	return n, q.wrap("requeue failed tasks", err)
}

// DeleteFailed drops failed tasks for good. With no id, all of them. It returns
// how many it was; those that OnFailed works on stay. When it fails, some may
// have been dropped; it may be repeated.
func (q *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	n, err := q.exhume(ctx, ids, func(graves []string) (n int, err error) {
		calls := make([]redisconn.Call, len(graves))
		for i, g := range graves {
			calls[i] = script.RemoveCall(q.keys.Failed(), g)
		}
		for _, reply := range q.peer.calls.Do(ctx, calls...) {
			removed, e := redis.Int(reply.Value, reply.Err)
			n += removed
			err = errors.Join(err, e)
		}
		return n, err
	})
	return n, q.wrap("delete failed tasks", err)
}

// exhume does something with the named failed tasks, or all, a page at a time.
func (q *Queue) exhume(ctx context.Context, ids []string, do func(graves []string) (int, error)) (n int, err error) {
	if q.bad != nil {
		return 0, q.bad
	}
	if len(ids) > MaxBatch {
		return 0, tooLarge("%d ids at once; at most %d", len(ids), MaxBatch)
	}
	graves := make([]string, len(ids))
	for i, id := range ids {
		graves[i] = keyMark + id
	}
	if len(ids) == 0 { // read all first: what goes would have others be passed over
		for more, err := range q.graves(ctx) {
			if err != nil {
				return 0, err
			}
			graves = append(graves, more...)
		}
	}
	for some := range slices.Chunk(graves, page) {
		done, err := do(some)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
