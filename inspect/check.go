package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/words"
)

// CheckOptions configure Peer.Check and Peer.Repair. A finding beyond a limit that you set is a
// warning, beyond a default a notice.
type CheckOptions struct {
	MaxRunTime time.Duration // of a task; 0 is an hour
	// MaxWaitTime is how late a due task may start, and how long a queue with waiting tasks may
	// start none; 0 is ten minutes.
	MaxWaitTime time.Duration
	MaxBacklog  int // due tasks that may wait on a queue; 0 is any number, negative none
	MaxRetrying int // tasks of a queue that may wait for a retry; 0 is 10, negative none
	MaxFailed   int // tasks of a failed queue; 0 reports any as a notice, negative as a warning
	// Ignore leaves findings of these kinds out of the report; Repair still repairs them. See
	// worqr.FindingKinds; the name of a Source is a kind, too.
	Ignore []FindingKind
}

// A FindingKind says what is wrong, such as "orphan"; worqr.FindingKinds returns all. A Source's findings have its name.
type FindingKind string

// A Severity says how bad a finding is.
type Severity string

const (
	SeverityError   Severity = "error"   // an invariant doesn't hold, or the server can't be used
	SeverityWarning Severity = "warning" // tasks are stuck or at risk, or a limit that you set is exceeded
	SeverityNotice  Severity = "notice"  // worth knowing, and perhaps intended
)

// A Finding is one problem or risk that a CheckReport lists.
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

// A CheckReport is what Peer.Check and Peer.Repair return.
type CheckReport struct {
	Queues   int       // examined
	Keys     int       // examined
	Findings []Finding // worst first
	Omitted  int       // findings beyond the first 1,000
	Unwell   bool      // an omitted finding is an error that remains
	Prefix   string    // the prefix that was searched
	Repair   bool      // the report is Repair's
}

// OK reports whether no finding of severity error is left: every invariant holds, and the server
// can be used. Warnings don't count, although worqr check exits with 1 for them.
func (r *CheckReport) OK() bool {
	return !r.Unwell && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityError && !f.Repaired })
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
		words.Counted(r.Keys, "key"), words.Counted(r.Queues, "queue"), words.Counted(count[SeverityError], "error"), words.Counted(count[SeverityWarning], "warning"), words.Counted(count[SeverityNotice], "notice"))
	if r.Repair {
		fmt.Fprintf(&all, "; %d repaired", repaired)
	}
	all.WriteByte('\n')
	switch {
	case r.Keys == 0:
		fmt.Fprintf(&all, "no worqr keys found under the prefix %q; check the prefix and the Redis URL\n", r.Prefix)
	case r.Queues == 0:
		fmt.Fprintf(&all, "no queues found under the prefix %q; check the prefix and the Redis URL\n", r.Prefix)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(&all, f)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&all, "and %d more\n", r.Omitted)
	}
	return all.String()
}
