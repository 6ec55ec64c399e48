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
	FindingCancel     FindingKind = "cancel"     // a cancel that nobody will acknowledge
	FindingToken      FindingKind = "token"      // a token counter that is no number, or behind
	FindingLeftover   FindingKind = "leftover"   // what a worker that is gone has left behind
	FindingTTL        FindingKind = "ttl"        // a key without the TTL that belongs there
	FindingType       FindingKind = "type"       // a key that holds something else
	FindingStale      FindingKind = "stale"      // a unique lock that counts as none
	FindingLedger     FindingKind = "ledger"     // crash counts of tasks that are not there any more
	FindingUnknown    FindingKind = "unknown"    // a key of the prefix that is none of ours
	FindingRoster     FindingKind = "roster"     // a list of peers that is not right
	FindingRegistry   FindingKind = "registry"   // a queue that is not listed
	FindingDead       FindingKind = "dead"       // a lapsed worker that nobody is there to judge
	FindingUnfinished FindingKind = "unfinished" // a return that nobody is there to finish
	FindingUnserved   FindingKind = "unserved"   // tasks wait, and nobody serves the queue
	FindingPaused     FindingKind = "paused"     // tasks wait, or even gather, while the queue is paused
)

// What endangers tasks from outside.
const (
	FindingPolicy      FindingKind = "policy"      // Redis may evict keys
	FindingPersistence FindingKind = "persistence" // Redis may lose what it has acknowledged
	FindingReplication FindingKind = "replication" // a failover may
	FindingVersion     FindingKind = "version"     // Redis is too old
	FindingClock       FindingKind = "clock"       // the clocks of this machine and Redis differ
	FindingMemory      FindingKind = "memory"      // Redis is nearly full
	FindingUnreadable  FindingKind = "unreadable"  // Redis may not be asked
)

// A Severity says how bad a finding is.
type Severity string

// The severities.
const (
	SeverityBroken Severity = "broken" // an invariant does not hold
	SeverityDanger Severity = "danger" // tasks are held up, or may be lost
	SeverityNotice Severity = "notice" // nothing that holds up a task, but for a pause, which may be meant
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
	Queues   int       // looked at, failed queues included
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
	fmt.Fprintf(&all, "%d keys of %d queues: %d broken, %d in danger, %d notices; %d repaired\n",
		r.Keys, r.Queues, count[SeverityBroken], count[SeverityDanger], count[SeverityNotice], repaired)
	if r.Queues == 0 {
		fmt.Fprintf(&all, "there are no queues under the prefix %q: is it that of the fleet, and is this its Redis?\n", r.prefix)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(&all, f)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&all, "and %d more\n", r.Omitted)
	}
	return all.String()
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
	FindingOrphan: {severity: SeverityBroken, says: "A task is in a processing list that no worker holds, so nobody will end it.",
		cure: "Repair puts it back to the front.", cured: "It was put back to the front."},
	FindingTwice: {severity: SeverityBroken, says: "One run of a task is held by two workers.",
		cure: "Repair takes it from the one that started it first.", cured: "It was taken from one of them."},
	FindingLost: {severity: SeverityBroken, says: "A worker holds a task whose payload Redis has lost.",
		cure: "It goes when its handler ends; look at Redis's eviction policy and persistence."},
	FindingStray: {severity: SeverityBroken, says: "A worker that is no member holds tasks, so nobody will return them.",
		cure: "Repair puts them back to the front.", cured: "They were put back to the front."},
	FindingEntry: {severity: SeverityBroken, says: "The keys of the second lane do not agree about a task.",
		cure: "Repair makes them agree.", cured: "They agree again."},
	FindingLock: {severity: SeverityBroken, says: "A unique lock is held by nothing, so its payload can never be enqueued.",
		cure: "Repair removes it.", cured: "It was removed."},
	FindingCancel: {severity: SeverityBroken, says: "A cancel waits for a worker that is gone.",
		cure: "Repair takes it out of the log.", cured: "It waits for that no more."},
	FindingToken: {severity: SeverityBroken, says: "The token counter is behind what was given, or is no number, so tokens would be given twice.",
		cure: "Repair sets it, if it is a number; else set it to a number above every token.", cured: "It was set to the highest that was given."},
	FindingLeftover: {severity: SeverityBroken, says: "Something is left of what is gone.",
		cure: "Repair removes it.", cured: "It was removed."},
	FindingTTL: {severity: SeverityBroken, says: "A key has no TTL where one belongs, or has one where none does.",
		cure: "Repair sets it.", cured: "It was set."},
	FindingStale: {severity: SeverityNotice, patience: true, says: "A unique lock is on a place of an empty list, so it counts as none.",
		cure: "Repair removes it.", cured: "It was removed."},
	FindingLedger: {severity: SeverityNotice, says: "Crashes are counted of tasks that are not there any more.",
		cure: "Repair forgets them.", cured: "They were forgotten."},
	FindingDead: {severity: SeverityDanger, patience: true, says: "A worker was not heard of for longer than its lease, and no other serves the queue that could fail it.",
		cure: "Start a peer, or let Repair fail it.", cured: "It was failed; what it held is at the front again."},
	FindingUnfinished: {severity: SeverityDanger, patience: true, says: "The tasks of a worker that is gone are being returned, and nobody serves the queue that would go on with it.",
		cure: "Start a peer, or let Repair go on.", cured: "They are at the front again."},
	FindingUnserved: {severity: SeverityDanger, patience: true, says: "Tasks wait (%s), and nobody serves the queue.",
		cure: "Start a peer with a handler for it."},
	FindingPaused: {severity: SeverityNotice, patience: true, says: "The queue is paused, and tasks wait (%s).",
		cure: "Resume it, unless the pause is meant."},
}

// gathering is that of a pause during which what waits has grown.
var gathering = diagnosis{severity: SeverityDanger, says: "The queue is paused, and more and more tasks wait (%s).",
	cure: "Resume it, or stop those who enqueue."}
