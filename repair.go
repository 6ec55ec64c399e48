package worqr

import (
	"context"

	"github.com/worqr/worqr/internal/store"
)

// Repair does what Check does, and repairs what it can without losing a task. It returns
// tasks that nobody holds to the front of their queue, removes what gone workers have left,
// and makes keys agree that don't. It fails a worker whose lease has expired on two looks,
// a lease apart, if no other worker serves its queue. Each finding says what was done.
// What Repair can't fix, such as a key of a wrong type or the settings of Redis, it
// reports as Check does.
//
// It's safe while the fleet works, and may be repeated. When it fails, it may have
// repaired some things.
func (p *Peer) Repair(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	r, err := p.checkUp(ctx, opts, true)
	return r, wrap("repair", err)
}

// goOn returns what is left of a worker whose return has begun.
func (c *checkup) goOn(pt *patient, worker string, dead bool) error {
	returned, err := store.GoOn(c.ctx, c.peer.calls, pt.queue.keys, worker)
	c.peer.counts.returned.Add(int64(returned))
	if err == nil && dead {
		err = c.peer.unregister(c.ctx, worker)
	}
	return err
}
