package worqr

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/doctor"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// Check scans the fleet's keys and reports broken invariants, stuck tasks, backlogs and risky
// server settings; docs/findings.md explains each. It changes nothing. Give ctx at least two
// leases. It fails with ErrDenied if the Redis user may not scan the keys.
func (p *Peer) Check(ctx context.Context, opts *inspect.CheckOptions) (*inspect.CheckReport, error) {
	r, err := p.examine(ctx, opts, false)
	return r, wrap("check", err)
}

// Repair is Check, and repairs what keeps tasks from starting, while the fleet runs: it returns tasks that
// no worker holds, evicts dead workers, lifts the token, and corrects times that are ahead. Errors come
// with the report.
func (p *Peer) Repair(ctx context.Context, opts *inspect.CheckOptions) (*inspect.CheckReport, error) {
	r, err := p.examine(ctx, opts, true)
	return r, wrap("repair", err)
}

func (p *Peer) examine(ctx context.Context, opts *inspect.CheckOptions, repair bool) (*inspect.CheckReport, error) {
	if p.bad != nil {
		return nil, p.bad
	}
	var o inspect.CheckOptions
	if opts != nil {
		o = *opts
	}
	if err := checkLimits(&o); err != nil {
		return nil, err
	}
	lease := p.opts.Lease
	if lease < 0 {
		lease = defaultLease
	}
	runner := p.reads
	if repair {
		runner = p.calls
	}
	config := doctor.Config{
		Runner: runner, Space: p.space, Lease: lease, Repair: repair, Prefix: p.prefix(), Limits: o,
	}
	if p.lines.InCluster() {
		config.Nodes = p.lines.Nodes
	}
	r, returned, err := doctor.Examine(ctx, config)
	p.fleet.Counts().Returned.Add(int64(returned))
	if err != nil && !repair {
		return nil, lacking(err)
	}
	return r, lacking(err)
}

// lacking adds advice to a denial: a worker's ACL rule isn't enough for a check.
func lacking(err error) error {
	command, denied := store.DeniedCommand(err)
	if !denied {
		return err
	}
	what := "do this"
	if command != "" {
		what = "run " + command
	}
	return fmt.Errorf("%w: the Redis user may not %s; grant it the rule \"Doctor\" in docs/security.md: %w", ErrDenied, what, err)
}

// checkLimits rejects options that make no sense.
func checkLimits(o *inspect.CheckOptions) error {
	switch {
	case o.MaxRunTime < 0:
		return fmt.Errorf("%w: MaxRunTime %v is negative; 0 means the default", ErrInvalid, o.MaxRunTime)
	case o.MaxWaitTime < 0:
		return fmt.Errorf("%w: MaxWaitTime %v is negative; 0 means the default", ErrInvalid, o.MaxWaitTime)
	}
	for _, kind := range o.Ignore {
		if !slices.Contains(FindingKinds(), kind) {
			return fmt.Errorf("%w: unknown finding kind %s in Ignore; see FindingKinds", ErrInvalid, words.Shown(string(kind)))
		}
	}
	return nil
}

// FindingKinds returns every kind of finding that Check reports.
func FindingKinds() []inspect.FindingKind { return slices.Clone(doctor.Kinds) }

// Explain reports where the copies of a payload are, who holds them, and why they don't run. It
// finds tasks from Add only while they run; use ExplainKey. It finds up to ten copies of each kind,
// among the first 100,000 tasks of the list.
func (q *Queue) Explain(ctx context.Context, payload []byte) (*inspect.Explanation, error) {
	if q.bad != nil {
		return nil, q.wrap("explain", q.bad)
	}
	e, err := q.question("", slices.Clone(payload)).Explain(ctx)
	return e, q.wrap("explain", err)
}

// ExplainKey is Explain for a key. It searches the newest 1,000 failed tasks.
func (q *Queue) ExplainKey(ctx context.Context, key string) (*inspect.Explanation, error) {
	if err := q.checkKey(key); err != nil {
		return nil, q.wrap("explain", err)
	}
	e, err := q.question(store.EntryOf(key), nil).Explain(ctx)
	return e, q.wrap("explain", err)
}

// ExplainHeader is Explain for up to ten tasks with a header; TaskCopy.Key tells them apart. It
// searches 10,000 each of added, scheduled and running tasks, and the newest 1,000 failed ones.
func (q *Queue) ExplainHeader(ctx context.Context, name, value string) (*inspect.Explanation, error) {
	if name == "" {
		return nil, q.wrap("explain", fmt.Errorf("%w: the name of the header is empty", ErrInvalid))
	}
	if q.bad != nil {
		return nil, q.wrap("explain", q.bad)
	}
	e, err := q.explainHeader(ctx, name, value)
	return e, q.wrap("explain", err)
}

func (q *Queue) explainHeader(ctx context.Context, name, value string) (*inspect.Explanation, error) {
	e := &inspect.Explanation{Queue: q.name, NoSuchQueue: true, Prefix: q.peer.prefix()}
	found, more, err := q.question("", nil).ByHeader(ctx, name, value)
	if err != nil {
		return nil, err
	}
	if more {
		waits, err := store.Len(ctx, q.peer.reads, q.keys)
		if err != nil {
			return nil, err
		}
		e.NotSearched += max(waits-doctor.WalkDepth, 0)
	}
	if len(found) == 0 {
		found = append(found, "") // so that the queue itself is described, too
	}
	for _, key := range found {
		of, err := q.question(store.EntryOf(key), nil).Explain(ctx)
		if err != nil {
			return nil, err
		}
		doctor.Merge(e, of)
	}
	return e, nil
}

func (q *Queue) question(entry string, payload []byte) doctor.Question {
	return doctor.Question{Runner: q.peer.reads, Space: q.peer.space, Queue: q.name, Prefix: q.peer.prefix(), Entry: entry, Payload: payload, Beat: q.peer.opts.beat()}
}

func (p *Peer) prefix() string { return cmp.Or(p.opts.Prefix, store.DefaultPrefix) }
