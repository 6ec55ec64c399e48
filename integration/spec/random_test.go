package spec

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	sequences = flag.Int("sequences", 150, "number of sequences of TestRandom")
	firstSeed = flag.Uint64("seed", 1, "seed of the first sequence")
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// TestRandom sends random requests to Redis. The specification must give the same answer, and change the data in
// the same way.
func TestRandom(t *testing.T) {
	b := newBench(t)
	steps, refused, drawn := 0, 0, map[string]bool{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*sequences); seed++ {
		d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0)), now: 1_000_000_000, large: seed%8 == 0}
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
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		if *sequences >= 100 && !drawn[v] {
			t.Errorf("%s is never drawn", v)
		}
	}
	t.Logf("%d sequences, %d requests, %d of them refused", *sequences, steps, refused)
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

// A bench is the Redis of the test.
type bench struct {
	conn    redis.Conn
	scene   scene  // after the last request
	held    *Store // the same data
	refused bool   // the last request was refused
}

const prefix = "random"

var (
	queue_  = keys.NewSpace(prefix).Queue("q")
	workers = []string{"w1", "w2", "w3"}
	// hears are the channels with a subscriber: the wake-ups of a worker.
	hears = queue_.Wake("w1")
)

func newBench(t *testing.T) *bench {
	t.Helper()
	ear := redis.PubSubConn{Conn: redistest.Dial(t, redistest.URL())}
	if err := ear.Subscribe(hears); err != nil {
		t.Fatal(err)
	}
	ear.Receive()
	go func() {
		for ear.Receive() != nil && ear.Conn.Err() == nil {
		}
	}()
	return &bench{conn: redistest.Dial(t, redistest.URL())}
}

func (b *bench) clear(t *testing.T) {
	t.Helper()
	b.scene, b.held = scene{}, New()
	for _, key := range redistest.Keys(t, b.conn, prefix) {
		if _, err := b.conn.Do("DEL", key); err != nil {
			t.Fatal(err)
		}
	}
}

// silent are the values of replies that the specification doesn't have: in a step, what a round has passed over and
// whether observers listen; in a beat, whether assertions of schedules have expired.
var silent = map[string][]int{"step": {15, 16}, "beat": {11}}

// make sends a request to Redis, and calls the specification of a script with the same data. It returns the
// differences.
func (b *bench) make(t *testing.T, r request) string {
	t.Helper()
	if r.now == 0 {
		_, err := b.conn.Do(r.verb, r.args...)
		b.look(t, err)
		return ""
	}
	specified := b.held.Clone()
	specified.Publish = func(channel, _ string) int { return bit(channel == hears) }
	said := specified.Call(r.verb, r.keys, texts(r.args), time.UnixMilli(r.now))

	args := []any{standStill(r.verb, r.now), len(r.keys)}
	for _, k := range r.keys {
		args = append(args, k)
	}
	v, err := b.conn.Do("EVAL", append(args, r.args...)...)
	b.look(t, err)
	for _, i := range silent[r.verb] {
		for _, reply := range []any{v, said} {
			if all, ok := reply.([]any); ok {
				all[i] = nil
			}
		}
	}
	if is, want := Show(Reply(v, err)), Show(said); is != want {
		return fmt.Sprintf("Redis answers %s\nthe specification: %s", is, want)
	}
	specified.del(queue_.Ages())
	if lines := b.held.Diff(specified); len(lines) > 0 {
		return "Redis holds, and not the specification:\n" + strings.Join(lines, "\n")
	}
	return ""
}

// look reads what Redis holds after a request, but for the ages.
func (b *bench) look(t *testing.T, err error) {
	t.Helper()
	b.refused, b.held = err != nil, New()
	if err := b.held.Load(b.conn, prefix); err != nil {
		t.Fatal(err)
	}
	b.scene = sceneOf(b.held)
	b.held.del(queue_.Ages())
}

// texts returns arguments as they are sent.
func texts(args []any) (all []string) {
	for _, a := range args {
		all = append(all, fmt.Sprint(a))
	}
	return all
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
