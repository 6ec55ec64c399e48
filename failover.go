package worqr

import (
	"context"
	"fmt"
)

// FailWorker evicts a worker, alive or not, returns its tasks to the front of their queues, and
// reports how many. A live worker stops its tasks and comes back under a new id. The error names
// each queue that failed.
func (p *Peer) FailWorker(ctx context.Context, worker string) (returned int, err error) {
	switch {
	case p.bad != nil:
		return 0, wrap("fail worker", p.bad)
	case worker == "":
		return 0, wrap("fail worker", fmt.Errorf("%w: the worker's id is empty", ErrInvalid))
	}
	returned, err = p.fleet.Fail(ctx, worker)
	return returned, wrap("fail worker", err)
}

// Sweep evicts workers that an earlier Sweep, at least a third of Options.Lease ago, found silent
// for two thirds of their lease, and returns their ids. Running peers do it with their heartbeats, when it's due. It
// fails as FailWorker does.
func (p *Peer) Sweep(ctx context.Context) (failed []string, err error) {
	if p.bad != nil {
		return nil, wrap("sweep", p.bad)
	}
	failed, err = p.fleet.Sweep(ctx)
	return failed, wrap("sweep", err)
}
