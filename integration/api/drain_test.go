package api

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// What a peer that drains under load gives back waits in its order.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		p, q := openQueue(t, worqr.Options{})
		var n atomic.Int64
		q.Handle(func(ctx context.Context, t *worqr.Task) error { n.Add(1); return nil }, &worqr.HandleOptions{Concurrency: 8})
		enqueue(t, q, numbers("", 6000)...)
		stop := run(t, p)
		for n.Load() < int64(1000+round*100) {
			time.Sleep(50 * time.Microsecond)
		}
		stop()
		if got := waiting(t, q); !slices.Equal(got, sorted(got)) {
			t.Errorf("round %d: %d are back, out of order: %.200q", round, len(got), got)
		}
		must(t, p.Close())
	}
}

// While one round follows the other, a drain puts back what two of them bring.
func TestDrainWhileRoundsFlow(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		p, q := openQueue(t, worqr.Options{Drain: time.Millisecond})
		started := make(chan string, 20000)
		q.Handle(func(ctx context.Context, t *worqr.Task) error {
			started <- ""
			<-ctx.Done()
			return context.Cause(ctx)
		}, &worqr.HandleOptions{Concurrency: 20000, Prefetch: -1})
		all := numbers("", 5000)
		enqueue(t, q, all...)
		stop := run(t, p)
		receive(t, started, 20+i*80)
		stop()
		if got := waiting(t, q); !slices.Equal(got, all) {
			t.Fatalf("round %d: %d of %d are back: %.200q", i, len(got), len(all), got)
		}
		must(t, p.Close())
	}
}
