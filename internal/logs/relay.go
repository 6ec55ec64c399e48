package logs

import (
	"sync"
	"time"
)

// A Relay passes values to user code, in order and one at a time, on a goroutine that runs only
// while there are some. So Put is safe under any lock, and user code that is slow, blocks, panics,
// ends its goroutine or calls the peer delays nothing but the values behind it.
type Relay[T any] struct {
	Pass   func(T)             // calls user code
	Most   int                 // values that wait; there is no room for more
	Bytes  int                 // of the values that wait; 0 is no limit
	Weigh  func(T) int         // bytes of a value, about; nil without a limit
	Left   func(missing int) T // the value that says how many there was no room for
	Broken func(v any)         // user code panicked, for the first time

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	values  []T
	size    int           // bytes of values
	missing int           // values for which there was no room
	passed  chan struct{} // closed when all values are passed; nil when there are none
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

// work passes all values. A value with which user code panics or ends the goroutine is lost, and
// the others are not.
func (r *Relay[T]) work() {
	over := false
	defer func() {
		if over {
			return
		}
		if v := recover(); v != nil {
			r.mu.Lock()
			first := !r.broken
			r.broken = true
			r.mu.Unlock()
			if first {
				r.Broken(v)
			}
		}
		go r.work()
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

// Flush waits until all values are passed, but not for user code that blocks.
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
