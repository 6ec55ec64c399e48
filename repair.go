package worqr

import (
	"context"

	"github.com/worqr/worqr/internal/script"
)

// Repair does what Check does, and puts right what can be without losing a task:
// tasks that nobody holds go back to the front, what is left of those who are
// gone goes, keys that disagree are made to agree, and a worker that was not heard
// of on two looks, a lease apart, is failed if nobody else serves its queue. Each
// finding tells what was done. What Repair can do nothing about (a key that holds
// something else, the settings of Redis) is reported as Check does.
//
// It is safe while the fleet works, and may be repeated. When it fails, some may
// have been put right.
func (p *Peer) Repair(ctx context.Context) (*CheckReport, error) {
	r, err := p.checkUp(ctx, true)
	return r, wrap("repair", err)
}

// goOn returns what is left of a worker whose return has begun.
func (c *checkup) goOn(pt *patient, worker string, dead bool) error {
	returned, err := script.GoOn(c.ctx, c.peer.calls, pt.queue.keys, worker)
	c.peer.counts.returned.Add(int64(returned))
	if err == nil && dead {
		err = c.peer.unregister(c.ctx, worker)
	}
	return err
}
