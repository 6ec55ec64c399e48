package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr/internal/says"
	"github.com/worqr/worqr/internal/words"
)

// A Line tells of findings with one cause. The Finding is the largest of them; if they're about several queues, its
// Text and Count are about all of them.
type Line struct {
	Finding
	Queues   []string // the largest first
	Findings int      // how many there are
}

// hides lists the kinds that follow from another one on the same queue, or anywhere if it's about none.
var hides = map[FindingKind][]FindingKind{
	"unreachable": {"unlisted", "unreadable", "slow-redis"},
	"denied":      {"unlisted", "unreadable"},
	"full":        {"memory"},
	"cluster":     {"unlisted", "unreadable"},
	"no-worker":   {"expired-worker", "overdue", "backlog", "stalled", "starved", "leases", "job-late", "long-run"},
	"stalled":     {"overdue", "backlog", "starved", "long-run", "job-late"},
	"starved":     {"overdue", "backlog", "job-late"},
	"paused":      {"overdue", "backlog", "job-late"},
	"failing":     {"failed"},
	"recurring":   {"job-late"},
	"overdue":     {"backlog"},
}

// Fold returns a line for each cause, worst first, however many queues and workers it touches. A cause hides the findings
// that follow from it: if no worker of a queue is alive, that its tasks are late isn't told.
func Fold(all []Finding) (lines []Line) {
	all = slices.SortedStableFunc(slices.Values(all), Finding.Compare)
	hidden := map[[2]string]bool{} // by kind and queue
	for _, f := range all {
		isSmall := f.Kind == "paused" && f.Severity == SeverityNotice && f.Count == 0 || f.Kind == "cluster" && !f.Severity.Harms()
		if f.rest() > 0 || isSmall {
			continue
		}
		for _, kind := range hides[f.Kind] {
			hidden[[2]string{string(kind), queueOf(f.Queue)}] = true
		}
	}
	at := map[string]int{}
	for _, f := range all {
		kind, queue := string(f.Kind), queueOf(f.Queue)
		if f.rest() == 0 && (hidden[[2]string{kind, queue}] || hidden[[2]string{kind, ""}]) {
			continue
		}
		cause := fmt.Sprint(f.Kind, " ", f.Severity, " ", f.rest())
		if !says.Of(kind).Folds() {
			cause += " " + f.Text
		}
		i, known := at[cause]
		if !known {
			i = len(lines)
			at[cause] = i
			lines = append(lines, Line{Finding: f})
		}
		l := &lines[i]
		if l.Findings++; known {
			l.Count += f.Count
		}
		if f.Queue != "" && !slices.Contains(l.Queues, f.Queue) {
			l.Queues = append(l.Queues, f.Queue)
		}
	}
	for i := range lines {
		l := &lines[i]
		if l.Findings > 1 && says.Of(string(l.Kind)).Folds() {
			l.retell()
		}
		if l.Silenced != nil {
			l.Text += " " + l.Silenced.sentence()
		}
	}
	return lines
}

// retell makes the text one about all findings.
func (l *Line) retell() {
	detail := l.Detail
	if detail != "" && len(l.Queues) > 1 {
		detail = fmt.Sprintf("On %s: %s", words.Shown(queueOf(l.Queue)), detail)
	}
	l.Key, l.Subject = "", ""
	l.Text = says.Of(string(l.Kind)).Text(l.Count, len(l.Queues) > 1, detail)
}

func queueOf(name string) string { return strings.TrimSuffix(name, " (failed)") }

// On returns the queues, the largest first: at most some by name, and how many more there are.
func (l Line) On(some int) string {
	var names []string
	for _, q := range l.Queues[:min(some, len(l.Queues))] {
		names = append(names, words.Shown(q))
	}
	text := strings.Join(names, ", ")
	if more := len(l.Queues) - some; more > 0 {
		text += " and " + words.Counted(more, "more queue")
	}
	return text
}

// String returns the line as text.
func (l Line) String() string {
	var remarks string
	if l.Repaired {
		remarks += ", repaired"
	}
	if l.Silenced != nil {
		remarks += ", silenced"
	}
	text := fmt.Sprintf("%s (%s%s)", l.Severity, l.Kind, remarks)
	switch {
	case len(l.Queues) > 1:
		text += " on " + l.On(1)
	case l.Queue != "":
		text += " on " + words.Shown(l.Queue)
	}
	text += ": " + l.Text
	if l.Key != "" && l.Findings == 1 {
		text += fmt.Sprintf(" Key: %q.", l.Key)
	}
	if l.Subject != "" && l.Findings == 1 {
		text += fmt.Sprintf(" Subject: %q.", l.Subject)
	}
	return text
}
