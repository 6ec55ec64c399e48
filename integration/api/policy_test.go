package api

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A peer refuses to work if a full Redis could evict tasks, and warns about other risky policies.
func TestEvictionPolicy(t *testing.T) {
	t.Parallel()
	server, conn := redistest.StartAndDial(t)
	for _, c := range []struct {
		policy, maxmemory string
		refused, warned   bool
	}{
		{"noeviction", "0", false, false},
		{"noeviction", "100mb", false, false},
		{"allkeys-lru", "100mb", true, false},
		{"allkeys-lru", "0", false, true},
		{"volatile-lru", "100mb", false, true},
	} {
		t.Run(c.policy+" "+c.maxmemory, func(t *testing.T) { // not in parallel: the server is shared
			is := is.New(t)
			_, err := conn.Do("CONFIG", "SET", "maxmemory-policy", c.policy, "maxmemory", c.maxmemory)
			is.NoErr(err)
			var log journal
			peer, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Logger: log.Logger()})
			is.NoErr(q.Enqueue(t.Context(), []byte("a"))) // not checked for producers
			q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)

			for range 2 {
				err = peer.StartWorker(t.Context())
				is.Equal(errors.Is(err, worqr.ErrEvictionPolicy), c.refused)
				is.True(c.refused || err == nil)
				if !c.refused {
					is.NoErr(peer.StopWorker(t.Context()))
				}
			}
			want := 0
			if c.warned {
				want = 1 // however often it starts
			}
			is.Equal(len(log.Lines("level=WARN")), want)
			is.Equal(len(log.Lines("maxmemory-policy="+c.policy)), want)
			if c.refused {
				is.True(strings.Contains(err.Error(), "set maxmemory-policy to noeviction"))
				is.True(strings.Contains(err.Error(), c.policy))
				err = peer.Run(t.Context()) // returns at once and leaves nothing behind
				is.True(errors.Is(err, worqr.ErrEvictionPolicy))
				for w, err := range peer.Workers(t.Context()) {
					t.Errorf("there is a worker: %v %v", w, err)
				}
			}
		})
	}
}

// If the user may not run INFO, the policy isn't checked. The right to read one section is enough.
func TestEvictionPolicyForbidden(t *testing.T) {
	t.Parallel()
	for rule, refused := range map[string]bool{"-info": false, "+info|memory": true} {
		is := is.New(t)
		server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		conn := redistest.Dial(t, server.URL())
		redistest.Do(t, conn, "ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-info", "-config", rule)
		var log journal
		url := strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1)
		err := openAt(t, url, worqr.Options{Logger: log.Logger(), Prefix: "p"}).StartWorker(t.Context())
		is.Equal(errors.Is(err, worqr.ErrEvictionPolicy), refused)
		if !refused {
			is.NoErr(err)
			is.Equal(len(log.Lines("level=WARN")), 0)
			is.Equal(len(log.Lines("can't read the eviction policy")), 1)
		}
	}
}

// A peer refuses to start on a Redis that lacks commands its scripts call: it would join, but
// neither start nor return tasks. An unknown version is accepted. Valkey reports the Redis version
// it is compatible with.
func TestRedisIsTooOld(t *testing.T) {
	t.Parallel()
	for version, refused := range map[string]bool{
		"5.0.7": true, "6.0.16": true, "6.2.0": false, "7.2.4": false, "10.0.1": false, "255.255.255": false, "": false, "unstable": false,
	} {
		t.Run(version, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			peer := openThrough(t, redistest.Worker(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix}, func(c *through) redis.Conn {
				c.OnReply = func(_ string, _ []any, reply any, err error) (any, error) {
					if b, ok := reply.([]byte); ok {
						reply = regexp.MustCompile(`redis_version:\S*`).ReplaceAll(b, []byte("redis_version:"+version))
					}
					return reply, err
				}
				return c
			})
			for range 2 {
				err := peer.StartWorker(t.Context())
				if !refused {
					is.NoErr(err)
					is.NoErr(peer.StopWorker(t.Context()))
					continue
				}
				is.True(err != nil && !is_(err, worqr.ErrEvictionPolicy))
				is.True(strings.Contains(err.Error(), "start worker: Redis is too old: version "+version))
				is.True(strings.Contains(err.Error(), "6.2 or later"))
			}
			if refused {
				err := peer.Run(t.Context()) // returns at once and leaves nothing behind
				is.True(err != nil && strings.Contains(err.Error(), "Redis is too old"))
				for w, err := range peer.Workers(t.Context()) {
					t.Errorf("there is a worker: %v %v", w, err)
				}
			}
		})
	}
}
