package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// How long a caller waits for one call, on a queue that nobody serves.
func BenchmarkWays(b *testing.B) {
	f := benchAt(b, is.New(b), redistest.URL(), redistest.Prefix(b))
	p, ctx, one := f.producer(), b.Context(), make([]byte, 100)
	n := 0
	named := func(count int, rule Rule) []Task {
		tasks := make([]Task, count)
		for i := range tasks {
			n++
			tasks[i] = Task{Name: NameOf(fmt.Sprint(n)), Rule: Always, Record: Record{Payload: one, Metadata: Metadata{Headers: map[string]string{"name": "value"}}}}
			if rule == Unique {
				tasks[i].Rule, tasks[i].Name = Unique, UniqueName(fmt.Append(nil, n))
			}
		}
		return tasks
	}
	add := func(tasks []Task) error {
		_, _, err := p.Add(ctx, f.target(), tasks)
		return err
	}
	for _, way := range []struct {
		name string
		call func() error
	}{
		{"enqueue", func() error { return p.Enqueue(ctx, f.target(), [][]byte{one}) }},
		{"enqueue100", func() error { return p.Enqueue(ctx, f.target(), make([][]byte, 100)) }},
		{"add", func() error { return add(named(1, Always)) }},
		{"add100", func() error { return add(named(100, Always)) }},
		{"unique", func() error { return add(named(1, Unique)) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				redistest.Must(b, way.call())
			}
			b.StopTimer()
			redistest.Do(b, f.conn, "UNLINK", f.key("queues"), f.key("tasks"), f.key("ready"))
		})
	}
}

// A waiting named task of 100 bytes with one header takes at most 380 bytes, and a raw one 108, as Redis
// counts them. With a memory allocator that has no size between 16 and 32 bytes, as Debian's, a named one
// takes 16 more.
func TestBytesOfATask(t *testing.T) {
	b := newBench(t)
	const n = 100_000
	payload := func(i int) string { return fmt.Sprintf("%0100d", i) }
	for some := range slices.Chunk(numbers(n), MaxTasks) {
		var raw []string
		var named []Task
		for i, number := range some {
			raw = append(raw, payload(i))
			one := task("0198c0de-0000-7000-8000-00000"+number, payload(i))
			one.Record.Metadata.Headers = map[string]string{"name": "value"}
			named = append(named, one)
		}
		b.enqueue(raw...)
		b.add(named...)
	}
	each := func(kind string) int {
		return redistest.Sure(redis.Int(b.conn.Do("MEMORY", "USAGE", b.key(kind), "SAMPLES", 0)))(t) / n
	}
	raw, named := each("queues"), each("tasks")+each("ready")
	t.Logf("raw: %d bytes, named: %d", raw, named)
	b.is.True(raw <= 108)
	b.is.True(named <= 380)
}
