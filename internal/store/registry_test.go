package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A bench is a fleet of its own on a server.
type bench struct {
	testing.TB
	is    *is.I
	conn  redis.Conn
	line  *redisconn.Line
	space keys.Space
	q     keys.Queue
}

func newBench(t *testing.T) *bench {
	t.Helper()
	is := redistest.Parallel(t)
	return benchAt(t, is, redistest.URL(), redistest.Prefix(t))
}

func benchAt(t testing.TB, is *is.I, url, prefix string) *bench {
	line := redisconn.NewLine(redistest.Sure(Open(url, Access{}))(t).Dial(), 5*time.Second)
	t.Cleanup(line.Close)
	space := keys.NewSpace(prefix)
	return &bench{t, is, redistest.Dial(t, url), line, space, space.Queue("q")}
}

// do runs a command on the keys of the queue: HSET tasks k:a A, or ZADD working:w 1 w.1.9.1. ~ stands
// for a blank.
func (b *bench) do(command string) any {
	b.Helper()
	words := strings.Fields(command)
	args := redis.Args{}
	for i, w := range words[1:] {
		if i == 0 {
			w = b.key(w)
		}
		args = args.Add(strings.ReplaceAll(w, "~", " "))
	}
	return redistest.Do(b, b.conn, words[0], args...)
}

// key returns the name of a key of the queue, or of the failed queue.
func (b *bench) key(kind string) string {
	kind, part, more := strings.Cut(kind, ":")
	q := b.q
	if failed, ok := strings.CutPrefix(kind, "failed."); ok {
		kind, q = failed, b.q.Failed()
	}
	head, tail := q.Ends()
	if more {
		tail += ":" + part
	}
	return head + ":" + kind + ":" + tail
}

func (b *bench) listed(set, name string) bool {
	b.Helper()
	return redistest.Sure(redis.Bool(b.conn.Do("SISMEMBER", set, name)))(b)
}

// A registration is replaced as a whole, expires, and lists the worker. A queue is listed once. Both
// also work on a full Redis.
func TestRegister(t *testing.T) {
	is := redistest.Parallel(t)
	b := benchAt(t, is, redistest.Start(t).URL(), "p")
	w := Worker{
		ID: "w", Name: "n", Host: "h", Version: "v", PID: 7, StartedAt: time.UnixMilli(1_700_000_000_000),
		Queues: []string{"q"}, Lease: 3 * time.Second, StuckHandlers: 2, Protocol: 4,
	}
	for _, full := range []string{"0", "1"} {
		redistest.Do(t, b.conn, "CONFIG", "SET", "maxmemory", full)
		redistest.Do(t, b.conn, "HDEL", b.space.Worker("w"), "name") // written again below
		is.NoErr(Register(t.Context(), b.line, b.space, time.Hour, w))
		is.NoErr(List(t.Context(), b.line, b.space, "q"))
		is.Equal(redistest.Keys(t, b.conn, "p"), []string{b.space.Registry(), b.space.Worker("w"), b.space.Workers()})
		for of, err := range Workers(t.Context(), b.line, b.space) {
			is.NoErr(err)
			is.Equal(of, w)
		}
		ttl := redistest.Sure(redis.Int(b.conn.Do("TTL", b.space.Worker("w"))))(t)
		is.True(ttl > 3000 && ttl <= 3600)
	}
	is.NoErr(Register(t.Context(), b.line, b.space, 0, Worker{ID: "w"})) // never expires
	is.Equal(redistest.Sure(redis.Int(b.conn.Do("TTL", b.space.Worker("w"))))(t), -1)
}

// The fleet's protocol only rises, and what isn't one is replaced.
func TestAgree(t *testing.T) {
	t.Parallel()
	for there, want := range map[string]string{
		"": "3:1", "3:1": "3:1", "2:0": "3:1", "4:0": "4:1", "2:2": "3:2", "5:4": "5:4", "9999:9999": "9999:9999",
		"10000:0": "3:1", "4": "3:1", "4:2:": "3:1", " 4:2": "3:1", "-4:2": "3:1", "x": "3:1",
	} {
		t.Run(fmt.Sprintf("%q", there), func(t *testing.T) {
			b := newBench(t)
			if there != "" {
				redistest.Do(t, b.conn, "SET", b.space.Protocol(), there)
			}
			for range 2 {
				got, err := redis.String(b.line.One(t.Context(), agree.fleetCall(b.space, b.space.Protocol(), 3, 1)))
				b.is.NoErr(err)
				b.is.Equal(got, want)
				b.is.Equal(redistest.Sure(redis.String(b.conn.Do("GET", b.space.Protocol())))(t), want)
			}
		})
	}
}

// Protocols that can't work together refuse each other, in both directions; who is refused changes
// nothing.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there   string
		workers []int // the protocols of those on the roster
		ours    Protocol
		refused string
		left    string
	}{
		"first of all":                {"", nil, Protocol{1, 0}, "", "1:0"},
		"beside unnumbered ones":      {"", []int{0, 0}, Protocol{1, 0}, "", "1:0"},
		"not beside unnumbered ones":  {"", []int{1, 0}, Protocol{2, 1}, "speak protocol 0, and this program works with 1 or later", ""},
		"older beside newer":          {"2:0", []int{2}, Protocol{1, 0}, "", "2:0"},
		"newer beside older":          {"1:0", []int{1}, Protocol{2, 0}, "", "2:0"},
		"too old":                     {"3:2", nil, Protocol{1, 0}, "they speak protocol 3 and need every peer to speak 2 or later, but this program speaks 1; upgrade this program", "3:2"},
		"too new":                     {"1:0", nil, Protocol{3, 2}, "they speak protocol 1, and this program works with 2 or later; see \"To upgrade\" in the changelog", "1:0"},
		"all of them are upgraded":    {"3:1", []int{3, 2}, Protocol{3, 2}, "", "3:2"},
		"one of them is not upgraded": {"3:1", []int{3, 1, 3}, Protocol{3, 2}, "speak protocol 1, and this program works with 2", "3:1"},
		"garbage":                     {"who knows", nil, Protocol{1, 0}, "", "1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if c.there != "" {
				redistest.Do(t, b.conn, "SET", b.space.Protocol(), c.there)
			}
			for i, spoken := range c.workers {
				b.is.NoErr(Register(t.Context(), b.line, b.space, time.Hour, Worker{ID: fmt.Sprint("w", i), Name: "n", Protocol: spoken}))
			}
			for range 2 {
				err := Agree(t.Context(), b.line, b.space, c.ours)
				b.is.Equal(errors.Is(err, ErrProtocol), c.refused != "")
				if c.refused != "" {
					b.is.True(strings.Contains(err.Error(), c.refused))
				} else {
					b.is.NoErr(err)
				}
			}
			left, err := redis.String(b.conn.Do("GET", b.space.Protocol()))
			b.is.True(err == nil || errors.Is(err, redis.ErrNil))
			b.is.Equal(left, c.left)
		})
	}
}

// spaces are where keys may be: on one server, or on several nodes, although tests have only one.
var spaces = map[string]func(keys.Space) keys.Space{"": func(s keys.Space) keys.Space { return s }, ", scattered": keys.Space.InCluster}

// A queue that isn't in use is removed from the list of queues, and one that is stays.
func TestUnlist(t *testing.T) {
	t.Parallel()
	for name, seed := range map[string]string{
		"nothing is there": "", "what may be left": "HSET state token 9",
		"a task waits": "LPUSH queues a", "a named task waits or runs": "HSET tasks k:a A", "a worker serves it": "ZADD workers 9 w",
		"what somebody held goes back": "ZADD leaving 0 w", "something recurs": "ZADD recurring 9 k:a", "it is paused": "HSET state paused 1:me",
		"a task has failed": "HSET failed.tasks k:a#1 A", "a worker serves the failed queue": "ZADD failed.workers 9 w",
	} {
		for where, in := range spaces {
			t.Run(name+where, func(t *testing.T) {
				b := newBench(t)
				s := in(b.space)
				for range 2 {
					b.is.NoErr(List(t.Context(), b.line, s, "q", "other"))
					if seed != "" {
						b.do(seed)
					}
					b.is.NoErr(Unlist(t.Context(), b.line, s, s.Queue("q"), "q"))
					b.is.Equal(b.listed(s.Registry(), "q"), !strings.HasPrefix(seed, "HSET state token") && seed != "")
					b.is.True(b.listed(s.Registry(), "other"))
				}
			})
		}
	}
}

// A worker whose registration has expired is removed from the list of peers.
func TestPrune(t *testing.T) {
	t.Parallel()
	for where, in := range spaces {
		t.Run("peers"+where, func(t *testing.T) {
			b := newBench(t)
			s := in(b.space)
			for _, id := range []string{"w1", "w2"} {
				b.is.NoErr(Register(t.Context(), b.line, s, time.Hour, Worker{ID: id}))
			}
			redistest.Do(t, b.conn, "DEL", s.Worker("w1"))
			b.is.NoErr(PruneSome(t.Context(), b.line, s))
			b.is.NoErr(Prune(t.Context(), b.line, s))
			b.is.True(!b.listed(s.Workers(), "w1") && b.listed(s.Workers(), "w2"))
		})
	}
}

// The key that never exists is in the slot of the key beside it.
func TestNoneBeside(t *testing.T) {
	is := is.New(t)
	for _, key := range []string{"p:registry", "p:worker:w"} {
		is.Equal(keys.Slot(keys.NoneBeside(keys.NewSpace("p"), key)), keys.Slot(key))
	}
}
