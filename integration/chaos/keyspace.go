package main

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/redistest"
)

// health runs Check. It must find nothing, both while some peers live and when no peer serves any
// queue.
func (a *arena) health(when string) {
	observer := a.observer()
	defer func() { _ = observer.Close() }() // it has nothing to lose
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found := redistest.Sure(observer.Check(ctx, nil))(a.t)
	a.report.Checks++
	if !found.OK() {
		a.report.violate("Check finds, %s: %v", when, found)
	}
}

// leftovers counts the keys that should be gone when all peers have left.
func (a *arena) leftovers() {
	for _, key := range redistest.Sure(redis.Strings(a.server.do([]any{"KEYS", "*"}), nil))(a.t) {
		ttl := a.server.do([]any{"PTTL", key}).(int64)
		if ttl == -2 {
			continue // it expires
		}
		if !load.Stays(prefix, key, ttl >= 0) {
			a.report.Orphans++
			a.report.violate("the key %s is left over", key)
		}
	}
}
