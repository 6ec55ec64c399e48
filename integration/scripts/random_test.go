package scripts_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	sequences = flag.Int("sequences", 100, "how many sequences of calls TestRandom makes")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first")
)

// TestRandom makes random calls, among them those of other programs. The specification must give the same answers, and
// change the same keys.
func TestRandom(t *testing.T) {
	b, said := newBench(t), map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*sequences); seed++ {
		b.clear()
		d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0)), bench: b, hostile: seed%2 == 0}
		var made []drawn
		for range 60 {
			c := d.draw()
			made = append(made, c)
			answer, wrong := b.make(c)
			if wrong == "" {
				verb, _, _ := strings.Cut(c.words, " ")
				said[verb+map[bool]string{true: " refused"}[answer[0] == '!']]++
				continue
			}
			made, wrong = b.shrink(made, wrong)
			for _, c := range made {
				t.Logf("  at %d: %s", c.now, c.words)
			}
			t.Fatalf("seed %d, -run TestRandom -seed=%d -sequences=1\n%s", seed, seed, wrong)
		}
	}
	t.Log(said)
}

// A drawn call is words as in a scenario, and the same call of the specification; without one, it's only made.
type drawn struct {
	now   int64
	words string
	of    func(q *spec.Queue) (any, error)
}

// A bench is a queue whose clock stands still, and what Redis holds of it.
type bench struct {
	*queue
	held spec.Queue
}

// edits make a script read a clock of the test, have small pages, and say nothing of the history, which the specification
// doesn't have.
var edits = strings.NewReplacer(
	"redis.call('TIME')", "{ math.floor(redis.call('GET', KEYS[2]) / 1000), redis.call('GET', KEYS[2]) % 1000 * 1000 }",
	"asks = asks + 4", "asks = asks", "local AT_ONCE = 100 ", "local AT_ONCE = 3 ", "page(10000, ", "page(3, ", "page(100, ", "page(3, ", "local PAGE = 500\n", "local PAGE = 1\n",
)

var small = &spec.Limits{Return: 3, Copies: 3, Mark: 1}

func newBench(t testing.TB) *bench {
	b := &bench{queue: newQueue(t, redistest.URL())}
	b.edit, b.quiet = edits.Replace, true
	ear := redis.PubSubConn{Conn: redistest.Dial(t, redistest.URL())}
	redistest.Must(t, ear.Subscribe("worqr_"+b.name+"_wake:a", "worqr:failed_"+b.name+"_wake:a"))
	ear.Receive()
	ear.Receive()
	b.clear()
	return b
}

// clear deletes the queue.
func (b *bench) clear() {
	redistest.Sure(b.conn.Do("EVAL", "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end", 0, "worqr:*"+b.name+"*"))(b)
	b.held = b.load()
}

// make makes a call. It returns the answer, and how Redis and the specification differ.
func (b *bench) make(c drawn) (answer, wrong string) {
	b.Helper()
	redistest.Sure(b.conn.Do("MSET", b.key("none"), c.now, b.key("failed.none"), c.now))(b)
	want, failed := b.held, *b.held.Failed
	want.Failed, want.Now, failed.Now = &failed, c.now, c.now
	want.Hears = func(worker string) bool { return worker == "a" }
	failed.Hears = want.Hears
	answer = b.do(c.words)
	redistest.Sure(b.conn.Do("DEL", b.key("none"), b.key("failed.none")))(b)
	b.held = b.load()
	if c.of == nil {
		return answer, ""
	}
	q := &want
	if strings.HasPrefix(c.words, "failed.") {
		q = want.Failed
	}
	if said := b.show(c.of(q)); said != answer {
		return answer, fmt.Sprintf("Redis answers %s\nthe specification: %s", answer, said)
	}
	return answer, differ(b.held.Lines(), want.Lines())
}

// differ returns what only Redis or only the specification holds.
func differ(is, should []string) (diff string) {
	for _, l := range is {
		if !slices.Contains(should, l) {
			diff += "only in Redis: " + l + "\n"
		}
	}
	for _, l := range should {
		if !slices.Contains(is, l) {
			diff += "only in the specification: " + l + "\n"
		}
	}
	return diff
}

// shrink drops calls without which Redis and the specification still differ.
func (b *bench) shrink(made []drawn, wrong string) ([]drawn, string) {
	for i := len(made) - 2; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(made), i, i+1)
		b.clear()
		for n, c := range fewer {
			if _, w := b.make(c); w != "" {
				made, wrong = fewer[:n+1], w
				i = min(i, n)
				break
			}
		}
	}
	return made, wrong
}

// dump returns all keys of a pattern, with their types and what they hold.
const dump = `
local all = {}
local READ = { list = { 'LRANGE', 0, -1 }, zset = { 'ZRANGE', 0, -1, 'WITHSCORES' }, hash = { 'HGETALL' }, string = { 'GET' } }
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local command = READ[kind]
  local held = redis.call(command[1], key, unpack(command, 2))
  all[#all + 1] = { key, kind, type(held) == 'table' and held or { held } }
end
return all`

// load reads what Redis holds of a queue and of its failed queue.
func (b *bench) load() spec.Queue {
	var q, failed spec.Queue
	q.Failed, q.Limits, failed.Limits = &failed, small, small
	for _, one := range redistest.Sure(redis.Values(b.conn.Do("EVAL", dump, 0, "worqr:*"+b.name+"*")))(b) {
		parts := one.([]any)
		key, has, held := string(parts[0].([]byte)), string(parts[1].([]byte)), redistest.Sure(redis.Strings(parts[2], nil))(b)
		of, rest := &q, strings.TrimPrefix(key, "worqr:")
		if inFailed, is := strings.CutPrefix(rest, "failed:"); is {
			of, rest = &failed, inFailed
		}
		kind, suffix, _ := strings.Cut(rest, ":"+b.name)
		loadKey(of, kind, strings.TrimPrefix(suffix, ":"), has, held)
	}
	return q
}

// loadKey puts a key into a queue.
func loadKey(q *spec.Queue, kind, suffix, has string, held []string) {
	value := q.Kinds()[kind]
	list, isList := value.(*spec.List)
	hash, isHash := value.(*spec.Hash)
	set, isSet := value.(*spec.Set)
	switch {
	case kind == "ages" || kind == "once" || kind == "none" || kind == "result":
	case kind == "process" && has == "list":
		q.Process.Put(suffix, held[0])
	case kind == "working" && has == "zset":
		q.Working.Put(suffix, setOf(held))
	case kind == "canceled":
		q.Canceled.Put(suffix, held[0])
	case isList && has == "list":
		*list = held
	case isHash && has == "hash":
		for i := 0; i < len(held); i += 2 {
			hash.Put(held[i], held[i+1])
		}
	case isSet && has == "zset":
		*set = setOf(held)
	default:
		panic("a key of the wrong type: " + kind)
	}
}

func setOf(held []string) (s spec.Set) {
	for i := 0; i < len(held); i += 2 {
		score, _ := strconv.ParseFloat(held[i+1], 64)
		s.Put(held[i], int64(score))
	}
	return s
}
