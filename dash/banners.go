package dash

import (
	"cmp"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A banner explains a problem, with advice.
type banner struct {
	Level    string // "error" for harm, "warning" for a risk, or "notice"
	Severity inspect.Severity
	Kind     string // a finding's kind, or one of the dashboard's own
	Queue    string // the largest
	Title    string
	Text     string
	Link     string // to the page that shows or solves it
	Label    string // of the link
	Age      string // of the check that found it, from a minute on; "" if the snapshot shows it
	Others   int    // queues with the same problem
	Silenced bool
	queues   []string // all of them

	Actions   bool   // it may be silenced, or its silence ended
	SilenceOf string // the queue that its silence is about; "" for all
}

// banners explains the problems, worst first: those in the snapshot, and others from the last check. If queue isn't "",
// it explains only that queue's, and those of no queue.
func (d *dashboard) banners(s *snapshot, queue string) []banner {
	all := d.hooks.banners()
	findings, at := d.findings(s, queue)
	for _, l := range inspect.Fold(findings) {
		b := bannerOf(l)
		if l.Kind == "unreachable" && !s.At.IsZero() {
			b.Text += " This page shows the state at " + s.At.Format("15:04:05") + "."
		}
		b.Actions = d.opts.AllowActions && s.err == nil
		if checked := at[idOf(l.Finding)]; !checked.IsZero() && time.Since(checked) > time.Minute {
			b.Age = span(time.Since(checked).Truncate(time.Minute)) + " ago" // not each second another one
		}
		all = append(all, b)
	}
	return all
}

// level returns the class of a severity.
func level(s inspect.Severity) string {
	switch {
	case s.Harms():
		return "error"
	case s == inspect.SeverityRisk:
		return "warning"
	}
	return "notice"
}

func bannerOf(l inspect.Line) banner {
	b := banner{Severity: l.Severity, Level: level(l.Severity), Kind: string(l.Kind), Title: printable(cmp.Or(l.Title, "Check found: "+strings.ReplaceAll(string(l.Kind), "-", " "))), Text: printable(l.Text),
		Silenced: l.Silenced != nil}
	if b.Silenced {
		b.Level, b.Title, b.SilenceOf = "notice", "Silenced: "+b.Title, l.Silenced.Queue
	}
	for _, name := range l.Queues {
		b.queues = append(b.queues, queueOf(name))
	}
	if len(b.queues) > 0 {
		b.Queue, b.Others = b.queues[0], len(b.queues)-1
	}
	b.Link, b.Label = pageOf(&l.Finding, b.Queue)
	return b
}

// pageOf returns a link to the page that shows or solves a problem, and its label.
func pageOf(f *inspect.Finding, queue string) (to, label string) {
	here := func(tab string) string { return link("queue", "name", queue, "tab", tab) }
	switch f.Kind {
	case "unreachable", "denied", "unreadable":
		return link("server"), "Server"
	case "no-worker", "unlisted", "evicted":
		return link("workers"), "Workers"
	case "expired-worker":
		return link("workers", "q", queue), "Its workers"
	case "stuck-handler", "clock":
		return link("workers", "q", f.Subject), "Worker"
	case "paused":
		return link("queue", "name", queue), "Resume it there"
	case "failing", "failed", "dropped":
		return link("failed", "name", queue), "Reasons"
	case "stalled", "starved", "long-run", "crashing":
		return here("running"), "What runs"
	case "retrying", "overdue":
		return here("scheduled"), "Scheduled"
	case "backlog":
		return link("queue", "name", queue), "Queue"
	case "job-failed", "job-late", "job-gone":
		return link("recurring", "name", queue), "Recurring"
	}
	return link("server") + "#findings", "All findings"
}

// sight returns what the snapshot has seen.
func (s *snapshot) sight(limits *inspect.CheckOptions) inspect.Sight {
	all := inspect.Sight{At: s.At, Err: s.err, Unlisted: s.unlisted, Workers: s.workers, Server: s.Server, Happened: s.happened, Silences: s.silences}
	if limits != nil {
		all.Limits = *limits
	}
	for _, q := range s.queues {
		if q.at.IsZero() && q.err == nil {
			continue // it hasn't been read yet
		}
		of := inspect.QueueSight{Name: q.name, Err: q.err, QueueStats: q.counts, Missing: q.missing}
		if of.Recent, of.Usual = q.past.trend(); q.usual.Known {
			of.Usual.Failed, of.Usual.Known = q.usual.Failed, true
		}
		of.Usual.RunTime = q.usual.RunTime
		all.Queues = append(all.Queues, of)
	}
	return all
}

// shown is how many banners are shown before the others are in a list that can be opened.
const shown = 2

// Folded returns the banners as they're shown.
func (p *page) Folded() folded {
	n := min(shown, len(p.Banners))
	for n > 0 && p.Banners[n-1].Silenced {
		n--
	}
	return folded{p.Banners[:n], p.Banners[n:]}
}

// A folded has the worst banners, and the rest.
type folded struct{ First, Rest []banner }
