package main

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/redistest"
)

// health has the library look for what no invariant allows. A fleet of which some
// still live must pass as well as what nobody serves any more.
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

// leftovers looks at the keys that are left once everybody has left, and counts
// those that should not be there.
func (a *arena) leftovers() {
	for _, key := range redistest.Sure(redis.Strings(a.server.do([]any{"KEYS", "*"}), nil))(a.t) {
		ttl := a.server.do([]any{"PTTL", key}).(int64)
		if ttl == -2 {
			continue // its time is over
		}
		if !load.Stays(prefix, key, ttl >= 0) {
			a.report.Orphans++
			a.report.violate("the key %s is left over", key)
		}
	}
}
