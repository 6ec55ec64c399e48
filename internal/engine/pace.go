package engine

import "time"

const (
	nearby     = 3 * time.Millisecond   // prefetched tasks begin within this time if Redis is near
	farthest   = 250 * time.Millisecond // and within this time wherever Redis is
	quickest   = 7500 * time.Nanosecond // between two tasks: Redis starts them no faster
	mostAhead  = 4000                   // tasks
	aheadBytes = 4 << 20                // of their payloads
	mostBytes  = 16 << 20               // of payloads that are prefetched, even if Prefetch is set
)

// How many tasks in a row must be fast before any is prefetched. After a slow one, the prefetched
// tasks have to go back, and may start behind others that went back later. Therefore the number
// grows each time.
const (
	firstTrust = 100
	nextTrust  = 1000
	lastTrust  = 64_000
	proven     = 4 // fast tasks needed per prefetched one, until tasks first have to go back
)

// A pace is how fast the handlers of a queue get through tasks, as a moving average. It predicts
// how many tasks they will begin in a given time.
type pace struct {
	run   time.Duration // of a handler, including waits for other handlers; 0 while unknown
	size  int           // of a payload
	last  time.Time     // when a handler last began or returned
	busy  bool          // all handlers have been busy since
	calm  int           // handlers that have returned since a slow one
	trust int           // what calm must reach before tasks are prefetched; 0 is firstTrust
	fast  int           // handlers that returned before one was stuck
	stuck bool          // no handler has returned since the prefetched tasks were recalled
	trip  time.Duration // to Redis and back; 0 while unknown
	late  time.Duration // the current delay of trips
}

// window returns the time in which the handlers should begin the prefetched tasks: a bit more than
// it takes to get more, over two trips and their delays.
func (p *pace) window() time.Duration { return min(nearby+p.trip*3, farthest) }

// stale returns the time after which prefetched tasks go back if no handler has begun or returned.
func (p *pace) stale() time.Duration { return p.window() * 5 / 3 }

// began records that a handler begins after having waited for a task. busy reports whether all
// handlers are busy now.
func (p *pace) began(now time.Time, busy bool) { p.last, p.busy = now, busy }

// freed records that a handler has returned, and can begin another task. Only its run time counts:
// the time between two returns also depends on how fast tasks come.
func (p *pace) freed(now, began time.Time, size, handlers int) {
	run := max(now.Sub(began), 1)
	p.last = now
	p.calm++
	if p.trust == 0 {
		p.fast++
	}
	if run > p.stale() {
		p.calm = 0
		if p.stuck { // the machine wasn't the cause of the delay
			p.trust = min(max(2*p.trust, nextTrust), lastTrust)
		}
	}
	p.stuck = false
	if p.trust > nextTrust && p.calm >= 4*p.trust {
		p.trust, p.calm = p.trust/2, p.trust
	}
	if p.run == 0 {
		p.run, p.size = run, size
	}
	// One stall of the machine delays all handlers that run concurrently: the average spans several
	// such groups.
	span := min(max(4*handlers, 8), 512)
	p.run += (run - p.run) / time.Duration(span)
	p.size += (size - p.size) / 8
}

// slow reports whether no handler has returned or begun for so long that it's unpredictable when
// one will. It is meaningful only while all are busy.
func (p *pace) slow(now time.Time) bool { return p.busy && now.Sub(p.last) > p.window() }

// ahead returns how many tasks the handlers begin within the window, plus a few when trips are
// late. It needs only their run times, which include waiting for each other.
func (p *pace) ahead(handlers int) int {
	if p.run == 0 || p.calm < max(p.trust, firstTrust) {
		return 0
	}
	each := max(p.run/time.Duration(handlers), quickest)
	window := p.window() + min(p.late, p.trip)*3 // otherwise a peer on a busy machine near Redis would prefetch too much
	n := min(int(window/each), mostAhead, aheadBytes/max(p.size, 1))
	if p.trust == 0 { // it's unknown whether there are slow tasks
		n = min(n, p.fast/proven)
	}
	return n
}
