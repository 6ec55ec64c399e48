package worqr

import "context"

// Check walks through all that the fleet has in Redis and reports what no
// invariant allows, what holds up tasks, and what endangers them. It changes
// nothing, and may be run while the fleet works, from any peer, started or not.
// It reports nothing of a fleet that is well; what only looks odd for a moment,
// because workers start, die and are returned meanwhile, it looks at a second
// time, a lease later, so it takes that long where it has doubts.
//
// It reads the keyspace by pages, with SCAN, and judges each thing by a short
// script, so no call to Redis is long. All of it takes time in proportion to the
// number of keys in the database, and memory to that of the tasks that run.
// Redis is asked about itself with INFO and CONFIG GET; where it may not be, the
// report says so. So give the context two leases at least, more with many keys.
//
// OK of the report is about invariants only. What holds up or endangers tasks is
// in Findings, with SeverityDanger. Tasks that wait while their queue is paused are
// a notice, since a pause may be meant, and a danger while they become more. A
// service that checks itself does so once Run has begun: before, nobody may serve
// its queues, which is a danger.
//
// Findings name keys, workers and runs of tasks, and never payloads; keys of tasks
// are given by their digests.
func (p *Peer) Check(ctx context.Context) (*CheckReport, error) {
	r, err := p.checkUp(ctx, false)
	return r, wrap("check", err)
}
