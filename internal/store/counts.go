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
	Waiting     int // on the list, and added tasks
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
	replies := r.Do(ctx, redisconn.Command("LLEN", q.Waiting()),
		redisconn.Command("ZCARD", q.Contents()), redisconn.Command("ZCARD", q.Failed().Contents()),
		redisconn.Command("ZCARD", q.Workers()), redisconn.Command("ZCARD", q.Idle()), redisconn.Command("EXISTS", q.Paused()),
		redisconn.Command("GET", q.Token()), redisconn.Command("ZSCORE", q.Ages(), ageDrift), redisconn.Command("XLEN", q.Added()),
		redisconn.Command("XRANGE", q.Added(), "-", "+", "COUNT", 1), overdueCall(q, "+inf"),
		redisconn.Command("ZRANGE", q.Workers(), -1, -1, "WITHSCORES"), timeCall(q))
	added, paused := readAs(replies[8], redis.Int, &err), 0
	for i, count := range []*int{&c.Scheduled, &c.Failed, &c.Workers, &c.IdleWorkers, &paused} {
		*count = readAs(replies[1+i], redis.Int, &err)
	}
	if err != nil {
		return Counts{}, err
	}
	c.Paused = paused == 1
	now, err := timeIn(replies[12])
	if err != nil && !IsRefusal(err) {
		return Counts{}, err
	}
	c.Silent = lapsedBefore(now, replies[11])
	c.Tokens, _ = redis.Int64(replies[6].Value, replies[6].Err)
	if c.Waiting, err = redis.Int(replies[0].Value, replies[0].Err); err != nil {
		return Counts{}, err
	}
	since := []int64{firstAddedAt(replies[9]), firstDue(replies[10])}
	if n, ok := replies[0].Value.(int64); ok && n > 0 {
		front, err := frontSince(ctx, r, q, replies[6], replies[7])
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
	replies := r.Do(ctx, redisconn.Command("ZCARD", q.Contents()), redisconn.Command("LLEN", q.Waiting()), redisconn.Command("XLEN", q.Added()))
	var err error
	n := 0
	for _, reply := range replies {
		n += readAs(reply, redis.Int, &err)
	}
	return n, err
}
