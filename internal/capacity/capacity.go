// Package capacity shares a peer's capacity among its queues: it decides how many tasks each queue
// may start, and when.
//
// Every queue has a Share. It takes units before it starts tasks, and gives them back as the tasks
// end. A share that got less than it asked for waits. So does one that gives units back while its
// queue may have more tasks: the queue competes for the unit that it frees. While others wait, a
// share gets units only when it's its turn:
//
//   - The turn goes to the highest priority, and among equals to the share that got nothing for the
//     longest time. Equals therefore take turns, task by task.
//   - Every eighth task goes to the share that got nothing for the longest time, whatever its
//     priority. While it waits, each of n shares therefore gets at least one of every 8n tasks.
//   - If some units are free, but too few for the share whose turn it is, they are held back for it,
//     even from higher priorities, so light tasks don't starve a heavy one. While nothing is free,
//     nothing is held back, and a higher priority that arrives in the meantime goes first.
//   - Units are held back only for a share that needs them: one whose queue is known to have a task
//     that could start. A share also waits while that isn't known; then it has no turn until its
//     task would fit, and others go ahead.
//
// A task heavier than the total counts as the total: it runs alone, rather than never.
//
// The package does no I/O and starts no goroutine. A share learns of its turn when it is poked.
// Only Pass pokes shares, so it must follow every other call, once the caller's locks are released.
package capacity

import (
	"slices"
	"sync"
)

// fair is how often priorities are disregarded: at every eighth task.
const fair = 8

// Capacity is shared by the tasks of several queues. Its methods, and those of its shares, may be
// called concurrently.
type Capacity struct {
	mu      sync.Mutex // protects the fields below and those of the shares
	total   int        // 0: no limit
	used    int        // exceeds total for a while after total was lowered
	waiting []*Share
	heir    *Share // the share for which free units are held back
	clock   uint64 // orders the times when shares got units
	given   uint64 // tasks given while others waited
}

// New returns a capacity of total units; 0 is no limit.
func New(total int) *Capacity { return &Capacity{total: max(total, 0)} }

// SetTotal changes the total. No units are taken away: after total is lowered, shares get no more
// until enough units have come back.
func (c *Capacity) SetTotal(total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total = max(total, 0)
}

// Total returns the total.
func (c *Capacity) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// A Share is a queue's part of the capacity.
type Share struct {
	c        *Capacity
	poke     func()
	weight   int
	priority int
	since    uint64 // when it last got units
	hungry   bool   // its queue may have more tasks than it has slots for
	needs    bool   // its queue is known to have a task that could start
}

// Share adds a queue whose tasks occupy weight units each. A share whose last call was Sated and
// that gave back all units may be dropped.
//
// The queue must answer a poke with Take or Sated and then Pass: until then, the other shares get
// nothing. It should call Take inside poke, even if it fetches its tasks later: while others wait,
// units are granted one task at a time, and a round trip for each would be slow. Pass calls poke
// without a lock, possibly several times concurrently, and sometimes too late.
func (c *Capacity) Share(weight, priority int, poke func()) *Share {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	return &Share{c: c, poke: poke, weight: max(weight, 1), priority: priority, since: c.clock}
}

// Set changes the weight and priority of the next tasks.
func (s *Share) Set(weight, priority int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.weight, s.priority = max(weight, 1), priority
}

// Take takes units for up to n tasks, the number of the queue's free slots, which may be 0. It
// returns for how many tasks it got units, and how many units each of these occupies, for Give. If
// it got fewer than n, the share waits until a Take gets all that it asks for. Otherwise it waits
// once it gives units back. Sated ends both.
func (s *Share) Take(n int) (got, units int) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.hungry = true
	c.wait(s)
	units = c.units(s)
	for got < n {
		k := c.grant(s, n-got)
		if k == 0 {
			return got, units // the share keeps waiting
		}
		c.used += k * units
		got += k
	}
	c.leave(s)
	return got, units
}

// grant returns for how many of n tasks s, which waits, gets units. The caller holds c.mu.
func (c *Capacity) grant(s *Share, n int) int {
	if c.total > 0 {
		if c.next() != s || !c.fits(s) {
			return 0
		}
		n = min(n, (c.total-c.used)/c.units(s))
		if len(c.waiting) > 1 {
			n = 1
			c.given++
		}
	}
	if c.heir == s {
		c.heir = nil
	}
	c.clock++
	s.since = c.clock
	return n
}

// Needs records whether the queue is known to have a task that could start. Capacity is held back
// for it only after a call with true, until a call with false or Sated.
func (s *Share) Needs(needs bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.needs = needs
	if !needs && s.c.heir == s {
		s.c.heir = nil
	}
}

// Sated records that the queue wants no units until its next Take, because it is empty or isn't
// served. If the share had the turn, it loses the turn.
func (s *Share) Sated() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.hungry, s.needs = false, false
	s.c.leave(s)
}

// Give gives back the units of k tasks, units each as returned by Take, since the weight may have
// changed in the meantime. This frees their slots, so the share waits, unless it is sated.
func (s *Share) Give(k, units int) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used -= k * units
	if c.used < 0 {
		panic("capacity: more given back than taken")
	}
	if s.hungry && c.total > 0 {
		c.wait(s)
	}
}

// Pass pokes the share whose turn it is, if its next task fits, and continues with the next share
// as long as the poked ones take units at once. Call it after one or several calls of Take, Give,
// Needs, Sated, Set or SetTotal, without holding a lock that a poke needs.
func (c *Capacity) Pass() {
	var poked *Share
	var since uint64
	for {
		c.mu.Lock()
		s := c.next()
		done := s == nil || !c.fits(s) || s == poked && s.since == since // the last one will answer later
		if !done {
			poked, since = s, s.since
		}
		c.mu.Unlock()
		if done {
			return
		}
		s.poke()
	}
}

// next returns the share whose turn it is, or nil if none waits or no waiting share needs units.
// The caller holds c.mu.
func (c *Capacity) next() *Share {
	if c.heir != nil {
		return c.heir
	}
	heed := c.given%fair != fair-1
	var first *Share
	for _, s := range c.waiting {
		if (s.needs || c.fits(s)) && (first == nil || before(s, first, heed)) {
			first = s
		}
	}
	if first != nil && !c.fits(first) && c.used < c.total {
		c.heir = first
	}
	return first
}

// before reports whether a's turn comes before b's.
func before(a, b *Share, heed bool) bool {
	if heed && a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.since < b.since
}

// wait makes s wait, if it doesn't wait yet. The caller holds c.mu.
func (c *Capacity) wait(s *Share) {
	if !slices.Contains(c.waiting, s) {
		c.waiting = append(c.waiting, s)
	}
}

// leave makes s stop waiting. The caller holds c.mu.
func (c *Capacity) leave(s *Share) {
	if i := slices.Index(c.waiting, s); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	if c.heir == s {
		c.heir = nil
	}
}

// units returns how many units the next task of s occupies. The caller holds c.mu.
func (c *Capacity) units(s *Share) int {
	if c.total > 0 {
		return min(s.weight, c.total)
	}
	return s.weight
}

// fits reports whether the next task of s fits. The caller holds c.mu.
func (c *Capacity) fits(s *Share) bool {
	return c.total == 0 || c.units(s) <= c.total-c.used
}
