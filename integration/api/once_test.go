package api

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// One job, two, a thousand, with one worker and with several: each is done once.
func TestEachJobOnce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		for _, jobs := range []int{1, 2, 1000} {
			t.Run(fmt.Sprintf("%d jobs, %d workers", jobs, workers), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				prefix := redistest.Prefix(t)
				var mu sync.Mutex
				count := map[string]int{}
				var q *worqr.Queue
				var stops []func()
				var peers []*worqr.Peer
				for range workers {
					p := open(t, worqr.Options{Prefix: prefix})
					q = p.Queue("q")
					q.Handle(func(_ context.Context, t *worqr.Task) error {
						mu.Lock()
						defer mu.Unlock()
						count[string(t.Payload)]++
						return nil
					}, nil)
					stops, peers = append(stops, run(t, p)), append(peers, p)
				}
				for some := range slices.Chunk(numbers("", jobs), 7) {
					enqueue(t, q, some...)
				}
				finished := func() (n int64) {
					for _, p := range peers {
						n += p.Stats().Finished
					}
					return n
				}
				eventually(t, "all is finished", func() bool { return finished() >= int64(jobs) })
				allDone(t, q)
				for _, stop := range stops {
					stop()
				}
				is.Equal(finished(), int64(jobs))
				is.Equal(len(count), jobs)
				for payload, n := range count {
					if n != 1 {
						t.Errorf("%s was done %d times", payload, n)
					}
				}
				nothingLeft(t, prefix, "q")
			})
		}
	}
}
