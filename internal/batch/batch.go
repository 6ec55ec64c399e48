// Package batch gathers what arrives one by one into batches. It decides which batch runs when; who
// waits for it runs it.
package batch

import (
	"slices"
	"sync"
	"time"
)

// A Gatherer makes batches. They are run by their first members, each in its own goroutine. Its
// methods may be called concurrently.
type Gatherer[T any] struct {
	size int           // members of a batch, at most
	wait time.Duration // how long one that isn't full waits for more

	mu      sync.Mutex // protects the fields below, and those of members
	most    int        // batches that run at once
	running int
	waiting []*Member[T] // in the order of their arrival
	timer   *time.Timer  // until the first of them has waited for long enough; nil before there was one
}

// A Member waits for a batch, or is in one.
type Member[T any] struct {
	Item    T
	Turn    chan []*Member[T] // brings the batch that this member is to run, followed by Done
	Verdict chan error        // for whoever runs the batch to tell the others; holds one

	until time.Time // then it has waited for long enough
}

// New returns a Gatherer of batches of up to size members, most of which run at once.
func New[T any](size, most int, wait time.Duration) *Gatherer[T] {
	return &Gatherer[T]{size: size, most: most, wait: wait}
}

// SetMost changes how many batches run at once.
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

// Remove takes back a member that waits. It is false if a batch has it.
func (g *Gatherer[T]) Remove(m *Member[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, m)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// Hurry lets a member wait no longer for others, and those before it, which go with it.
func (g *Gatherer[T]) Hurry(m *Member[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, first := range g.waiting[:slices.Index(g.waiting, m)+1] {
		first.until = time.Time{}
	}
	g.formLocked(time.Now())
}

// Done says that a batch is over.
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

// formLocked starts the batches that are full or have waited for long enough, as far as they may run.
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
