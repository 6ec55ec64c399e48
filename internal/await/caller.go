package await

import (
	"errors"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A caller waits for the next end of an entry's task. Only the goroutine that reads the queue
// touches it once it's added.
type caller struct {
	began time.Time
	done  chan verdict // has an element once it's over

	pending bool          // it has seen something wait or run
	before  int64         // the time of the record that was there then; 0 if there was none
	seen    time.Time     // when it last saw so: before that was asked
	keeps   time.Duration // how long the result of that is kept
}

// A verdict is what a caller returns.
type verdict struct {
	record *store.Record
	err    error
}

// told judges what Redis has answered to a question sent at one time and answered at another.
func (c *caller) told(e *store.End, sent, now time.Time) {
	switch record := e.Record; {
	case record != nil && (!c.pending && !e.Pending() || c.pending && record.At != c.before):
		c.end(record, nil)
	case e.Pending() && e.Keeps() == 0:
		c.end(nil, errNotKept)
	case e.Pending():
		if !c.pending && record != nil {
			c.before = record.At
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

// failed judges an error. Before the first answer, only an outage that isn't long is waited out;
// after it, everything that may pass.
func (c *caller) failed(err error, long bool) {
	if errors.Is(err, store.ErrClosed) || store.IsDenied(err) || !c.pending && (long || !store.IsAway(err)) {
		c.end(nil, err)
	}
}

func (c *caller) end(r *store.Record, err error) {
	select {
	case c.done <- verdict{r, err}:
	default: // it has ended
	}
}
