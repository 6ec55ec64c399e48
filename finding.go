package worqr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A FindingKind says what is wrong.
type FindingKind string

// What no invariant of docs/protocol.md allows.
const (
	findingOrphan     FindingKind = "orphan"            // a processing list that no worker holds
	findingTwice      FindingKind = "two-owners"        // a run of a task that two workers hold
	findingLost       FindingKind = "no-payload"        // a run of a task whose payload is gone
	findingStray      FindingKind = "non-member"        // tasks of a worker that is no member
	findingEntry      FindingKind = "schedule"          // keys of the schedule that disagree
	findingLock       FindingKind = "lock"              // a unique lock without a holder
	findingCancel     FindingKind = "cancel"            // records of cancels that don't fit what runs
	findingToken      FindingKind = "token"             // a token counter that is no number, or behind
	findingLeftover   FindingKind = "leftover"          // what a worker that is gone has left behind
	findingTTL        FindingKind = "ttl"               // a key without the TTL that belongs there
	findingType       FindingKind = "wrong-type"        // a key that holds something else
	findingBatch      FindingKind = "batch"             // an accepted batch whose tasks are gone
	findingStale      FindingKind = "stale-lock"        // a unique lock that counts as none
	findingLedger     FindingKind = "crash-counts"      // crash counts of tasks that are not there any more
	findingUnknown    FindingKind = "unknown-key"       // a key of the prefix that is none of ours
	findingRoster     FindingKind = "worker-list"       // a list of peers that is not right
	findingRegistry   FindingKind = "queue-list"        // a queue that is not listed
	findingDead       FindingKind = "expired-worker"    // a lapsed worker that nobody is there to judge
	findingUnfinished FindingKind = "unfinished-return" // a return that nobody is there to finish
	findingUnserved   FindingKind = "no-worker"         // tasks wait, and nobody serves the queue
	findingPaused     FindingKind = "paused"            // tasks wait, or even gather, while the queue is paused
	findingAhead      FindingKind = "future-cancel"     // a cancel of tasks that are still to come
)

// What is wrong with the service: nothing is broken, and it may not do its work.
const (
	findingLong     FindingKind = "long-run"      // a task runs for long, or for far longer than others
	findingStuck    FindingKind = "stuck-handler" // handlers that didn't return after their context ended
	findingStalled  FindingKind = "stalled"       // tasks wait, and none has started for long
	findingLate     FindingKind = "overdue"       // a task was due long ago
	findingBacklog  FindingKind = "backlog"       // more tasks wait than are allowed
	findingRetrying FindingKind = "retrying"      // tasks have failed, and are to be retried
	findingFailed   FindingKind = "failed"        // tasks are in the failed queue
)

// What endangers tasks from outside.
const (
	findingPolicy      FindingKind = "eviction-policy" // Redis may evict keys
	findingPersistence FindingKind = "persistence"     // Redis may lose what it has acknowledged
	findingReplication FindingKind = "replication"     // a failover may
	findingVersion     FindingKind = "redis-version"   // Redis is too old
	findingClock       FindingKind = "clock"           // the clocks of this machine and Redis differ
	findingMemory      FindingKind = "memory"          // Redis is nearly full
	findingVulnerable  FindingKind = "vulnerable"      // Redis has a hole in its scripting that is known
	findingLeases      FindingKind = "leases"          // peers of one queue have different leases
	findingUnreadable  FindingKind = "not-permitted"   // Redis may not be asked
)

// FindingKinds returns all kinds.
func FindingKinds() []FindingKind { return slices.Clone(findingKinds) }

var findingKinds = []FindingKind{
	findingOrphan, findingTwice, findingLost, findingStray, findingEntry, findingLock, findingCancel,
	findingToken, findingLeftover, findingTTL, findingType, findingBatch, findingStale, findingLedger, findingUnknown,
	findingRoster, findingRegistry, findingDead, findingUnfinished, findingUnserved, findingPaused, findingAhead,
	findingLong, findingStuck, findingStalled, findingLate, findingBacklog, findingRetrying, findingFailed, findingPolicy,
	findingPersistence, findingReplication, findingVersion, findingClock, findingMemory, findingVulnerable,
	findingLeases, findingUnreadable,
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

// maxFindings is how many findings a report holds; the others are counted.
const maxFindings = 1000

// A CheckReport is what Check and Repair have found.
type CheckReport struct {
	Queues   int       // looked at, each with its failed queue
	Keys     int       // likewise
	Findings []Finding // the worst first
	Omitted  int       // findings beyond maxFindings
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
		several(r.Keys, "key"), several(r.Queues, "queue"), several(count[SeverityError], "error"), several(count[SeverityWarning], "warning"), several(count[SeverityNotice], "notice"), repaired)
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

// several is a number of things.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (r *CheckReport) add(f Finding) {
	if len(r.Findings) == maxFindings {
		r.Omitted++
		r.unwell = r.unwell || f.Severity == SeverityError && !f.Repaired
		return
	}
	r.Findings = append(r.Findings, f)
}

var gravity = map[Severity]int{SeverityError: 0, SeverityWarning: 1, SeverityNotice: 2}

func (r *CheckReport) sort() {
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
var diagnoses = map[FindingKind]diagnosis{
	findingOrphan: {severity: SeverityError, says: "A task is in a processing list, and no worker holds it.",
		cure: "Repair returns it to the front of the queue.", cured: "Returned to the front of the queue."},
	findingTwice: {severity: SeverityError, says: "Two workers hold the same run of a task.",
		cure: "Repair takes it from the one that started it first.", cured: "Taken from the one that started it first."},
	findingLost: {severity: SeverityError, says: "A worker holds a task whose payload Redis has lost.",
		cure: "It's gone when its handler ends. Look at the eviction policy and the persistence of Redis."},
	findingStray: {severity: SeverityError, says: "A worker holds tasks and isn't a member of the queue, so no other worker returns them.",
		cure: "Repair returns them to the front of the queue.", cured: "Returned to the front of the queue."},
	findingEntry: {severity: SeverityError, says: "The keys of a scheduled task disagree.",
		cure: "Repair makes them agree.", cured: "They agree again."},
	findingLock: {severity: SeverityError, says: "A unique lock has no task, so EnqueueUnique refuses its payload forever.",
		cure: "Repair removes the lock.", cured: "The lock was removed."},
	findingCancel: {severity: SeverityError, says: "Cancel records don't match the running tasks: a cancel may never end, or miss a task.",
		cure: "Repair corrects the record.", cured: "The record was corrected."},
	findingAhead: {severity: SeverityError, says: "A cancel has a token that was never given, so it would stop tasks that start later.",
		cure: "Repair removes it. Find out who writes to the cancel log.", cured: "It was removed. Find out who writes to the cancel log."},
	findingToken: {severity: SeverityError, says: "The token counter isn't a number, or is lower than a token in use, so tokens would repeat.",
		cure: "Repair raises it if it's a number. Otherwise, set it to a number above every token in use.", cured: "It was raised to the highest token in use."},
	findingLeftover: {severity: SeverityError, says: "A worker that is gone has left something behind.",
		cure: "Repair removes it.", cured: "It was removed."},
	findingTTL: {severity: SeverityError, says: "A key has no TTL and should have one, or has one and shouldn't.",
		cure: "Repair sets it right.", cured: "It was set right."},
	findingBatch: {severity: SeverityError, says: "The tasks of an accepted batch are gone, or something else is in their place.",
		cure: "Find out who writes there. If you can restore the list, Repair returns its tasks to the queue. Otherwise remove the key, and Repair forgets the batch.", cured: "It's moved to the queue next if there was a list again. Otherwise it was forgotten."},
	findingStale: {severity: SeverityNotice, patience: true, says: "A unique lock names a place in an empty list, so it locks nothing.",
		cure: "Repair removes it.", cured: "It was removed."},
	findingLedger: {severity: SeverityNotice, says: "Crashes are counted for tasks that are gone.",
		cure: "Repair forgets them.", cured: "They were forgotten."},
	findingDead: {severity: SeverityWarning, patience: true, says: "A worker's lease has expired, and no other worker serves the queue to return its tasks.",
		cure: "Start a peer, or let Repair fail the worker.", cured: "The worker was failed, and its tasks returned to the front of the queue."},
	findingUnfinished: {severity: SeverityWarning, patience: true, says: "A worker is gone, and nobody finishes returning its tasks.",
		cure: "Start a peer that serves the queue, or run Repair.", cured: "Its tasks were returned to the front of the queue."},
	findingUnserved: {severity: SeverityWarning, patience: true, says: "Tasks are waiting (%s), and no worker serves this queue.",
		cure: "Start a peer that handles it."},
	findingPaused: {severity: SeverityNotice, patience: true, says: "The queue is paused, and tasks are waiting (%s).",
		cure: "Resume it, unless the pause is meant."},
}

// gathering is that of a pause during which more tasks arrive.
var gathering = diagnosis{severity: SeverityWarning, says: "The queue is paused, and more and more tasks are waiting (%s).",
	cure: "Resume it, or stop the producers."}
