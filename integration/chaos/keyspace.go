package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// health has the library look for what no invariant allows. A fleet of which some
// still live must pass as well as what nobody serves any more.
func (a *arena) health(when string) error {
	observer, err := a.observer()
	if err != nil {
		return err
	}
	defer func() { _ = observer.Close() }() // it has nothing to lose
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found, err := observer.Check(ctx, nil)
	if err != nil {
		return fmt.Errorf("check the keyspace: %w", err)
	}
	a.report.Checks++
	if !found.OK() {
		a.report.violate("Check finds, %s: %v", when, found)
	}
	return nil
}

// leftovers looks at the keys that are left once everybody has left, and counts
// those that should not be there.
func (a *arena) leftovers() error {
	return a.each(a.leftAt)
}

// leftAt looks at those of one server.
func (a *arena) leftAt(c redis.Conn) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "COUNT", 1000))
		var keys []string
		if err == nil {
			_, err = redis.Scan(reply, &cursor, &keys)
		}
		if err != nil {
			return fmt.Errorf("look at what is left: %w", err)
		}
		for _, key := range keys {
			ttl, err := redis.Int(c.Do("PTTL", key))
			if err != nil {
				return fmt.Errorf("look at what is left: %w", err)
			}
			if ttl == -2 {
				continue // its time is over
			}
			if !stays(key, ttl >= 0) {
				a.report.Orphans++
				a.report.violate("the key %s is left over", key)
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// stays reports whether a key may be there when nobody serves and nothing waits.
func stays(key string, expires bool) bool {
	rest, ok := strings.CutPrefix(key, prefix+":")
	if !ok {
		return false
	}
	failed, isFailed := strings.CutPrefix(rest, "failed:")
	kind, _, _ := strings.Cut(failed, ":")
	switch kind {
	case "registry", "protocol", "token":
		return true
	case "once", "cancel", "result":
		return expires
	case "schedule", "contents", "keyed":
		return isFailed // what has failed stays to be looked at
	}
	return false
}
