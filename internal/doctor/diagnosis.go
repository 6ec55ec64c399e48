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
	orphan     inspect.FindingKind = "orphan"            // a processing list that no worker holds
	twice      inspect.FindingKind = "two-owners"        // an attempt that two workers hold
	lost       inspect.FindingKind = "no-payload"        // an attempt whose payload is gone
	stray      inspect.FindingKind = "non-member"        // tasks of a worker that isn't a member
	entry      inspect.FindingKind = "schedule"          // inconsistent keys of the schedule
	cancel     inspect.FindingKind = "cancel"            // records of cancels that don't match the running tasks
	token      inspect.FindingKind = "token"             // a token counter that isn't a number, or is behind
	leftover   inspect.FindingKind = "leftover"          // remains of a worker that is gone
	noTTL      inspect.FindingKind = "ttl"               // a key that lacks its TTL
	foreign    inspect.FindingKind = "wrong-type"        // a key of another type
	added      inspect.FindingKind = "added"             // an invalid added task
	recurring  inspect.FindingKind = "recurring"         // an invalid schedule
	result     inspect.FindingKind = "result"            // an invalid record of a result
	stale      inspect.FindingKind = "stale"             // a key that belongs to an empty list
	ledger     inspect.FindingKind = "crash-counts"      // crash counts of tasks that no longer exist
	unknown    inspect.FindingKind = "unknown-key"       // a key with the prefix that worqr doesn't know
	roster     inspect.FindingKind = "worker-list"       // an invalid list of peers
	registry   inspect.FindingKind = "queue-list"        // a queue that isn't listed
	dead       inspect.FindingKind = "expired-worker"    // a worker with an expired lease that no peer can evict
	unfinished inspect.FindingKind = "unfinished-return" // a return that no peer can finish
	unserved   inspect.FindingKind = "no-worker"         // tasks wait, and no worker serves the queue
	paused     inspect.FindingKind = "paused"            // tasks wait, perhaps a growing number, while the queue is paused
	ahead      inspect.FindingKind = "future-cancel"     // a cancel of future tasks
)

// Problems of the service: nothing is broken, but it may not do its work.
const (
	long     inspect.FindingKind = "long-run"      // a task has run for a long time, or for far longer than others
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
	vulnerable  inspect.FindingKind = "vulnerable"      // Redis has a known vulnerability in its scripting
	leases      inspect.FindingKind = "leases"          // peers of a queue have different leases
	unreadable  inspect.FindingKind = "not-permitted"   // the Redis user lacks a permission
	cluster     inspect.FindingKind = "cluster"         // a part of the cluster can't be used
	openSlot    inspect.FindingKind = "open-slot"       // a slot has been moving for a long time
	coverage    inspect.FindingKind = "full-coverage"   // one node that is down stops all others
)

var Kinds = []inspect.FindingKind{
	orphan, twice, lost, stray, entry, cancel,
	token, leftover, noTTL, foreign, added, recurring, result, stale, ledger, unknown,
	roster, registry, dead, unfinished, unserved, paused, ahead,
	long, stuck, stalled, late, backlog, retrying, failed, policy,
	persistence, replication, version, clock, memory, vulnerable,
	leases, unreadable, cluster, openSlot, coverage,
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

func sortFindings(r *inspect.CheckReport) {
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
	orphan: {severity: inspect.SeverityError, says: "A task is in a processing list, and no worker holds it.",
		cure: "Repair returns it to the front of the queue.", cured: "Returned to the front of the queue."},
	twice: {severity: inspect.SeverityError, says: "Two workers hold the same attempt of a task.",
		cure: "Repair takes it from the one that started it first.", cured: "Taken from the one that started it first."},
	lost: {severity: inspect.SeverityError, says: "A worker holds a task whose payload Redis has lost.",
		cure: "The finding disappears when the handler returns. Check Redis's eviction policy and persistence."},
	stray: {severity: inspect.SeverityError, says: "A worker holds tasks and isn't a member of the queue, so no other worker returns them.",
		cure: "Repair returns them to the front of the queue.", cured: "Returned to the front of the queue."},
	entry: {severity: inspect.SeverityError, says: "The keys of a scheduled task disagree.",
		cure: "Repair makes them agree.", cured: "They agree again."},
	cancel: {severity: inspect.SeverityError, says: "Cancel records don't match the running tasks: a cancel may never end, or miss a task.",
		cure: "Repair corrects the record.", cured: "The record was corrected."},
	ahead: {severity: inspect.SeverityError, says: "A cancel has a token that was never issued, so it would stop tasks that start later.",
		cure: "Repair removes it. Find out who writes to the cancel log.", cured: "It was removed. Find out who writes to the cancel log."},
	token: {severity: inspect.SeverityError, says: "The token counter isn't a number, or is lower than a token in use, so tokens would repeat.",
		cure: "Repair raises it if it's a number. Otherwise, set it to a number above every token in use.", cured: "It was raised to the highest token in use."},
	leftover: {severity: inspect.SeverityError, says: "Data of a worker that no longer exists is left over.",
		cure: "Repair removes it.", cured: "It was removed."},
	noTTL: {severity: inspect.SeverityError, says: "A key has no TTL and should have one, or has one and shouldn't.",
		cure: "Repair corrects it.", cured: "It was corrected."},
	added: {severity: inspect.SeverityError, says: "The payload of an added task is gone, or an item of the stream isn't an added task.",
		cure: "Repair drops a task whose payload is gone. Other items run as plain tasks; find out what writes to this key.", cured: "It was dropped."},
	recurring: {severity: inspect.SeverityError, says: "Redis's record of a recurring task is invalid. %s",
		cure: "Repair corrects it; a peer that has the schedule writes it again.", cured: "It was corrected; a peer that has the schedule writes it again."},
	result: {severity: inspect.SeverityError, says: "The record of how a task ended can't be read, so Result and Wait don't find it.",
		cure: "Repair removes it. Find out what writes to this key.", cured: "It was removed. Find out what writes to this key."},
	stale: {severity: inspect.SeverityNotice, patience: true, says: "A record of task ages is left from a list that is now empty. It has no effect.",
		cure: "Repair removes it.", cured: "It was removed."},
	ledger: {severity: inspect.SeverityNotice, says: "Crashes are counted for tasks that are gone.",
		cure: "Repair removes the counts.", cured: "The counts were removed."},
	dead: {severity: inspect.SeverityWarning, patience: true, says: "A worker's lease has expired, or ends too late because Redis's clock was ahead, and no other worker has returned its tasks.",
		cure: "Start a peer, or run Repair to evict the worker.", cured: "The worker was evicted, and its tasks returned to the front of the queue."},
	unfinished: {severity: inspect.SeverityWarning, patience: true, says: "A worker is gone, and its tasks have not all been returned.",
		cure: "Start a peer that serves the queue, or run Repair.", cured: "Its tasks were returned to the front of the queue."},
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
