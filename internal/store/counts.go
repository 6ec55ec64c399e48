package store

import (
	"context"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Counts are the counts of one queue.
type Counts struct {
	Waiting     int // on the list, in batches not yet moved there, and added tasks
	Scheduled   int
	Running     int
	Failed      int
	Workers     int
	IdleWorkers int
	Silent      bool // the queue has workers, and all their leases have expired
	Paused      bool
	Oldest      time.Duration // the longest wait of a task that could start; 0 if unknown
	Tokens      int64         // issued so far; 0 if the counter isn't a number
}

// Count counts the tasks of a queue, all in one step except those that workers hold.
func Count(ctx context.Context, r Runner, q keys.Queue) (c Counts, err error) {
	replies := r.Do(ctx, redisconn.Command("LLEN", q.Waiting()), UnmovedCall(q),
		redisconn.Command("ZCARD", q.Contents()), redisconn.Command("ZCARD", q.Failed().Contents()),
		redisconn.Command("ZCARD", q.Workers()), redisconn.Command("ZCARD", q.Idle()), redisconn.Command("EXISTS", q.Paused()),
		redisconn.Command("GET", q.Token()), redisconn.Command("ZSCORE", q.Ages(), ageDrift), redisconn.Command("XLEN", q.Added()),
		redisconn.Command("XRANGE", q.Added(), "-", "+", "COUNT", 1), overdueCall(q, "+inf"),
		redisconn.Command("ZRANGE", q.Workers(), -1, -1, "WITHSCORES"), timeCall(q))
	added, paused := readAs(replies[9], redis.Int, &err), 0
	for i, count := range []*int{&c.Scheduled, &c.Failed, &c.Workers, &c.IdleWorkers, &paused} {
		*count = readAs(replies[2+i], redis.Int, &err)
	}
	if err != nil {
		return Counts{}, err
	}
	c.Paused = paused == 1
	now, err := timeIn(replies[13])
	if err != nil && !IsRefusal(err) {
		return Counts{}, err
	}
	c.Silent = lapsedBefore(now, replies[12])
	c.Tokens, _ = redis.Int64(replies[7].Value, replies[7].Err)
	if c.Waiting, err = onList(ctx, r, q, replies[0], replies[1]); err != nil {
		return Counts{}, err
	}
	since := []int64{firstAddedAt(replies[10]), firstDue(replies[11])}
	if n, ok := replies[0].Value.(int64); ok && n > 0 {
		front, err := frontSince(ctx, r, q, replies[7], replies[8])
		if err != nil {
			return Counts{}, err
		}
		since = append(since, front)
	}
	c.Oldest = ageOf(now, since)
	c.Waiting += added
	c.Running, err = countHeld(ctx, r, q)
	return c, err
}

// lapsedBefore reports whether last, a reply with the worker whose lease ends last, shows that all
// leases have expired. It returns false if the time isn't known.
func lapsedBefore(now int64, last redisconn.Reply) bool {
	member, err := redis.Strings(last.Value, last.Err)
	if err != nil || len(member) != 2 {
		return false
	}
	deadline, _ := strconv.ParseFloat(member[1], 64)
	return deadline < float64(now)
}

// countHeld returns how many tasks workers hold.
func countHeld(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return sum(ctx, holders(r, q), func(workers []string) (n int, err error) {
		held := func(worker string) redisconn.Call { return redisconn.Command("ZCARD", q.Working(worker)) }
		for _, reply := range doEach(ctx, r, workers, held) {
			held, err := redis.Int(reply.Value, reply.Err)
			if err != nil {
				return n, err
			}
			n += held
		}
		return n, nil
	})
}

// Len returns how many tasks wait: on the list, added ones, and those in the schedule.
func Len(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	replies := r.Do(ctx, redisconn.Command("ZCARD", q.Contents()), redisconn.Command("LLEN", q.Waiting()), UnmovedCall(q), redisconn.Command("XLEN", q.Added()))
	var err error
	scheduled, added := readAs(replies[0], redis.Int, &err), readAs(replies[3], redis.Int, &err)
	if err != nil {
		return 0, err
	}
	listed, err := onList(ctx, r, q, replies[1], replies[2])
	return scheduled + added + listed, err
}

// onList counts the tasks on the list, and those in batches not yet moved there. list and batches
// are earlier replies about both.
func onList(ctx context.Context, r Runner, q keys.Queue, list, batches redisconn.Reply) (int, error) {
	sum, err := redis.Int(list.Value, list.Err)
	if err != nil {
		return 0, err
	}
	ids, err := unmoved(batches)
	if err != nil || len(ids) == 0 {
		return sum, err
	}
	// In one exchange, since tasks move from batches to the list.
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
