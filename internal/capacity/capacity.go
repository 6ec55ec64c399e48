// Package capacity shares a peer's capacity among its queues: it decides which queue may start how
// many tasks.
//
// Every queue has a Share. It takes units before it starts tasks, and gives them back as the tasks
// end. A share that got less than it asked for waits, and so does one that gives something back
// while its queue may have more tasks: a queue competes for the unit that it frees. While others
// wait, a share gets something only when it's its turn:
//
//   - The turn goes to the highest priority, and among equals to the share that got nothing for the
//     longest time: task by task in turn.
//   - Every eighth task goes to the share that got nothing for the longest time, whatever its
//     priority. So each of n shares gets at least one of 8n tasks that are given while it waits.
//   - If some units are free, but too few for the share whose turn it is, they are held back for it,
//     even from higher priorities, so light tasks don't starve a heavy one. While nothing is free,
//     nothing is held back, and a higher priority that arrives in the meantime goes first.
//   - Units are held back only for a share that needs them: one whose queue is known to have a task
//     that could start. A share also waits while that isn't known; then it has no turn until its
//     task would fit, and others go ahead.
//
// A task heavier than the total counts as the total: it runs alone, rather than never.
//
// The package does no I/O and starts no goroutine. A share learns of its turn by its poke. Only Pass
// sends pokes, so it must follow every other call, once the caller's locks are released.
package capacity

import (
	"slices"
	"sync"
)

// fair is how often priorities are disregarded: every eighth time.
const fair = 8

// Capacity is what the tasks of several queues share. Its methods, and those of
// its shares, may be called concurrently.
type Capacity struct {
	mu      sync.Mutex // protects the fields below and those of the shares
	total   int        // 0: no bound
	used    int        // more than total after total was lowered
	waiting []*Share
	heir    *Share // for whom free units are held back
	clock   uint64 // orders what the shares got
	given   uint64 // tasks given while others waited
}

// New returns a capacity of total units; 0 is no bound.
func New(total int) *Capacity { return &Capacity{total: max(total, 0)} }

// SetTotal changes the total. Nothing is taken from who has it: above a lower
// total, nothing more is given until enough came back.
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

// A Share is one queue's part in a capacity.
type Share struct {
	c        *Capacity
	poke     func()
	weight   int
	priority int
	since    uint64 // when it last got something
	hungry   bool   // its queue may have more tasks than it has slots for
	needs    bool   // and it is known to have one that could start
}

// Share adds a queue whose tasks occupy weight units each. One that was sated
// last and gave back what it took may be dropped.
//
// The queue must answer a poke with Take or Sated and then Pass, as the others
// get nothing before. It had better take inside poke, even if it fetches its
// tasks later: tasks are given one by one while others wait, and what takes a
// round trip each is slow. Pass calls poke without a lock, possibly several
// times at once, and now and then too late.
func (c *Capacity) Share(weight, priority int, poke func()) *Share {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	return &Share{c: c, poke: poke, weight: max(weight, 1), priority: priority, since: c.clock}
}

// Set changes what the next tasks weigh and when it is their turn.
func (s *Share) Set(weight, priority int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.weight, s.priority = max(weight, 1), priority
}

// Take takes units for up to n tasks, as many as the queue has free slots; that may
// be none. It returns for how many tasks it got them, and how many units each of
// these occupies, which Give must be told. If it got fewer than n, the share waits
// from then on, until a Take gets all that it asks for. Otherwise it waits once it
// gives something back. Sated ends both.
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
			return got, units // and waits
		}
		c.used += k * units
		got += k
	}
	c.leave(s)
	return got, units
}

// grant lets s, which waits, have units for up to n tasks. c.mu is held.
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

// Needs says whether the queue is known to have a task that could start, as far as was
// heard last. Until it says so, and once it says no or is sated, nothing is held back for it.
func (s *Share) Needs(needs bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.needs = needs
	if !needs && s.c.heir == s {
		s.c.heir = nil
	}
}

// Sated says that the queue wants nothing until its next Take: it is empty, or it is
// not served now. If it was its turn, it no longer is.
func (s *Share) Sated() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.hungry, s.needs = false, false
	s.c.leave(s)
}

// Give gives back what k tasks occupied, units each as Take returned them: the
// weight may have changed meanwhile. With it their slots are free, so the share
// waits, unless it is sated.
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

// Pass pokes the share whose turn it is, if it waits for nothing else, and goes
// on with the next as long as the poked ones take at once. It must be called
// with no lock held that a poke needs, after every call of Take, Give, Needs, Sated,
// Set or SetTotal, or after several.
func (c *Capacity) Pass() {
	var poked *Share
	var since uint64
	for {
		c.mu.Lock()
		s := c.next()
		done := s == nil || !c.fits(s) || s == poked && s.since == since // the last: it will answer later
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

// next is the share whose turn it is; nil if none waits, or none of them needs what it waits
// for. c.mu is held.
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

// before reports whether it is the turn of a rather than of b.
func before(a, b *Share, heed bool) bool {
	if heed && a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.since < b.since
}

// wait has s wait, if it does not yet. c.mu is held.
func (c *Capacity) wait(s *Share) {
	if !slices.Contains(c.waiting, s) {
		c.waiting = append(c.waiting, s)
	}
}

// leave ends the waiting of s. c.mu is held.
func (c *Capacity) leave(s *Share) {
	if i := slices.Index(c.waiting, s); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	if c.heir == s {
		c.heir = nil
	}
}

// units is what the next task of s occupies. c.mu is held.
func (c *Capacity) units(s *Share) int {
	if c.total > 0 {
		return min(s.weight, c.total)
	}
	return s.weight
}

// fits reports whether the next task of s does. c.mu is held.
func (c *Capacity) fits(s *Share) bool {
	return c.total == 0 || c.units(s) <= c.total-c.used
}
