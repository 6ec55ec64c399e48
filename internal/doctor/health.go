package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

const (
	defaultRun      = time.Hour
	defaultWait     = 10 * time.Minute
	defaultRetrying = 10

	recently = time.Hour // for failures
)

// against returns the severity of exceeding a limit: one that was set, or the default.
func against(set bool) inspect.Severity {
	if set {
		return inspect.SeverityWarning
	}
	return inspect.SeverityNotice
}

// A run is an attempt that a worker holds.
type run struct {
	attempt, worker string
	since           time.Time // zero if the id doesn't contain it
}

// runs summarizes the runs of a queue, so that not all of them are kept.
type runs struct {
	long   int // longer than MaxRun
	oldest run
	newest time.Time
}

func (r *runs) add(now int64, limits inspect.CheckOptions, one run) {
	if one.since.IsZero() {
		return
	}
	if age(now, one.since) > cmp.Or(limits.MaxRunTime, defaultRun) {
		r.long++
	}
	if r.oldest.attempt == "" || one.since.Before(r.oldest.since) {
		r.oldest = one
	}
	if one.since.After(r.newest) {
		r.newest = one.since
	}
}

func age(now int64, t time.Time) time.Duration { return time.UnixMilli(now).Sub(t) }

// health checks whether a queue does its work.
func (c *checkup) health(e *exam) error {
	due, err := store.FirstDue(c.ctx, c.Runner, e.keys, e.vitals.Now)
	if err != nil && !store.IsWrongType(err) {
		return err
	}
	e.vitals.firstDue = due
	for _, f := range e.vitals.judge(e.keys, c.Limits) {
		f.Queue = e.id
		c.found(f)
	}
	return nil
}

// vitals are what a checkup knows about whether a queue does its work.
type vitals struct {
	store.Queue
	firstDue int64 // ms; when the first task that could start was due; 0 if that isn't known
	retries  int   // tasks that wait for a retry, or for a free slot since its time has come
	failed   int   // in a failed queue
	recent   int   // of them, those that failed recently
	runs     runs
}

// count counts the named tasks of a page.
func (v *vitals) count(p *store.Part, kind string) {
	if kind != "tasks" {
		return
	}
	for i := range p.About {
		a := &p.About[i]
		if a.Attempt == "" && a.Retries > 0 { // also if its time has come
			v.retries++
		}
		if a.Attempt == "" {
			v.failed++
		}
		if f := a.Record.Failure; f != nil && a.Attempt == "" && f.At >= v.Now-recently.Milliseconds() {
			v.recent++
		}
	}
}

// judge returns findings about slow queues and exceeded limits.
func (v *vitals) judge(q store.Keys, limits inspect.CheckOptions) (all findings) {
	all.long(v, q, limits)
	if q.IsFailed() {
		all.failures(v, q, limits)
		return all
	}
	all.counts(v, q, limits)
	if v.Alive > 0 && v.Paused == "" {
		all.stalled(v, q, limits)
		all.late(v, q, limits)
	}
	return all
}

func (all *findings) add(kind inspect.FindingKind, severity inspect.Severity, key, text string) {
	*all = append(*all, inspect.Finding{Kind: kind, Severity: severity, Key: key, Text: text})
}

func (all *findings) long(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	r := v.runs
	if r.long == 0 {
		return
	}
	*all = append(*all, inspect.Finding{
		Kind: long, Severity: against(limits.MaxRunTime > 0), Key: words.Clip(q.Process(r.oldest.attempt)), Subject: words.Clip(r.oldest.worker),
		Text: fmt.Sprintf("%s for longer than %v: the oldest has run for %v, since %s. Its handler may be stuck: look at its worker, and set a Timeout.",
			words.Tasks(r.long, "has run", "have run"), cmp.Or(limits.MaxRunTime, defaultRun), age(v.Now, r.oldest.since).Round(time.Second), words.Clock(r.oldest.since)),
	})
}

// stalled reports that all handlers have been busy with the same tasks for a long time while others
// wait.
func (all *findings) stalled(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	newest, ready := v.runs.newest, v.Waiting()
	if limit := cmp.Or(limits.MaxWaitTime, defaultWait); ready > 0 && v.Idle == 0 && !newest.IsZero() && age(v.Now, newest) > limit {
		all.add(stalled, against(limits.MaxWaitTime > 0), q.Waiting(),
			fmt.Sprintf("%s waiting, and none has started for %v: every handler is busy. Look at the handlers, or add workers.",
				words.Tasks(ready, "is", "are"), age(v.Now, newest).Round(time.Second)))
	}
}

func (all *findings) late(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	by := age(v.Now, time.UnixMilli(v.firstDue))
	if limit := cmp.Or(limits.MaxWaitTime, defaultWait); v.firstDue > 0 && by > limit {
		all.add(late, against(limits.MaxWaitTime > 0), q.Schedule(),
			fmt.Sprintf("A task was due %v ago and hasn't started. Add workers, or find out what keeps them busy.", by.Round(time.Second)))
	}
}

// counts reports that more tasks wait or are retried than the limits allow.
func (all *findings) counts(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	if ready, most := v.Waiting(), limits.MaxBacklog; most != 0 && ready > max(most, 0) {
		all.add(backlog, inspect.SeverityWarning, q.Waiting(), fmt.Sprintf("%s waiting; the limit is %d. Add workers, or find out what slows them down.", words.Tasks(ready, "is", "are"), max(most, 0)))
	}
	if most := max(cmp.Or(limits.MaxRetrying, defaultRetrying), 0); v.retries > most {
		all.add(retrying, against(limits.MaxRetrying != 0), q.Schedule(),
			fmt.Sprintf("%s waiting to be retried; the limit is %d. The logs of the workers say why they fail.", words.Tasks(v.retries, "is", "are"), most))
	}
}

func (all *findings) failures(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	if v.failed <= max(limits.MaxFailed, 0) {
		return
	}
	when, cure := fmt.Sprintf(", %d of them in the last hour", v.recent), "List them with their reasons; then requeue or delete them."
	switch {
	case v.recent == v.failed:
		when = " in the last hour"
	case v.recent == 0 && v.failed == 1:
		when = " more than an hour ago"
	case v.recent == 0:
		when = ", all more than an hour ago"
	}
	if v.failed == 1 {
		cure = "List it with its reason; then requeue or delete it."
	}
	all.add(failed, against(limits.MaxFailed != 0), keyOf(q, "ready"), fmt.Sprintf("%s failed for good%s. %s", words.Counted(v.failed, "task"), when, cure))
}

// leases reports that members of a queue have different leases: either each judges the others by
// its own lease, or two services share a queue by accident.
func (c *checkup) leases(e *exam) error {
	if !c.isWhole() {
		return nil // the leases there can't be read
	}
	for ids := range slices.Chunk(e.members, perCall) {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, known := c.known[id]; return known })
		registered, err := store.Registrations(c.ctx, c.Runner, c.Space, ids)
		if err != nil {
			return err
		}
		for _, w := range registered {
			c.known[w.ID] = w.Lease
		}
	}
	var first string
	for _, id := range e.members {
		switch lease := c.known[id]; {
		case lease == 0:
		case first == "":
			first = id
		case lease != c.known[first]:
			c.found(inspect.Finding{Kind: leases, Severity: inspect.SeverityWarning, Queue: e.id, Key: e.keys.Workers(), Subject: words.Clip(id),
				Text: fmt.Sprintf("This worker's lease is %v, and worker %s has %v. Give all workers of a queue the same lease. If they belong to two services, give each its own prefix.", lease, words.Clip(first), c.known[first])})
			return nil
		}
	}
	return nil
}

func (c *checkup) peers() error {
	if !c.isWhole() {
		return nil // some can't be read
	}
	return c.passOver(nil, c.stuckHandlers())
}

// stuckHandlers reports peers with handlers that don't return although their context has ended.
// Their tasks have ended without them, but they still use the peer's resources.
func (c *checkup) stuckHandlers() error {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(c.present)), perCall) {
		workers, err := store.Registrations(c.ctx, c.Runner, c.Space, ids)
		if err != nil {
			return err
		}
		for _, w := range workers {
			if w.StuckHandlers > 0 {
				c.found(inspect.Finding{Kind: stuck, Severity: inspect.SeverityWarning, Key: c.Space.Worker(words.Clip(w.ID)), Subject: words.Clip(w.ID),
					Text: fmt.Sprintf("Peer %s (pid %d on %s) has %s that ignored the end of the context. The log has the stacks; restart the peer.",
						words.Shown(w.Name), w.PID, words.Shown(w.Host), words.Counted(w.StuckHandlers, "handler"))})
			}
		}
	}
	return nil
}
