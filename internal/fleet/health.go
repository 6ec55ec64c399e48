package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// LastBeat returns when the last answered heartbeat was sent, or the worker was started. In a
// cluster, it refers to the node that has been silent for longest. It is zero without a worker.
func (f *Fleet) LastBeat() time.Time {
	w := f.present()
	if w == nil {
		return time.Time{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beatenLocked()
}

// beatenLocked does LastBeat's work under the lock.
func (w *worker) beatenLocked() time.Time {
	oldest := w.nodes[store.Somewhere].answered // it renews the registration
	for _, m := range w.members {
		if at := m.node.answered; at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// Unfit returns why the worker can't work on all its queues now, or nil if it can.
func (f *Fleet) Unfit() error {
	w := f.present()
	if w == nil {
		return fmt.Errorf("%w; call Run or StartWorker", ErrNotStarted)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closing:
		return engine.ErrShutdown
	case w.evicted:
		return fmt.Errorf("%w; it comes back under a new id", engine.ErrEvicted)
	}
	for _, id := range slices.Sorted(maps.Keys(w.wanted)) {
		if w.members[id] == nil {
			name, _ := nameOf(id)
			return NotJoined(name)
		}
	}
	if silent := time.Since(w.beatenLocked()); f.Lease > 0 && silent >= f.times.Sure {
		return fmt.Errorf("%w; the last answered heartbeat was sent %v ago", engine.ErrLeaseExpired, silent.Round(time.Millisecond))
	}
	return nil
}

// NotJoined returns an error saying that the worker isn't a member of a queue yet.
func NotJoined(queue string) error {
	return fmt.Errorf("%w: %q hasn't been joined yet", engine.ErrNotWorking, queue)
}

// stuckAfter is the shortest time after which heartbeats count as stuck, so that a busy machine doesn't.
const stuckAfter = 30 * time.Second

// Stuck returns an error if heartbeats are no longer sent, although Redis may answer: their loop
// hasn't begun a turn for far longer than a turn may take.
func (f *Fleet) Stuck() (err error) {
	f.with(func(w *worker) {
		most := max(stuckAfter, 2*(w.patience()+f.times.Beat))
		for _, n := range w.nodes {
			if since := time.Since(n.turned); since > most {
				err = fmt.Errorf("no heartbeat has been attempted for %v", since.Round(time.Second))
			}
		}
	})
	return err
}
