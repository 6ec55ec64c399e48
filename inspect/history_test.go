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
