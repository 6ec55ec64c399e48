package api

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// Tasks that a peer returns when it drains under load wait in their original order: both with fast
// handlers and prefetched tasks, and with tasks from two rounds in flight.
func TestDrainWhileRoundsFlow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain          time.Duration
		opts           worqr.HandleOptions
		holds          bool
		first, further int // how many have started when it drains
	}{
		"fast": {0, worqr.HandleOptions{Concurrency: 8}, false, 1000, 100},
		"held": {time.Millisecond, worqr.HandleOptions{Concurrency: 20_000, Prefetch: -1}, true, 20, 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range 7 {
				p, q := openQueue(t, worqr.Options{Drain: c.drain})
				started := make(chan string, 20_000)
				q.Handle(func(ctx context.Context, t *worqr.Task) error {
					started <- ""
					if c.holds {
						<-ctx.Done()
					}
					return context.Cause(ctx)
				}, &c.opts)
				all := numbers("", 6000)
				enqueue(t, q, all...)
				stop := run(t, p)
				receive(t, started, c.first+round*c.further)
				stop()
				got := waiting(t, q)
				if !slices.Equal(got, sorted(got)) || c.holds && len(got) < len(all) {
					t.Fatalf("round %d: %d of %d are back: %.200q", round, len(got), len(all), got)
				}
				must(t, p.Close())
			}
		})
	}
}

// A handler that runs while SetOptions lowers Grace keeps the longer one, even if the peer drains.
func TestDrainWaitsForGrace(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"the handler returns late": false, "it has ended its task": true} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p, q := openQueue(t, worqr.Options{Drain: -1})
			started, leaving := make(chan string, 1), make(chan struct{})
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				if ends {
					is.NoErr(t.Finish(ctx))
				}
				started <- string(t.Payload)
				<-ctx.Done()
				<-leaving
				time.Sleep(200 * time.Millisecond)
				return nil
			}, &worqr.HandleOptions{Grace: time.Minute})
			enqueue(t, q, "a")
			stop := run(t, p)
			receive(t, started, 1)
			is.NoErr(q.SetOptions(&worqr.HandleOptions{Grace: time.Millisecond}))
			close(leaving)
			stop() // fails if a handler was abandoned
			is.Equal(p.Stats().Finished, int64(1))
		})
	}
}
