package logs

import (
	"sync"
	"time"
)

// MaxCalls is how many Calls wait.
const MaxCalls = 20_000

// Calls are calls of user code. They are made later: in order and one at a time, on a goroutine
// that runs only while there are any. So Add is safe under any lock, and user code that is slow,
// blocks, panics, ends its goroutine or calls the peer delays only the calls behind it.
type Calls struct {
	Dropped  func(n int) // called in turn, after calls were dropped because too many waited
	Panicked func(v any) // called the first time that a call panics

	mu       sync.Mutex // protects the fields below; nothing else is locked under it
	waiting  []func()
	dropped  int
	made     chan struct{} // closed when all are made; nil while there are none
	panicked sync.Once
}

// Add adds a call. It doesn't block.
func (c *Calls) Add(call func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == MaxCalls {
		c.dropped++
		return
	}
	c.waiting = append(c.waiting, call)
	if c.made == nil {
		c.made = make(chan struct{})
		go c.work()
	}
}

// work makes all calls. If one panics or ends the goroutine, only that one is lost.
func (c *Calls) work() {
	all := false
	defer func() { // even if a method of the value that a call panicked with ends the goroutine
		if !all {
			go c.work()
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			c.panicked.Do(func() { c.Panicked(v) })
		}
	}()
	for call := c.next(); call != nil; call = c.next() {
		call()
	}
	all = true
}

// next takes the next call; nil if all are made.
func (c *Calls) next() (call func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := c.dropped; {
	case len(c.waiting) > 0:
		call, c.waiting[0] = c.waiting[0], nil
		c.waiting = c.waiting[1:]
	case n > 0:
		call, c.dropped = func() { c.Dropped(n) }, 0
	default:
		close(c.made)
		c.waiting, c.made = nil, nil
	}
	return call
}

// patience is how long a peer that stops waits for user code to take the last calls.
const patience = time.Second

// Flush waits until all calls are made, unless user code blocks.
func (c *Calls) Flush() {
	c.mu.Lock()
	made := c.made
	c.mu.Unlock()
	if made == nil {
		return
	}
	select {
	case <-made:
	case <-time.After(patience):
	}
}
