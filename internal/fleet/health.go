package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// noteTurn records that the heartbeat loop begins a turn.
func (c *circle) noteTurn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turned = time.Now()
}

// noteAnswer records that Redis has answered a beat that was sent at the given time.
func (c *circle) noteAnswer(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = sent
}

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
func (w *worker) beatenLocked() (oldest time.Time) {
	beating := map[*circle]bool{w.circles[store.Somewhere]: true} // the circle that renews the registration
	for _, m := range w.members {
		beating[m.circle] = true
	}
	for _, c := range w.circles {
		if beating[c] && (oldest.IsZero() || c.answered.Before(oldest)) {
			oldest = c.answered
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
	if w.closing {
		return engine.ErrShutdown
	}
	if w.evicted {
		return fmt.Errorf("%w; it comes back under a new id", engine.ErrEvicted)
	}
	for _, id := range slices.Sorted(maps.Keys(w.wanted)) {
		if w.members[id] == nil {
			return NotJoined(half(id).Queue)
		}
	}
	if silent := time.Since(w.beatenLocked()); f.Lease > 0 && silent >= f.lease.Sure {
		return fmt.Errorf("%w; the last answered heartbeat was sent %v ago", engine.ErrLeaseExpired, silent.Round(time.Millisecond))
	}
	return nil
}

// NotJoined returns an error saying that the worker isn't a member of a queue yet.
func NotJoined(queue string) error {
	return fmt.Errorf("%w: %q hasn't been joined yet", engine.ErrNotWorking, queue)
}

// stuckAfter is the shortest time after which a heartbeat turn counts as stuck, so that a busy
// machine doesn't.
const stuckAfter = 30 * time.Second

// Stuck returns an error if heartbeats are no longer sent, although Redis may answer: their loop
// hasn't begun a turn for far longer than a turn may take.
func (f *Fleet) Stuck() error {
	w := f.present()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	most := max(stuckAfter, 2*(w.patience()+f.lease.Beat))
	for _, c := range w.circles {
		if since := time.Since(c.turned); since > most {
			return fmt.Errorf("no heartbeat has been attempted for %v", since.Round(time.Second))
		}
	}
	return nil
}
