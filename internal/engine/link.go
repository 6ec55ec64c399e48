package engine

import (
	"sync"
	"time"
)

// span is how long the shortest trip is remembered.
const span = 10 * time.Second

// A link measures a peer's distance to Redis.
type link struct {
	mu sync.Mutex // protects the fields below
	distance
}

// measured records how long a round took, and how long Redis worked on it, and returns the current
// estimate.
func (l *link) measured(took, work time.Duration) distance {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distance.measured(time.Now(), took, work)
	return l.distance
}

// A distance is how far away Redis is, as measured by rounds.
type distance struct {
	least [2]time.Duration // the shortest trips of the last span and of this one; 0 while unknown
	since time.Time        // when this span began
}

// measured records a round.
func (d *distance) measured(now time.Time, took, work time.Duration) {
	trip := max(took-work/2, 1) // Redis may need less than estimated
	if now.Sub(d.since) > span {
		d.least, d.since = [2]time.Duration{d.least[1], trip}, now
	}
	d.least[1] = min(d.least[1], trip)
}

// shortest returns the shortest recent trip, which nothing delayed.
func (d *distance) shortest() time.Duration {
	if d.least[0] > 0 {
		return min(d.least[0], d.least[1])
	}
	return d.least[1]
}

// way returns how much longer the shortest trip is than a trip to a nearby Redis. Smaller
// differences come only from busy peers that wait for each other there.
func (d *distance) way() time.Duration { return max(d.shortest()-nearby, 0) }
