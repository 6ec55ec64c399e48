package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// Violations of the invariants in docs/protocol.md, and what keeps tasks from starting.
const (
	orphan    inspect.FindingKind = "orphan"         // tasks that no member holds
	lost      inspect.FindingKind = "no-payload"     // a task whose payload is gone
	token     inspect.FindingKind = "token"          // a token counter that isn't a number, or is behind
	dead      inspect.FindingKind = "expired-worker" // a worker that no peer evicts, or whose tasks no peer returns
	recurring inspect.FindingKind = "recurring"      // times of a recurring task that are ahead
	disagree  inspect.FindingKind = "inconsistent"   // keys of a queue that disagree otherwise
	foreign   inspect.FindingKind = "wrong-type"     // a key of another type
	unknown   inspect.FindingKind = "unknown-key"    // a key with the prefix that worqr doesn't know
	unserved  inspect.FindingKind = "no-worker"      // tasks wait, and no worker serves the queue
	paused    inspect.FindingKind = "paused"         // tasks wait, perhaps a growing number, while the queue is paused
)

// Problems of the service: nothing is broken, but it may not do its work.
const (
	long     inspect.FindingKind = "long-run"      // a task has run for a long time
	stuck    inspect.FindingKind = "stuck-handler" // handlers that didn't return after their context ended
	stalled  inspect.FindingKind = "stalled"       // tasks wait, and none has started for a long time
	late     inspect.FindingKind = "overdue"       // a task was due long ago
	backlog  inspect.FindingKind = "backlog"       // more tasks wait than the limit
	retrying inspect.FindingKind = "retrying"      // failed tasks wait for their retry
	failed   inspect.FindingKind = "failed"        // tasks are in the failed queue
)

// External risks for tasks.
const (
	policy      inspect.FindingKind = "eviction-policy" // Redis may evict keys
	persistence inspect.FindingKind = "persistence"     // Redis may lose acknowledged writes
	replication inspect.FindingKind = "replication"     // a failover may lose acknowledged writes
	version     inspect.FindingKind = "redis-version"   // Redis is too old
	clock       inspect.FindingKind = "clock"           // the clocks of this machine and Redis differ
	memory      inspect.FindingKind = "memory"          // Redis is nearly full
	leases      inspect.FindingKind = "leases"          // peers of a queue have different leases
	unreadable  inspect.FindingKind = "not-permitted"   // the Redis user lacks a permission
	cluster     inspect.FindingKind = "cluster"         // a part of the cluster can't be used
	coverage    inspect.FindingKind = "full-coverage"   // one node that is down stops all others
)

var Kinds = []inspect.FindingKind{
	orphan, lost, token, dead, recurring, disagree, foreign, unknown,
	unserved, paused,
	long, stuck, stalled, late, backlog, retrying, failed, policy,
	persistence, replication, version, clock, memory,
	leases, unreadable, cluster, coverage,
}

// maxFindings limits the findings in a report; the rest are counted.
const maxFindings = 1000

func add(r *inspect.CheckReport, f inspect.Finding) {
	if len(r.Findings) == maxFindings {
		r.Omitted++
		r.Unwell = r.Unwell || f.Severity == inspect.SeverityError && !f.Repaired
		return
	}
	r.Findings = append(r.Findings, f)
}

var gravity = map[inspect.Severity]int{inspect.SeverityError: 0, inspect.SeverityWarning: 1, inspect.SeverityNotice: 2}

// Sort sorts the findings of a report: worst first, then by queue and kind.
func Sort(r *inspect.CheckReport) {
	slices.SortStableFunc(r.Findings, func(a, b inspect.Finding) int {
		return cmp.Or(cmp.Compare(gravity[a.Severity], gravity[b.Severity]), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
}

// A diagnosis describes a kind of flaw.
type diagnosis struct {
	severity inspect.Severity
	says     string // "%s" is replaced by a number
	cure     string // what to do
	cured    string // what was done
	patience bool   // it's reported only if it persists for a lease
}

// diagnoses describes the flaws in a queue's keys.
var diagnoses = map[inspect.FindingKind]diagnosis{
	orphan: {severity: inspect.SeverityError, says: "No member of the queue holds a task that was started, so no worker returns it.",
		cure: "Repair returns it to the front of the queue.", cured: "Returned to the front of the queue."},
	lost: {severity: inspect.SeverityError, says: "Redis has lost the payload of a task.",
		cure: "Check Redis's eviction policy and persistence. The finding disappears when the task ends."},
	token: {severity: inspect.SeverityError, says: "A number in the queue's state can't be read, so no worker can join; or a counter is lower than one in use, so it would repeat.",
		cure: "Repair raises a counter. If a number can't be read, the peers' logs name it: set token, fence or place above every one in use, and delete any other.", cured: "It was raised to the highest one in use."},
	dead: {severity: inspect.SeverityWarning, patience: true, says: "A worker's lease has expired, or ends too late because Redis's clock was ahead, and no other worker has returned its tasks.",
		cure: "Start a peer, or run Repair to evict the worker.", cured: "The worker was evicted, and its tasks returned to the front of the queue."},
	recurring: {severity: inspect.SeverityError, says: "Redis's clock was ahead when a recurring task was last asserted or started, so it doesn't run, or never ends.",
		cure: "Repair corrects it; a peer that has the schedule writes it again.", cured: "It was corrected; a peer that has the schedule writes it again."},
	disagree: {severity: inspect.SeverityError, says: "Keys of the queue disagree: %s.",
		cure: "Find out what writes to them, or whether Redis lost writes. If a task is affected, remove or cancel it, and enqueue it again."},
	unserved: {severity: inspect.SeverityWarning, patience: true, says: "Tasks are waiting (%s), and no worker serves this queue.",
		cure: "Start a peer that handles it."},
	paused: {severity: inspect.SeverityNotice, patience: true, says: "The queue is paused, and tasks are waiting (%s).",
		cure: "Resume it, unless the pause is intended."},
}

// gathering describes a pause during which more tasks arrive.
var gathering = diagnosis{severity: inspect.SeverityWarning, says: "The queue is paused and its backlog is growing (%s).",
	cure: "Resume it, or stop the producers."}

func (d diagnosis) finding(kind inspect.FindingKind, queue, key, subject, detail string, mended bool) inspect.Finding {
	says, then := d.says, d.cure
	if strings.Contains(says, "%s") {
		says = fmt.Sprintf(says, words.Shown(detail))
	}
	if mended {
		then = d.cured
	}
	return inspect.Finding{Kind: kind, Severity: d.severity, Queue: queue, Key: key, Subject: subject, Text: says + " " + then, Repaired: mended}
}

// found adds a finding, unless the report already has it.
func (c *checkup) found(f inspect.Finding) {
	id := fmt.Sprintln(f.Kind, f.Queue, f.Key, f.Subject, f.Text)
	if slices.Contains(c.Limits.Ignore, f.Kind) || c.said[id] {
		return
	}
	if len(c.said) < 10*maxFindings { // beyond this, findings may be counted twice
		c.said[id] = true
	}
	add(&c.report, f)
}
