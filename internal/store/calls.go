package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// ErrUnknown is the error of a call that was sent and whose reply was lost: it may have been carried
// out.
var ErrUnknown = redisconn.ErrUnknown

// IsRefusal reports whether Redis has replied with an error, which shows that it's up.
func IsRefusal(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return refused
}

// Twice makes a call that may be repeated, and repeats it once if the reply was lost.
func Twice(call func() error) error {
	err := call()
	if errors.Is(err, ErrUnknown) {
		err = call()
	}
	return err
}

// doEach makes one call for each element.
func doEach[T any](ctx context.Context, r Runner, all []T, call func(T) redisconn.Call) []redisconn.Reply {
	calls := make([]redisconn.Call, len(all))
	for i, one := range all {
		calls[i] = call(one)
	}
	return r.Do(ctx, calls...)
}

// readAs converts a reply with as. It sets err to the error, unless err is already set.
func readAs[T any](reply redisconn.Reply, as func(any, error) (T, error), err *error) T {
	v, failed := as(reply.Value, reply.Err)
	*err = cmp.Or(*err, failed)
	return v
}

// failure returns the first error among replies.
func failure(replies []redisconn.Reply) error {
	for _, reply := range replies {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Now returns the time of a server, in ms.
func Now(ctx context.Context, r Runner) (int64, error) {
	return timeIn(reply(r.One(ctx, redisconn.Command("TIME"))))
}

// NowAt returns the time of the queue's Redis, in ms.
func NowAt(ctx context.Context, r Runner, q keys.Queue) (int64, error) {
	return timeIn(reply(r.One(ctx, timeCall(q))))
}

func timeCall(q keys.Queue) redisconn.Call { return redisconn.Command("TIME").At(q.Waiting()) }

// timeIn returns the time in the reply to TIME, in ms.
func timeIn(reply redisconn.Reply) (int64, error) {
	v, err := redis.Int64s(reply.Value, reply.Err)
	if err != nil || len(v) != 2 {
		return 0, err
	}
	return v[0]*1000 + v[1]/1000, nil
}

// lastMoment is the end of the year 9999, in ms: JSON has no later times.
const lastMoment = 253402300799999

// Moment converts a Redis time in ms. The result is zero if the time isn't known. Another program may
// have written any number.
func Moment(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(ms, lastMoment))
}
