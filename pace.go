package worqr

import "time"

const (
	moment     = 3 * time.Millisecond // what is held ahead is begun within it
	stale      = 5 * time.Millisecond // after it without a begin, what is held ahead goes back
	mostAhead  = 400                  // tasks
	aheadBytes = 4 << 20              // of their payloads
)

// A pace is how fast the handlers of a queue get through tasks, as moving
// averages. It tells how many tasks they will begin in a moment.
type pace struct {
	run  time.Duration // that a handler takes; 0 while nothing is known
	gap  time.Duration // between two handlers that become free
	size int           // of a payload
	last time.Time     // when one began or became free
}

// began notes that a handler begins after having waited for a task.
func (p *pace) began(now time.Time) { p.last = now }

// freed notes that a handler has returned, and could begin another task.
func (p *pace) freed(now, began time.Time, size int) {
	run, gap := max(now.Sub(began), 1), now.Sub(p.last)
	p.last = now
	if p.run == 0 {
		p.run, p.gap, p.size = run, gap, size
		return
	}
	p.run += (run - p.run) / 8
	p.gap += (gap - p.gap) / 8
	p.size += (size - p.size) / 8
}

// stuck notes that none has become free for so long.
func (p *pace) stuck(d time.Duration) {
	p.run, p.gap = max(p.run, d), max(p.gap, d)
}

// ahead is how many tasks so many handlers begin in a moment. Handlers that run
// side by side may return in one burst, so both averages count.
func (p *pace) ahead(handlers int) int {
	if p.run == 0 {
		return 0
	}
	each := max(p.gap, p.run/time.Duration(handlers), moment/mostAhead)
	return min(int(moment/each), aheadBytes/max(p.size, 1))
}
