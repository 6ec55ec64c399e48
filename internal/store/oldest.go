package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The member of ages that isn't a note, and the number that lib_ages.lua subtracts from its score.
const (
	ageDrift = "drift"
	ageBase  = 1 << 52
)

// overdueCall asks for the entry that is due first, and at most at a time, among those that wait for a time.
func overdueCall(q keys.Queue, most string) redisconn.Call {
	return redisconn.Command("ZRANGEBYSCORE", q.Schedule(), int64(ancient), most, "WITHSCORES", "LIMIT", 0, 1)
}

// The functions below return since when a task waits, in ms; 0 if none does, or if it isn't known.

// firstAddedAt returns when the first item of a stream was added.
func firstAddedAt(reply redisconn.Reply) int64 {
	items, err := redis.Values(reply.Value, reply.Err)
	if err != nil || len(items) == 0 {
		return 0
	}
	item, _ := redis.Values(items[0], nil)
	if len(item) == 0 {
		return 0
	}
	id, _ := redis.String(item[0], nil)
	ms, _, _ := strings.Cut(id, "-")
	if at, err := strconv.ParseInt(ms, 10, 64); err == nil && at >= ancient {
		return at
	}
	return 0 // added by another program
}

// firstDue returns when the first due task should have started.
func firstDue(reply redisconn.Reply) int64 {
	first, err := redis.Strings(reply.Value, reply.Err)
	if err != nil || len(first) != 2 {
		return 0
	}
	at, _ := strconv.ParseFloat(first[1], 64)
	return int64(min(at, ageBase))
}

// frontSince returns when the task at the front of the list was added, according to the notes of
// heartbeats. token and drift are earlier replies.
func frontSince(ctx context.Context, r Runner, q keys.Queue, token, drift redisconn.Reply) (int64, error) {
	given, err := redis.Int64(token.Value, token.Err)
	known, bad := redis.Float64(drift.Value, drift.Err)
	if err != nil && !errors.Is(err, redis.ErrNil) || bad != nil {
		return 0, nil
	}
	left := given - int64(known) - ageBase
	notes, err := redis.Int64s(r.One(ctx, redisconn.Command("ZRANGEBYSCORE", q.Ages(), "("+strconv.FormatInt(left, 10), "+inf", "LIMIT", 0, 1)))
	switch {
	case err != nil && !IsRefusal(err):
		return 0, err
	case err != nil || len(notes) == 0:
		return 0, nil
	}
	return notes[0], nil
}

// ageOf returns how long ago the earliest of these times is, or 0 if a time isn't known.
func ageOf(now int64, since []int64) time.Duration {
	var first int64
	for _, at := range since {
		if at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	if first == 0 || now == 0 {
		return 0
	}
	return max(0, time.Duration(now-first)*time.Millisecond)
}
