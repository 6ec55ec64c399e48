package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Once makes a call add or put its task at most once within a window. The zero value doesn't.
type Once struct {
	ID     string
	Window time.Duration
}

// mark returns the nonce, which no caller of EnqueueOnce is likely to use.
func (o Once) mark() string {
	if o.Window == 0 {
		return ""
	}
	return markOf(o.ID)
}

func markOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return "o:" + hex.EncodeToString(sum[:])
}

// markedKey returns the key of the task that a mark names; "" if it is unique.
func markedKey(mark string) (string, error) {
	if key := KeyOf(mark); key != "" || strings.HasPrefix(mark, uniqueMark) {
		return key, nil
	}
	if key, card, ok := keys.SplitAdded(mark); ok && card == "" {
		return key, nil
	}
	return "", errors.New("the record of Once has been overwritten")
}

// Forget makes nonces, those of EnqueueOnce and of Once, end after a duration, unless they end before. Of two
// calls at the same time, the shorter duration may lose; a nonce never lasts longer than before.
func Forget(ctx context.Context, r Runner, q keys.Queue, after time.Duration, nonces ...string) error {
	for page := range slices.Chunk(nonces, perPage) {
		var marks []string
		for _, nonce := range page {
			marks = append(marks, q.Once(nonce), q.Once(markOf(nonce)))
		}
		if err := shorten(ctx, r, marks, after.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// shorten reads what keys have left, since PEXPIRE has LT only from Redis 7.0.
func shorten(ctx context.Context, r Runner, marks []string, ms int64) (err error) {
	left := doEach(ctx, Reads(r, 0), marks, func(key string) redisconn.Call { return redisconn.Command("PTTL", key) })
	var longer []string
	for i, reply := range left {
		if readAs(reply, redis.Int64, &err) > ms {
			longer = append(longer, marks[i])
		}
	}
	if err != nil {
		return err
	}
	return failure(doEach(ctx, r, longer, func(key string) redisconn.Call { return redisconn.Command("PEXPIRE", key, ms) }))
}

// NewSalt returns a salt for the tasks of a call.
func NewSalt() string { return keys.NewSalt() }

// NewKey returns a key in the form of an added task's.
func NewKey() string { return keys.NewKey(time.Now()) }
