package api

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// More than one round can take go back in their order.
func TestManyGoBackInOrder(t *testing.T) {
	t.Parallel()
	p := open(t, worqr.Options{})
	slow := newValve()
	slow.shut.Store(true)
	q := p.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 1, Prefetch: 2500})
	all := numbers("", 3000)
	enqueue(t, q, all...)
	stop := run(t, p)
	receive(t, slow.starts, 1)
	eventually(t, "it holds many", func() bool { return stats(t, q).Running == 2501 })
	stop()
	if got := waiting(t, q); !slices.Equal(got, all) {
		at := 0
		for at < len(got) && at < len(all) && got[at] == all[at] {
			at++
		}
		t.Errorf("%d of %d back; out of order at %d: %v", len(got), len(all), at, got[at:min(at+5, len(got))])
	}
}

// What a peer that drains under load gives back waits in its order.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	bad := 0
	for round := range 15 {
		p, q := openQueue(t, worqr.Options{})
		var n atomic.Int64
		q.Handle(func(ctx context.Context, t *worqr.Task) error { n.Add(1); return nil }, &worqr.HandleOptions{Concurrency: 8})
		enqueue(t, q, numbers("", 6000)...)
		stop := run(t, p)
		for n.Load() < int64(1000+round*37) {
			time.Sleep(50 * time.Microsecond)
		}
		stop()
		got := waiting(t, q)
		last := -1
		for i, s := range got {
			k, _ := strconv.Atoi(s)
			if k < last {
				bad++
				t.Errorf("round %d: at %d: %d after %d (of %d)", round, i, k, last, len(got))
				break
			}
			last = k
		}
		p.Close()
		if bad > 3 {
			break
		}
	}
}

// While one round follows the other, a drain puts back what two of them bring.
func TestDrainWhileRoundsFlow(t *testing.T) {
	t.Parallel()
	for i := range 20 {
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
		receive(t, started, 20+i*30)
		stop()
		if got := waiting(t, q); !slices.Equal(got, all) {
			at := 0
			for at < len(got) && at < len(all) && got[at] == all[at] {
				at++
			}
			t.Fatalf("round %d: %d of %d back; out of order at %d: %v", i, len(got), len(all), at, got[at:min(at+5, len(got))])
		}
		must(t, p.Close())
	}
}
