package engine

import (
	"sync"
	"time"
)

// span is how long the shortest trip counts.
const span = 10 * time.Second

// A link is the way of a peer to Redis.
type link struct {
	mu sync.Mutex // protects the fields below
	distance
}

// measured notes how long a round took, and how long Redis worked on it, and returns what is
// known now.
func (l *link) measured(took, work time.Duration) distance {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distance.measured(time.Now(), took, work)
	return l.distance
}

// A distance is how far away Redis is, as the rounds tell.
type distance struct {
	trip  time.Duration    // of a round, with what holds it up; moving average. 0 while nothing is known
	least [2]time.Duration // the shortest trips of the last span and of this one; 0 while nothing is known
	since time.Time        // when this span began
}

// measured notes a round.
func (d *distance) measured(now time.Time, took, work time.Duration) {
	d.trip += (max(took-work, 1) - d.trip) / 8
	trip := max(took-work/2, 1) // Redis may need less
	if now.Sub(d.since) > span {
		d.least, d.since = [2]time.Duration{d.least[1], trip}, now
	}
	d.least[1] = min(d.least[1], trip)
}

// shortest returns the shortest trip lately, which nothing delayed.
func (d *distance) shortest() time.Duration {
	if d.least[0] > 0 {
		return min(d.least[0], d.least[1])
	}
	return d.least[1]
}

// way returns by how much that exceeds a trip to a nearby Redis. Shorter differences are only
// the time that busy peers make each other wait there.
func (d *distance) way() time.Duration { return max(d.shortest()-nearby, 0) }
