package engine

import "time"

const (
	nearby     = time.Millisecond       // prefetched tasks begin within this time if Redis is near
	stall      = 100 * time.Millisecond // a busy machine may run no handler for so long
	mostAhead  = 1024                   // tasks
	aheadBytes = 1 << 20                // of their payloads
)

// A pace is how fast the handlers of a queue get through tasks. It predicts how many they will begin in a given time.
type pace struct {
	run  time.Duration // of a handler, including waits for other handlers; moving average. 0 while unknown
	last time.Time     // when a handler last began or returned
	busy bool          // all handlers have been busy since
	trip time.Duration // to Redis and back; 0 while unknown
}

// window returns the time in which the handlers should begin the prefetched tasks: a bit more than it takes to get
// more, if a round that could bring them has just been sent.
func (p *pace) window() time.Duration { return nearby + 2*p.trip }

// stale returns the time after which prefetched tasks go back if no handler has begun or returned.
func (p *pace) stale() time.Duration { return p.window() + 2*p.run + stall }

// began records that a handler begins after having waited for a task. busy reports whether all handlers are busy now.
func (p *pace) began(now time.Time, busy bool) { p.last, p.busy = now, busy }

// freed records that a handler has returned, and can begin another task. Only its run time counts: the time between
// two returns also depends on how fast tasks come.
func (p *pace) freed(now, began time.Time, handlers int) {
	run := max(now.Sub(began), 1)
	p.last = now
	if p.run == 0 {
		p.run = run
	}
	// One stall of the machine delays all handlers that run concurrently: the average spans several such groups.
	span := min(max(4*handlers, 8), 512)
	p.run += (run - p.run) / time.Duration(span)
}

// slow reports whether no handler has returned or begun for so long that it's unpredictable when one will. It is
// meaningful only while all are busy.
func (p *pace) slow(now time.Time) bool { return p.busy && now.Sub(p.last) > p.stale() }

// ahead returns how many tasks the handlers begin within the window.
func (p *pace) ahead(handlers int) int {
	if p.run == 0 {
		return 0
	}
	return min(int(time.Duration(handlers)*p.window()/p.run), mostAhead)
}
