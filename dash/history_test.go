package dash

import (
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"
)

// A pace is how many tasks started and arrived per second, and is known after two samples.
func TestPace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at := time.Now()
	var h history
	is.True(!h.pace().Known)
	for i := range 400 { // a second each: 20 start, and 30 arrive
		h = h.with(sample{At: at.Add(time.Duration(i) * time.Second), Waiting: 10 * i, starts: int64(20 * i)}, 300)
	}
	is.Equal(len(h), 300)
	is.Equal(h.pace(), pace{Starting: 20, Arriving: 30, Known: true})
	from, ok := h.before(time.Minute)
	is.True(ok)
	is.Equal(h[len(h)-1].At.Sub(from.At), time.Minute)
	when, all := h.paces()
	is.Equal(len(when), 299)
	is.Equal(all[298], h.pace())
	again := between(h[1], h[0]) // time doesn't go backward
	is.Equal(again, pace{})
	is.Equal(between(sample{At: at, starts: 9}, sample{At: at.Add(time.Second), starts: 2}).Starting, 0.0) // a token that Redis lost
}

// If tasks wait, and it's unknown for how long, there is no waiting time, rather than one of 0.
func TestUnknownAge(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Now()
	drawn := func(all ...sample) string { return charts(all, now)[2].Lines[0].Now }
	is.Equal(drawn(sample{At: now}), "0 ms")
	is.Equal(drawn(sample{At: now.Add(-time.Minute)}, sample{At: now, Waiting: 1}), "–")
	is.Equal(drawn(sample{At: now, Waiting: 1, oldest: time.Second}), "1 s")
}

// A snapshot's history doesn't change.
func TestHistoryIsShared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var h history
	at := time.Now()
	for i := range 10 {
		h = h.with(sample{At: at, Waiting: i}, 4)
	}
	kept, copied := h, slices.Clone(h)
	for i := range 10 {
		h = h.with(sample{At: at, Waiting: 100 + i}, 4)
	}
	is.Equal(kept, copied)
}
