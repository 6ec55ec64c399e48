package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// BenchmarkTasks measures how long a task takes that is enqueued already and whose handler does nothing.
func BenchmarkTasks(b *testing.B) {
	redistest.OneServer(b, redistest.OwnServer)
	for _, handlers := range []int{64, 10, 1} {
		b.Run(fmt.Sprint(handlers), func(b *testing.B) {
			server := redistest.Start(b)
			w := newWorld(b, server.URL())
			w.conn = redistest.Dial(b, server.URL())
			done, left := make(chan struct{}), atomic.Int64{}
			left.Store(int64(b.N))
			o := plain
			o.Concurrency = handlers
			w.Serve(func(context.Context, *Attempt) ([]byte, error) {
				if left.Add(-1) == 0 {
					close(done)
				}
				return nil, nil
			}, o)
			payload := make([]byte, 100)
			for range b.N {
				if err := w.conn.Send("LPUSH", w.keys.Waiting(), payload); err != nil {
					b.Fatal(err)
				}
			}
			redistest.Sure(redis.Values(w.conn.Do("")))(b)
			b.ResetTimer()
			w.join("w")
			<-done
			w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == int64(b.N) })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			calls, took := scripts(b, w.conn)
			b.ReportMetric(took/float64(b.N), "µs-redis/task")
			b.ReportMetric(float64(b.N)/calls, "tasks/script")
		})
	}
}

// scripts returns how many scripts a server has run, and for how many µs.
func scripts(b *testing.B, c redis.Conn) (calls, took float64) {
	b.Helper()
	for line := range strings.SplitSeq(redistest.Sure(redis.String(c.Do("INFO", "commandstats")))(b), "\n") {
		var n, us float64
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f,", &n, &us); err == nil {
			calls, took = calls+n, took+us
		}
	}
	return calls, took
}
