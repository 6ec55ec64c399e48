package worqr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/doctor"
	"github.com/worqr/worqr/internal/store"
)

// Check scans the fleet's keys and reports broken invariants, a service that doesn't do
// its work (tasks that run, wait, fail or are retried too long or too often), and risky
// server settings. It changes nothing. Run it at any time, from any peer, started or not.
//
// Some things look odd for a moment while workers start, die and leave. Check looks at
// these again a lease later, so give the context two leases at least, and more with many
// keys. It reads the keyspace in pages with SCAN and judges each page in a short script.
// Its time grows with the number of keys in the database, its memory with the tasks that
// run.
//
// OK of the report is about invariants only. For an alert, look at Findings with
// SeverityWarning too: tasks that nobody works on, server settings that endanger them, and
// what exceeds a limit that opts set. What exceeds a default limit is a notice. A service
// that checks itself does so once Run has begun: before, its queues are unserved.
//
// How long a task has run goes by the clock of the peer that started it. Check asks
// INFO and CONFIG GET about the server; where it may not, the report says so. Findings
// name keys, workers and runs of tasks, never payloads; keys of tasks appear as digests.
//
// It fails with ErrInvalid when an option makes no sense, and with ErrDenied when the
// Redis user lacks a permission: a worker's don't suffice, the doctor's do (docs/security.md).
func (p *Peer) Check(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	r, err := p.examine(ctx, opts, false)
	return r, wrap("check", err)
}

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
	r, err := doctor.Examine(ctx, doctor.Config{
		Runner: p.calls, Space: p.space, Lease: lease, Nonces: nonceWindow, Repair: repair, Ignore: ignore,
		Limits: doctor.Limits{Run: o.MaxRunTime, Wait: o.MaxWaitTime, Backlog: o.MaxBacklog, Retrying: o.MaxRetrying, Failed: o.MaxFailed},
	})
	p.fleet.Counts().Returned.Add(int64(r.Returned))
	if err != nil {
		return nil, lacking(err)
	}
	report := &CheckReport{Queues: r.Queues, Keys: r.Keys, Omitted: r.Omitted, unwell: r.Unwell, prefix: cmp.Or(p.opts.Prefix, store.DefaultPrefix)}
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
	return fmt.Errorf("%w: the Redis user may not %s; give it the doctor's rule in docs/security.md: %w", ErrDenied, what, err)
}

// CheckOptions configure Check and Repair. Nil means the defaults.
//
// What exceeds a limit that is set here is a danger. Without limits, Check goes by
// defaults, and what exceeds these is a notice: only you know how long your tasks take
// and how many may fail.
type CheckOptions struct {
	// MaxRun is how long a task may run; the default is an hour.
	MaxRunTime time.Duration
	// MaxAge is how long a task that is due may wait, and how long a queue may start
	// nothing while tasks wait; the default is ten minutes. The age of a task on the
	// list isn't known, only how late a scheduled one is.
	MaxWaitTime time.Duration
	// MaxWaiting is how many tasks may wait on a queue that are due; 0 sets no
	// limit, and a negative number allows none.
	MaxBacklog int
	// MaxRetrying is how many tasks of a queue may wait to be retried; 0 is 10, and
	// a negative number allows none.
	MaxRetrying int
	// MaxFailed is how many tasks may be in a failed queue; 0, like a negative number,
	// allows none, but only a negative one makes that a danger.
	MaxFailed int
	// Ignore has the report leave out findings of these kinds, whatever their severity.
	// Repair repairs them nevertheless.
	Ignore []FindingKind
}

func (o *CheckOptions) check() error {
	if o.MaxRunTime < 0 || o.MaxWaitTime < 0 {
		return fmt.Errorf("%w: a MaxRun of %v and a MaxAge of %v; neither may be negative", ErrInvalid, o.MaxRunTime, o.MaxWaitTime)
	}
	for _, kind := range o.Ignore {
		if !slices.Contains(FindingKinds(), kind) {
			return fmt.Errorf("%w: there is no kind of finding that is called %s", ErrInvalid, doctor.Shown(string(kind)))
		}
	}
	return nil
}

// A FindingKind says what is wrong.
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

// The severities.
const (
	SeverityError   Severity = "error"   // an invariant doesn't hold
	SeverityWarning Severity = "warning" // tasks don't get done, or may be lost, or a limit that was set is exceeded
	SeverityNotice  Severity = "notice"  // worth knowing; it may be meant
)

// A Finding is one thing that Check has found.
type Finding struct {
	Kind     FindingKind
	Severity Severity
	Queue    string // "" if it is of none; failed queues end in " (failed)"
	Key      string // in Redis; what may be secret in it (keys of tasks, nonces) is given as #digest
	Subject  string // the worker, run of a task or digest that it is about; often ""
	Text     string // for people: what is wrong, and what was done or is to be done
	Repaired bool
}

// String is a line for people.
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
		line += fmt.Sprintf(" Of: %q.", f.Subject)
	}
	return line
}

// A CheckReport is what Check and Repair have found.
type CheckReport struct {
	Queues   int       // looked at, each with its failed queue
	Keys     int       // likewise
	Findings []Finding // the worst first
	Omitted  int       // findings beyond 1,000
	unwell   bool      // one of those omitted is broken, and is so still
	prefix   string    // that it looked under
}

// OK reports whether every invariant holds, or does so again: nothing is broken
// that was not repaired. What endangers tasks does not count.
func (r *CheckReport) OK() bool {
	return !r.unwell && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityError && !f.Repaired })
}

// String is a text for people: a line in all, and one for each finding.
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
	fmt.Fprintf(&all, "%s of %s: %s, %s, %s; %d repaired\n",
		doctor.Several(r.Keys, "key"), doctor.Several(r.Queues, "queue"), doctor.Several(count[SeverityError], "error"), doctor.Several(count[SeverityWarning], "warning"), doctor.Several(count[SeverityNotice], "notice"), repaired)
	if r.Queues == 0 {
		fmt.Fprintf(&all, "no queues under the prefix %q: is it the fleet's, and is this its Redis?\n", r.prefix)
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

// The states.
const (
	CopyWaiting   CopyState = "waiting"   // on the list, or in an accepted batch on the way there
	CopyScheduled CopyState = "scheduled" // in the schedule: under a key, or waiting for a retry
	CopyBlocked   CopyState = "blocked"   // behind what runs under its key
	CopyRunning   CopyState = "running"   // held by a worker
	CopyFailed    CopyState = "failed"    // in the failed queue
)

// A Reason says why a copy of a task does not run, or no longer.
type Reason string

// The reasons.
const (
	ReasonPaused       Reason = "paused"        // the queue is
	ReasonNoWorker     Reason = "no-worker"     // nobody serves the queue
	ReasonBusy         Reason = "busy"          // no worker is idle
	ReasonNotDue       Reason = "not-due"       // its time has not come
	ReasonBehind       Reason = "behind"        // others start before it
	ReasonBlocked      Reason = "blocked"       // its key runs
	ReasonSuspect      Reason = "suspect"       // workers died holding it: if one more crash would fail it, it waits until its peer runs no other such task
	ReasonLeaseExpired Reason = "lease-expired" // its worker's heartbeats have stopped: it's evicted soon unless they resume
	ReasonReturning    Reason = "returning"     // its worker is gone, and it is being returned
	ReasonFailed       Reason = "failed"        // it is in the failed queue
)

// A TaskCopy is one place where a task is.
type TaskCopy struct {
	State   CopyState
	Reasons []Reason  // it does not run; none: it runs, or is about to
	Before  int       // tasks that start before it, of those that wait
	DueAt   time.Time // of what is scheduled or blocked; zero for the list

	// Of what waits in the schedule, and of what has failed.
	Retries int
	Crashes int

	// Of what runs.
	AttemptID  string // the id of this run of the task
	Token      int64
	StartedAt  time.Time // by the clock of the peer that took it
	WorkerID   string    // that holds it; of what has failed, that had it last
	WorkerName string    // of the worker; what follows, too. "" where it is not registered
	Host       string
	PID        int       // of the operating system's process
	EvictAt    time.Time // when the worker is evicted, if its lease has expired and somebody is there to judge

	// Of what has failed.
	Kind     FailureKind
	Error    string
	FailedAt time.Time
}

// An Explanation tells where a task is and why it does not run.
type Explanation struct {
	Queue       string
	At          time.Time // by the clock of Redis
	NoSuchQueue bool      // nothing is there of a queue of that name, so the name may be wrong
	Paused      bool
	Workers     int // that serve the queue, with an unexpired lease
	IdleWorkers int // of these, with free slots and nothing to do
	NotSearched int // tasks of the list that were not looked at, since too many are before them
	Copies      []TaskCopy

	prefix string // under which nothing was found
}

// Explain tells where the copies of a payload are: which wait, run or have failed,
// who holds them and since when, and why they do not run. There may be several, or
// none: then the task was never enqueued, or is done, canceled or deleted.
//
// It tells of ten copies of each kind at most. It looks at the first 100,000 tasks
// of the list, in one command of a millisecond or two, and reads all running tasks of the
// queue, page by page; a copy that moves meanwhile may come twice. It fails
// where Enqueue would, and with Redis's error.
func (q *Queue) Explain(ctx context.Context, payload []byte) (*Explanation, error) {
	return q.explain(ctx, "", slices.Clone(payload))
}

// ExplainKey does the same for what is under a key: what waits and what runs, and
// of the newest 1,000 failed tasks those that were under it. Its cost does not depend on
// what else waits or runs. It fails with ErrInvalid when the key makes no sense.
func (q *Queue) ExplainKey(ctx context.Context, key string) (*Explanation, error) {
	if err := checkKey(key); err != nil {
		return nil, q.wrap("explain", err)
	}
	return q.explain(ctx, store.EntryOf(key), nil)
}

func (q *Queue) explain(ctx context.Context, entry string, payload []byte) (*Explanation, error) {
	if q.bad != nil {
		return nil, q.wrap("explain", q.bad)
	}
	question := doctor.Question{Runner: q.peer.calls, Space: q.peer.space, Queue: q.name, Entry: entry, Payload: payload, Beat: q.peer.opts.beat()}
	of, err := question.Explain(ctx)
	if err != nil {
		return nil, q.wrap("explain", err)
	}
	e := &Explanation{Queue: q.name, At: time.UnixMilli(of.Now), NoSuchQueue: of.NoSuchQueue, Paused: of.Paused, Workers: of.Workers,
		IdleWorkers: of.IdleWorkers, NotSearched: of.NotSearched, prefix: cmp.Or(q.peer.opts.Prefix, store.DefaultPrefix)}
	for _, c := range of.Copies {
		t := TaskCopy{State: CopyState(c.State), Before: c.Before, DueAt: c.DueAt, Retries: c.Retries, Crashes: c.Crashes,
			AttemptID: c.Attempt, Token: c.Token, StartedAt: c.StartedAt, WorkerID: c.Worker, WorkerName: c.WorkerName, Host: c.Host, PID: c.PID,
			EvictAt: c.EvictAt, Kind: FailureKind(c.Kind), Error: c.Error, FailedAt: c.FailedAt}
		for _, why := range c.Reasons {
			t.Reasons = append(t.Reasons, Reason(why))
		}
		e.Copies = append(e.Copies, t)
	}
	return e, nil
}

// String is a few sentences for people, without the payload and the key.
func (e *Explanation) String() string {
	switch {
	case len(e.Copies) == 0 && e.NotSearched > 0:
		return fmt.Sprintf("No copy of the task was found on %q. It may be among the last %d that are waiting there, which weren't read.", e.Queue, e.NotSearched)
	case e.NoSuchQueue:
		return fmt.Sprintf("No queue %q exists under the prefix %q. Check the name, the prefix and the URL of Redis.", e.Queue, e.prefix)
	case len(e.Copies) == 0:
		return fmt.Sprintf("No copy of the task is on %q: it was never enqueued, or it's done, canceled or deleted.", e.Queue)
	}
	all := make([]string, len(e.Copies))
	for i := range e.Copies {
		all[i] = e.sentence(&e.Copies[i])
	}
	return strings.Join(all, "\n")
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
		fmt.Fprintf(&s, ", as run %s with token %d.", doctor.Shown(c.AttemptID), c.Token)
	case CopyFailed:
		fmt.Fprintf(&s, "Failed on %q at %s (%s, %s): %q. RequeueFailed runs it again.", e.Queue, doctor.Clock(c.FailedAt), doctor.Shown(string(c.Kind)), counts, c.Error)
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
		case ReasonBehind:
			fmt.Fprintf(&s, " %s before it.", doctor.Tasks(c.Before, "starts", "start"))
		case ReasonSuspect:
			fmt.Fprintf(&s, " %s died holding it. If one more crash would fail it, it waits until its peer runs no other such task.", doctor.Several(c.Crashes, "worker"))
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
