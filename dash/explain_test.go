package dash

import (
	"testing"
	"time"

	"github.com/worqr/worqr/inspect"
)

// Each state and reason of a task has one description, with advice, and readable times.
func TestSummary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, c := range map[string]inspect.TaskCopy{
		"About to start.":                                                                 {State: inspect.CopyWaiting},
		"The queue is paused; resume it.":                                                 {State: inspect.CopyWaiting, Reasons: []inspect.Reason{inspect.ReasonPaused}},
		"All workers are busy (2). 3 tasks start before it.":                              {State: inspect.CopyWaiting, Before: 3, Reasons: []inspect.Reason{inspect.ReasonBusy, inspect.ReasonBehind}},
		"No worker serves this queue; start the service that handles it.":                 {State: inspect.CopyWaiting, Reasons: []inspect.Reason{inspect.ReasonNoWorker}},
		"Starts in 2 h 53 min.":                                                           {State: inspect.CopyScheduled, DueAt: now.Add(2*time.Hour + 53*time.Minute + 38*time.Second), Reasons: []inspect.Reason{inspect.ReasonNotDue}},
		"Due 5 min ago.":                                                                  {State: inspect.CopyScheduled, DueAt: now.Add(-5 * time.Minute)},
		"Starts once the running task with its key has ended.":                            {State: inspect.CopyBlocked, Reasons: []inspect.Reason{inspect.ReasonBlocked}},
		"On api-1, for 2 min. The worker's heartbeats have stopped.":                      {State: inspect.CopyRunning, WorkerName: "api-1", StartedAt: now.Add(-2 * time.Minute), Reasons: []inspect.Reason{inspect.ReasonLeaseExpired}},
		"On 01a2. The worker is gone, and the task is being returned to the front.":       {State: inspect.CopyRunning, WorkerID: "01a2", Reasons: []inspect.Reason{inspect.ReasonReturning}},
		"On 01a2. It was canceled, and its worker is to stop it.":                         {State: inspect.CopyRunning, WorkerID: "01a2", Reasons: []inspect.Reason{inspect.ReasonStopping}},
		"Tasks of a worker that is gone are being returned; nothing starts until then.":   {State: inspect.CopyWaiting, Reasons: []inspect.Reason{inspect.ReasonHeldUp}},
		"1 min ago. Requeue it to run it again. OnFailed returned an error, so it stays.": {State: inspect.CopyFailed, FailedAt: now.Add(-time.Minute), Reasons: []inspect.Reason{inspect.ReasonFailed, inspect.ReasonAside}},
		"3 min ago, after 10 retries. Requeue it to run it again.":                        {State: inspect.CopyFailed, FailedAt: now.Add(-3 * time.Minute), Retries: 10, Reasons: []inspect.Reason{inspect.ReasonFailed}},
		"1 h ago, after a retry. Requeue it to run it again.":                             {State: inspect.CopyFailed, FailedAt: now.Add(-time.Hour), Retries: 1},
		"Due 5 min ago. It's withheld because no live peer has its schedule; start a peer that calls Every for it.": {
			State: inspect.CopyScheduled, DueAt: now.Add(-5 * time.Minute), Reasons: []inspect.Reason{inspect.ReasonWithheld}},
		"Due 1 min ago. 2 workers died holding it. If one more crash would fail it, it waits until its peer runs no other such task.": {
			State: inspect.CopyScheduled, Crashes: 2, DueAt: now.Add(-time.Minute), Reasons: []inspect.Reason{inspect.ReasonSuspect}},
	} {
		if got := summary(&inspect.Explanation{Workers: 2}, &c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
