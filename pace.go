package worqr

import "time"

const (
	moment     = 3 * time.Millisecond // what is held ahead is begun within it
	stale      = 5 * time.Millisecond // after it without a begin, what is held ahead goes back
	mostAhead  = 400                  // tasks
	aheadBytes = 4 << 20              // of their payloads
)

// How many tasks in a row have to be fast before any is held ahead: what is held
// while a slow one comes has to go back, and then starts behind others that went
// back later. So the number grows each time.
const (
	firstTrust = 100
	nextTrust  = 1000
	lastTrust  = 64_000
)

// A pace is how fast the handlers of a queue get through tasks, as moving
// averages. It tells how many tasks they will begin in a moment.
type pace struct {
	run   time.Duration // that a handler takes; 0 while nothing is known
	gap   time.Duration // between two handlers that become free
	size  int           // of a payload
	last  time.Time     // when one began or became free
	calm  int           // handlers that have returned since one was slow
	trust int           // how many there have to be; 0 is firstTrust
	stuck bool          // none has become free since what was ready was recalled
}

// began notes that a handler begins after having waited for a task.
func (p *pace) began(now time.Time) { p.last = now }

// freed notes that a handler has returned, and could begin another task.
func (p *pace) freed(now, began time.Time, size int) {
	run, gap := max(now.Sub(began), 1), now.Sub(p.last)
	p.last = now
	p.calm++
	if run > stale {
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
		p.run, p.gap, p.size = run, gap, size
		return
	}
	p.run += (run - p.run) / 8
	p.gap += (gap - p.gap) / 8
	p.size += (size - p.size) / 8
}

// ahead is how many tasks so many handlers begin in a moment. Handlers that run
// side by side may return in one burst, so both averages count.
func (p *pace) ahead(handlers int) int {
	if p.run == 0 || p.calm < max(p.trust, firstTrust) {
		return 0
	}
	each := max(p.gap, p.run/time.Duration(handlers), moment/mostAhead)
	return min(int(moment/each), aheadBytes/max(p.size, 1))
}
