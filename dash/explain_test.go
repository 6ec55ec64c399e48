package dash

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// Each state and reason of a task is said once, with what to do, in times that people read.
func TestSummary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, c := range map[string]worqr.TaskCopy{
		"About to start.":                                                            {State: worqr.CopyWaiting},
		"The queue is paused; resume it.":                                            {State: worqr.CopyWaiting, Reasons: []worqr.Reason{worqr.ReasonPaused}},
		"All workers are busy. 3 tasks will start before it.":                        {State: worqr.CopyWaiting, Before: 3, Reasons: []worqr.Reason{worqr.ReasonBusy, worqr.ReasonBehind}},
		"No worker serves this queue; start a peer that handles it.":                 {State: worqr.CopyWaiting, Reasons: []worqr.Reason{worqr.ReasonNoWorker}},
		"Starts in 2 h 53 min.":                                                      {State: worqr.CopyScheduled, DueAt: now.Add(2*time.Hour + 53*time.Minute + 38*time.Second), Reasons: []worqr.Reason{worqr.ReasonNotDue}},
		"Due for 5 min.":                                                             {State: worqr.CopyScheduled, DueAt: now.Add(-5 * time.Minute)},
		"Starts once the task that runs under its key has ended.":                    {State: worqr.CopyBlocked, Reasons: []worqr.Reason{worqr.ReasonBlocked}},
		"On api-1, for 2 min. That worker's heartbeats have stopped.":                {State: worqr.CopyRunning, WorkerName: "api-1", StartedAt: now.Add(-2 * time.Minute), Reasons: []worqr.Reason{worqr.ReasonLeaseExpired}},
		"On 01a2. That worker is gone, and the task is being returned to the front.": {State: worqr.CopyRunning, WorkerID: "01a2", Reasons: []worqr.Reason{worqr.ReasonReturning}},
		"3 min ago, after 10 retries. Requeue it to run it again.":                   {State: worqr.CopyFailed, FailedAt: now.Add(-3 * time.Minute), Retries: 10, Reasons: []worqr.Reason{worqr.ReasonFailed}},
		"1 h ago, after a retry. Requeue it to run it again.":                        {State: worqr.CopyFailed, FailedAt: now.Add(-time.Hour), Retries: 1},
		"something new": {State: worqr.CopyWaiting, Reasons: []worqr.Reason{"something new"}},
		"Due for 1 min. 2 workers died holding it. It's one crash away from failing, so it waits until its peer runs no other such task.": {
			State: worqr.CopyScheduled, Crashes: 2, DueAt: now.Add(-time.Minute), Reasons: []worqr.Reason{worqr.ReasonSuspect}},
	} {
		if got := summary(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
