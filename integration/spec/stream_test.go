package spec

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// streamCommand draws a command on a stream, whose ids are few.
func streamCommand(r *rand.Rand) []any {
	id := func() string {
		word := strconv.Itoa(r.IntN(7))
		if r.IntN(3) > 0 {
			word += "-" + strconv.Itoa(r.IntN(4))
		}
		return word
	}
	limit := func(all string) string { return []string{id(), id(), "(" + id(), all}[r.IntN(4)] }
	key := []string{"streams:a", "streams:a", "streams:b", "streams:text"}[r.IntN(4)]
	switch r.IntN(20) {
	case 0:
		return []any{"DEL", "streams:a"}
	case 1:
		return []any{"TYPE", key}
	case 2:
		return []any{"XLEN", key}
	case 3:
		return []any{"EXISTS", key}
	case 4, 5, 6, 7:
		return []any{"XDEL", key, id(), id()}
	case 8, 9, 10:
		return []any{"XRANGE", key, limit("-"), limit("+")}
	case 11, 12:
		return []any{"XRANGE", key, "-", "+", "COUNT", 1 + r.IntN(3)}
	case 13:
		return []any{"XREVRANGE", key, limit("+"), limit("-"), "COUNT", 1 + r.IntN(3)}
	case 14:
		return []any{"XINFO", "STREAM", key}
	case 15:
		return []any{"XADD", key, "x-1", "name", "value"}
	}
	return []any{"XADD", key, id(), "name", strconv.Itoa(r.IntN(100)), "b", ""}
}

// told is what a server answers, of XINFO only what the store knows.
func told(c redis.Conn, command []any) any {
	reply := Reply(c.Do(command[0].(string), command[1:]...))
	if all, ok := reply.([]any); ok && command[0] == "XINFO" {
		var few []any
		for pair := range slices.Chunk(all, 2) {
			if slices.Contains([]any{"length", "last-generated-id"}, pair[0]) {
				few = append(few, pair...)
			}
		}
		return few
	}
	return reply
}

// TestStreamCommands compares the commands of streams with those of Redis.
func TestStreamCommands(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	real, ours := redistest.Conn(t), redistest.Dial(t, serve(t).URL())
	seen := map[string]int{}
	for _, c := range []redis.Conn{real, ours} {
		_, err := c.Do("SET", "streams:text", "x")
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 {
		command := streamCommand(r)
		want, got := told(real, command), told(ours, command)
		if Show(want) != Show(got) {
			t.Fatalf("seed %d, command %d: %v: Redis %s, the specification %s", seed, i, command, Show(want), Show(got))
		}
		seen[Show(want)]++
	}
	for _, must := range []Refusal{noID, smallID, zeroID, lostKey, wrongType} {
		if seen[Show(must)] == 0 {
			t.Errorf("nothing was refused with %q", must)
		}
	}
	loaded := New()
	if err := loaded.Load(real, "streams"); err != nil {
		t.Fatal(err)
	}
	again := New()
	for _, key := range loaded.Keys() {
		again.Set(key, loaded.Get(key))
	}
	if d := append(loaded.Diff(again), loaded.Clone().Diff(again)...); len(d) > 0 {
		t.Error(d)
	}
	if _, err := real.Do("DEL", "streams:text", "streams:a", "streams:b"); err != nil {
		t.Fatal(err)
	}
}

// TestStreamClock has the server choose ids: they are above all that it ever gave.
func TestStreamClock(t *testing.T) {
	for name, url := range map[string]string{"Redis": redistest.URL(), "miniredis": "redis://" + miniredis.RunT(t).Addr(), "the specification": serve(t).URL()} {
		c := redistest.Dial(t, url)
		var last streamID
		for i := range 50 {
			word, err := redis.String(c.Do("XADD", "streams:clock", "*", "name", i))
			if err != nil {
				t.Fatal(name, err)
			}
			id := streamIDOf(word, 0)
			if id.compare(last) <= 0 {
				t.Fatalf("%s: %s after %s", name, id, last)
			}
			last = id
			if i%2 == 0 && name != "miniredis" { // which only knows the items that are left
				if _, err := c.Do("XDEL", "streams:clock", word); err != nil {
					t.Fatal(name, err)
				}
			}
		}
		if n, err := redis.Int(c.Do("DEL", "streams:clock")); n != 1 {
			t.Error(name, n, err)
		}
	}
}
