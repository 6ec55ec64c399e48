// Package prefetch decides how many tasks a worker holds ahead of its handlers, by how long handlers and round trips
// take. It measures nothing itself.
package prefetch

import "time"

const (
	Most     = 1024             // tasks that are prefetched at most
	Bytes    = 1 << 20          // of their payloads
	slack    = time.Millisecond // in addition to the round trips: how long a round may take to be made
	tripSpan = 10 * time.Second // how long the shortest round trip is remembered
)

// prefetch returns how many tasks to hold ahead: as many as the handlers begin until a round that was just
// sent and the next one have been answered.
func prefetch(handlers int, trip, run time.Duration) int {
	window := time.Duration(handlers) * (2*trip + slack)
	return min(int(window/max(run, 1)), Most)
}

// A Pace is what the prefetch depends on: how long handlers and round trips take, and whether handlers return at all.
type Pace struct {
	run   time.Duration    // mean time of a handler; 0 while unknown
	last  time.Time        // when a handler last returned; zero: none has since a lull
	least [2]time.Duration // the shortest round trips of the last span and of this one; 0 while unknown
	since time.Time        // when this span began
}

// Ahead returns how many tasks to prefetch: none after a lull, until a handler has returned. The mean says nothing of
// handlers that hang.
func (p *Pace) Ahead(handlers int) int {
	if p.run == 0 || p.last.IsZero() {
		return 0
	}
	return prefetch(handlers, p.trip(), p.run)
}

// Lull records that nothing is known of the handlers that run.
func (p *Pace) Lull() { p.last = time.Time{} }

// IsStuck reports whether no handler has returned for a while.
func (p *Pace) IsStuck(now time.Time, while time.Duration) bool { return now.Sub(p.last) >= while }

// Returned records when a handler returned, and how long it ran. One stall of the machine delays all handlers that run at the
// time, so the average spans several such groups.
func (p *Pace) Returned(now time.Time, took time.Duration, handlers int) {
	took, p.last = max(took, 1), now
	if p.run == 0 {
		p.run = took
	}
	p.run = max(p.run+(took-p.run)/time.Duration(min(max(4*handlers, 8), 512)), 1)
}

// Answered records how long a round took. The shortest counts, since only the work of others delays the
// others.
func (p *Pace) Answered(now time.Time, took time.Duration) {
	if took = max(took, 1); now.Sub(p.since) > tripSpan {
		p.least, p.since = [2]time.Duration{p.least[1], took}, now
	}
	p.least[1] = min(p.least[1], took)
}

// trip returns the shortest recent round trip; 0 while unknown.
func (p *Pace) trip() time.Duration {
	if p.least[0] > 0 {
		return min(p.least[0], p.least[1])
	}
	return p.least[1]
}
