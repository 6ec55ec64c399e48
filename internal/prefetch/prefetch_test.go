package prefetch

import (
	"testing"
	"time"
)

// noon is the time in table tests.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// How many tasks are prefetched.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		handlers  int
		trip, run time.Duration
		want      int
	}{
		{64, 0, time.Millisecond, 64},
		{64, 10 * time.Millisecond, time.Millisecond, 1024},
		{10, time.Millisecond, time.Millisecond, 30},
		{1, 0, time.Second, 0},
		{1, 0, time.Microsecond, 1000},
		{64, 0, 0, 1024},
	} {
		if got := prefetch(c.handlers, c.trip, c.run); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// The shortest recent round trip counts.
func TestTrip(t *testing.T) {
	t.Parallel()
	var p Pace
	for _, c := range []struct{ at, took, want time.Duration }{
		{0, 5, 5}, {time.Second, 3, 3}, {2 * time.Second, 9, 3}, {12 * time.Second, 9, 3}, {23 * time.Second, 8, 8},
	} {
		if p.Answered(noon.Add(c.at), c.took); p.trip() != c.want {
			t.Errorf("after %v it's %v", c.at, p.trip())
		}
	}
}
