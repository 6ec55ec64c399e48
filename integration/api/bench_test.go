package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A timedVerb is a call to be timed, or a few that belong together.
type timedVerb struct {
	name string
	uses int // tasks that must wait for each call
	call func(ctx context.Context, q *worqr.Queue, i int) error
}

var timedVerbs = []timedVerb{
	{"Enqueue", 0, func(ctx context.Context, q *worqr.Queue, i int) error { return q.Enqueue(ctx, load(i, 1)...) }},
	{"Enqueue100", 0, func(ctx context.Context, q *worqr.Queue, i int) error {
		return q.Enqueue(ctx, load(100*i, 100)...)
	}},
	{"EnqueueOnce", 0, func(ctx context.Context, q *worqr.Queue, i int) error {
		_, err := q.EnqueueOnce(ctx, strconv.Itoa(i), load(i, 1)...)
		return err
	}},
	{"EnqueueUnique", 0, func(ctx context.Context, q *worqr.Queue, i int) error {
		return q.EnqueueUnique(ctx, load(i, 1)[0])
	}},
	{"Put", 0, func(ctx context.Context, q *worqr.Queue, i int) error {
		return q.Put(ctx, strconv.Itoa(i), load(i, 1)[0], nil)
	}},
	{"EnqueueCancel", 0, func(ctx context.Context, q *worqr.Queue, i int) error {
		if err := q.Enqueue(ctx, load(i, 1)...); err != nil {
			return err
		}
		_, err := q.Cancel(ctx, load(i, 1)[0])
		return err
	}},
	{"StartFinish", 1, func(ctx context.Context, q *worqr.Queue, _ int) error {
		return end(ctx, q, 1, (*worqr.Task).Finish)
	}},
	{"StartFinish100", 100, func(ctx context.Context, q *worqr.Queue, _ int) error {
		return end(ctx, q, 100, (*worqr.Task).Finish)
	}},
	{"StartStop", 1, func(ctx context.Context, q *worqr.Queue, _ int) error {
		return end(ctx, q, 1, (*worqr.Task).Stop)
	}},
	{"StartRetry", 1, func(ctx context.Context, q *worqr.Queue, _ int) error {
		return end(ctx, q, 1, func(t *worqr.Task, ctx context.Context) error { return t.Retry(ctx, time.Hour) })
	}},
}

// end starts n tasks and ends them at the same time.
func end(ctx context.Context, q *worqr.Queue, n int, how func(*worqr.Task, context.Context) error) error {
	tasks, err := q.StartTasks(ctx, n)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make(chan error, len(tasks))
	for _, t := range tasks {
		all.Go(func() { errs <- how(t, ctx) })
	}
	all.Wait()
	for range tasks {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// load returns n payloads of 100 bytes, no two of them equal.
func load(first, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Appendf(nil, "%-100d", first+i)
	}
	return all
}

// BenchmarkVerbs times each verb by itself, one call after the other. "redis-µs"
// is processor time of Redis.
func BenchmarkVerbs(b *testing.B) {
	for _, v := range timedVerbs {
		b.Run(v.name, func(b *testing.B) {
			q := working(b, open(b, worqr.Options{}), "q")
			fill(b, q, v.uses*b.N)
			timed(b, func() {
				for i := range b.N {
					must(b, v.call(b.Context(), q, i))
				}
			})
		})
	}
}

// BenchmarkEnqueueParallel has 32 callers for each processor.
func BenchmarkEnqueueParallel(b *testing.B) {
	q := open(b, worqr.Options{}).Queue("q")
	payload := load(0, 1)
	b.SetParallelism(32)
	timed(b, func() {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := q.Enqueue(b.Context(), payload...); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkHandlers times a task that is handled, from the call of Run.
func BenchmarkHandlers(b *testing.B) {
	for _, n := range []int{1, 10, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := open(b, worqr.Options{})
			q := p.Queue("q")
			fill(b, q, b.N)
			q.Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{Concurrency: n})
			timed(b, func() {
				run(b, p)
				for p.Stats().Finished < int64(b.N) {
					time.Sleep(100 * time.Microsecond) // between two looks
				}
			})
		})
	}
}

// fill has n tasks wait.
func fill(b *testing.B, q *worqr.Queue, n int) {
	for done := 0; done < n; done += 1000 {
		must(b, q.Enqueue(b.Context(), load(done, min(1000, n-done))...))
	}
}

// timed makes do, and nothing else, what is measured.
func timed(b *testing.B, do func()) {
	conn := redistest.Conn(b)
	b.ReportAllocs()
	b.ResetTimer()
	before := redisMicros(b, conn)
	do()
	used := redisMicros(b, conn) - before
	b.StopTimer()
	b.ReportMetric(used/float64(b.N), "redis-µs/op")
}

// redisMicros is the processor time that Redis has used.
func redisMicros(b *testing.B, conn redis.Conn) (sum float64) {
	info := sure(redis.String(conn.Do("INFO", "cpu")))(b)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if slices.Contains([]string{"used_cpu_user", "used_cpu_sys"}, name) {
			seconds := sure(strconv.ParseFloat(value, 64))(b)
			sum += 1e6 * seconds
		}
	}
	return sum
}
