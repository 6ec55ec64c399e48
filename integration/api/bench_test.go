package api

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// BenchmarkVerbs times each verb by itself, one call after the other. What a fleet costs is
// measured by the module bench.
func BenchmarkVerbs(b *testing.B) {
	start := func(end func(context.Context, *worqr.Task) error) func(context.Context, *worqr.Queue, []byte) error {
		return func(ctx context.Context, q *worqr.Queue, payload []byte) error {
			if err := q.Enqueue(ctx, payload); err != nil {
				return err
			}
			task, err := q.StartTask(ctx)
			if err != nil {
				return err
			}
			return end(ctx, task)
		}
	}
	for name, call := range map[string]func(ctx context.Context, q *worqr.Queue, payload []byte) error{
		"Enqueue": func(ctx context.Context, q *worqr.Queue, payload []byte) error { return q.Enqueue(ctx, payload) },
		"EnqueueOnce": func(ctx context.Context, q *worqr.Queue, payload []byte) error {
			return failure(q.EnqueueOnce(ctx, string(payload), payload))
		},
		"EnqueueUnique": func(ctx context.Context, q *worqr.Queue, payload []byte) error {
			return q.EnqueueUnique(ctx, payload)
		},
		"Put": func(ctx context.Context, q *worqr.Queue, payload []byte) error {
			return q.Put(ctx, string(payload), payload, nil)
		},
		"Cancel": func(ctx context.Context, q *worqr.Queue, payload []byte) error {
			return failure(q.Cancel(ctx, payload))
		},
		"Finish": start(func(ctx context.Context, t *worqr.Task) error { return t.Finish(ctx) }),
		"Retry":  start(func(ctx context.Context, t *worqr.Task) error { return t.Retry(ctx, time.Hour) }),
	} {
		b.Run(name, func(b *testing.B) {
			q := working(b, open(b, worqr.Options{}), "q")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must(b, call(b.Context(), q, fmt.Appendf(nil, "%-100d", i)))
			}
		})
	}
}

// BenchmarkHandlers times a task that is handled, from the call of Run.
func BenchmarkHandlers(b *testing.B) {
	for _, n := range []int{1, 10, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p, q := openQueue(b, worqr.Options{})
			for left := b.N; left > 0; left -= 1000 {
				enqueue(b, q, numbers("", min(left, 1000))...)
			}
			q.Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{Concurrency: n})
			b.ReportAllocs()
			b.ResetTimer()
			run(b, p)
			for p.Stats().Finished < int64(b.N) {
				time.Sleep(100 * time.Microsecond) // between two looks
			}
		})
	}
}
