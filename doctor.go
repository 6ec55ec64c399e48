package worqr

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/doctor"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// Check scans the fleet's keys and reports broken invariants, stuck tasks, backlogs and risky
// server settings; docs/findings.md explains each. It adds the findings of Options.Sources. It changes nothing. Give ctx at least two
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
	if err := p.checkLimits(&o); err != nil {
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
	notes, unnoted := store.ReadNotes(ctx, p.reads, p.space)
	switch {
	case store.IsWrongType(unnoted):
		unnoted = nil // the report says that
	case store.IsAway(unnoted) && !p.lines.InCluster(): // where other nodes may answer
		return nil, unnoted
	}
	config := doctor.Config{
		Runner: runner, Space: p.space, Lease: lease, Repair: repair, Prefix: p.prefix(), Limits: o, Notes: notes,
	}
	if p.lines.InCluster() {
		config.Nodes = p.lines.Nodes
	}
	r, returned, err := doctor.Examine(ctx, config)
	p.fleet.Counts().TasksReturned.Add(int64(returned))
	if err != nil && !repair {
		return nil, lacking(err)
	}
	if r != nil {
		p.addFindings(ctx, r, o.Ignore)
		r.Findings = append(r.Findings, doctor.Judge(&inspect.Sight{At: notes.Now, Happened: notes.Happened, Unnoted: unnoted, Limits: o})...)
		doctor.Silence(r.Findings, notes.Silences, notes.Now)
		doctor.Sort(r)
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
func (p *Peer) checkLimits(o *inspect.CheckOptions) error {
	switch {
	case o.MaxRunTime < 0:
		return fmt.Errorf("%w: MaxRunTime %v is negative; 0 means the default", ErrInvalid, o.MaxRunTime)
	case o.MaxWaitTime < 0:
		return fmt.Errorf("%w: MaxWaitTime %v is negative; 0 means the default", ErrInvalid, o.MaxWaitTime)
	}
	for _, kind := range o.Ignore {
		named := func(s inspect.Source) bool { return s.Name == string(kind) }
		if !slices.Contains(FindingKinds(), kind) && !slices.ContainsFunc(p.sources, named) {
			return fmt.Errorf("%w: unknown finding kind %s in Ignore; see FindingKinds", ErrInvalid, words.Shown(string(kind)))
		}
	}
	return nil
}

// FindingKinds returns every kind of finding that Check reports, except those of Options.Sources.
func FindingKinds() []inspect.FindingKind { return slices.Clone(doctor.Kinds) }

// A Query says which tasks Explain looks for. Set Payload, Key or Header.
type Query struct {
	Payload       []byte // nil is unset
	Key           string
	Header, Value string // the header's name and its value
}

func (by Query) Format(s fmt.State, _ rune) { logs.Show(s, "query", by) }

func (by Query) LogValue() slog.Value { return slog.GroupValue(slog.Int("bytes", len(by.Payload))) }

// Explain reports where the copies of a task are, who holds them, and why they don't run.
//
//   - By payload, it finds what Cancel would: up to ten copies of each kind, among the first 100,000
//     tasks of the list. Tasks of Add, except unique ones, are known by their keys.
//   - By key, it also searches the newest 1,000 failed tasks.
//   - By header, it finds up to ten tasks; TaskCopy.Key tells them apart. It searches 10,000 each of
//     named and running tasks, and the newest 1,000 failed ones.
func (q *Queue) Explain(ctx context.Context, by Query) (*inspect.Explanation, error) {
	e, err := q.explain(ctx, by)
	return e, q.wrap("explain", err)
}

func (q *Queue) explain(ctx context.Context, by Query) (*inspect.Explanation, error) {
	set := 0
	for _, given := range []bool{by.Payload != nil, by.Key != "", by.Header != ""} {
		if given {
			set++
		}
	}
	switch {
	case q.bad != nil:
		return nil, q.bad
	case set != 1 || by.Header == "" && by.Value != "":
		return nil, fmt.Errorf("%w: a Query needs one of Payload, Key and Header", ErrInvalid)
	case len(by.Key) > MaxKeySize:
		return nil, checkKey(by.Key)
	case by.Header != "":
		return q.explainHeader(ctx, by.Header, by.Value)
	case by.Key != "":
		return q.question(store.NameOf(by.Key), nil).Explain(ctx)
	}
	return q.question("", slices.Clone(by.Payload)).Explain(ctx)
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
		found = append(found, store.NameOf("")) // so that the queue itself is described, too
	}
	for _, task := range found {
		of, err := q.question(task, nil).Explain(ctx)
		if err != nil {
			return nil, err
		}
		doctor.Merge(e, of)
	}
	return e, nil
}

func (q *Queue) question(task string, payload []byte) doctor.Question {
	return doctor.Question{Runner: q.peer.reads, Space: q.peer.space, Queue: q.name, Prefix: q.peer.prefix(), Name: task, Payload: payload, Beat: q.peer.opts.beat()}
}

func (p *Peer) prefix() string { return cmp.Or(p.opts.Prefix, store.DefaultPrefix) }
