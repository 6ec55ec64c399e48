package dash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
)

// A banner explains a problem, and says what to do.
type banner struct {
	Level  string // "error", "warning" or "notice"
	Kind   string // a finding's, or one of ours
	Queue  string
	Title  string
	Text   string
	Link   string // to where it can be seen or solved
	Label  string // of the link
	Others int    // queues of which the same is said
}

// What is growing: at least so many in a minute.
const (
	manyFailed  = 5
	manyWaiting = 100
)

// banners explains what is wrong, worst first: what the snapshot shows, and what the last check
// found beside that. If queue isn't "", it's about that one.
func (d *dashboard) banners(s *snapshot, queue string) []banner {
	var all []banner
	if s.err != nil {
		all = append(all, away(s))
	}
	for _, q := range s.queues {
		if queue == "" || q.name == queue {
			all = append(all, ofQueue(q)...)
		}
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.StuckHandlers > 0 && (queue == "" || slices.Contains(w.Queues, queue)) {
			all = append(all, stuck(w))
		}
	}
	seen := map[string]bool{}
	for _, b := range all {
		seen[b.Kind+"\x00"+b.Queue] = true
	}
	for _, f := range d.check.findings() {
		name := strings.TrimSuffix(f.Queue, " (failed)")
		if f.Severity == worqr.SeverityNotice && !slices.Contains(told, f.Kind) || seen[string(f.Kind)+"\x00"+name] || covered[f.Kind] || queue != "" && name != queue {
			continue
		}
		all = append(all, banner{Level: string(f.Severity), Kind: string(f.Kind), Queue: name, Title: title(f), Text: f.Text,
			Link: link("server") + "#findings", Label: "All findings"})
	}
	slices.SortStableFunc(all, func(a, b banner) int { return rank(a.Level) - rank(b.Level) })
	return all
}

func rank(level string) int { return slices.Index([]string{"error", "warning", "notice"}, level) }

// covered are the findings that the snapshot shows by itself, and sooner.
var covered = map[worqr.FindingKind]bool{"no-worker": true, "paused": true, "stuck-handler": true, "failed": true, "not-permitted": true}

// told are the findings that are shown even if they're only notices.
var told = []worqr.FindingKind{"eviction-policy", "stalled", "overdue", "retrying", "long-run"}

// titles are what kinds of findings are about, where their name doesn't say it well.
var titles = map[worqr.FindingKind]string{
	"eviction-policy": "Redis may evict tasks", "persistence": "Redis may lose tasks when it stops", "memory": "Redis is almost full",
	"leases": "Workers have different leases", "expired-worker": "A worker's lease has expired", "stalled": "No handler is free",
	"overdue": "Scheduled tasks are late", "retrying": "Many tasks are waiting for a retry", "long-run": "A task has run for very long",
	"backlog": "The backlog exceeds its limit", "clock": "Clocks differ", "replication": "A failover may lose writes",
	"unfinished-return": "Tasks of a dead worker weren't all returned", "vulnerable": "This version of Redis has known vulnerabilities",
}

func title(f worqr.Finding) string {
	if t := titles[f.Kind]; t != "" {
		return t
	}
	return "Check found: " + strings.ReplaceAll(string(f.Kind), "-", " ")
}

// away says that Redis doesn't answer.
func away(s *snapshot) banner {
	b := banner{Level: "error", Kind: "redis", Title: "Redis can't be reached", Link: link("server"), Label: "Server"}
	text := s.err.Error()
	switch upper := strings.ToUpper(text); {
	case errors.Is(s.err, worqr.ErrShutdown):
		b.Title = "This process is shutting down"
	case strings.Contains(upper, "WRONGPASS") || strings.Contains(upper, "NOAUTH") || strings.Contains(upper, "INVALID PASSWORD"):
		b.Title = "Redis refuses the login"
		text += ". Check the user and the password that this process was given."
	case errors.Is(s.err, worqr.ErrDenied) || strings.Contains(upper, "NOPERM"):
		b.Title = "Redis denies a permission"
		text += ". docs/security.md has the rules."
	default:
		text += ". Running handlers go on meanwhile, and no worker is evicted."
	}
	if !s.At.IsZero() {
		text += " What's shown is of " + s.At.Format("15:04:05") + "."
	}
	b.Text = printable(text)
	return b
}

// ofQueue explains what is wrong with one queue.
func ofQueue(q *queueState) (all []banner) {
	add := func(level, kind, title, text, at, label string) {
		all = append(all, banner{Level: level, Kind: kind, Queue: q.name, Title: title, Text: text, Link: at, Label: label})
	}
	c, here := q.counts, link("queue", "name", q.name)
	switch {
	case q.err != nil:
		add("error", "unreadable", "Its counts can't be read", printable(q.err.Error()), link("server"), "Check")
	case c.Paused && c.Waiting > 0:
		add("warning", "paused", "Paused", fmt.Sprintf("%s, and none starts until the queue is resumed.", waiting(c.Waiting)), here, "Resume it there")
	case c.Paused:
		add("notice", "paused", "Paused", "No task starts until the queue is resumed.", here, "Resume it there")
	case c.Workers == 0 && c.Waiting > 0:
		add("error", "no-worker", "No worker", fmt.Sprintf("%s, and no worker serves this queue. Start a peer that handles it.", waiting(c.Waiting)), link("workers"), "Workers")
	case c.Workers == 0 && c.Scheduled > 0:
		add("warning", "no-worker", "No worker", fmt.Sprintf("%s scheduled, and no worker serves this queue. Start a peer that handles it.", several(c.Scheduled, "task")), link("workers"), "Workers")
	}
	// A worker that has just joined may not be registered yet.
	if n := c.Workers - len(q.workers); n > 0 && q.err == nil && (q.missing > 3*time.Second || len(q.workers) == 0) {
		held := "Tasks that it holds return"
		if len(q.workers) == 0 {
			held = "No other worker is there to return its tasks: start a peer. They return"
		}
		add("warning", "suspect", "A worker has stopped answering", fmt.Sprintf("%s of %d no longer sends heartbeats. %s to the front once it's evicted.",
			several(n, "worker"), c.Workers, held), link("workers", "q", q.name), "Its workers")
	}
	if leases := leases(q); len(leases) > 1 {
		add("warning", "leases", "Workers have different leases", fmt.Sprintf("The workers of this queue have leases of %s, so they evict each other after different times. Use one lease.",
			strings.Join(leases, " and ")), link("workers", "q", q.name), "Its workers")
	}
	if q.grown.failed >= manyFailed {
		add("warning", "failed", "More and more tasks fail", fmt.Sprintf("%s in %s. See why, fix the cause, then requeue them.",
			several(q.grown.failed, "new failure"), span(q.grown.over)), link("failed", "name", q.name), "Reasons")
	}
	if q.grown.waiting >= manyWaiting && q.grown.over >= 20*time.Second && !c.Paused && c.Workers > 0 && c.IdleWorkers == 0 {
		add("warning", "backlog", "The backlog is growing", fmt.Sprintf("%s more than %s ago, and all workers are busy. Add workers, or find out what slows them down.",
			several(q.grown.waiting, "task"), span(q.grown.over)), here, "Queue")
	}
	return all
}

func waiting(n int) string {
	if n == 1 {
		return "1 task is waiting"
	}
	return count(n) + " tasks are waiting"
}

// leases are those of the workers of a queue, each once.
func leases(q *queueState) (all []string) {
	for _, w := range q.workers {
		of := span(w.Lease)
		if w.Lease < 0 {
			of = "forever"
		}
		if !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	slices.Sort(all)
	return all
}

func stuck(w *worqr.Worker) banner {
	return banner{Level: "warning", Kind: "stuck-handler", Title: "Stuck handlers",
		Text: fmt.Sprintf("%s of %s didn't return after their contexts ended. They occupy memory, and may still be running. Its log has their stacks: restart it, and fix the handler.",
			several(w.StuckHandlers, "handler"), printable(w.Name)),
		Link: link("workers", "q", w.Name), Label: "Worker"}
}
