package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Kind says what is wrong.
type Kind string

// What no invariant of docs/protocol.md allows.
const (
	orphan     Kind = "orphan"            // a processing list that no worker holds
	twice      Kind = "two-owners"        // a run of a task that two workers hold
	lost       Kind = "no-payload"        // a run of a task whose payload is gone
	stray      Kind = "non-member"        // tasks of a worker that is no member
	entry      Kind = "schedule"          // keys of the schedule that disagree
	lock       Kind = "lock"              // a unique lock without a holder
	cancel     Kind = "cancel"            // records of cancels that don't fit what runs
	token      Kind = "token"             // a token counter that is no number, or behind
	leftover   Kind = "leftover"          // what a worker that is gone has left behind
	noTTL      Kind = "ttl"               // a key without the TTL that belongs there
	foreign    Kind = "wrong-type"        // a key that holds something else
	batch      Kind = "batch"             // an accepted batch whose tasks are gone
	added      Kind = "added"             // an added task that is not as it should be
	recurring  Kind = "recurring"         // a schedule that is not as it should be
	result     Kind = "result"            // a record of a result that is none
	stale      Kind = "stale"             // what belongs to a list that is empty
	ledger     Kind = "crash-counts"      // crash counts of tasks that are not there any more
	unknown    Kind = "unknown-key"       // a key of the prefix that is none of ours
	roster     Kind = "worker-list"       // a list of peers that is not right
	registry   Kind = "queue-list"        // a queue that is not listed
	dead       Kind = "expired-worker"    // a lapsed worker that nobody is there to judge
	unfinished Kind = "unfinished-return" // a return that nobody is there to finish
	unserved   Kind = "no-worker"         // tasks wait, and nobody serves the queue
	paused     Kind = "paused"            // tasks wait, or even gather, while the queue is paused
	ahead      Kind = "future-cancel"     // a cancel of tasks that are still to come
)

// What is wrong with the service: nothing is broken, and it may not do its work.
const (
	long     Kind = "long-run"      // a task runs for long, or for far longer than others
	stuck    Kind = "stuck-handler" // handlers that didn't return after their context ended
	stalled  Kind = "stalled"       // tasks wait, and none has started for long
	late     Kind = "overdue"       // a task was due long ago
	backlog  Kind = "backlog"       // more tasks wait than are allowed
	retrying Kind = "retrying"      // tasks have failed, and are to be retried
	failed   Kind = "failed"        // tasks are in the failed queue
)

// What endangers tasks from outside.
const (
	policy      Kind = "eviction-policy" // Redis may evict keys
	persistence Kind = "persistence"     // Redis may lose what it has acknowledged
	replication Kind = "replication"     // a failover may
	version     Kind = "redis-version"   // Redis is too old
	clock       Kind = "clock"           // the clocks of this machine and Redis differ
	memory      Kind = "memory"          // Redis is nearly full
	vulnerable  Kind = "vulnerable"      // Redis has a hole in its scripting that is known
	leases      Kind = "leases"          // peers of one queue have different leases
	unreadable  Kind = "not-permitted"   // Redis may not be asked
	cluster     Kind = "cluster"         // a part of the cluster can't be used
	openSlot    Kind = "open-slot"       // a slot has been moving for long
	coverage    Kind = "full-coverage"   // one node that is down stops all others
)

// Kinds are all kinds.
var Kinds = []Kind{
	orphan, twice, lost, stray, entry, lock, cancel,
	token, leftover, noTTL, foreign, batch, added, recurring, result, stale, ledger, unknown,
	roster, registry, dead, unfinished, unserved, paused, ahead,
	long, stuck, stalled, late, backlog, retrying, failed, policy,
	persistence, replication, version, clock, memory, vulnerable,
	leases, unreadable, cluster, openSlot, coverage,
}

// A Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // an invariant doesn't hold
	Warning Severity = "warning" // tasks don't get done, or may be lost, or a limit that was set is exceeded
	Notice  Severity = "notice"  // worth knowing; it may be meant
)

// A Finding is one thing that Check has found.
type Finding struct {
	Kind     Kind
	Severity Severity
	Queue    string // "" if it is of none; failed queues end in " (failed)"
	Key      string // in Redis; what may be secret in it (keys of tasks, nonces) is given as #digest
	Subject  string // the worker, run of a task or digest that it is about; often ""
	Text     string // for people: what is wrong, and what was done or is to be done
	Repaired bool
}

// maxFindings is how many findings a report holds; the others are counted.
const maxFindings = 1000

func (r *Report) add(f Finding) {
	if len(r.Findings) == maxFindings {
		r.Omitted++
		r.Unwell = r.Unwell || f.Severity == Error && !f.Repaired
		return
	}
	r.Findings = append(r.Findings, f)
}

var gravity = map[Severity]int{Error: 0, Warning: 1, Notice: 2}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(gravity[a.Severity], gravity[b.Severity]), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
}

// A diagnosis is what there is to say of a kind of flaw.
type diagnosis struct {
	severity Severity
	says     string // "%s" is for the number that there is
	cure     string // what is to be done
	cured    string // what was done
	patience bool   // it is one only if it is still there a lease later
}

// diagnoses are those of what a queue's keys show.
var diagnoses = map[Kind]diagnosis{
	orphan: {severity: Error, says: "A task is in a processing list, and no worker holds it.",
		cure: "Repair returns it to the front of the queue.", cured: "Returned to the front of the queue."},
	twice: {severity: Error, says: "Two workers hold the same attempt of a task.",
		cure: "Repair takes it from the one that started it first.", cured: "Taken from the one that started it first."},
	lost: {severity: Error, says: "A worker holds a task whose payload Redis has lost.",
		cure: "The finding disappears when the handler returns. Check Redis's eviction policy and persistence."},
	stray: {severity: Error, says: "A worker holds tasks and isn't a member of the queue, so no other worker returns them.",
		cure: "Repair returns them to the front of the queue.", cured: "Returned to the front of the queue."},
	entry: {severity: Error, says: "The keys of a scheduled task disagree.",
		cure: "Repair makes them agree.", cured: "They agree again."},
	lock: {severity: Error, says: "A unique lock has no task, so its payload is refused as a duplicate forever.",
		cure: "Repair removes the lock.", cured: "The lock was removed."},
	cancel: {severity: Error, says: "Cancel records don't match the running tasks: a cancel may never end, or miss a task.",
		cure: "Repair corrects the record.", cured: "The record was corrected."},
	ahead: {severity: Error, says: "A cancel has a token that was never issued, so it would stop tasks that start later.",
		cure: "Repair removes it. Find out who writes to the cancel log.", cured: "It was removed. Find out who writes to the cancel log."},
	token: {severity: Error, says: "The token counter isn't a number, or is lower than a token in use, so tokens would repeat.",
		cure: "Repair raises it if it's a number. Otherwise, set it to a number above every token in use.", cured: "It was raised to the highest token in use."},
	leftover: {severity: Error, says: "Data of a worker that no longer exists is left over.",
		cure: "Repair removes it.", cured: "It was removed."},
	noTTL: {severity: Error, says: "A key has no TTL and should have one, or has one and shouldn't.",
		cure: "Repair corrects it.", cured: "It was corrected."},
	batch: {severity: Error, says: "The tasks of an accepted batch are gone, or something else is in their place.",
		cure: "Find out what writes to this key. If you restore the list, Repair returns its tasks to the queue. Otherwise delete the key, and Repair drops the batch.", cured: "If its list was restored, it will be moved to the queue. Otherwise the batch was dropped."},
	added: {severity: Error, says: "The payload of an added task is gone, or an item of the stream is no added task.",
		cure: "Repair drops a task whose payload is gone. Other items run as plain tasks; find out what writes to this key.", cured: "It was dropped."},
	recurring: {severity: Error, says: "What Redis has of a recurring task is wrong. %s",
		cure: "Repair corrects it; a peer that has the schedule tells Redis again.", cured: "It was corrected; a peer that has the schedule tells Redis again."},
	result: {severity: Error, says: "The record of how a task ended can't be read, so Result and Wait don't find it.",
		cure: "Repair removes it. Find out what writes to this key.", cured: "It was removed. Find out what writes to this key."},
	stale: {severity: Notice, patience: true, says: "A unique lock, or a record of task ages, is left from a list that is now empty. It has no effect.",
		cure: "Repair removes it.", cured: "It was removed."},
	ledger: {severity: Notice, says: "Crashes are counted for tasks that are gone.",
		cure: "Repair removes the counts.", cured: "The counts were removed."},
	dead: {severity: Warning, patience: true, says: "A worker's lease has expired, and no other worker serves the queue to return its tasks.",
		cure: "Start a peer, or run Repair to evict the worker.", cured: "The worker was evicted, and its tasks returned to the front of the queue."},
	unfinished: {severity: Warning, patience: true, says: "A worker is gone, and its tasks have not all been returned.",
		cure: "Start a peer that serves the queue, or run Repair.", cured: "Its tasks were returned to the front of the queue."},
	unserved: {severity: Warning, patience: true, says: "Tasks are waiting (%s), and no worker serves this queue.",
		cure: "Start a peer that handles it."},
	paused: {severity: Notice, patience: true, says: "The queue is paused, and tasks are waiting (%s).",
		cure: "Resume it, unless the pause is intended."},
}

// gathering is that of a pause during which more tasks arrive.
var gathering = diagnosis{severity: Warning, says: "The queue is paused and its backlog is growing (%s).",
	cure: "Resume it, or stop the producers."}

func (d diagnosis) finding(kind Kind, queue, key, subject, detail string, mended bool) Finding {
	says, then := d.says, d.cure
	if strings.Contains(says, "%s") {
		says = fmt.Sprintf(says, Shown(detail))
	}
	if mended {
		then = d.cured
	}
	return Finding{Kind: kind, Severity: d.severity, Queue: queue, Key: key, Subject: subject, Text: says + " " + then, Repaired: mended}
}

// found reports a finding, once.
func (c *checkup) found(f Finding) {
	id := fmt.Sprintln(f.Kind, f.Queue, f.Key, f.Subject, f.Text)
	if c.Ignore[f.Kind] || c.said[id] {
		return
	}
	if len(c.said) < 10*maxFindings { // beyond, those that are counted may be counted twice
		c.said[id] = true
	}
	c.report.add(f)
}
