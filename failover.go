package worqr

import (
	"context"
	"fmt"
)

// FailWorker evicts a worker, whether it lives or not: from now on it
// changes nothing any more, and its tasks are at the front of their queues. It
// returns how many. A worker that lives will notice, stop what it runs, and
// come back under another id.
//
// It looks at every queue, and blocks until all is done or ctx ends; it may be
// repeated. A worker that is not known has nothing returned. A queue that can't be
// looked at, such as one with a key of another type, doesn't stop it: the error names
// each of these.
func (p *Peer) FailWorker(ctx context.Context, worker string) (returned int, err error) {
	if worker == "" {
		return 0, wrap("fail worker", fmt.Errorf("%w: the worker's id is empty", ErrInvalid))
	}
	returned, err = p.fleet.Fail(ctx, worker)
	return returned, wrap("fail worker", err)
}

// Sweep looks at every queue now, once. It evicts workers whose lease had already
// expired at an earlier look, at least a third of a lease ago, and returns their ids.
// Running peers do this with every heartbeat; Sweep is for tools, and for fleets without
// a peer. It goes on after a queue that can't be looked at; the error names each.
func (p *Peer) Sweep(ctx context.Context) (failed []string, err error) {
	failed, err = p.fleet.Sweep(ctx)
	return failed, wrap("sweep", err)
}
