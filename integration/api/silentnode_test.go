package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/spread"
)

// If a node of a cluster stays silent, the queues on the other nodes go on, whether they are spread
// or share a capacity with one on that node.
func TestClusterSilentNode(t *testing.T) {
	t.Parallel()
	c := partial(t)
	owner := func(queue string) *redistest.Server { return c.Owner(t, c.Slot(t, "{"+queue+"}")) }
	frozen := owner("spread-1")
	type trial struct {
		what    string
		healthy chan struct{} // gets an element for each task on another node
	}
	var trials []trial
	peer := func(capacity int) *worqr.Peer {
		return openAt(t, c.URL(), worqr.Options{Prefix: "p", CallTimeout: time.Second, Capacity: capacity})
	}
	producer := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	fill := func(queues ...*worqr.Queue) {
		for i := range 60 {
			enqueue(t, queues[i%len(queues)], numbers("", 100)...)
		}
	}
	slowly := func(healthy chan struct{}, isHealthy bool) worqr.Handler {
		return func(ctx context.Context, _ *worqr.Task) error {
			if isHealthy {
				select {
				case healthy <- struct{}{}:
				default:
				}
			}
			select {
			case <-time.After(5 * time.Millisecond): // work
			case <-ctx.Done():
			}
			return nil
		}
	}
	healthy := make(chan struct{}, 20)
	p := peer(0)
	spread.Over(p, "spread", 3).Handle(slowly(healthy, true), nil)
	fill(spread.Over(producer, "spread", 3).Queues()...)
	run(t, p)
	trials = append(trials, trial{"spread", healthy})
	healthy = make(chan struct{}, 20)
	p = peer(2)
	queues := map[bool]string{} // by whether their node is silent
	for i := 0; len(queues) < 2; i++ {
		name := fmt.Sprint("plain", i)
		queues[owner(name) == frozen] = name
	}
	for silent, name := range queues {
		q := p.Queue(name)
		q.Handle(slowly(healthy, !silent), &worqr.HandleOptions{Concurrency: 2})
		fill(producer.Queue(name))
	}
	run(t, p)
	trials = append(trials, trial{"capacity", healthy})
	for _, of := range trials {
		receive(t, of.healthy, 20)
	}

	frozen.Pause(t)
	t.Cleanup(func() { frozen.Resume(t) }) // before the peers leave
	<-time.After(4 * time.Second)          // calls in flight, and their repetitions, have timed out by now
	for _, of := range trials {
		for len(of.healthy) > 0 {
			<-of.healthy
		}
		receive(t, of.healthy, 20)
	}
}
