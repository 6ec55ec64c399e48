package store

import (
	"context"
	"fmt"
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

// A queue that doesn't use the schedule doesn't pay for it, and few commands serve many tasks.
func TestPlainCost(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	e := newEnv(t, url, nil)
	e.must(nil, e.ear.Unsubscribe())
	common := "time 1, exists 1, " + // which keys exist
		"zscore 1, hget 1, get 1, hset 1, set 1, zadd 2, zrem 2, zcard 1, llen 1, " + // the worker, its round, the token, the idle workers
		"zmscore 1, rpop 1, publish 1, " // the first finish
	for _, c := range []struct {
		tasks int
		calls string
	}{
		{1, common + "rpoplpush 1"},
		{23, strings.Replace(common, "zrem 2", "zrem 3", 1) + "del 1, rpoplpush 23"},
		{24, strings.NewReplacer("zrem 2", "zrem 4", "zadd 2", "zadd 3").Replace(common) + "del 1, rpoplpush 24"}, // and a skip list
	} {
		e.must(e.conn.Do("FLUSHALL"))
		e.seed(member.with("queues", "["+strings.Join(seq("t", 0, 3*c.tasks), " ")+"]", "ages", "(drift=drift:0 -1m=1)"))
		first := Round{Number: 2, Idle: true, Start: seq("p", 0, c.tasks)}
		a := e.round(first)
		second := Round{Number: 3, Idle: true, Start: seq("q", 0, c.tasks)}
		for i, s := range a.Started {
			second.Outcomes = append(second.Outcomes, &Outcome{Process: first.Start[i], Token: s.Token, Plain: true, Verb: Finish})
		}
		e.must(e.conn.Do("CONFIG", "RESETSTAT"))
		a = e.round(second)
		if len(a.Started) != c.tasks || slices.ContainsFunc(a.Settled, func(s Settled) bool { return s != OK }) {
			t.Fatal(a)
		}
		calls := e.calls()
		want := strings.Split(c.calls, ", ")
		if !slices.Equal(calls, slices.Sorted(slices.Values(want))) {
			t.Errorf("a round of %d tasks made the calls\n%v\nwant\n%v", c.tasks, calls, want)
		}
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

// While no more tasks have failed than are kept, no failed task is read.
func TestFailCost(t *testing.T) {
	t.Parallel()
	e := newEnv(t, redistest.Start(t).URL(), nil)
	for keep := 4; keep <= 5; keep++ {
		e.must(e.conn.Do("FLUSHALL"))
		e.seed(rawP.merged(state{"failed:schedule": "(k:g1=-9m k:g2=-8m k:g3=-7m)"}))
		e.must(e.conn.Do("CONFIG", "RESETSTAT"))
		fail := Outcome{Process: "p1", Token: 1, Verb: Fail, Kind: Failed}
		a := e.round(Round{Number: 2, Keep: keep, Outcomes: []*Outcome{&fail}})
		calls := e.calls()
		if a.Settled[0] != OK || slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "zrangebyscore ") }) {
			t.Errorf("to fail one of four and to keep %d made the calls\n%v\n%v", keep, calls, a)
		}
	}
}

// telling makes a script count the bytes that it encodes for observers, and those that it hashes, in
// a hash next to the queue.
const telling = `local redis, cjson = (function(plain, json)
  local function count(what, s)
    if type(s) == 'string' then
      plain.call('HINCRBY', string.gsub(KEYS[1], ':queues:', ':once:') .. ':told', what, #s)
    end
  end
  return setmetatable({
    sha1hex = function(s)
      count('hashed', s)
      return plain.sha1hex(s)
    end,
  }, { __index = plain }), {
    encode = function(event)
      count('encoded', event.task)
      count('encoded', event.result)
      return json.encode(event)
    end,
  }
end)(redis, cjson)
`

// If no observer receives the events of finished tasks, their payloads and results are neither
// encoded nor hashed. Up to 1,024 bytes, encoding is as cheap as asking whether there are observers.
func TestNothingIsToldToNobody(t *testing.T) {
	server := redistest.Start(t) // which runs unmodified scripts
	rewrite(t, func(source string) string { return telling + source })
	for _, c := range []struct {
		payload, result int
		alone, observed string // bytes encoded and hashed
	}{
		{payload: 10, alone: "10 0", observed: "10 0"},
		{payload: 1024, alone: "1024 0", observed: "1024 0"},
		{payload: 1025, alone: "0 0", observed: "1025 0"},
		{payload: 16 << 10, alone: "0 0", observed: "16384 0"},
		{payload: Large, alone: "0 0", observed: "65536 0"},
		{payload: Large + 1, alone: "0 0", observed: "0 0"},
		{payload: 10, result: 1024, alone: "1034 0", observed: "1034 0"},
		{payload: 10, result: 1025, alone: "10 0", observed: "1035 0"},
		{payload: 1025, result: Large, alone: "0 0", observed: "66561 0"},
	} {
		for observed, want := range map[bool]string{false: c.alone, true: c.observed} {
			t.Run(fmt.Sprintf("%d and %d, observed %t", c.payload, c.result, observed), func(t *testing.T) {
				e := newEnv(t, server.URL(), nil)
				if !observed {
					e.unhear()
				}
				payload := strings.Repeat("x", c.payload)
				e.seed(rawP.with("process:p1", "["+payload+"]"))
				o := Outcome{Process: "p1", Token: 1, Verb: Finish, Plain: true, Size: c.payload, Digest: digest(payload)}
				if c.result > 0 {
					o.Result = []byte(strings.Repeat("r", c.result))
				}
				a := e.round(Round{Number: 2, Outcomes: []*Outcome{&o}})
				if a.Settled[0] != OK || a.Heard != observed {
					t.Fatal(a)
				}
				bytes := sure(redis.IntMap(e.conn.Do("HGETALL", e.q.Once("told"))))(e.t)
				if got := fmt.Sprintf("%d %d", bytes["encoded"], bytes["hashed"]); got != want {
					t.Errorf("%s bytes were encoded and hashed, want %s", got, want)
				}
			})
		}
	}
}
