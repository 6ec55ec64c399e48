package doctor

import (
	"fmt"
	"slices"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/says"
	"github.com/worqr/worqr/internal/words"
)

// Violations of the invariants in docs/protocol.md, and what keeps tasks from starting.
const (
	orphan     inspect.FindingKind = "orphan"         // tasks that no member holds
	lost       inspect.FindingKind = "no-payload"     // a task whose payload is gone
	token      inspect.FindingKind = "token"          // a token counter that isn't a number, or is behind
	deadWorker inspect.FindingKind = "expired-worker" // a worker that no peer evicts, or whose tasks no peer returns
	recurring  inspect.FindingKind = "recurring"      // times of a recurring task that are ahead
	disagree   inspect.FindingKind = "inconsistent"   // keys of a queue that disagree otherwise
	foreign    inspect.FindingKind = "wrong-type"     // a key of another type
	unknown    inspect.FindingKind = "unknown-key"    // a key with the prefix that worqr doesn't know
	unserved   inspect.FindingKind = "no-worker"      // tasks wait, and no worker serves the queue
	paused     inspect.FindingKind = "paused"         // tasks wait, perhaps a growing number, while the queue is paused
)

// Problems of the service: nothing is broken, but it may not do its work.
const (
	unread    inspect.FindingKind = "unreadable"    // the counts of a queue can't be read
	unlisted  inspect.FindingKind = "unlisted"      // the workers can't be listed
	starved   inspect.FindingKind = "starved"       // tasks wait, nothing runs, and no worker has room
	crashing  inspect.FindingKind = "crashing"      // a task has crashed several workers
	jobFailed inspect.FindingKind = "job-failed"    // the last run of a recurring task didn't succeed
	jobLate   inspect.FindingKind = "job-late"      // a recurring task is late
	jobGone   inspect.FindingKind = "job-gone"      // no running peer has a schedule that one had
	failing   inspect.FindingKind = "failing"       // tasks fail more than usual
	dropped   inspect.FindingKind = "dropped"       // a full failed queue has dropped tasks
	evicted   inspect.FindingKind = "evicted"       // a worker was evicted lately
	long      inspect.FindingKind = "long-run"      // a task has run for a long time
	stuck     inspect.FindingKind = "stuck-handler" // handlers that didn't return after their context ended
	stalled   inspect.FindingKind = "stalled"       // tasks wait, and none has started for a long time
	late      inspect.FindingKind = "overdue"       // a task was due long ago
	backlog   inspect.FindingKind = "backlog"       // more tasks wait than the limit
	retrying  inspect.FindingKind = "retrying"      // failed tasks wait for their retry
	failed    inspect.FindingKind = "failed"        // tasks are in the failed queue
)

// External risks for tasks.
const (
	policy       inspect.FindingKind = "eviction-policy" // Redis may evict keys
	persistence  inspect.FindingKind = "persistence"     // Redis may lose acknowledged writes
	replication  inspect.FindingKind = "replication"     // a failover may lose acknowledged writes
	version      inspect.FindingKind = "redis-version"   // Redis is too old
	clock        inspect.FindingKind = "clock"           // the clocks of this machine and Redis differ
	memory       inspect.FindingKind = "memory"          // Redis is nearly full
	full         inspect.FindingKind = "full"            // Redis refuses new tasks
	unreachable  inspect.FindingKind = "unreachable"     // Redis doesn't answer
	denied       inspect.FindingKind = "denied"          // Redis refuses the login, or a permission
	slowRedis    inspect.FindingKind = "slow-redis"      // it takes long to answer
	lostWrites   inspect.FindingKind = "lost-writes"     // Redis has lost writes
	leases       inspect.FindingKind = "leases"          // peers of a queue have different leases
	notPermitted inspect.FindingKind = "not-permitted"   // the Redis user lacks a permission
	cluster      inspect.FindingKind = "cluster"         // a part of the cluster can't be used
	coverage     inspect.FindingKind = "full-coverage"   // one node that is down stops all others
)

// Kinds lists all kinds of findings, those that do most harm first.
var Kinds = func() (all []inspect.FindingKind) {
	for _, k := range says.All {
		all = append(all, inspect.FindingKind(k.Name))
	}
	return all
}()

// maxFindings limits the findings in a report; the rest are counted.
const maxFindings = 1000

func add(r *inspect.CheckReport, f inspect.Finding) {
	if len(r.Findings) == maxFindings {
		r.Omitted++
		r.Unwell = r.Unwell || f.Counts()
		return
	}
	r.Findings = append(r.Findings, f)
}

// Sort sorts the findings of a report: worst first.
func Sort(r *inspect.CheckReport) { slices.SortStableFunc(r.Findings, inspect.Finding.Compare) }

// A diagnosis describes a kind of flaw in a queue's keys.
type diagnosis struct {
	severity inspect.Severity
	cured    string // what was done
	patience bool   // it's reported only if it persists for a lease
}

var diagnoses = map[inspect.FindingKind]diagnosis{
	orphan:     {severity: inspect.SeverityStuck, cured: "Returned to the front of the queue."},
	lost:       {severity: inspect.SeverityLost},
	token:      {severity: inspect.SeverityStopped, cured: "It was raised to the highest one in use."},
	deadWorker: {severity: inspect.SeverityStuck, patience: true, cured: "The worker was evicted, and its tasks returned to the front of the queue."},
	recurring:  {severity: inspect.SeverityStuck, cured: "It was corrected; a peer that has the schedule writes it again."},
	disagree:   {severity: inspect.SeverityStuck},
}

// finding returns the finding about a flaw. why says what the keys say.
func (d diagnosis) finding(kind inspect.FindingKind, queue, key, subject, why string, mended bool) inspect.Finding {
	n := 1
	if kind == token || kind == recurring {
		n = 0
	}
	f := about(kind, d.severity, n, "")
	what := says.Of(string(kind)).What(n, false)
	if kind == disagree {
		what = fmt.Sprintf("Keys of the queue disagree: %s.", words.Shown(why))
		f.Text = what + " Find out what writes to them, or whether Redis lost writes. If a task is affected, remove or cancel it, and enqueue it again."
	}
	if f.Queue, f.Key, f.Subject, f.Repaired = queue, key, subject, mended; mended {
		f.Text = what + " " + d.cured
	}
	return f
}

// found adds a finding, unless the report already has it.
func (c *checkup) found(f inspect.Finding) {
	id := fmt.Sprintln(f.Kind, f.Queue, f.Key, f.Subject, f.Text)
	if slices.Contains(c.Limits.Ignore, f.Kind) || c.said[id] {
		return
	}
	f.Title = titleOf(f)
	if len(c.said) < 10*maxFindings { // beyond this, findings may be counted twice
		c.said[id] = true
	}
	all := []inspect.Finding{f}
	Silence(all, c.Notes.Silences, c.Notes.Now)
	add(&c.report, all[0])
}
