package main

import (
	"context"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// erase removes every key of a fleet. The library has no call for that, since it needs the keys that an idle queue
// leaves, such as the token counter. If there are no keys, it only checks that the user may remove them.
func erase(ctx context.Context, url, prefix string) (err error) {
	defer func() {
		switch {
		case redisconn.Denied(err):
			err = fmt.Errorf("%w: %w", worqr.ErrDenied, err)
		case redisconn.BadLogin(err):
			err = fmt.Errorf("%w: %w", worqr.ErrLogin, err)
		}
	}()
	place, err := topology.Open(url, topology.Options{})
	if err != nil {
		return err
	}
	r := topology.NewRouter(place, 0, func(dial redisconn.Dial) *redisconn.Line { return redisconn.NewLine(dial, 0) })
	defer r.Close()
	nodes, err := r.Nodes(ctx)
	for _, n := range nodes {
		if err == nil && !n.Replica {
			err = eraseOn(ctx, r, n.Line, prefix)
		}
	}
	return err
}

// eraseOn removes the keys on one server.
func eraseOn(ctx context.Context, r *topology.Router, l *redisconn.Line, prefix string) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(l.One(ctx, redisconn.Command("SCAN", cursor, "MATCH", prefix+":*", "COUNT", 1000)))
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
