package api

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/worqr/worqr"
)

// A guesser speaks the protocol of Redis and gives random answers: sometimes the expected one,
// sometimes one of the same shape, and sometimes anything.
type guesser struct {
	r *rand.Rand
}

// answer returns the reply to a command, in the protocol's encoding.
func (l guesser) answer(name string, args []string) string {
	switch {
	case name == "PING":
		return "+PONG\r\n"
	case name == "ECHO":
		return bulk(args[0])
	case name == "AUTH", name == "SELECT":
		return "+OK\r\n"
	case name == "TIME" && l.r.IntN(5) > 0:
		return "*2\r\n" + bulk(strconv.FormatInt(time.Now().Unix(), 10)) + bulk("0")
	case strings.HasSuffix(name, "SCAN") && l.r.IntN(3) > 0:
		return "*2\r\n" + bulk(strconv.Itoa(l.r.IntN(2))) + l.list(1)
	case strings.HasSuffix(name, "SUBSCRIBE") && l.r.IntN(3) > 0:
		return "*3\r\n" + bulk(strings.ToLower(name)) + bulk(args[len(args)-1]) + ":1\r\n"
	case l.r.IntN(3) > 0 && slices.Contains(strings.Fields("LRANGE ZRANGE ZRANGEBYSCORE HMGET HGETALL SRANDMEMBER CONFIG"), name):
		return l.list(1)
	case l.r.IntN(3) > 0 && slices.Contains(strings.Fields("LLEN ZCARD ZCOUNT EXISTS SADD SISMEMBER PTTL HLEN HSTRLEN ZSCORE"), name):
		return fmt.Sprintf(":%d\r\n", l.r.IntN(3))
	}
	return l.anything(3)
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// texts are the strings that answers contain.
var texts = []string{
	"", "0", "1", "-1", "7", "nan", "inf", "1e308", "99999999999999999999", "x", "k:x", "r:x", "q", "w1", `["q"]`, `[`, "{}", "\x00\xff",
	"w1.1.1.1n", strings.Repeat("a", 40), strings.Repeat("a", 40) + ":k:x", "payload", "list", "zset", "hash", "string", "none",
	"redis_version:7.0.15\r\nmaxmemory:x\r\nmaxmemory_policy:allkeys-lru", "p:queues:{q}", "p:tasks:{q}", "p:working:{q}:w1", "p:worker:w1", "p:failed:schedule:{q}", "p:canceled:{q}:x",
}

func (l guesser) anything(depth int) string {
	switch l.r.IntN(9) {
	case 0:
		return "$-1\r\n"
	case 1:
		return "*-1\r\n"
	case 2:
		return []string{"-ERR no\r\n", "-EVICTED\r\n", "-STALE\r\n", "-DUPLICATE\r\n", "-WRONGTYPE no\r\n", "-NOSCRIPT no\r\n", "-LOADING wait\r\n"}[l.r.IntN(7)]
	case 3:
		return "+OK\r\n"
	case 4:
		return fmt.Sprintf(":%d\r\n", []int64{0, 1, -1, 2, 100, 1 << 40, -1 << 63, 1<<63 - 1}[l.r.IntN(8)])
	case 5, 6:
		return bulk(texts[l.r.IntN(len(texts))])
	}
	return l.list(depth)
}

// list returns an array, of strings if depth is 1.
func (l guesser) list(depth int) string {
	n := []int{0, 0, 1, 1, 2, 3, 4, 5, 13, 100, 101}[l.r.IntN(11)]
	var all strings.Builder
	fmt.Fprintf(&all, "*%d\r\n", n)
	for range n {
		switch {
		case depth > 1:
			all.WriteString(l.anything(depth - 1))
		case l.r.IntN(10) == 0:
			all.WriteString("$-1\r\n")
		default:
			all.WriteString(bulk(texts[l.r.IntN(len(texts))]))
		}
	}
	return all.String()
}

// calls returns all calls that need Redis.
func calls(t *testing.T, p *worqr.Peer, q *worqr.Queue) (all []method) {
	for i, m := range methods(t, &worqr.Task{}) {
		all = append(all, method{m.name, func(ctx context.Context) {
			tasks, _ := q.StartTasks(ctx, 3)
			for _, task := range tasks {
				methods(t, task)[i].call(ctx)
			}
		}})
	}
	return slices.DeleteFunc(slices.Concat(methods(t, p), methods(t, q), all), func(m method) bool {
		return slices.Contains([]string{"Peer.Run", "Peer.Shutdown", "Peer.Close", "Queue.Handle", "Queue.HandleBatch", "Peer.Use"}, m.name)
	})
}

// Whatever a server replies, a peer doesn't panic, and no call takes longer than its context,
// whether the peer is working or not.
func TestGuessers(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		door := sure(server.NewServer("127.0.0.1:0"))(t)
		defer door.Close()
		l := guesser{rand.New(rand.NewPCG(seed, 0))}
		var mu sync.Mutex // handles one command at a time
		door.SetPreHook(func(c *server.Peer, name string, args ...string) bool {
			mu.Lock()
			defer mu.Unlock()
			c.WriteRaw(l.answer(name, args))
			return true
		})
		r := rand.New(rand.NewPCG(seed, 1<<63))
		p := sure(worqr.Open("redis://"+door.Addr().String(), &worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}))(t)
		defer p.Close() //nolint:errcheck // whatever the guesser says
		q := p.Queue("q")
		all := calls(t, p, q)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, m := range append([]method{
			{"Peer.StartWorker", func(ctx context.Context) { _ = p.StartWorker(ctx) }},
			{"Queue.StartWork", func(ctx context.Context) { _ = q.StartWork(ctx) }},
		}, all...) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			began := time.Now()
			m.call(ctx)
			cancel()
			if took := time.Since(began); took > 20*time.Second { // of a context of 50 ms
				t.Errorf("%s took %v", m.name, took)
			}
		}
	})
}
