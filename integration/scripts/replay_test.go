package scripts_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/search"
	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/redistest"
)

var paths = flag.Int("paths", 300, "how many paths of the search TestReplay makes on a real Redis")

// likeSearch makes pages as small as the search does. Who hears that it's woken is in keys, not in subscriptions.
var likeSearch = strings.NewReplacer(
	"redis.call('TIME')", "{ math.floor(redis.call('GET', KEYS[2]) / 1000), redis.call('GET', KEYS[2]) % 1000 * 1000 }",
	"local AT_ONCE = 100 ", "local AT_ONCE = 1 ", "page(10000, ", "page(1, ", "page(100, ", "page(1, ", "local PAGE = 1000\n", "local PAGE = 1\n",
	"redis.pcall('PUBLISH', channel .. 'wake:' .. worker, count)", "redis.call('EXISTS', KEYS[2] .. ':' .. worker)",
)

// TestReplay makes the calls of random paths of the search on a real Redis. The scripts must change the same keys as the
// specification.
func TestReplay(t *testing.T) {
	b, calls := newBench(t), 0
	b.edit = likeSearch.Replace
	for seed := *firstSeed; seed < *firstSeed+uint64(*paths); seed++ {
		for _, c := range search.Walk(rand.New(rand.NewPCG(seed, 0)), 40) {
			b.clear()
			b.write("", &c.Before)
			b.write("failed.", c.Before.Failed)
			redistest.Sure(b.conn.Do("SET", b.key("none"), c.Before.Now))(b)
			for _, worker := range c.Hear {
				redistest.Sure(b.conn.Do("SET", b.key("none:"+worker), 1))(b)
			}
			answer := b.do(c.Words)
			held := b.load()
			if diff := differ(held.Lines(), c.After.Lines()); diff != "" {
				t.Fatalf("seed %d, from %s\n%s\n%s\n%s", seed, strings.Join(c.Before.Lines(), ", "), c.Words, answer, diff)
			}
			calls++
		}
	}
	t.Log(calls, "calls")
}

// write writes what a queue holds to Redis.
func (b *bench) write(of string, q *spec.Queue) {
	send := func(command, kind string, args ...any) {
		if len(args) > 0 {
			redistest.Sure(0, b.conn.Send(command, append([]any{b.key(of + kind)}, args...)...))(b)
		}
	}
	for kind, v := range q.Kinds() {
		switch v := v.(type) {
		case *spec.List:
			send("RPUSH", kind, redis.Args{}.AddFlat([]string(*v))...)
		case *spec.Set:
			send("ZADD", kind, scores(*v)...)
		case *spec.Hash:
			for _, e := range *v {
				send("HSET", kind, e.Name, e.Value)
			}
		}
	}
	for _, e := range q.Process {
		send("RPUSH", "process:"+e.Name, e.Value)
	}
	for _, e := range q.Working {
		send("ZADD", "working:"+e.Name, scores(e.Value)...)
	}
	for _, e := range q.Canceled {
		send("SET", "canceled:"+e.Name, e.Value)
	}
}

func scores(s spec.Set) (all []any) {
	for _, m := range s {
		all = append(all, fmt.Sprint(m.Score), m.Name)
	}
	return all
}
