package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// A broker is the Redis of the demo: one in this process, or the user's, in which
// the demo uses only a prefix of its own.
type broker struct {
	url    string
	prefix string
	where  string // for people
	own    *miniredis.Miniredis
}

func openBroker(given string) (*broker, error) {
	b := &broker{url: given, prefix: fmt.Sprintf("worqr-demo-%08x", rand.Uint32())}
	if given != "" {
		at, err := addressOf(given)
		b.where = "Redis at " + at
		return b, err
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

// addressOf returns the address in a URL, without the user: a name alone is a password.
func addressOf(given string) (string, error) {
	if u, err := redisconn.ParseURL(given); err == nil && u.Kind != redisconn.Single {
		return u.Address(), nil // parsing it as the URL of one host fails
	}
	u, err := url.Parse(given)
	switch {
	case err != nil:
		return "", errors.New("the URL of Redis can't be parsed") // the error would show a password
	case u.Scheme == "unix":
		return "unix://" + u.EscapedPath(), nil
	}
	return u.Scheme + "://" + u.Host, nil
}

// close ends the Redis in this process.
func (b *broker) close() {
	if b.own != nil {
		b.own.Close()
	}
}

// ahead returns how far the clock of Redis is ahead of the local one. The result may be too high by less than a
// round trip. In a cluster, it's about the clock furthest ahead.
func (b *broker) ahead(ctx context.Context) (ahead time.Duration, err error) {
	ahead = math.MinInt64
	err = b.with(func(r *topology.Router) error {
		return masters(ctx, r, func(l *redisconn.Line) error {
			before := time.Now()
			t, err := redis.Int64s(l.One(ctx, redisconn.Command("TIME")))
			if err == nil {
				ahead = max(ahead, time.Unix(t[0], t[1]*1000).Sub(before))
			}
			return err
		})
	})
	return ahead, err
}

// with makes calls that the library doesn't have.
func (b *broker) with(call func(*topology.Router) error) error {
	place, err := topology.Open(b.url, topology.Options{})
	if err != nil {
		return err
	}
	r := topology.NewRouter(place, 0, func(dial redisconn.Dial) *redisconn.Line { return redisconn.NewLine(dial, 0) })
	defer r.Close()
	return call(r)
}

// masters calls do for each server that has keys, until one call fails.
func masters(ctx context.Context, r *topology.Router, do func(l *redisconn.Line) error) error {
	nodes, err := r.Nodes(ctx)
	for _, n := range nodes {
		if err == nil && !n.Replica {
			err = do(n.Line)
		}
	}
	return err
}

// clean removes every key of the demo from the user's Redis. The library has no call for that,
// since it needs the keys that an idle queue leaves, such as the token counter.
func (b *broker) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after Ctrl-C
	defer cancel()
	if err := b.sweeps(ctx); err != nil {
		return fmt.Errorf("remove the keys %s:*: %w", b.prefix, err)
	}
	return nil
}

// sweeps removes the keys, if there are any. If there are none, it only checks that the user may remove them.
func (b *broker) sweeps(ctx context.Context) error {
	if b.own != nil {
		return nil
	}
	return b.with(func(r *topology.Router) error {
		return masters(ctx, r, func(l *redisconn.Line) error { return b.sweep(ctx, r, l) })
	})
}

// sweep removes the keys on one server.
func (b *broker) sweep(ctx context.Context, r *topology.Router, l *redisconn.Line) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(l.One(ctx, redisconn.Command("SCAN", cursor, "MATCH", b.prefix+":*", "COUNT", 1000)))
		if err != nil {
			return err
		}
		var keys []string
		if _, err := redis.Scan(reply, &cursor, &keys); err != nil {
			return err
		}
		var calls []redisconn.Call
		for _, key := range keys { // each may be in another slot
			calls = append(calls, redisconn.Command("DEL", key))
		}
		if len(calls) > 0 {
			for _, reply := range r.Do(ctx, calls...) {
				if reply.Err != nil {
					return reply.Err
				}
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}
