package inspect

import (
	"testing"
	"time"

	"github.com/matryer/is"
)

// Quantiles are between the limits of the element that has them.
func TestHistogram(t *testing.T) {
	is := is.New(t)
	var h Histogram
	is.Equal(h.Quantile(0.5), time.Duration(0))
	for _, d := range []time.Duration{-1, 0, 9 * time.Millisecond, 10 * time.Millisecond, 39 * time.Millisecond, 41 * time.Millisecond, time.Second, 10 * time.Second, 1e6 * time.Hour} {
		h[BucketOf(d)]++
	}
	is.Equal(h, Histogram{3, 2, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1})
	is.Equal(h.Count(), int64(9))
	is.Equal(h.Quantile(0), time.Duration(0))
	is.Equal(h.Quantile(3.0/9), 10*time.Millisecond)
	is.Equal(h.Quantile(4.0/9), 25*time.Millisecond)
	is.True(h.Quantile(1) > 10_000*time.Second)
}

// Hours make days: counts add up, and what was seen last, or most, stays.
func TestMerged(t *testing.T) {
	is := is.New(t)
	at := time.Date(2026, 1, 31, 22, 0, 0, 0, time.UTC)
	var hours []Period
	for i := range 28 {
		p := Period{At: at.Add(time.Duration(i) * time.Hour), Recorded: i == 1, Enqueued: 1, Busy: time.Second, Waiting: 28 - i, MostWaiting: 30 - i, FailedTasks: i}
		p.Ran[1] = 1
		hours = append(hours, p)
	}
	days := Merged(hours, 24*time.Hour)
	is.Equal(len(days), 3)
	is.Equal(days[0], Period{At: at, Recorded: true, Enqueued: 2, Busy: 2 * time.Second, Waiting: 27, MostWaiting: 30, FailedTasks: 1, Ran: Histogram{1: 2}})
	is.Equal(days[1], Period{At: at.Add(2 * time.Hour), Enqueued: 24, Busy: 24 * time.Second, Waiting: 3, MostWaiting: 28, FailedTasks: 25, Ran: Histogram{1: 24}})
	is.Equal(days[2].Enqueued, int64(2))
}
