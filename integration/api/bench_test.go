package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// BenchmarkHealthyBesideRetries tells how much longer healthy tasks take while
// 1,000 tasks a second are retried on the same queue. Each iteration is a pair:
// a batch with the retries and one without, in turns the one or the other first,
// so that what else the machine does strikes both. "ratio" is the median of the
// ratios of the pairs, "ratio-paced" that of the delays of healthy tasks that
// come at 1,000 a second; "redis-µs" is time that Redis used, which a busy machine
// distorts least. Run it with -benchtime 9x or more.
func BenchmarkHealthyBesideRetries(b *testing.B) {
	const rate, batch = 1000, 100_000
	p := open(b, worqr.Options{})
	q := p.Queue("q")
	var retrying atomic.Bool
	var retries, healthy atomic.Int64
	delays := make(chan time.Duration, 10000)
	fail := errors.New("it fails")
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		switch t.Payload[0] {
		case 'b':
			if retrying.Load() {
				retries.Add(1)
				return worqr.RetryAfter(fail, time.Second)
			}
		case 'p':
			var at int64
			_, _ = fmt.Sscan(string(t.Payload[1:]), &at) // our own
			delays <- time.Since(time.Unix(0, at))
		default:
			healthy.Add(1)
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 64, MaxRetries: 1 << 30})
	run(b, p)

	load := make([][]byte, batch)
	for i := range load {
		load[i] = fmt.Append(nil, "healthy", i)
	}
	wait := func(what string, holds func() bool) {
		b.Helper()
		for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				b.Fatalf("it never came about that %s", what)
			}
		}
	}
	conn := redistest.Conn(b)
	cpu := func() float64 { return redisMicros(b, conn) }
	var rates []float64
	var sums [2]struct { // of the batches alone, and beside retries
		cpu              float64
		retries, batches int64
	}
	one := func(beside bool) (took, paced float64) {
		if beside {
			retrying.Store(true)
			for i := range rate {
				_, err := q.EnqueueAt(b.Context(), time.Now().Add(rand.N(time.Second)), fmt.Append(nil, "bad", i))
				must(b, err)
			}
			time.Sleep(1200 * time.Millisecond) // until all are under way
		}
		before, began, busy := retries.Load(), time.Now(), cpu()
		healthy.Store(0)
		for s := range slices.Chunk(load, 1000) {
			must(b, q.Enqueue(b.Context(), s...))
		}
		wait("the batch is done", func() bool { return healthy.Load() == batch })
		took = time.Since(began).Seconds()
		sum := &sums[map[bool]int{true: 1}[beside]]
		sum.cpu, sum.retries, sum.batches = sum.cpu+cpu()-busy, sum.retries+retries.Load()-before, sum.batches+1

		const n = 500
		for tick := time.NewTicker(time.Second / rate); len(delays) < n; {
			<-tick.C
			if len(delays) < n {
				must(b, q.Enqueue(b.Context(), fmt.Append(nil, "p", time.Now().UnixNano())))
			}
		}
		var all []time.Duration
		for len(delays) > 0 {
			all = append(all, <-delays)
		}
		slices.Sort(all)
		paced = all[len(all)/2].Seconds()

		if beside {
			rates = append(rates, float64(retries.Load()-before)/time.Since(began).Seconds())
			retrying.Store(false)
			wait("the retries are over", func() bool {
				s, err := q.Stats(b.Context())
				must(b, err)
				return s.Scheduled+s.Running == 0
			})
		}
		return took, paced
	}
	one(false) // warm up
	median := func(s []float64) float64 {
		slices.Sort(s)
		return s[len(s)/2]
	}
	var ratios, pacedRatios, alone []float64
	for i := 0; b.Loop(); i++ {
		first := i%2 == 0
		took, paced := one(first)
		otherTook, otherPaced := one(!first)
		if !first {
			took, otherTook, paced, otherPaced = otherTook, took, otherPaced, paced
		}
		ratios = append(ratios, took/otherTook)
		pacedRatios = append(pacedRatios, paced/otherPaced)
		alone = append(alone, batch/otherTook)
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(pacedRatios), "ratio-paced")
	b.ReportMetric(median(rates), "retries/s")
	single, beside := &sums[0], &sums[1]
	extra := beside.cpu - single.cpu/float64(single.batches)*float64(beside.batches)
	b.ReportMetric(extra/float64(beside.retries), "redis-µs/retry")
	b.ReportMetric(single.cpu/float64(single.batches*batch), "redis-µs/healthy")
	b.ReportMetric(median(alone), "healthy/s")
}
