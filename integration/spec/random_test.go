package spec

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

var (
	sequences = flag.Int("sequences", 150, "number of sequences of TestRandom")
	firstSeed = flag.Uint64("seed", 1, "seed of the first sequence")
)

// TestRandom sends the same random requests to Redis, to miniredis and to the specification. After each of them
// all must have answered the same and hold the same data.
func TestRandom(t *testing.T) {
	b := newBench(t)
	steps, refused, drawn := 0, 0, map[string]bool{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*sequences); seed++ {
		// The Lua of miniredis can't parse times that end in many zeros.
		d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0)), now: 1_000_000_007, large: seed%8 == 0}
		b.clear(t)
		var made []request
		wrong := ""
		for range 40 {
			r := d.draw(&b.scene)
			made = append(made, r)
			drawn[r.verb] = true
			if wrong = b.make(t, r); wrong != "" {
				break
			}
			steps++
			refused += bit(b.refused)
		}
		if wrong == "" {
			continue
		}
		made, wrong = b.shrink(t, made, wrong)
		t.Fatalf("seed %d. To reproduce it: go test ./integration/spec -run TestRandom -seed=%d -sequences=1\n%s\n%s", seed, seed, lines(made), wrong)
	}
	for _, v := range store.Verbs() {
		if *sequences >= 100 && !drawn[v.Name] && !strings.Contains(registrations, v.Name) {
			t.Errorf("%s is never drawn", v.Name)
		}
	}
	t.Logf("%d sequences, %d requests, %d of them refused; check reported %d findings", *sequences, steps, refused, b.flaws)
}

// registrations aren't part of a queue: the tables test them.
const registrations = "register agree enlist unlist delist"

// TestVerbs compares the specification with the table of verbs.
func TestVerbs(t *testing.T) {
	var named []string
	for _, v := range store.Verbs() {
		named = append(named, v.Name)
	}
	slices.Sort(named)
	if known := slices.Sorted(maps.Keys(verbs)); !slices.Equal(known, named) {
		t.Errorf("the specification has\n%q, and the table\n%q", known, named)
	}
}

func lines(made []request) string {
	var b strings.Builder
	for _, r := range made {
		fmt.Fprintln(&b, " ", r)
	}
	return b.String()
}

// A request is a script at a time, or a plain command.
type request struct {
	verb string
	now  int64 // ms; 0 for a command
	keys []string
	args []any
}

func (r request) String() string {
	return strings.ReplaceAll(fmt.Sprintf("at %d: %s %v", r.now, r.verb, r.args), last[true], "large")
}

// A bench has the three stores; the first is Redis.
type bench struct {
	names   []string
	conns   []redis.Conn
	scene   scene // after the last request
	refused bool  // the last request was refused
	flaws   int   // that check has reported
}

const prefix = "random"

var (
	queue_  = keys.NewSpace(prefix).Queue("q")
	workers = []string{"w1", "w2", "w3"}
)

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{names: []string{"Redis", "miniredis", "the specification"}}
	for _, url := range []string{redistest.URL(), "redis://" + miniredis.RunT(t).Addr(), serve(t).URL()} {
		b.conns = append(b.conns, redistest.Dial(t, url))
		// One worker subscribes to its wake-ups, and an observer to the events.
		ear := redis.PubSubConn{Conn: redistest.Dial(t, url)}
		if err := ear.Subscribe(queue_.Wake("w1"), queue_.Channel(keys.KindDone)); err != nil {
			t.Fatal(err)
		}
		ear.Receive()
		ear.Receive()
		go func() {
			for ear.Receive() != nil && ear.Conn.Err() == nil {
			}
		}()
	}
	return b
}

func (b *bench) clear(t *testing.T) {
	t.Helper()
	b.scene = scene{}
	for _, c := range b.conns {
		for _, key := range redistest.Keys(t, c, prefix) {
			if _, err := c.Do("DEL", key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// make sends a request to all three, and returns the differences.
func (b *bench) make(t *testing.T, r request) string {
	t.Helper()
	name, args := r.verb, r.args
	if r.now > 0 {
		all := []any{standStill(t, r.verb, r.now), len(r.keys)}
		for _, k := range r.keys {
			all = append(all, k)
		}
		name, args = "EVAL", append(all, r.args...)
	}
	var first string
	var held *Store // of Redis
	for i, c := range b.conns {
		v, err := c.Do(name, args...)
		reply, holds := Show(Reply(v, err)), New()
		if err := holds.Load(c, prefix); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			b.scene = sceneOf(holds)
			first, held, b.refused = reply, holds, err != nil
			if told, ok := v.([]any); ok && name == "EVAL" && r.verb == "check" {
				b.flaws += len(told)
			}
			continue
		}
		if reply != first {
			return fmt.Sprintf("Redis answers %s\n%s answers %s", first, b.names[i], reply)
		}
		if lines := held.Diff(holds); len(lines) > 0 {
			return fmt.Sprintf("Redis holds, and not %s:\n%s", b.names[i], strings.Join(lines, "\n"))
		}
	}
	return ""
}

// shrink removes the requests without which they still differ.
func (b *bench) shrink(t *testing.T, made []request, wrong string) ([]request, string) {
	t.Helper()
	for i := len(made) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(made), i, i+1)
		b.clear(t)
		for n, r := range fewer {
			if w := b.make(t, r); w != "" {
				made, wrong = fewer[:n+1], w
				i = min(i, len(made))
				break
			}
		}
	}
	return made, wrong
}
