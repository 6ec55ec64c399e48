package store

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Counts are those of one queue.
type Counts struct {
	Waiting     int // on the list, and in batches on the way there
	Scheduled   int
	Running     int
	Failed      int
	Workers     int
	IdleWorkers int
	Paused      bool
}

// Count counts what is there of a queue, all at once but what workers hold.
func Count(ctx context.Context, r Runner, q keys.Queue) (c Counts, err error) {
	replies := r.Do(ctx, redisconn.Command("LLEN", q.Waiting()), UnmovedCall(q),
		redisconn.Command("ZCARD", q.Contents()), redisconn.Command("ZCARD", q.Failed().Contents()),
		redisconn.Command("ZCARD", q.Workers()), redisconn.Command("ZCARD", q.Idle()), redisconn.Command("EXISTS", q.Paused()))
	paused := 0
	for i, count := range []*int{&c.Scheduled, &c.Failed, &c.Workers, &c.IdleWorkers, &paused} {
		if *count, err = redis.Int(replies[2+i].Value, replies[2+i].Err); err != nil {
			return Counts{}, err
		}
	}
	c.Paused = paused == 1
	if c.Waiting, err = onList(ctx, r, q, replies[0], replies[1]); err != nil {
		return Counts{}, err
	}
	for worker, err := range rows(ctx, func() pager[string] { return holders(r, q) }) {
		if err != nil {
			return Counts{}, err
		}
		held, err := redis.Int(r.One(ctx, redisconn.Command("ZCARD", q.Working(worker))))
		if err != nil {
			return Counts{}, err
		}
		c.Running += held
	}
	return c, nil
}

// Len is how many tasks wait, on the list and in the schedule.
func Len(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	replies := r.Do(ctx, redisconn.Command("ZCARD", q.Contents()), redisconn.Command("LLEN", q.Waiting()), UnmovedCall(q))
	scheduled, err := redis.Int(replies[0].Value, replies[0].Err)
	if err != nil {
		return 0, err
	}
	listed, err := onList(ctx, r, q, replies[1], replies[2])
	return scheduled + listed, err
}

// onList counts the tasks on the list, with those of batches on the way there. It is given
// what was answered about both before.
func onList(ctx context.Context, r Runner, q keys.Queue, list, batches redisconn.Reply) (int, error) {
	sum, err := redis.Int(list.Value, list.Err)
	if err != nil {
		return 0, err
	}
	ids, err := unmoved(batches)
	if err != nil || len(ids) == 0 {
		return sum, err
	}
	// Together, since tasks move from one to the other.
	calls := []redisconn.Call{redisconn.Command("LLEN", q.Waiting())}
	for _, id := range ids {
		calls = append(calls, redisconn.Command("LLEN", q.Batch(id)))
	}
	sum = 0
	for i, reply := range r.Do(ctx, calls...) {
		n, err := redis.Int(reply.Value, reply.Err)
		if err != nil && (i == 0 || !IsWrongType(err)) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
