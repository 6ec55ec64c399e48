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
	first, least, stalled := true, int64(math.MaxInt64), 0
	for {
		in := drop.ask(ctx, r, q, flag(first))
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
		first = false
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
		for _, reply := range doEach(ctx, r, long, shorten) {
			if reply.Err != nil {
				return reply.Err
			}
		}
	}
	return nil
}
