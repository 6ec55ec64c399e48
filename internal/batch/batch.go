// Package batch gathers single items into batches. It decides which batch runs when; a goroutine
// that waits for the batch runs it.
package batch

import (
	"slices"
	"sync"
	"time"
)

// A Gatherer makes batches. The first member of each runs it, in its own goroutine. The methods may
// be called concurrently.
type Gatherer[T any] struct {
	size int           // most members of a batch
	wait time.Duration // how long a batch that isn't full waits for more

	mu      sync.Mutex // protects the fields below, and Member.until
	most    int        // most batches that run concurrently
	running int
	waiting []*Member[T] // in the order of their arrival
	timer   *time.Timer  // fires when the first of them has waited long enough; nil before the first
}

// A Member waits for a batch, or is in one.
type Member[T any] struct {
	Item    T
	Turn    chan []*Member[T] // receives the batch that this member must run before it calls Done
	Verdict chan error        // receives the result from the member that runs the batch; capacity 1

	until time.Time // end of its wait for other members
}

// New returns a Gatherer of batches of up to size members. Up to most batches run concurrently.
func New[T any](size, most int, wait time.Duration) *Gatherer[T] {
	return &Gatherer[T]{size: size, most: most, wait: wait}
}

// SetMost changes how many batches run concurrently.
func (g *Gatherer[T]) SetMost(most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = most
	g.formLocked(time.Now())
}

// Add makes an item wait for a batch.
func (g *Gatherer[T]) Add(item T) *Member[T] {
	now := time.Now()
	m := &Member[T]{Item: item, Turn: make(chan []*Member[T], 1), Verdict: make(chan error, 1), until: now.Add(g.wait)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, m)
	g.formLocked(now)
	return m
}

// Remove removes a waiting member. It returns false if a batch has it.
func (g *Gatherer[T]) Remove(m *Member[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, m)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// Hurry ends the wait of a member, and of those before it, which join its batch.
func (g *Gatherer[T]) Hurry(m *Member[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, first := range g.waiting[:slices.Index(g.waiting, m)+1] {
		first.until = time.Time{}
	}
	g.formLocked(time.Now())
}

// Done reports that a batch has ended.
func (g *Gatherer[T]) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.formLocked(time.Now())
}

func (g *Gatherer[T]) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.formLocked(time.Now())
}

// formLocked starts the batches that are full or have waited long enough, as far as most allows.
func (g *Gatherer[T]) formLocked(now time.Time) {
	for g.running < g.most && len(g.waiting) > 0 {
		if left := g.waiting[0].until.Sub(now); left > 0 && len(g.waiting) < g.size {
			if g.timer == nil {
				g.timer = time.AfterFunc(left, g.look)
			} else {
				g.timer.Reset(left)
			}
			return
		}
		n := min(len(g.waiting), g.size)
		batch := slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
		g.running++
		batch[0].Turn <- batch
	}
}
