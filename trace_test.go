package worqr_test

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/worqrtrace"
)

// A Trace whose functions are nil allocates no more than no Trace, for a task that is enqueued,
// started and finished. One with functions does, which shows that this test works. It isn't
// parallel: it counts the allocations of the whole program.
func TestTraceAllocations(t *testing.T) {
	calls := 0
	costs := map[string]float64{}
	for name, trace := range map[string]*worqrtrace.Trace{
		"none": nil, "empty": {},
		"full": {
			Enqueued: func(worqrtrace.Queue) { calls++ },
			Started:  func(worqrtrace.Task) { calls++ },
			Ended:    func(worqrtrace.Task) { calls++ },
		},
	} {
		p, _ := openQueue(t, worqr.Options{Lease: time.Hour, Trace: trace})
		q := peertest.Working(t, p, "q")
		payload := []byte("payload")
		work := func() {
			must(t, q.Enqueue(t.Context(), payload))
			must(t, sure(q.StartTask(t.Context()))(t).Finish(t.Context()))
		}
		for range 50 { // fills connections, scripts and pools
			work()
		}
		costs[name] = 1 << 30
		for range 5 { // a garbage collection empties pools
			costs[name] = min(costs[name], testing.AllocsPerRun(100, work))
		}
		must(t, p.Close())
	}
	t.Log(costs)
	// With the race detector, pools drop some of their contents, so these may be off by one or two.
	if costs["full"] < costs["none"]+8 || costs["empty"] > costs["none"]+(costs["full"]-costs["none"])/4 {
		t.Error(costs)
	}
	if calls != 3*(50+5*101) {
		t.Error(calls)
	}
}
