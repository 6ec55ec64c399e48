package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Count counts the tasks of a queue, all in one step except those that workers hold.
func Count(ctx context.Context, r Runner, q keys.Queue) (c inspect.QueueStats, err error) {
	replies := r.Do(ctx, redisconn.Command("LLEN", q.Waiting()),
		redisconn.Command("ZCARD", q.Ready()), redisconn.Command("ZCARD", q.Schedule()), redisconn.Command("ZCARD", q.Risky()),
		redisconn.Command("HLEN", q.Next()), redisconn.Command("HLEN", q.Runs()),
		redisconn.Command("ZCARD", q.Workers()), redisconn.Command("ZCARD", q.Idle()),
		redisconn.Command("HMGET", q.State(), "paused", "token", "taken"), timeCall(q),
		redisconn.Command("ZRANGE", q.Workers(), -1, -1, "WITHSCORES"), firstCall(q.Ready()), firstCall(q.Schedule()))
	var list, named, risky, behind, runs int
	counts := []*int{&list, &named, &c.Scheduled, &risky, &behind, &runs, &c.Workers, &c.IdleWorkers}
	for i, count := range counts {
		*count = readAs(replies[i], redis.Int, &err)
	}
	replies = replies[len(counts):]
	state := readAs(replies[0], redis.Strings, &err)
	now, noTime := timeIn(replies[1])
	err = cmp.Or(err, noTime)
	last, ready, due := readFirst(replies[2], &err), readFirst(replies[3], &err), readFirst(replies[4], &err)
	if err == nil && len(state) != 3 {
		err = errReply
	}
	if err != nil {
		return inspect.QueueStats{}, err
	}
	c.Named = named + risky
	c.Waiting, c.Scheduled = list+c.Named, c.Scheduled+behind
	c.Silent = len(last) > 0 && last[0].score < float64(now)
	c.Tokens = max(numberIn(state[1]), 0)
	if state[0] != "" {
		c.Paused = true
		c.PausedBy, c.PausedSince = PauseIn(state[0])
	}
	if c.Oldest, err = oldest(ctx, r, q, now, numberIn(state[2]), list > 0, ready, due); err != nil {
		return inspect.QueueStats{}, err
	}
	if c.Failed, err = countFailed(ctx, r, q.Failed()); err != nil {
		return inspect.QueueStats{}, err
	}
	c.Running, err = countHeld(ctx, r, q)
	c.Retrying = min(max(runs-c.Running, 0), c.Scheduled) // what runs under a name has an entry, too
	return c, err
}

// PauseIn returns who paused a queue, and when, from its state.
func PauseIn(text string) (who string, since time.Time) {
	if ms, who, ok := strings.Cut(text, ":"); ok {
		return who, Moment(numberIn(ms))
	}
	return text, time.Time{}
}

func countFailed(ctx context.Context, r Runner, f keys.Queue) (int, error) {
	return sum(ctx, r, redisconn.Command("ZCARD", f.Aside()), redisconn.Command("ZCARD", f.Ready()),
		redisconn.Command("ZCARD", f.Risky()), redisconn.Command("ZCARD", f.Schedule()))
}

// sum makes calls that count something, and returns how much that is together.
func sum(ctx context.Context, r Runner, counts ...redisconn.Call) (n int, err error) {
	for _, reply := range r.Do(ctx, counts...) {
		n += readAs(reply, redis.Int, &err)
	}
	return n, err
}

func countHeld(ctx context.Context, r Runner, q keys.Queue) (n int, _ error) {
	for workers, err := range holders(ctx, r, q) {
		held := func(worker string) redisconn.Call { return redisconn.Command("ZCARD", q.Working(worker)) }
		for _, reply := range doEach(ctx, r, workers, held) {
			n += readAs(reply, redis.Int, &err)
		}
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Len returns how many tasks wait.
func Len(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return sum(ctx, r, redisconn.Command("LLEN", q.Waiting()), redisconn.Command("ZCARD", q.Ready()),
		redisconn.Command("ZCARD", q.Schedule()), redisconn.Command("ZCARD", q.Risky()), redisconn.Command("HLEN", q.Next()))
}

// oldest returns how long the first of the tasks that could start has waited; 0 if none does, or if it
// isn't known. taken is how many raw tasks have left the list; ready and due are the first of those that
// are ready and scheduled.
func oldest(ctx context.Context, r Runner, q keys.Queue, now, taken int64, listed bool, ready, due []ranked) (time.Duration, error) {
	name := ""
	if len(ready) > 0 {
		name = ready[0].name
	}
	// The front of the list was there by the time of the first note that counts more than have left.
	replies := r.Do(ctx, redisconn.Command("ZRANGE", q.Ages(), "("+strconv.FormatInt(taken, 10), "+inf", "BYSCORE", "LIMIT", 0, 1),
		redisconn.Command("HSTRLEN", q.Tasks(), name))
	notes, err := redis.Strings(replies[0].Value, replies[0].Err)
	size, bad := redis.Int(replies[1].Value, replies[1].Err)
	if IsAnswer(err) { // another program's key
		err = nil
	}
	if err = cmp.Or(err, bad); err != nil {
		return 0, err
	}
	first := now
	if listed && len(notes) > 0 {
		if at := numberIn(notes[0]); at > 0 {
			first = min(first, at)
		}
	}
	if len(due) > 0 && due[0].score > 0 {
		first = min(first, whole(due[0].score))
	}
	if size > 0 && size <= listBytes {
		found, err := readNamed(ctx, r, q, []string{name}, func(name string) string { return name })
		if err != nil {
			return 0, err
		}
		if at := max(found[0].record.Enqueued, found[0].record.Due); at > 0 {
			first = min(first, at)
		}
	}
	return time.Duration(now-first) * time.Millisecond, nil
}

var (
	pause    = verb("pause")
	deletion = verb("delete")
)

// Pause keeps every worker from starting tasks of a queue. who is any text but "", which Count returns.
func Pause(ctx context.Context, r Runner, q keys.Queue, who string) error {
	return pause.ask(ctx, r, q, who).err
}

// Resume ends a pause and wakes idle workers.
func Resume(ctx context.Context, r Runner, q keys.Queue) error { return pause.ask(ctx, r, q, "").err }

// stalls is how many calls in a row may make no progress. More mean that others add tasks as fast as
// Delete drops them.
const stalls = 100

// Delete drops all waiting tasks. It may drop tasks that are added meanwhile. If they arrive so fast that
// earlier ones may be left, it fails.
func Delete(ctx context.Context, r Runner, q keys.Queue) error {
	for least, stalled, first := int64(math.MaxInt64), 0, true; ; first = false {
		in := deletion.ask(ctx, r, q, flag(first))
		left := in.int()
		if in.err != nil || left == 0 { // tasks that wait now are new
			return in.err
		}
		if left < least {
			least, stalled = left, 0
		} else if stalled++; stalled >= stalls {
			return fmt.Errorf("tasks are added as fast as they are deleted, still waiting: %d; "+
				"stop the producers and call Delete again", left)
		}
	}
}

// Forget shortens nonces: they end after the given time, unless they end before. Tasks that were added
// with them stay.
func Forget(ctx context.Context, r Runner, q keys.Queue, after time.Duration, nonces ...string) error {
	ms := max(after, 0).Milliseconds()
	for page := range given(nonces) {
		var long []string
		left := func(nonce string) redisconn.Call { return redisconn.Command("PTTL", q.Once(nonce)) }
		for i, reply := range doEach(ctx, r, page, left) {
			n, err := redis.Int64(reply.Value, reply.Err)
			if err != nil {
				return err
			}
			if n > ms || n == -1 { // it would never end
				long = append(long, page[i])
			}
		}
		shorten := func(nonce string) redisconn.Call { return redisconn.Command("PEXPIRE", q.Once(nonce), ms) }
		if err := failure(doEach(ctx, r, long, shorten)); err != nil {
			return err
		}
	}
	return nil
}
