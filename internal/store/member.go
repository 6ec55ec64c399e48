package store

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// TokenCall asks for the last token of a queue, which a join has to name.
func TokenCall(q keys.Queue) redisconn.Call { return redisconn.Command("GET", q.Token()) }

// ReadToken reads the answer to a TokenCall. If Redis doesn't answer with a number it
// returns 0, and the join then reports why.
func ReadToken(reply redisconn.Reply) (int64, error) {
	text, err := redis.String(reply.Value, reply.Err)
	if _, refused := errors.AsType[redis.Error](err); refused || errors.Is(err, redis.ErrNil) {
		return 0, nil
	}
	token, _ := strconv.ParseFloat(text, 64) // as the scripts read it
	return int64(token), err
}

// JoinCall returns the call that makes the worker a member for the lease (0: forever). Several can
// be sent together. asked is the token that the queue had before; the membership's rounds begin
// after the given number.
func JoinCall(q keys.Queue, worker string, lease time.Duration, asked, round int64) redisconn.Call {
	return join.call(q, "worker", worker, "lease", lease.Milliseconds(), "asked", asked, "round", round)
}

// ReadJoin reads the answer to a JoinCall. Joined is false if a worker has left since
// the token was read: then read it again, and repeat the join. It fails with
// ErrEvicted when the worker was evicted or is leaving.
func ReadJoin(reply redisconn.Reply) (joined bool, err error) {
	a := join.read(reply.Value, reply.Err)
	return a.int("joined") == 1, a.err
}

// Leave returns all tasks that the worker holds to the front and ends its membership, unless a round
// after the given one has been answered. asked is the token that the membership's join named; from
// now on that join has no effect, even if it's still in flight. Leave fails with ErrEvicted when the
// worker isn't a member, and may have been evicted since.
func Leave(ctx context.Context, r Runner, q keys.Queue, worker string, asked, round int64) (returned int, err error) {
	for last := int64(math.MaxInt64); ; {
		a := leave.ask(ctx, r, q, "worker", worker, "round", round, "asked", asked)
		n, left := int(a.int("returned")), a.int("left")
		returned += n
		switch {
		case errors.Is(a.err, ErrEvicted) && last < math.MaxInt64:
			return returned, nil // another peer has returned the rest
		case a.err != nil || left == 0:
			return returned, a.err
		case left >= last:
			return returned, errStuck
		}
		last = left
	}
}

// OfQueue reports whether an error concerns one queue or key alone: Redis has answered.
func OfQueue(err error) bool {
	return redisconn.Answered(err) || errors.Is(err, errStuck)
}

// errStuck is the error of a return that makes no progress. The scripts skip tasks that they can't
// move, but don't report why. Once the tasks can be moved, any peer continues.
var errStuck = errors.New("some tasks can't be returned: Redis refuses to move them, " +
	"because a key of the queue has the wrong type (WRONGTYPE), or because this user may not run a command of the scripts, such as LMOVE")

// FailWorker fences the worker and returns its tasks. known reports whether it served the queue.
// Other peers may help: returned includes the tasks that they return meanwhile.
func FailWorker(ctx context.Context, r Runner, q keys.Queue, worker string) (known bool, returned int, err error) {
	return takeBack(ctx, r, q, worker, true)
}

// GoOn continues to return the tasks of a worker that was evicted or has left, and may have joined
// again since.
func GoOn(ctx context.Context, r Runner, q keys.Queue, worker string) (returned int, err error) {
	_, returned, err = takeBack(ctx, r, q, worker, false)
	return returned, err
}

func takeBack(ctx context.Context, r Runner, q keys.Queue, worker string, begin bool) (known bool, returned int, err error) {
	for last := int64(math.MaxInt64); ; begin = false {
		a := fail.ask(ctx, r, q, "worker", worker, "begin", flag(begin))
		k, n, handled, left := a.int("known"), int(a.int("returned")), a.int("handled"), a.int("left")
		known = known || k == 1
		returned += n
		if last != math.MaxInt64 && a.err == nil {
			returned += int(max(last-handled-left, 0))
		}
		if a.err != nil || left == 0 {
			return known, returned, a.err
		}
		if left >= last {
			return known, returned, errStuck
		}
		last = left
	}
}
