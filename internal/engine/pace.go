package engine

import "time"

const (
	nearby     = 3 * time.Millisecond   // what is prefetched begins within it where Redis is near
	farthest   = 250 * time.Millisecond // and within it wherever Redis is
	quickest   = 7500 * time.Nanosecond // between two tasks: Redis hands them out no faster
	mostAhead  = 4000                   // tasks
	aheadBytes = 4 << 20                // of their payloads
	mostBytes  = 16 << 20               // of payloads that are prefetched, also where Prefetch is a number
)

// How many tasks in a row must be fast before any is prefetched. If a slow one comes, the
// prefetched tasks have to go back, and then start behind others that went
// back later. So the number grows each time.
const (
	firstTrust = 100
	nextTrust  = 1000
	lastTrust  = 64_000
	proven     = 4 // fast tasks for each one that is prefetched, before the first that has to go back
)

// A pace is how fast the handlers of a queue get through tasks, as a moving
// average. It tells how many tasks they will begin in a while.
type pace struct {
	run   time.Duration // that a handler takes, with what others keep it waiting; 0 while nothing is known
	size  int           // of a payload
	last  time.Time     // when one began or returned
	busy  bool          // all have been since
	calm  int           // handlers that have returned since one was slow
	trust int           // how many there have to be; 0 is firstTrust
	fast  int           // handlers that have returned before one was stuck
	stuck bool          // none has returned since what was prefetched was recalled
	trip  time.Duration // to Redis and back; 0 while nothing is known
	late  time.Duration // by which trips take longer at present
}

// window is the time in which the handlers begin the prefetched tasks: a bit more than it
// takes to get more, over two trips and their delays.
func (p *pace) window() time.Duration { return min(nearby+p.trip*3, farthest) }

// stale is the time after which prefetched tasks go back if no handler has
// begun or returned.
func (p *pace) stale() time.Duration { return p.window() * 5 / 3 }

// began notes that a handler begins after having waited for a task. Busy says
// whether all handlers are at work now.
func (p *pace) began(now time.Time, busy bool) { p.last, p.busy = now, busy }

// freed notes that a handler has returned, and could begin another task. Only how long it
// ran counts: the time between two returns would also say how fast tasks come.
func (p *pace) freed(now, began time.Time, size, handlers int) {
	run := max(now.Sub(began), 1)
	p.last = now
	p.calm++
	if p.trust == 0 {
		p.fast++
	}
	if run > p.stale() {
		p.calm = 0
		if p.stuck { // it was not the machine that held things up
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
	// One stall of the machine delays all handlers that run side by side: the average spans
	// several such rows.
	span := min(max(4*handlers, 8), 512)
	p.run += (run - p.run) / time.Duration(span)
	p.size += (size - p.size) / 8
}

// slow reports whether no handler has returned or begun for so long that nobody
// knows when one will. It only means something while all are busy.
func (p *pace) slow(now time.Time) bool { return p.busy && now.Sub(p.last) > p.window() }

// ahead returns how many tasks n handlers begin within the window, and a bit more when
// trips are late. Their run times are enough: they include waiting for each other.
func (p *pace) ahead(handlers int) int {
	if p.run == 0 || p.calm < max(p.trust, firstTrust) {
		return 0
	}
	each := max(p.run/time.Duration(handlers), quickest)
	window := p.window() + min(p.late, p.trip)*3 // else a busy machine would make a near peer hoard
	n := min(int(window/each), mostAhead, aheadBytes/max(p.size, 1))
	if p.trust == 0 { // nobody knows whether slow ones are among them
		n = min(n, p.fast/proven)
	}
	return n
}
