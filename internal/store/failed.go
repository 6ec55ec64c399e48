package store

import (
	"context"
	"errors"
	"iter"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A FailedTask is a task in a failed queue.
type FailedTask struct {
	Entry   string // in the failed queue
	Payload []byte
	Kind    Kind
	Reason  string
	Retries int
	Crashes int
	Worker  string // that ran it last
	At      int64  // ms of Redis time
	From    string // the entry of its key; "" for the list
	Due     int64  // ms of Redis time when it was due; 0 if that isn't known
	Card    string // "" if it has none
}

// failedTask decodes a failed task.
func (d *decoder) failedTask() FailedTask {
	count := func() int { return int(max(d.number(), 0)) }
	return FailedTask{d.string(), d.bytes(), Kind(wordIn(d.string())), d.string(), count(), count(), d.string(), d.number(), d.string(), d.number(), ""}
}

// FailedTasks yields the failed queue of q, newest first.
func FailedTasks(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[FailedTask, error] {
	return rows(ctx, func() pager[FailedTask] {
		return each(sized(r, allFailed(r, q), q.Failed().Keyed), func(ctx context.Context, entries []string) (tasks []FailedTask, err error) {
			read := func(e string) redisconn.Call { return redisconn.Command("HGETALL", q.Failed().Keyed(e)) }
			for i, reply := range doEach(ctx, r, entries, read) {
				f, err := redis.StringMap(reply.Value, reply.Err)
				if err != nil {
					return tasks, err
				}
				if _, waits := f["payload"]; waits {
					tasks = append(tasks, failedTask(entries[i], f))
				}
			}
			return tasks, nil
		})
	})
}

// failedTask converts the hash of a failed task.
func failedTask(entry string, f map[string]string) FailedTask {
	number := func(name string) int64 { return numberIn(f[name]) }
	return FailedTask{
		Entry: entry, Payload: []byte(f["payload"]), Kind: Kind(wordIn(f["kind"])), Reason: f["reason"],
		Retries: countIn(f["tries"]), Crashes: countIn(f["deaths"]), Worker: f["worker"], At: number("at"), From: f["from"], Due: number("planned"), Card: f["card"],
	}
}

const setAside = 1 << 52 // added to the score of a task once OnFailed gives up on it

// allFailed reads the entries of the failed queue: those that were set aside, newest first, and then
// the others. Tasks that fail meanwhile are above the others, and aren't read.
func allFailed(r Runner, q keys.Queue) pager[string] {
	from := &ranking{by: r, key: q.Failed().Schedule(), reverse: true}
	newest := -1. // of the others
	entries := each(from.page, func(_ context.Context, some []ranked) (entries []string, err error) {
		for _, e := range some {
			if e.score <= newest || e.score >= setAside {
				entries = append(entries, e.name)
			}
		}
		return entries, nil
	})
	return func(ctx context.Context) (_ []string, err error) {
		if from.last == nil {
			if newest, err = newestPlain(ctx, r, from.key); err != nil {
				return nil, err
			}
		}
		return entries(ctx)
	}
}

// newestPlain returns the highest score of a task that isn't set aside, or -1.
func newestPlain(ctx context.Context, r Runner, key string) (float64, error) {
	one, err := redis.Strings(r.One(ctx, redisconn.Command("ZRANGE", key, "("+strconv.FormatInt(setAside, 10), "-inf", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")))
	if err != nil || len(one) != 2 {
		return -1, err
	}
	return strconv.ParseFloat(one[1], 64)
}

// failedEntries returns the entries of failed tasks with these ids.
func failedEntries(ids []string) pager[string] {
	entries := make([]string, len(ids))
	for i, id := range ids {
		entries[i] = EntryOf(id)
	}
	return given(entries)
}

// RequeueFailed puts failed tasks back where they came from, and returns how many.
func RequeueFailed(ctx context.Context, r Runner, q keys.Queue, ids []string) (int, error) {
	return requeueEach(ctx, r, q, failedEntries(ids))
}

// RequeueAllFailed requeues all of them. It goes from the newest to the oldest, so it ends even if
// more tasks fail meanwhile.
func RequeueAllFailed(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return requeueEach(ctx, r, q, allFailed(r, q))
}

func requeueEach(ctx context.Context, r Runner, q keys.Queue, of pager[string]) (int, error) {
	return sum(ctx, of, func(entries []string) (int, error) { return Requeue(ctx, r, q, entries) })
}

// DeleteFailed drops failed tasks, and returns how many.
func DeleteFailed(ctx context.Context, r Runner, q keys.Queue, ids []string) (int, error) {
	return deleteEach(ctx, r, q, failedEntries(ids))
}

// DeleteAllFailed deletes all of them. Like RequeueAllFailed, it ends even if more tasks fail.
func DeleteAllFailed(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return deleteEach(ctx, r, q, allFailed(r, q))
}

func deleteEach(ctx context.Context, r Runner, q keys.Queue, of pager[string]) (int, error) {
	return sum(ctx, sized(r, of, q.Failed().Keyed), func(entries []string) (n int, err error) {
		remove := func(e string) redisconn.Call { return RemoveCall(q.Failed(), e) }
		for _, reply := range doEach(ctx, r, entries, remove) {
			removed, e := redis.Int(reply.Value, reply.Err)
			n += removed
			err = errors.Join(err, e)
		}
		return n, err
	})
}

// sum calls a function for each page, and adds up its results.
func sum[T any](ctx context.Context, of pager[T], do func([]T) (int, error)) (n int, err error) {
	for {
		some, err := of(ctx)
		if err != nil || len(some) == 0 {
			return n, err
		}
		done, err := do(some)
		n += done
		if err != nil {
			return n, err
		}
	}
}
