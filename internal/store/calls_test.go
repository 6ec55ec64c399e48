package store

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// calls returns how often each command was called since CONFIG RESETSTAT. The test needs its own
// server.
func (e *env) calls() (all []string) {
	e.t.Helper()
	stats := sure(redis.String(e.conn.Do("INFO", "commandstats")))(e.t)
	for _, m := range regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		if m[1] != "config|resetstat" && m[1] != "evalsha" {
			all = append(all, m[1]+" "+m[2])
		}
	}
	slices.Sort(all)
	return all
}

// A meter is a Runner that records the highest cost of one call: in commands, whose number doesn't
// depend on the machine, and in time. The test needs its own server.
type meter struct {
	Runner
	e        *env
	calls    int
	commands int
	took     time.Duration
}

func (m *meter) One(ctx context.Context, c redisconn.Call) (any, error) {
	m.e.must(m.e.conn.Do("CONFIG", "RESETSTAT"))
	m.e.must(m.e.conn.Do("SLOWLOG", "RESET"))
	v, err := m.Runner.One(ctx, c)
	m.calls++
	commands := 0
	for _, calls := range m.e.calls() {
		_, n, _ := strings.Cut(calls, " ")
		number, err := strconv.Atoi(n)
		m.e.must(number, err)
		commands += number
	}
	m.commands, m.took = max(m.commands, commands), max(m.took, m.e.longest())
	return v, err
}

// A fake is a Runner that invents its replies.
type fake func(calls []redisconn.Call) []redisconn.Reply

func (f fake) Do(_ context.Context, calls ...redisconn.Call) []redisconn.Reply { return f(calls) }

func (f fake) One(_ context.Context, c redisconn.Call) (any, error) {
	reply := f([]redisconn.Call{c})[0]
	return reply.Value, reply.Err
}

// answers returns a fake that gives the same replies to each Do.
func answers(values ...any) fake {
	return func(calls []redisconn.Call) (all []redisconn.Reply) {
		for i := range calls {
			all = append(all, redisconn.Reply{Value: values[i]})
		}
		return all
	}
}

// A hooked is a Runner that calls functions before and after each call. The first call is 1.
type hooked struct {
	Runner
	before, after func(call int) // nil: nothing
	calls         int
}

func (h *hooked) One(ctx context.Context, c redisconn.Call) (v any, err error) {
	h.around(func() { v, err = h.Runner.One(ctx, c) })
	return v, err
}

func (h *hooked) Do(ctx context.Context, calls ...redisconn.Call) (replies []redisconn.Reply) {
	h.around(func() { replies = h.Runner.Do(ctx, calls...) })
	return replies
}

func (h *hooked) around(call func()) {
	h.calls++
	if h.before != nil {
		h.before(h.calls)
	}
	call()
	if h.after != nil {
		h.after(h.calls)
	}
}

// Finding a task that a worker holds takes the same time however many it holds.
func TestHeldIsSkipList(t *testing.T) {
	t.Parallel()
	e := newEnv(t, redistest.Start(t).URL(), nil)
	for _, c := range []struct {
		tasks    int
		encoding string
	}{{23, "listpack"}, {24, "skiplist"}} {
		e.must(e.conn.Do("FLUSHALL"))
		e.seed(member.with("queues", "["+strings.Join(seq("t", 0, 100), " ")+"]"))
		r := Round{Number: 2, Idle: true, Start: seq("p", 0, c.tasks)}
		e.round(r)
		held, err := redis.Strings(e.conn.Do("ZRANGE", e.q.Working("w1"), 0, -1))
		if err != nil || !slices.Equal(held, r.Start) {
			t.Fatal(held, err)
		}
		encoding, err := redis.String(e.conn.Do("OBJECT", "ENCODING", e.q.Working("w1")))
		if err != nil || encoding != c.encoding {
			t.Errorf("what a worker holds of %d tasks is a %s (%v), want a %s", c.tasks, encoding, err, c.encoding)
		}
	}
}
