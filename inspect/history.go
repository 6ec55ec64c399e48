package inspect

import (
	"math/bits"
	"time"
)

// A Period is a row of Queue.History: what happened on a queue in a minute or in an hour.
type Period struct {
	At       time.Time // when it began, by Redis's clock
	Recorded bool      // a peer counted something, or saw tasks; otherwise nothing is known but that
	// Enqueued counts tasks that were added, by whatever program, and again those that were requeued. It doesn't count
	// retries and occurrences of recurring tasks.
	Enqueued int64
	Started  int64 // passed to a handler, or returned by StartTask
	Finished int64
	Failed   int64 // moved to the failed queue
	Retried  int64 // attempts, not tasks
	// Busy is how long handlers ran, all together, of those that returned: divided by the period, it's how many ran at
	// a time.
	Busy time.Duration
	// Waiting is how many tasks were ready to start at the end of the period, and MostWaiting at most, as seen once a
	// minute. Without a record, both are the last known count.
	Waiting, MostWaiting int
	Oldest               time.Duration // the longest that the front of the list had waited, as seen once a minute
	FailedTasks          int           // in the failed queue at the end of the period
	Waited               Histogram     // of tasks of Add: from when they could start until their first start
	Ran                  Histogram     // of handlers that returned
}

// Add adds the period that follows.
func (p *Period) Add(next Period) {
	p.Recorded = p.Recorded || next.Recorded
	p.Enqueued += next.Enqueued
	p.Started += next.Started
	p.Finished += next.Finished
	p.Failed += next.Failed
	p.Retried += next.Retried
	p.Busy += next.Busy
	p.Waiting, p.MostWaiting = next.Waiting, max(p.MostWaiting, next.MostWaiting)
	p.Oldest = max(p.Oldest, next.Oldest)
	p.FailedTasks = next.FailedTasks
	for i := range next.Waited {
		p.Waited[i] += next.Waited[i]
		p.Ran[i] += next.Ran[i]
	}
}

// Merged returns longer periods, of which the given ones, oldest first, are parts: days made of hours, say. The first
// may have fewer parts than the others.
func Merged(all []Period, length time.Duration) (merged []Period) {
	for _, p := range all {
		if n := len(merged); n > 0 && p.At.Truncate(length).Equal(merged[n-1].At.Truncate(length)) {
			merged[n-1].Add(p)
		} else {
			merged = append(merged, p)
		}
	}
	return merged
}

// A Histogram counts durations. Element i has those from 10 ms × 4^(i−1) to 10 ms × 4^i; the first also has shorter
// ones, and the last, longer ones.
type Histogram [12]int64

// BucketOf returns the element of a Histogram that counts a duration.
func BucketOf(d time.Duration) int {
	return min((bits.Len64(uint64(max(d, 0)/shortestBucket))+1)/2, len(Histogram{})-1)
}

const shortestBucket = 10 * time.Millisecond

// Count returns how many durations were counted.
func (h *Histogram) Count() (n int64) {
	for _, of := range h {
		n += of
	}
	return n
}

// Quantile returns an estimate of the duration that a part of all, from 0 to 1, doesn't exceed: between the limits of an
// element, it's interpolated. It's 0 if there are none.
func (h *Histogram) Quantile(part float64) time.Duration {
	rank := part * float64(h.Count())
	var low time.Duration
	high := shortestBucket
	for i, n := range h {
		if n > 0 && (rank <= float64(n) || i == len(h)-1) {
			return low + time.Duration(float64(high-low)*min(rank/float64(n), 1))
		}
		rank -= float64(n)
		low, high = high, 4*high
	}
	return 0
}

// A Deploy is a version of the service, and when a peer first had it, by Redis's clock.
type Deploy struct {
	Version string
	At      time.Time
}
