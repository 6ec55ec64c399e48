package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// telling has a script add up the bytes that it encodes for observers and those that it hashes,
// in a hash beside the queue.
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

// If no observer gets the events of finished tasks, nothing of their payloads and results is
// encoded, and nothing hashed. Up to 1,024 bytes encoding is as cheap as asking.
func TestNothingIsToldToNobody(t *testing.T) {
	server := redistest.Start(t) // which runs scripts as they are
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
