package logs

import (
	"sync"
	"time"
)

// A Relay passes values to user code, in order and one at a time, on a goroutine that runs only
// while there are values. Therefore Put is safe under any lock, and user code that is slow, blocks,
// panics, ends its goroutine or calls the peer delays only the following values.
type Relay[T any] struct {
	Pass   func(T)             // calls user code
	Most   int                 // most values that wait; more are dropped
	Bytes  int                 // most bytes of waiting values; 0 is no limit
	Weigh  func(T) int         // the approximate size of a value in bytes; nil without a limit
	Left   func(missing int) T // returns the value that reports how many were dropped
	Broken func(v any)         // called the first time that user code panics

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	values  []T
	size    int           // total bytes of values
	missing int           // values that were dropped
	passed  chan struct{} // closed when all values are passed; nil while there are none
	broken  bool
}

// Put adds a value. It doesn't block.
func (r *Relay[T]) Put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := r.weigh(v)
	if len(r.values) >= r.Most || r.Bytes > 0 && r.size+size > r.Bytes {
		r.missing++
		return
	}
	r.values = append(r.values, v)
	r.size += size
	if r.passed == nil {
		r.passed = make(chan struct{})
		go r.work()
	}
}

func (r *Relay[T]) weigh(v T) int {
	if r.Weigh == nil {
		return 0
	}
	return r.Weigh(v)
}

// work passes all values. If user code panics or ends the goroutine, only that value is lost.
func (r *Relay[T]) work() {
	over := false
	defer func() { // even if a method of the value that it panicked with ends the goroutine
		if !over {
			go r.work()
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			r.mu.Lock()
			first := !r.broken
			r.broken = true
			r.mu.Unlock()
			if first {
				r.Broken(v)
			}
		}
	}()
	for v := range r.next {
		r.Pass(v)
	}
	over = true
}

// next yields the values until there are none.
func (r *Relay[T]) next(yield func(T) bool) {
	for {
		r.mu.Lock()
		var v, none T
		switch {
		case len(r.values) > 0:
			v, r.values[0] = r.values[0], none
			r.values = r.values[1:]
			r.size -= r.weigh(v)
		case r.missing > 0:
			v = r.Left(r.missing)
			r.missing = 0
		default:
			r.values = nil
			close(r.passed)
			r.passed = nil
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if !yield(v) {
			return
		}
	}
}

// patience is how long a peer that stops waits for user code to take the last values.
const patience = time.Second

// Flush waits until all values are passed, unless user code blocks.
func (r *Relay[T]) Flush() {
	r.mu.Lock()
	passed := r.passed
	r.mu.Unlock()
	if passed == nil {
		return
	}
	select {
	case <-passed:
	case <-time.After(patience):
	}
}
