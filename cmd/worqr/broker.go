package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// A broker is the Redis of the demo: one in this process, or one that was
// given, in which the demo keeps to a prefix of its own.
type broker struct {
	url    string
	prefix string
	where  string // in words
	own    *miniredis.Miniredis
}

func openBroker(given string) (*broker, error) {
	b := &broker{url: given, prefix: fmt.Sprintf("worqr-demo-%08x", rand.Uint32())}
	if given != "" {
		u, err := url.Parse(given)
		if err != nil {
			return nil, errors.New("the URL of Redis can't be parsed") // the error would show a password
		}
		b.where = "Redis at " + place(u)
		return b, nil
	}
	b.own = miniredis.NewMiniRedis()
	b.own.ClockTTL(true) // registrations of dead peers expire, as they do in Redis
	if err := b.own.Start(); err != nil {
		return nil, fmt.Errorf("start a Redis in this process: %w", err)
	}
	b.url = "redis://" + b.own.Addr()
	b.where = "an in-memory Redis inside this process"
	return b, nil
}

// place says where a URL leads: not to whom, since a lone name is a password.
func place(u *url.URL) string {
	if u.Scheme == "unix" {
		return "unix://" + u.EscapedPath()
	}
	return u.Scheme + "://" + u.Host
}

// close ends the Redis in this process.
func (b *broker) close() {
	if b.own != nil {
		b.own.Close()
	}
}

// ahead tells by how much the clock of Redis is ahead of the one here, or a
// little more: by less than a round trip.
func (b *broker) ahead(ctx context.Context) (ahead time.Duration, err error) {
	err = b.with(ctx, func(c redis.Conn) error {
		before := time.Now()
		t, err := redis.Int64s(c.Do("TIME"))
		if err == nil {
			ahead = time.Unix(t[0], t[1]*1000).Sub(before)
		}
		return err
	})
	return ahead, err
}

// with makes calls that the library has not.
func (b *broker) with(ctx context.Context, call func(redis.Conn) error) error {
	dial, err := redisconn.FromURL(b.url)
	if err != nil {
		return err
	}
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return call(c)
}

// clean removes every key of the demo from a Redis that was given. The library
// has no call for that: what it keeps of an idle queue, it keeps for a reason.
func (b *broker) clean() error {
	if b.own != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after Ctrl-C
	defer cancel()
	if err := b.with(ctx, b.sweep); err != nil {
		return fmt.Errorf("remove the keys %s:*: %w", b.prefix, err)
	}
	return nil
}

func (b *broker) sweep(c redis.Conn) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", b.prefix+":*", "COUNT", 1000))
		if err != nil {
			return err
		}
		var keys []string
		if _, err := redis.Scan(reply, &cursor, &keys); err != nil {
			return err
		}
		if len(keys) > 0 {
			if _, err := c.Do("DEL", redis.Args{}.AddFlat(keys)...); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}
