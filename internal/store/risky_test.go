package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// counting makes a script count the bytes of payloads that it hashes, and of those that it
// reads, in a hash next to the queue.
const counting = `local redis = (function(plain)
  local function count(what, s)
    if type(s) == 'string' and #s > 1024 then
      plain.call('HINCRBY', string.gsub(KEYS[1], ':%a+:({.*}).*$', ':once:%1') .. ':counted', what, #s)
    end
  end
  local function counted(reply)
    count('read', reply)
    for _, s in ipairs(type(reply) == 'table' and reply or {}) do
      count('read', s)
    end
    return reply
  end
  return setmetatable({
    sha1hex = function(s)
      count('hashed', s)
      return plain.sha1hex(s)
    end,
    call = function(...) return counted(plain.call(...)) end,
    pcall = function(...) return counted(plain.pcall(...)) end,
  }, { __index = plain })
end)(redis)
`

// counted returns how many bytes of payloads the scripts have hashed and read since the last
// call of counted.
func (e *env) counted() (hashed, read int) {
	e.t.Helper()
	key := e.q.Once("counted")
	bytes := sure(redis.IntMap(e.conn.Do("HGETALL", key)))(e.t)
	e.must(e.conn.Do("DEL", key))
	return bytes["hashed"], bytes["read"]
}

// Whatever their size, skipping tasks that are left to other workers takes no more than the budget,
// and doesn't read them again.
func TestRiskyBytes(t *testing.T) {
	// The test doesn't run beside others: they wait until it ends.
	rewrite(t, func(source string) string { return counting + source })
	for _, size := range []int{32 << 10, 100 << 10} {
		e := newEnv(t, redistest.Start(t).URL(), nil)
		e.seed(member)
		const n, budget = 60, 1500
		for i := range n {
			p := fmt.Sprint(i) + strings.Repeat("x", size)
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), p))
			e.must(e.conn.Do("HSET", e.q.Ledger(), digest(p), 2))
		}
		// The last payload read and hashed may exceed the budget.
		most := budget*400 + 2*(size+1024)
		round := Round{Crashes: 3, Keep: 10, Budget: budget}
		// rounds makes rounds until one finds nothing more to look at. Each may read at most that many
		// bytes.
		rounds := func(what string, most int) {
			t.Helper()
			for again := true; again; {
				if round.Number++; round.Number > 500 {
					t.Fatalf("%s: there is no end", what)
				}
				round.Start = []string{fmt.Sprint("p", round.Number)}
				a := e.round(round)
				if len(a.Started) > 0 {
					t.Fatal(a)
				}
				hashed, read := e.counted()
				if bytes := hashed + read; bytes > most {
					t.Errorf("%s: a round has read and hashed %d bytes of payloads of %d, want %d at most", what, bytes, size, most)
				}
				if a.Passed != nil {
					round.Passed = *a.Passed
				}
				again = a.Again
			}
		}
		rounds("from the list", most)
		if waiting, apart := e.count("LLEN", "queues"), e.count("ZCARD", "schedule"); waiting != 0 || apart != n {
			t.Fatal(waiting, apart)
		}
		rounds("again", 0)
		round.Passed = Passed{}
		rounds("from the head", 0)
		all := e.must(e.conn.Do("ZRANGE", e.q.Schedule(), 0, -1)).([]any)
		for _, entry := range all {
			e.must(e.conn.Do("HDEL", e.q.Keyed(string(entry.([]byte))), "digest"))
		}
		round.Passed = Passed{}
		rounds("whose digests are not known", most)
		if round.Passed.Count != n {
			t.Error(round.Passed)
		}
		rounds("that are known to be left", 0)
	}
}
