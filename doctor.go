package worqr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/doctor"
	"github.com/worqr/worqr/internal/store"
)

// Check scans the fleet's keys and reports broken invariants, stuck tasks, backlogs and risky
// server settings; docs/findings.md explains each. It changes nothing. It looks twice at what may
// be transient, so give ctx at least two leases. It fails with ErrDenied if the Redis user lacks
// the doctor's rule.
func (p *Peer) Check(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	r, err := p.examine(ctx, opts, false)
	return r, wrap("check", err)
}

// Repair does what Check does, and repairs what it can without losing a task. The fleet may keep
// running.
func (p *Peer) Repair(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	r, err := p.examine(ctx, opts, true)
	return r, wrap("repair", err)
}

func (p *Peer) examine(ctx context.Context, opts *CheckOptions, repair bool) (*CheckReport, error) {
	if p.bad != nil {
		return nil, p.bad
	}
	var o CheckOptions
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	ignore := map[doctor.Kind]bool{}
	for _, kind := range o.Ignore {
		ignore[doctor.Kind(kind)] = true
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
		Runner: runner, Space: p.space, Lease: lease, Beat: p.opts.beat(), Nonces: nonceWindow, Repair: repair, Ignore: ignore,
		Limits: doctor.Limits{Run: o.MaxRunTime, Wait: o.MaxWaitTime, Backlog: o.MaxBacklog, Retrying: o.MaxRetrying, Failed: o.MaxFailed},
	}
	if p.lines.InCluster() {
		config.Nodes = p.lines.Nodes
	}
	r, err := doctor.Examine(ctx, config)
	p.fleet.Counts().Returned.Add(int64(r.Returned))
	if err != nil {
		return nil, lacking(err)
	}
	report := &CheckReport{Queues: r.Queues, Keys: r.Keys, Omitted: r.Omitted, unwell: r.Unwell, repair: repair, prefix: cmp.Or(p.opts.Prefix, store.DefaultPrefix)}
	for _, f := range r.Findings {
		report.Findings = append(report.Findings, Finding{
			Kind: FindingKind(f.Kind), Severity: Severity(f.Severity), Queue: f.Queue, Key: f.Key, Subject: f.Subject, Text: f.Text, Repaired: f.Repaired})
	}
	return report, nil
}

// lacking says what to do about a denial: a worker's rule isn't enough for a checkup.
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

// CheckOptions configure Check and Repair. Exceeding a limit that you set is a warning;
// exceeding a default is a notice.
type CheckOptions struct {
	MaxRunTime time.Duration // of a task; 0 is an hour
	// MaxWaitTime is how late a due task may start, and how long a queue with waiting tasks may
	// start none; 0 is ten minutes.
	MaxWaitTime time.Duration
	MaxBacklog  int // due tasks that may wait on a queue; 0 is any number, negative none
	MaxRetrying int // tasks of a queue that may wait for a retry; 0 is 10, negative none
	MaxFailed   int // tasks of a failed queue; 0 reports any as a notice, negative as a warning
	// Ignore leaves findings of these kinds out of the report, but not out of Repair.
	Ignore []FindingKind
}

func (o *CheckOptions) check() error {
	if o.MaxRunTime < 0 || o.MaxWaitTime < 0 {
		return fmt.Errorf("%w: MaxRunTime %v and MaxWaitTime %v must not be negative", ErrInvalid, o.MaxRunTime, o.MaxWaitTime)
	}
	for _, kind := range o.Ignore {
		if !slices.Contains(FindingKinds(), kind) {
			return fmt.Errorf("%w: unknown finding kind %s in Ignore; see FindingKinds", ErrInvalid, doctor.Shown(string(kind)))
		}
	}
	return nil
}

// A FindingKind says what is wrong, such as "orphan".
type FindingKind string

// FindingKinds returns all kinds.
func FindingKinds() []FindingKind {
	kinds := make([]FindingKind, len(doctor.Kinds))
	for i, kind := range doctor.Kinds {
		kinds[i] = FindingKind(kind)
	}
	return kinds
}

// A Severity says how bad a finding is.
type Severity string

const (
	SeverityError   Severity = "error"   // an invariant doesn't hold
	SeverityWarning Severity = "warning" // tasks are stuck or at risk, or a limit that you set is exceeded
	SeverityNotice  Severity = "notice"  // worth knowing, and perhaps intended
)

// A Finding is one problem or risk.
type Finding struct {
	Kind     FindingKind
	Severity Severity
	Queue    string // "" if none; a failed queue's ends in " (failed)"
	Key      string // in Redis; keys of tasks and nonces appear as #digest
	Subject  string // a worker, attempt or digest
	Text     string // what is wrong, and what to do
	Repaired bool
}

// String returns the finding as one line.
func (f Finding) String() string {
	repaired := ""
	if f.Repaired {
		repaired = ", repaired"
	}
	line := fmt.Sprintf("%s (%s%s)", f.Severity, f.Kind, repaired)
	if f.Queue != "" {
		line += fmt.Sprintf(" on %q", f.Queue)
	}
	line += ": " + f.Text
	if f.Key != "" {
		line += fmt.Sprintf(" Key: %q.", f.Key)
	}
	if f.Subject != "" {
		line += fmt.Sprintf(" Subject: %q.", f.Subject)
	}
	return line
}

// A CheckReport is the result of Check or Repair.
type CheckReport struct {
	Queues   int       // examined
	Keys     int       // examined
	Findings []Finding // worst first
	Omitted  int       // beyond the first 1,000
	unwell   bool      // an omitted finding is an error that remains
	prefix   string    // the prefix that was searched
	repair   bool
}

// OK reports whether every invariant holds: no finding of severity error is left.
func (r *CheckReport) OK() bool {
	return !r.unwell && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityError && !f.Repaired })
}

// String returns a line for each finding.
func (r *CheckReport) String() string {
	count := map[Severity]int{}
	repaired := 0
	for _, f := range r.Findings {
		count[f.Severity]++
		if f.Repaired {
			repaired++
		}
	}
	var all strings.Builder
	fmt.Fprintf(&all, "Checked %s in %s: %s, %s, %s",
		doctor.Several(r.Keys, "key"), doctor.Several(r.Queues, "queue"), doctor.Several(count[SeverityError], "error"), doctor.Several(count[SeverityWarning], "warning"), doctor.Several(count[SeverityNotice], "notice"))
	if r.repair {
		fmt.Fprintf(&all, "; %d repaired", repaired)
	}
	all.WriteByte('\n')
	switch {
	case r.Keys == 0:
		fmt.Fprintf(&all, "nothing of worqr is under the prefix %q; check the prefix and the Redis URL\n", r.prefix)
	case r.Queues == 0:
		fmt.Fprintf(&all, "no queues found under the prefix %q; check the prefix and the Redis URL\n", r.prefix)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(&all, f)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&all, "and %d more\n", r.Omitted)
	}
	return all.String()
}

// A CopyState says where a copy of a task is.
type CopyState string

const (
	CopyWaiting   CopyState = "waiting" // on the list
	CopyScheduled CopyState = "scheduled"
	CopyBlocked   CopyState = "blocked" // behind the running task with its key
	CopyRunning   CopyState = "running" // held by a worker
	CopyFailed    CopyState = "failed"
)

// A Reason says why a copy of a task doesn't run.
type Reason string

const (
	ReasonPaused       Reason = "paused"
	ReasonNoWorker     Reason = "no-worker"
	ReasonBusy         Reason = "busy" // no worker is idle
	ReasonNotDue       Reason = "not-due"
	ReasonWithheld     Reason = "withheld"      // it recurs, and no live peer has its schedule
	ReasonBehind       Reason = "behind"        // other tasks start before it
	ReasonBlocked      Reason = "blocked"       // a task with its key is running
	ReasonSuspect      Reason = "suspect"       // it waits to run alone: one more crash would fail it
	ReasonLeaseExpired Reason = "lease-expired" // its worker's heartbeats have stopped
	ReasonReturning    Reason = "returning"     // its worker is gone, and it's being returned
	ReasonFailed       Reason = "failed"
)

// A TaskCopy is one copy of a task.
type TaskCopy struct {
	State      CopyState
	Key        string    // "" if it has none
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	Reasons    []Reason  // why it doesn't run; none if it does or is about to
	Before     int       // tasks that start before it, as far as that is known
	DueAt      time.Time // of a scheduled or blocked copy

	// For scheduled and failed copies.
	Retries int
	Crashes int

	// For running copies.
	AttemptID  string
	Token      int64
	StartedAt  time.Time // by that peer's clock
	WorkerID   string    // that holds it, or ran it last
	WorkerName string    // "" if it isn't registered; so are Host and PID
	Host       string
	PID        int
	EvictAt    time.Time // about when; zero unless the worker's lease has expired

	// For failed copies.
	Kind     FailureKind
	Error    string
	FailedAt time.Time
}

// An Explanation says where a task is and why it doesn't run.
type Explanation struct {
	Queue       string
	At          time.Time // by Redis's clock
	NoSuchQueue bool
	Paused      bool
	Workers     int // serving the queue
	IdleWorkers int // with free slots
	NotSearched int // waiting tasks
	Copies      []TaskCopy
	Recurs      *RecurringTask // what recurs under the key, for ExplainKey; nil if nothing does

	prefix string // under which nothing was found
	recurs []string
}

// Explain says where the copies of a payload are, who holds them, and why they don't run. No copy
// means that the task is gone or never existed. It finds up to ten copies of each kind, among the
// first 100,000 tasks of the list.
func (q *Queue) Explain(ctx context.Context, payload []byte) (*Explanation, error) {
	e := &Explanation{Queue: q.name, NoSuchQueue: true, prefix: cmp.Or(q.peer.opts.Prefix, store.DefaultPrefix)}
	var mu sync.Mutex // protects it
	payload = slices.Clone(payload)
	all, err := q.whole(ctx)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	parts, err := all.known(ctx, false)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	err = eachOf(parts, func(part *Queue) error {
		of, err := part.explain(ctx, "", payload)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			e.add(of)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// ExplainKey is Explain for a key. It searches the newest 1,000 failed tasks.
func (q *Queue) ExplainKey(ctx context.Context, key string) (*Explanation, error) {
	if err := checkKey(key); err != nil {
		return nil, q.wrap("explain", err)
	}
	part, err := q.whole(ctx)
	if err == nil {
		part, err = part.ofKey(ctx, key)
	}
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	return part.explain(ctx, store.EntryOf(key), nil)
}

// ExplainHeader is Explain for up to ten tasks with a header, told apart by TaskCopy.Key. It
// searches 10,000 added, 10,000 scheduled and 10,000 running tasks, and the newest 1,000 failed
// ones.
func (q *Queue) ExplainHeader(ctx context.Context, name, value string) (*Explanation, error) {
	e := &Explanation{Queue: q.name, NoSuchQueue: true, prefix: cmp.Or(q.peer.opts.Prefix, store.DefaultPrefix)}
	if name == "" {
		return nil, q.wrap("explain", fmt.Errorf("%w: the name of the header is empty", ErrInvalid))
	}
	all, err := q.whole(ctx)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	parts, err := all.known(ctx, false)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	for _, part := range parts {
		if err := part.explainHeader(ctx, e, name, value); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// explainHeader adds what is found on a part.
func (q *Queue) explainHeader(ctx context.Context, e *Explanation, name, value string) error {
	if q.bad != nil {
		return q.wrap("explain", q.bad)
	}
	found, more, err := q.question("", nil).ByHeader(ctx, name, value)
	if err != nil {
		return q.wrap("explain", err)
	}
	if more {
		waits, err := store.Len(ctx, q.peer.reads, q.keys)
		if err != nil {
			return q.wrap("explain", err)
		}
		e.NotSearched += max(waits-doctor.WalkDepth, 0)
	}
	if len(found) == 0 {
		found = append(found, "") // for what there is to tell of the queue
	}
	for _, key := range found {
		of, err := q.explain(ctx, store.EntryOf(key), nil)
		if err != nil {
			return err
		}
		e.add(of)
	}
	return nil
}

// add merges what was found on a part.
func (e *Explanation) add(part *Explanation) {
	if part.At.After(e.At) {
		e.At = part.At
	}
	e.NoSuchQueue, e.Paused = e.NoSuchQueue && part.NoSuchQueue, e.Paused || part.Paused
	e.Workers, e.IdleWorkers = max(e.Workers, part.Workers), max(e.IdleWorkers, part.IdleWorkers)
	e.NotSearched += part.NotSearched
	e.Copies = append(e.Copies, part.Copies...)
}

func (q *Queue) question(entry string, payload []byte) doctor.Question {
	return doctor.Question{Runner: q.peer.reads, Space: q.peer.space, Queue: q.in, Entry: entry, Payload: payload, Beat: q.peer.opts.beat()}
}

func (q *Queue) explain(ctx context.Context, entry string, payload []byte) (*Explanation, error) {
	if q.bad != nil {
		return nil, q.wrap("explain", q.bad)
	}
	of, err := q.question(entry, payload).Explain(ctx)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	e := &Explanation{Queue: q.name, At: time.UnixMilli(of.Now), NoSuchQueue: of.NoSuchQueue, Paused: of.Paused, Workers: of.Workers,
		IdleWorkers: of.IdleWorkers, NotSearched: of.NotSearched, recurs: of.Recur(q.name), prefix: cmp.Or(q.peer.opts.Prefix, store.DefaultPrefix)}
	for _, c := range of.Copies {
		t := TaskCopy{State: CopyState(c.State), Key: c.Key, EnqueuedAt: moment(c.Since), Before: c.Before, DueAt: c.DueAt, Retries: c.Retries, Crashes: c.Crashes,
			AttemptID: c.Attempt, Token: c.Token, StartedAt: c.StartedAt, WorkerID: c.Worker, WorkerName: c.WorkerName, Host: c.Host, PID: c.PID,
			EvictAt: c.EvictAt, Kind: FailureKind(c.Kind), Error: c.Error, FailedAt: c.FailedAt}
		for _, why := range c.Reasons {
			t.Reasons = append(t.Reasons, Reason(why))
		}
		e.Copies = append(e.Copies, t)
	}
	if of.Recurs != nil {
		e.Recurs = new(recurringTaskOf(*of.Recurs))
	}
	return e, nil
}

// String returns a few human-readable sentences, without payload and key.
func (e *Explanation) String() string {
	switch {
	case e.Recurs != nil:
	case len(e.Copies) == 0 && e.NotSearched > 0:
		return fmt.Sprintf("No copy of the task was found on %q. It may be among the last %d waiting tasks, which weren't searched.", e.Queue, e.NotSearched)
	case e.NoSuchQueue:
		return fmt.Sprintf("No queue %q exists under the prefix %q. Check the name, the prefix and the URL of Redis.", e.Queue, e.prefix)
	case len(e.Copies) == 0:
		return fmt.Sprintf("No copy of the task is on %q: it was never enqueued, or it's done, canceled or deleted.", e.Queue)
	}
	all := make([]string, len(e.Copies))
	for i := range e.Copies {
		all[i] = e.sentence(&e.Copies[i])
	}
	return strings.Join(append(all, e.recurs...), "\n")
}

func (e *Explanation) sentence(c *TaskCopy) string {
	var s strings.Builder
	counts := fmt.Sprintf("retries: %d, crashes: %d", c.Retries, c.Crashes)
	switch c.State {
	case CopyWaiting:
		fmt.Fprintf(&s, "Waiting on %q.", e.Queue)
	case CopyScheduled:
		fmt.Fprintf(&s, "Scheduled on %q for %s (%s).", e.Queue, doctor.Clock(c.DueAt), counts)
	case CopyBlocked:
		fmt.Fprintf(&s, "Waiting on %q until the task that runs under its key has ended.", e.Queue)
	case CopyRunning:
		fmt.Fprintf(&s, "Running on worker %s", doctor.Shown(c.WorkerID))
		if c.WorkerName != "" {
			fmt.Fprintf(&s, " (%s, pid %d on %s)", doctor.Shown(c.WorkerName), c.PID, doctor.Shown(c.Host))
		}
		if !c.StartedAt.IsZero() {
			fmt.Fprintf(&s, " since %s", doctor.Clock(c.StartedAt))
		}
		fmt.Fprintf(&s, ", as attempt %s with token %d.", doctor.Shown(c.AttemptID), c.Token)
	case CopyFailed:
		fmt.Fprintf(&s, "Failed on %q at %s (%s, %s): %q. Requeue it to run it again.", e.Queue, doctor.Clock(c.FailedAt), doctor.Shown(string(c.Kind)), counts, c.Error)
	}
	for _, why := range c.Reasons {
		switch why {
		case ReasonPaused:
			s.WriteString(" The queue is paused; Resume it.")
		case ReasonNoWorker:
			s.WriteString(" No worker serves this queue; start a peer that handles it.")
		case ReasonBusy:
			fmt.Fprintf(&s, " All workers are busy (%d).", e.Workers)
		case ReasonNotDue:
			fmt.Fprintf(&s, " Due in %v.", c.DueAt.Sub(e.At).Round(time.Millisecond))
		case ReasonWithheld:
			s.WriteString(" It's withheld because no live peer has its schedule.")
		case ReasonBehind:
			fmt.Fprintf(&s, " %s before it.", doctor.Tasks(c.Before, "starts", "start"))
		case ReasonSuspect:
			fmt.Fprintf(&s, " %s died holding it. It's one crash away from failing, so it waits until its peer runs no other such task.", doctor.Several(c.Crashes, "worker"))
		case ReasonLeaseExpired:
			s.WriteString(" The worker's heartbeats have stopped.")
			if !c.EvictAt.IsZero() {
				fmt.Fprintf(&s, " Unless they resume, it's evicted at about %s, and the task returns to the front.", doctor.Clock(c.EvictAt))
			}
		case ReasonReturning:
			s.WriteString(" The worker is gone, and the task is being returned to the front.")
		}
	}
	if len(c.Reasons) == 0 && (c.State == CopyWaiting || c.State == CopyScheduled) {
		s.WriteString(" It's about to start.")
	}
	return s.String()
}
