package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/says"
	"github.com/worqr/worqr/internal/words"
)

// CheckOptions configure Peer.Check and Peer.Repair.
type CheckOptions struct {
	MaxRunTime time.Duration // of a task; 0 is an hour
	// MaxWaitTime is how late a due task may start; 0 is ten minutes. It's also how long a queue may start
	// nothing while tasks wait and every slot is busy; 0 is three minutes.
	MaxWaitTime time.Duration
	MaxBacklog  int // due tasks that may wait on a queue; 0 is any number, negative none
	// MaxRetrying is how many tasks of a queue may wait for a retry; negative is none. 0 reports more than 10 as a
	// notice, and as SeverityStuck if they are at least 50 and most of what the queue has.
	MaxRetrying int
	MaxFailed   int // tasks of a failed queue; 0 reports any as a notice, negative as SeverityStuck
	// Ignore leaves findings of these kinds out of the report; Repair still repairs them. See
	// worqr.FindingKinds; the name of a Source is a kind, too. To silence a finding for a while, use Peer.Silence.
	Ignore []FindingKind
}

// A FindingKind says what is wrong, such as "orphan"; worqr.FindingKinds returns all. A Source's findings have its name.
type FindingKind string

// A Severity ranks findings by harm.
type Severity string

// The severities, worst first.
const (
	SeverityLost    Severity = "lost"    // work is refused or gone
	SeverityStopped Severity = "stopped" // nothing moves on a queue
	SeverityStuck   Severity = "stuck"   // some tasks stand still, or exceed a limit that you set
	SeverityRisk    Severity = "risk"    // later, something may be lost or stop
	SeverityNotice  Severity = "notice"  // worth knowing, and perhaps intended
)

var severities = []Severity{SeverityLost, SeverityStopped, SeverityStuck, SeverityRisk, SeverityNotice}

// Severities returns all severities, worst first.
func Severities() []Severity { return slices.Clone(severities) }

// Compare returns a negative number if s is worse than o, and a positive one if o is worse.
func (s Severity) Compare(o Severity) int {
	return cmp.Compare(slices.Index(severities, s), slices.Index(severities, o))
}

// Harms reports whether work is lost, stopped or stuck now.
func (s Severity) Harms() bool { return s.Compare(SeverityRisk) < 0 }

// A Finding is one problem or risk.
type Finding struct {
	Kind     FindingKind
	Severity Severity
	Queue    string // "" if none; a failed queue's ends in " (failed)"
	Key      string // in Redis; keys of tasks and nonces appear as #digest
	Subject  string // a worker, attempt or digest
	Title    string // in a few words
	Text     string // what is wrong, and what to do
	Detail   string // the part of Text that Fold keeps only of the largest finding
	Count    int    // of the tasks, workers or handlers in Text; 0 if it's about none
	Repaired bool
	Silenced *Silence // nil unless someone has silenced it
}

// Compare compares two findings: worse ones come first, and those that are repaired or silenced last.
func (f Finding) Compare(o Finding) int {
	return cmp.Or(cmp.Compare(f.rest(), o.rest()), f.Severity.Compare(o.Severity),
		cmp.Compare(says.Rank(string(f.Kind)), says.Rank(string(o.Kind))), cmp.Compare(f.Kind, o.Kind),
		cmp.Compare(o.Count, f.Count), cmp.Compare(f.Queue, o.Queue), cmp.Compare(f.Key, o.Key), cmp.Compare(f.Text, o.Text))
}

func (f *Finding) rest() int {
	switch {
	case f.Silenced != nil:
		return 2
	case f.Repaired:
		return 1
	}
	return 0
}

// Counts reports whether a finding counts: it's more than a notice, and neither repaired nor silenced.
func (f *Finding) Counts() bool { return f.Severity != SeverityNotice && f.rest() == 0 }

// String returns the finding as one line.
func (f Finding) String() string { return Line{Finding: f, Findings: 1}.String() }

// A CheckReport is what Peer.Check and Peer.Repair return.
type CheckReport struct {
	Queues   int       // examined
	Keys     int       // examined
	Findings []Finding // worst first
	Omitted  int       // findings beyond the first 1,000
	Unwell   bool      // an omitted finding is more than a notice, and remains
	Prefix   string    // the prefix that was searched
	Repair   bool      // the report is Repair's
}

// OK reports whether all is well: no finding is left but notices and silenced ones.
func (r *CheckReport) OK() bool {
	return !r.Unwell && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Counts() })
}

// String returns a summary, and a line for each cause.
func (r *CheckReport) String() string {
	var all strings.Builder
	all.WriteString(r.Summary())
	for _, l := range Fold(r.Findings) {
		fmt.Fprintln(&all, l)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&all, "and %d more\n", r.Omitted)
	}
	return all.String()
}

// Summary returns the first lines of String: what was examined, and how many lines of each severity follow.
func (r *CheckReport) Summary() string {
	count, repaired, silenced := map[Severity]int{}, 0, 0
	for _, l := range Fold(r.Findings) {
		switch {
		case l.Silenced != nil:
			silenced++
		case l.Repaired:
			repaired += l.Findings
		default:
			count[l.Severity]++
		}
	}
	var counts []string
	for _, s := range severities {
		text := fmt.Sprintf("%s %s", words.Grouped(count[s]), s)
		if s == SeverityRisk || s == SeverityNotice {
			text = words.Counted(count[s], string(s))
		}
		if count[s] > 0 {
			counts = append(counts, text)
		}
	}
	if len(counts) == 0 {
		counts = append(counts, "nothing is wrong")
	}
	if r.Repair {
		counts = append(counts, fmt.Sprintf("%d repaired", repaired))
	}
	if silenced > 0 {
		counts = append(counts, fmt.Sprintf("%d silenced", silenced))
	}
	text := fmt.Sprintf("Checked %s in %s: %s\n", words.Counted(r.Keys, "key"), words.Counted(r.Queues, "queue"), strings.Join(counts, ", "))
	switch {
	case r.Keys == 0:
		text += fmt.Sprintf("no worqr keys found under the prefix %q; check the prefix and the Redis URL\n", r.Prefix)
	case r.Queues == 0:
		text += fmt.Sprintf("no queues found under the prefix %q; check the prefix and the Redis URL\n", r.Prefix)
	}
	return text
}
