package await

import (
	"errors"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A caller waits for the next end of a name's task. Once it is added, only the goroutine that
// reads the queue accesses it, except that others may end it.
type caller struct {
	began time.Time
	done  chan verdict // holds a value once the wait has ended

	pending bool          // it has seen a waiting or running task
	before  int64         // when the last task had ended at that moment; 0 if it isn't known
	seen    time.Time     // when the last read that found a task was sent
	keeps   time.Duration // how long that task's result is kept
}

// A verdict is what a caller returns.
type verdict struct {
	ended *store.Ended
	err   error
}

// told handles Redis's answer to a read, with the times of both.
func (c *caller) told(e *store.Fate, sent, now time.Time) {
	switch ended := e.Ended; {
	case ended != nil && (!c.pending && !e.Pending() || c.pending && ended.At != c.before):
		c.end(ended, nil)
	case e.Pending() && e.Keeps() == 0:
		c.end(nil, errNotKept)
	case e.Pending():
		if !c.pending && ended != nil {
			c.before = ended.At
		}
		c.pending, c.seen, c.keeps = true, sent, e.Keeps()
	case !c.pending:
		c.end(nil, ErrUnknown)
	case now.Sub(c.seen) >= c.keeps:
		c.end(nil, errExpired)
	default:
		c.end(nil, nil) // it's gone with its queue
	}
}

// failed handles an error. Before the first answer, the wait survives only a short outage; after
// it, it survives every error that may be temporary.
func (c *caller) failed(err error, long bool) {
	if errors.Is(err, store.ErrClosed) || store.IsDenied(err) || !c.pending && (long || !store.IsAway(err)) {
		c.end(nil, err)
	}
}

func (c *caller) end(r *store.Ended, err error) {
	select {
	case c.done <- verdict{r, err}:
	default: // it has ended
	}
}
