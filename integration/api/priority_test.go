package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A lineup is two queues of one peer that never run empty. Their handlers return when
// they are told to.
type lineup struct {
	starts chan string // the names of the queues, in the order of their starts
	end    map[string]chan struct{}
	slots  map[string]int // Concurrency
	runs   map[string]int
}

// newLineup runs a peer with so many tasks on each of its queues.
func newLineup(t *testing.T, capacity, high, low, each int) *lineup {
	l := &lineup{
		starts: make(chan string, 2*each),
		end:    map[string]chan struct{}{"high": make(chan struct{}), "low": make(chan struct{})},
		slots:  map[string]int{"high": high, "low": low},
		runs:   map[string]int{},
	}
	p := open(t, worqr.Options{Prefix: redistest.Prefix(t), Capacity: capacity})
	for name, priority := range map[string]int{"high": 1, "low": 0} {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			l.starts <- t.Queue
			<-l.end[t.Queue]
			return nil
		}, &worqr.HandleOptions{Concurrency: l.slots[name], Priority: priority})
		enqueue(t, q, numbers("", each)...)
	}
	stop := run(t, p)
	t.Cleanup(func() {
		for _, end := range l.end {
			close(end)
		}
		stop()
	})
	for range min(capacity, high+low) {
		l.runs[receive(t, l.starts, 1)[0]]++
	}
	return l
}

// next ends one task and returns the queue of the one that starts instead.
func (l *lineup) next(t *testing.T, ends string) string {
	l.end[ends] <- struct{}{}
	l.runs[ends]--
	name := receive(t, l.starts, 1)[0]
	l.runs[name]++
	return name
}

// Whatever Concurrency and Capacity are, a unit that comes free goes to the higher
// priority if that has a slot, but for every eighth, which goes to the queue that has
// waited longest.
func TestPriorityGrid(t *testing.T) {
	t.Parallel()
	const ends = 120
	for _, capacity := range []int{1, 2, 3, 5, 8} {
		for _, high := range []int{1, 2, 4, 8} {
			for _, low := range []int{1, 2, 4, 8} {
				t.Run(fmt.Sprintf("capacity %d, slots %d and %d", capacity, high, low), func(t *testing.T) {
					t.Parallel()
					l := newLineup(t, capacity, high, low, ends+16)
					rnd := rand.New(rand.NewPCG(uint64(capacity), uint64(high*10+low)))
					contended, low := 0, 0 // units that both could have; those of them that the lower got
					passed := 0            // those that the higher got since
					for range ends {
						name := "low"
						if n := rnd.IntN(l.runs["high"] + l.runs["low"]); n < l.runs["high"] {
							name = "high"
						}
						free := map[string]bool{}
						for _, q := range []string{"high", "low"} {
							free[q] = l.runs[q] < l.slots[q] || q == name
						}
						got := l.next(t, name)
						switch {
						case !free[got]:
							t.Fatalf("%q has %d tasks at once", got, l.runs[got])
						case got == "high" && free["low"]:
							contended++
							passed++
						case got == "low" && free["high"]:
							contended++
							low++
						}
						if got == "low" {
							passed = 0
						}
						// If the lower has just had one when the eighth comes, it is the
						// other that has waited longest.
						if passed > 8 {
							t.Fatal("the lower priority has not got any of the last 9 units that both could have")
						}
					}
					if low > contended/8+1 {
						t.Errorf("of %d units that both could have, the lower priority got %d", contended, low)
					}
				})
			}
		}
	}
}
