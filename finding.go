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
	FindingOrphan     FindingKind = "orphan"     // a processing list that no worker holds
	FindingTwice      FindingKind = "twice"      // a run of a task that two workers hold
	FindingLost       FindingKind = "lost"       // a run of a task whose payload is gone
	FindingStray      FindingKind = "stray"      // tasks of a worker that is no member
	FindingEntry      FindingKind = "entry"      // keys of the second lane that disagree
	FindingLock       FindingKind = "lock"       // a unique lock without a holder
	FindingCancel     FindingKind = "cancel"     // records of cancels that don't fit what runs
	FindingToken      FindingKind = "token"      // a token counter that is no number, or behind
	FindingLeftover   FindingKind = "leftover"   // what a worker that is gone has left behind
	FindingTTL        FindingKind = "ttl"        // a key without the TTL that belongs there
	FindingType       FindingKind = "type"       // a key that holds something else
	FindingBatch      FindingKind = "batch"      // an accepted batch whose tasks are gone
	FindingStale      FindingKind = "stale"      // a unique lock that counts as none
	FindingLedger     FindingKind = "ledger"     // crash counts of tasks that are not there any more
	FindingUnknown    FindingKind = "unknown"    // a key of the prefix that is none of ours
	FindingRoster     FindingKind = "roster"     // a list of peers that is not right
	FindingRegistry   FindingKind = "registry"   // a queue that is not listed
	FindingDead       FindingKind = "dead"       // a lapsed worker that nobody is there to judge
	FindingUnfinished FindingKind = "unfinished" // a return that nobody is there to finish
	FindingUnserved   FindingKind = "unserved"   // tasks wait, and nobody serves the queue
	FindingPaused     FindingKind = "paused"     // tasks wait, or even gather, while the queue is paused
	FindingAhead      FindingKind = "ahead"      // a cancel of tasks that are still to come
)

// What is wrong with the service: nothing is broken, and it may not do its work.
const (
	FindingLong     FindingKind = "long"     // a task runs for long, or for far longer than others
	FindingStuck    FindingKind = "stuck"    // handlers that didn't return after their context ended
	FindingStalled  FindingKind = "stalled"  // tasks wait, and none has started for long
	FindingLate     FindingKind = "late"     // a task was due long ago
	FindingBacklog  FindingKind = "backlog"  // more tasks wait than are allowed
	FindingRetrying FindingKind = "retrying" // tasks have failed, and are to be retried
	FindingFailed   FindingKind = "failed"   // tasks are in the failed queue
)

// What endangers tasks from outside.
const (
	FindingPolicy      FindingKind = "policy"      // Redis may evict keys
	FindingPersistence FindingKind = "persistence" // Redis may lose what it has acknowledged
	FindingReplication FindingKind = "replication" // a failover may
	FindingVersion     FindingKind = "version"     // Redis is too old
	FindingClock       FindingKind = "clock"       // the clocks of this machine and Redis differ
	FindingMemory      FindingKind = "memory"      // Redis is nearly full
	FindingVulnerable  FindingKind = "vulnerable"  // Redis has a hole in its scripting that is known
	FindingLeases      FindingKind = "leases"      // peers of one queue have different leases
	FindingUnreadable  FindingKind = "unreadable"  // Redis may not be asked
)

// FindingKinds returns all kinds.
func FindingKinds() []FindingKind { return slices.Clone(findingKinds) }

var findingKinds = []FindingKind{
	FindingOrphan, FindingTwice, FindingLost, FindingStray, FindingEntry, FindingLock, FindingCancel,
	FindingToken, FindingLeftover, FindingTTL, FindingType, FindingBatch, FindingStale, FindingLedger, FindingUnknown,
	FindingRoster, FindingRegistry, FindingDead, FindingUnfinished, FindingUnserved, FindingPaused, FindingAhead,
	FindingLong, FindingStuck, FindingStalled, FindingLate, FindingBacklog, FindingRetrying, FindingFailed, FindingPolicy,
	FindingPersistence, FindingReplication, FindingVersion, FindingClock, FindingMemory, FindingVulnerable,
	FindingLeases, FindingUnreadable,
}

// A Severity says how bad a finding is.
type Severity string

// The severities.
const (
	SeverityBroken Severity = "broken" // an invariant doesn't hold
	SeverityDanger Severity = "danger" // tasks don't get done, or may be lost, or a limit that was set is exceeded
	SeverityNotice Severity = "notice" // worth knowing; it may be meant
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

// MaxFindings is how many findings a report holds; the others are counted.
const MaxFindings = 1000

// A CheckReport is what Check and Repair have found.
type CheckReport struct {
	Queues   int       // looked at, each with its failed queue
	Keys     int       // likewise
	Findings []Finding // the worst first
	Omitted  int       // findings beyond MaxFindings
	unwell   bool      // one of those omitted is broken, and is so still
	prefix   string    // that it looked under
}

// OK reports whether every invariant holds, or does so again: nothing is broken
// that was not repaired. What endangers tasks does not count.
func (r *CheckReport) OK() bool {
	return !r.unwell && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityBroken && !f.Repaired })
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
	fmt.Fprintf(&all, "%s of %s: %d broken, %d in danger, %s; %d repaired\n",
		several(r.Keys, "key"), several(r.Queues, "queue"), count[SeverityBroken], count[SeverityDanger], several(count[SeverityNotice], "notice"), repaired)
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
	if len(r.Findings) == MaxFindings {
		r.Omitted++
		r.unwell = r.unwell || f.Severity == SeverityBroken && !f.Repaired
		return
	}
	r.Findings = append(r.Findings, f)
}

var gravity = map[Severity]int{SeverityBroken: 0, SeverityDanger: 1, SeverityNotice: 2}

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
	FindingOrphan: {severity: SeverityBroken, says: "A task is in a processing list, and no worker holds it.",
		cure: "Repair returns it to the front of the queue.", cured: "Returned to the front of the queue."},
	FindingTwice: {severity: SeverityBroken, says: "Two workers hold the same run of a task.",
		cure: "Repair takes it from the one that started it first.", cured: "Taken from the one that started it first."},
	FindingLost: {severity: SeverityBroken, says: "A worker holds a task whose payload Redis has lost.",
		cure: "It's gone when its handler ends. Look at the eviction policy and the persistence of Redis."},
	FindingStray: {severity: SeverityBroken, says: "A worker holds tasks and isn't a member of the queue, so no other worker returns them.",
		cure: "Repair returns them to the front of the queue.", cured: "Returned to the front of the queue."},
	FindingEntry: {severity: SeverityBroken, says: "The keys of a scheduled task disagree.",
		cure: "Repair makes them agree.", cured: "They agree again."},
	FindingLock: {severity: SeverityBroken, says: "A unique lock has no task, so EnqueueUnique refuses its payload forever.",
		cure: "Repair removes the lock.", cured: "The lock was removed."},
	FindingCancel: {severity: SeverityBroken, says: "Cancel records don't match the running tasks: a cancel may never end, or miss a task.",
		cure: "Repair corrects the record.", cured: "The record was corrected."},
	FindingAhead: {severity: SeverityBroken, says: "A cancel has a token that was never given, so it would stop tasks that start later.",
		cure: "Repair removes it. Find out who writes to the cancel log.", cured: "It was removed. Find out who writes to the cancel log."},
	FindingToken: {severity: SeverityBroken, says: "The token counter isn't a number, or is lower than a token in use, so tokens would repeat.",
		cure: "Repair raises it if it's a number. Otherwise, set it to a number above every token in use.", cured: "It was raised to the highest token in use."},
	FindingLeftover: {severity: SeverityBroken, says: "A worker that is gone has left something behind.",
		cure: "Repair removes it.", cured: "It was removed."},
	FindingTTL: {severity: SeverityBroken, says: "A key has no TTL and should have one, or has one and shouldn't.",
		cure: "Repair sets it right.", cured: "It was set right."},
	FindingBatch: {severity: SeverityBroken, says: "The tasks of an accepted batch are gone, or something else is in their place.",
		cure: "Find out who writes there. If you can restore the list, Repair returns its tasks to the queue. Otherwise remove the key, and Repair forgets the batch.", cured: "It's moved to the queue next if there was a list again. Otherwise it was forgotten."},
	FindingStale: {severity: SeverityNotice, patience: true, says: "A unique lock names a place in an empty list, so it locks nothing.",
		cure: "Repair removes it.", cured: "It was removed."},
	FindingLedger: {severity: SeverityNotice, says: "Crashes are counted for tasks that are gone.",
		cure: "Repair forgets them.", cured: "They were forgotten."},
	FindingDead: {severity: SeverityDanger, patience: true, says: "A worker's lease has expired, and no other worker serves the queue to return its tasks.",
		cure: "Start a peer, or let Repair fail the worker.", cured: "The worker was failed, and its tasks returned to the front of the queue."},
	FindingUnfinished: {severity: SeverityDanger, patience: true, says: "A worker is gone, and nobody finishes returning its tasks.",
		cure: "Start a peer that serves the queue, or run Repair.", cured: "Its tasks were returned to the front of the queue."},
	FindingUnserved: {severity: SeverityDanger, patience: true, says: "Tasks are waiting (%s), and no worker serves this queue.",
		cure: "Start a peer that handles it."},
	FindingPaused: {severity: SeverityNotice, patience: true, says: "The queue is paused, and tasks are waiting (%s).",
		cure: "Resume it, unless the pause is meant."},
}

// gathering is that of a pause during which more tasks arrive.
var gathering = diagnosis{severity: SeverityDanger, says: "The queue is paused, and more and more tasks are waiting (%s).",
	cure: "Resume it, or stop the producers."}
