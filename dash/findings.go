package dash

import (
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// found returns banners for the findings of the last check that the snapshot doesn't show.
func (d *dashboard) found(s *snapshot, queue string, all []banner) (more []banner) {
	seen := map[string]bool{}
	for _, b := range all {
		seen[b.Kind+"\x00"+b.Queue] = true
	}
	findings, at := d.check.findings()
	for _, f := range findings {
		name := queueOf(f)
		if !worth(f) || seen[string(f.Kind)+"\x00"+name] || queue != "" && name != queue || outdated(f, s, at) {
			continue
		}
		more = append(more, banner{Level: string(f.Severity), Kind: string(f.Kind), Queue: name, Title: title(f), Text: f.Text,
			Link: link("server") + "#findings", Label: "All findings", Age: age(time.Since(at))})
	}
	return more
}

func queueOf(f inspect.Finding) string { return strings.TrimSuffix(f.Queue, " (failed)") }

// worth reports whether a finding has a banner.
func worth(f inspect.Finding) bool {
	return !covered[f.Kind] && (f.Severity != inspect.SeverityNotice || slices.Contains(told, f.Kind))
}

// age formats how long ago a check was. It's rough, so that banners don't change all the time.
func age(d time.Duration) string {
	if d < time.Minute {
		return "less than a minute ago"
	}
	return span(d.Truncate(time.Minute)) + " ago"
}

// outdated reports whether a snapshot contradicts a finding of a check that started before it.
func outdated(f inspect.Finding, s *snapshot, checked time.Time) bool {
	if f.Queue == "" || s.err != nil || !slices.Contains(worqr.FindingKinds(), f.Kind) { // of a Source
		return false
	}
	q := s.find(queueOf(f))
	switch {
	case q == nil:
		return !s.more && s.At.After(checked) // the queue no longer exists
	case q.err != nil || !q.at.After(checked):
		return false
	}
	c := q.counts
	switch f.Kind {
	case "expired-worker":
		return len(q.workers) > 0 && c.Workers <= len(q.workers)
	case "backlog":
		return c.Waiting == 0
	case "stalled":
		return c.Waiting == 0 || c.IdleWorkers > 0
	case "overdue", "retrying":
		return c.Scheduled == 0
	case "long-run":
		return c.Running == 0
	}
	return false
}

// covered are the findings that snapshots show themselves, and sooner.
var covered = map[inspect.FindingKind]bool{"no-worker": true, "paused": true, "stuck-handler": true, "failed": true, "not-permitted": true}

// told are the findings that are shown even as notices.
var told = []inspect.FindingKind{"eviction-policy", "stalled", "overdue", "retrying", "long-run"}

// titles describe kinds of findings whose name isn't clear enough.
var titles = map[inspect.FindingKind]string{
	"eviction-policy": "Redis may evict tasks", "persistence": "Redis may lose tasks when it stops", "memory": "Redis is almost full",
	"leases": "Workers have different leases", "expired-worker": "A worker's lease has expired", "stalled": "No handler is free",
	"overdue": "Scheduled tasks are late", "retrying": "Many tasks are waiting for a retry", "long-run": "A task has been running for very long",
	"backlog": "The backlog exceeds its limit", "clock": "Clocks differ", "replication": "A failover may lose writes",
}

func title(f inspect.Finding) string {
	if t := titles[f.Kind]; t != "" {
		return t
	}
	return "Check found: " + strings.ReplaceAll(string(f.Kind), "-", " ")
}
