package dash

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// findings returns what a snapshot shows, and what only the last check has seen. If queue isn't "", it leaves out those of
// other queues, and of workers that don't serve it. checked has the time of the check for findings that the snapshot doesn't show.
func (d *dashboard) findings(s *snapshot, queue string) (all []inspect.Finding, checked map[string]time.Time) {
	of := func(f inspect.Finding) bool {
		if queue == "" || queueOf(f.Queue) == queue {
			return true
		}
		w := s.worker(f.Subject)
		return f.Queue == "" && (w == nil || slices.Contains(w.Queues, queue))
	}
	seen := map[string]bool{}
	for _, f := range d.judge(s) {
		if of(f) {
			all = append(all, f)
		}
		seen[idOf(f)] = true
	}
	if s.err != nil {
		return all, nil
	}
	checked = map[string]time.Time{}
	report, at := d.check.findings()
	for _, f := range report {
		id := idOf(f)
		switch {
		case !of(f) || !worth(f) || outdated(f, s, at):
		case seen[id]:
			i := slices.IndexFunc(all, func(o inspect.Finding) bool { return idOf(o) == id })
			if i >= 0 && knowsMore[f.Kind] && time.Since(at) < time.Minute {
				all[i].Text, all[i].Detail = f.Text, f.Detail
			}
		default:
			all = append(all, f)
			checked[id] = at
		}
	}
	return all, checked
}

// judged is what a snapshot shows.
type judged struct {
	mu  sync.Mutex // protects the fields below
	of  *snapshot
	all []inspect.Finding
}

// judge returns what a snapshot shows. All pages show the latest one, so it's judged once.
func (d *dashboard) judge(s *snapshot) []inspect.Finding {
	d.judged.mu.Lock()
	defer d.judged.mu.Unlock()
	if d.judged.of != s {
		d.judged.of, d.judged.all = s, worqr.Judge(s.sight(d.opts.Check))
	}
	return d.judged.all
}

// follow starts a check if one is due: soon, if something is wrong.
func (d *dashboard) follow(s *snapshot, acted bool) {
	wrong := slices.ContainsFunc(d.judge(s), func(f inspect.Finding) bool { return f.Counts() || f.Kind == "evicted" || f.Kind == "retrying" })
	wrong = wrong || slices.ContainsFunc(s.queues, func(q *queueState) bool { // a check says whether it's a recurring task
		recent, _ := q.past.trend()
		return recent.Failed > 0
	})
	d.check.follow(s, acted, wrong)
}

// idOf identifies a finding.
func idOf(f inspect.Finding) string { return string(f.Kind) + "\x00" + queueOf(f.Queue) }

func queueOf(name string) string { return strings.TrimSuffix(name, " (failed)") }

// worth reports whether a finding of a check has a banner.
func worth(f inspect.Finding) bool {
	return !fresh[f.Kind] && (f.Severity != inspect.SeverityNotice || f.Kind == "retrying")
}

// outdated reports whether a snapshot contradicts a finding of a check that started before it.
func outdated(f inspect.Finding, s *snapshot, checked time.Time) bool {
	if f.Queue == "" || s.err != nil || !slices.Contains(worqr.FindingKinds(), f.Kind) { // of a Source
		return false
	}
	q := s.find(queueOf(f.Queue))
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
	case "stalled", "starved":
		return c.Waiting == 0 || c.IdleWorkers > 0
	case "overdue":
		return c.Scheduled+c.Waiting == 0
	case "retrying":
		return c.Scheduled == 0
	case "long-run", "crashing":
		return c.Running == 0
	}
	return false
}

// knowsMore are the findings of which only a check knows why, or since when.
var knowsMore = map[inspect.FindingKind]bool{"retrying": true, "failing": true, "stalled": true}

// fresh are the findings of a check that each snapshot shows, if they're still there.
var fresh = map[inspect.FindingKind]bool{
	"no-worker": true, "leases": true, "paused": true, "stuck-handler": true, "memory": true, "full": true, "slow-redis": true, "evicted": true, "lost-writes": true, "dropped": true, "job-gone": true,
}
