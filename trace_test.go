package worqr_test

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/worqrtrace"
)

// A Trace whose functions are nil costs no more allocations than none, for a task that is enqueued,
// started and finished; one with functions does, so this can tell. It isn't parallel, since
// it counts what the whole program allocates.
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
		for range 50 { // connections, scripts, pools
			work()
		}
		costs[name] = 1 << 30
		for range 5 { // garbage collections empty pools
			costs[name] = min(costs[name], testing.AllocsPerRun(100, work))
		}
		must(t, p.Close())
	}
	t.Log(costs)
	// The race detector has pools lose some of what they hold, so these are right to one or two.
	if costs["full"] < costs["none"]+8 || costs["empty"] > costs["none"]+(costs["full"]-costs["none"])/4 {
		t.Error(costs)
	}
	if calls != 3*(50+5*101) {
		t.Error(calls)
	}
}
