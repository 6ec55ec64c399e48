package engine

import (
	"testing"
	"time"

	"github.com/matryer/is"
)

// The shortest trip measures the distance to Redis. It is remembered for a while, not forever.
func TestDistance(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var d distance
	is.Equal(d.shortest(), 0*time.Second)
	is.Equal(d.way(), 0*time.Second)
	now := time.Unix(1, 0)
	for _, took := range []time.Duration{30, 10, 12, 50} {
		d.measured(now, took*time.Millisecond, 0)
	}
	is.Equal(d.shortest(), 10*time.Millisecond)
	is.Equal(d.way(), 10*time.Millisecond-nearby)
	is.True(d.trip > 10*time.Millisecond && d.trip < 50*time.Millisecond)
	d.measured(now.Add(span+1), 20*time.Millisecond, 0)
	is.Equal(d.shortest(), 10*time.Millisecond)
	d.measured(now.Add(2*span+2), 20*time.Millisecond, 0) // the trip has become longer
	is.Equal(d.shortest(), 20*time.Millisecond)
	d.measured(now.Add(2*span+3), 100*time.Microsecond, time.Millisecond)
	is.True(d.shortest() > 0) // even if Redis was faster than estimated
	is.Equal(d.way(), 0*time.Second)
}
