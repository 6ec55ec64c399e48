package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/says"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// Limits by default, and what else counts as much.
const (
	defaultRun      = time.Hour
	defaultWait     = 10 * time.Minute
	defaultStall    = 3 * time.Minute
	defaultRetrying = 10
	storm           = 50 // retries, if most of what a queue has is retried
	fewFailures     = 5
	overUsual       = 3   // times the usual rate, or run time
	growing         = 100 // more tasks in a minute
	certain         = 3 * time.Second
	slow            = 250 * time.Millisecond // for an answer of Redis

	nearFull = 90 // percent of maxmemory

	toldEvicted = time.Hour        // after it
	toldLoss    = time.Hour        // after lost writes
	toldDropped = 15 * time.Minute // after the last task
)

// Judge returns what a Sight shows, worst first. It's the only place that judges counts of queues, workers and the
// server: Check uses it, too.
func Judge(s *inspect.Sight) []inspect.Finding {
	var all findings
	if s.Err != nil {
		all.away(s.Err)
		return all
	}
	if s.Unlisted != nil {
		all.tell(unlisted, inspect.SeverityStuck, words.Stopped(s.Unlisted.Error())+" Some of those shown may be gone.")
	}
	if s.Unnoted != nil {
		all.add(inspect.Finding{Kind: unread, Severity: inspect.SeverityRisk, Title: "The notes can't be read",
			Text: words.Stopped(strings.TrimPrefix(s.Unnoted.Error(), "worqr: ")) + " Silences don't count until they can, and what has happened lately isn't shown."})
	}
	registered, first, differ, shortest := map[string]int{}, map[string]*inspect.Worker{}, map[string]bool{}, time.Duration(0)
	for i := range s.Workers {
		w := &s.Workers[i]
		for _, q := range w.Queues {
			registered[q]++
			switch o := first[q]; {
			case o == nil:
				first[q] = w
			case o.Lease != w.Lease && !differ[q]:
				differ[q] = true
				all.leases(q, o, w, s.At)
			}
		}
		if w.Lease > 0 && (shortest == 0 || w.Lease < shortest) {
			shortest = w.Lease
		}
		all.worker(w)
	}
	all.memory(store.Policy{Name: s.Server.Policy, Used: s.Server.UsedMemory, Maximum: s.Server.MaxMemory})
	all.answered(s.Server.RoundTrip, shortest)
	for i := range s.Queues {
		q := &s.Queues[i]
		known := registered[q.Name]
		if s.Unlisted != nil {
			known = q.Workers
		}
		all.queue(q, known, s.Limits)
	}
	for i := range all {
		if f := &all[i]; f.Kind == starved {
			f.Detail += busiest(s, f.Queue)
			f.Text = says.Of(string(starved)).Text(f.Count, false, f.Detail)
		}
	}
	all.happened(s)
	all = slices.DeleteFunc(all, func(f inspect.Finding) bool { return slices.Contains(s.Limits.Ignore, f.Kind) })
	Silence(all, s.Silences, s.At)
	slices.SortStableFunc(all, inspect.Finding.Compare)
	return all
}

// busiest names the queue that uses most slots of the workers of another one.
func busiest(s *inspect.Sight, starved string) string {
	beside := map[string]bool{}
	for i := range s.Workers {
		if of := s.Workers[i].Queues; slices.Contains(of, starved) {
			for _, q := range of {
				beside[q] = true
			}
		}
	}
	var most *inspect.QueueSight
	for i := range s.Queues {
		if q := &s.Queues[i]; beside[q.Name] && q.Running > 0 && (most == nil || q.Running > most.Running) {
			most = q
		}
	}
	if most == nil {
		return ""
	}
	return fmt.Sprintf(" Of the queues on its workers, %s holds most tasks: %s.", words.Shown(most.Name), words.Grouped(most.Running))
}

// Silence marks the findings that are silenced at a time.
func Silence(all []inspect.Finding, silences []inspect.Silence, at time.Time) {
	for i := range all {
		for _, s := range silences {
			if s.Silences(&all[i]) && s.Until.After(at) {
				all[i].Silenced = &s
			}
		}
	}
}

// findings are findings under construction.
type findings []inspect.Finding

func (all *findings) add(f inspect.Finding) {
	f.Title = titleOf(f)
	*all = append(*all, f)
}

func titleOf(f inspect.Finding) string {
	if k := says.Of(string(f.Kind)); f.Title == "" && k != nil {
		return k.Title
	}
	return f.Title
}

// tell adds a finding with a text of its own.
func (all *findings) tell(kind inspect.FindingKind, severity inspect.Severity, text string) {
	all.add(inspect.Finding{Kind: kind, Severity: severity, Text: text})
}

// about returns a finding in the words of its kind, about n things.
func about(kind inspect.FindingKind, severity inspect.Severity, n int, detail string) inspect.Finding {
	k := says.Of(string(kind))
	return inspect.Finding{Kind: kind, Severity: severity, Title: k.Title, Text: k.Text(n, false, detail), Detail: detail, Count: n}
}

// away tells why Redis can't be read.
func (all *findings) away(err error) {
	text := words.Stopped(strings.TrimPrefix(err.Error(), "worqr: "))
	switch {
	case store.IsBadLogin(err):
		all.add(inspect.Finding{Kind: denied, Severity: inspect.SeverityLost, Title: "Redis refuses the login", Text: refusal(text) + " Check the user and the password in this process's URL. Workers with the same ones are refused when they connect again."})
	case store.IsDenied(err):
		all.add(inspect.Finding{Kind: denied, Severity: inspect.SeverityLost, Title: "Redis denies a permission", Text: text + " docs/security.md has the rules."})
	default:
		step := nextStep(err)
		all.add(inspect.Finding{Kind: unreachable, Severity: inspect.SeverityLost, Detail: step,
			Text: cmp.Or(step, text) + " New tasks are refused. Handlers keep running, and no worker is evicted meanwhile."})
	}
}

// refusal returns the text of a refused login from where it names the server.
func refusal(text string) string {
	if _, after, ok := strings.Cut(text, "login refused: connect to "); ok {
		return after
	}
	return text
}

// answered judges how long Redis took to answer. lease is 0 if it isn't known.
func (all *findings) answered(took, lease time.Duration) {
	from := "a sixth of the lease"
	if lease > 0 {
		from = (lease / 6).Round(time.Millisecond).String()
	}
	if took >= slow {
		all.tell(slowRedis, inspect.SeverityRisk, fmt.Sprintf("Redis took %v to answer. Tasks start and end that much later; from %s on, tasks of dead workers wait. Look at its slow log, its machine, and the network.", took.Round(10*time.Millisecond), from))
	}
}

// memory judges how full Redis is, and what it does then.
func (all *findings) memory(m store.Policy) {
	bound := ""
	if m.Maximum == 0 {
		bound = " maxmemory isn't set, so nothing is evicted yet."
	}
	switch {
	case m.EvictsLists():
		all.tell(policy, inspect.SeverityRisk, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts tasks.%s Set it to noeviction.", words.Shown(m.Name), bound))
	case m.EvictsExpiring():
		all.tell(policy, inspect.SeverityRisk, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts registrations, nonces and records of cancels.%s Set it to noeviction.", words.Shown(m.Name), bound))
	}
	used := fmt.Sprintf("Redis uses %s of %s.", words.Size(m.Used), words.Size(m.Maximum))
	switch {
	case m.Maximum <= 0 || m.Used*100 < m.Maximum*nearFull:
	case m.Used >= m.Maximum && m.Name == "noeviction":
		all.tell(full, inspect.SeverityLost, used+" It refuses new tasks; those that wait still run. Raise maxmemory, or add workers.")
	default:
		all.tell(memory, inspect.SeverityRisk, used+" When it's full, it refuses new tasks; those that wait still run. Raise maxmemory, or add workers.")
	}
}

func (all *findings) worker(w *inspect.Worker) {
	who := fmt.Sprintf("%s (pid %d on %s)", words.Shown(w.Name), w.PID, words.Shown(w.Host))
	if w.StuckHandlers > 0 {
		detail := "Worker " + who
		if len(w.StuckQueues) > 0 {
			detail += ", on " + words.Shown(strings.Join(w.StuckQueues, ", "))
		}
		if !w.StuckSince.IsZero() {
			detail += ", since " + words.Moment(w.StuckSince)
		}
		f := about(stuck, inspect.SeverityStuck, w.StuckHandlers, detail+".")
		f.Subject = words.Clip(w.ID)
		all.add(f)
	}
	if w.ClockAhead != 0 {
		f := about(clock, inspect.SeverityRisk, 1, fmt.Sprintf("That of %s is %s.", who, off(w.ClockAhead)))
		f.Subject = words.Clip(w.ID)
		all.add(f)
	}
}

// leases tells that two workers of a queue have different leases: either each judges the others by its own lease, or two
// services share a queue by accident.
func (all *findings) leases(queue string, a, b *inspect.Worker, at time.Time) {
	has := func(w *inspect.Worker) string {
		who := words.Shown(cmp.Or(w.Name, w.ID))
		if !w.StartedAt.IsZero() {
			who += ", started " + words.Roughly(at.Sub(w.StartedAt)) + " ago,"
		}
		return fmt.Sprintf("%s has %v", who, w.Lease)
	}
	f := about(leases, inspect.SeverityRisk, 0, has(a)+"; "+has(b)+".")
	f.Queue, f.Subject = queue, words.Clip(b.ID)
	all.add(f)
}

// within returns a duration, exactly if it's short.
func within(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return words.Roughly(d)
}

// off says by how much a clock is wrong.
func off(ahead time.Duration) string {
	if ahead < 0 {
		return within(-ahead) + " behind, so what it schedules starts early"
	}
	return within(ahead) + " ahead, so what it schedules starts late"
}

// queue judges the counts of one queue. registered is how many of its workers are.
func (all *findings) queue(q *inspect.QueueSight, registered int, limits inspect.CheckOptions) {
	from := len(*all)
	defer func() {
		for i := range (*all)[from:] {
			(*all)[from+i].Queue = q.Name
		}
	}()
	if q.Err != nil {
		all.tell(unread, inspect.SeverityStuck, words.Stopped(q.Err.Error()))
		return
	}
	dead := q.Silent && q.Workers > 0 && (registered == 0 || q.Missing > certain)
	all.unserved(q, dead)
	if missing := q.Workers - registered; missing > 0 && !dead && q.Missing > certain {
		all.add(about(deadWorker, inspect.SeverityStuck, missing, fmt.Sprintf("The queue has %s.", words.Counted(q.Workers, "worker"))))
	}
	all.paused(q)
	all.failing(q)
	all.retrying(q, limits)
	if !q.Paused && q.Workers > 0 && !dead {
		all.slow(q, limits)
	}
	if most := limits.MaxBacklog; most != 0 && q.Waiting > max(most, 0) {
		all.add(about(backlog, inspect.SeverityStuck, q.Waiting, fmt.Sprintf("The limit is %d.", max(most, 0))))
	}
}

func silent(workers int) string {
	if workers == 1 {
		return "Its only worker stopped sending heartbeats: its process has ended, hangs, or can't reach Redis."
	}
	return fmt.Sprintf("All %d workers stopped sending heartbeats: their processes have ended, hang, or can't reach Redis.", workers)
}

func (all *findings) unserved(q *inspect.QueueSight, dead bool) {
	switch n := q.Waiting; {
	case dead:
		f := about(unserved, inspect.SeverityStopped, n+q.Running, silent(q.Workers))
		if f.Count == 0 {
			f.Severity = inspect.SeverityRisk
		}
		all.add(f)
	case q.Workers > 0:
	case n > 0:
		all.add(about(unserved, inspect.SeverityStopped, n, ""))
	case q.Scheduled > 0 && q.Oldest > 0:
		all.add(about(unserved, inspect.SeverityStopped, q.Scheduled, ""))
	case q.Scheduled > 0:
		all.add(about(unserved, inspect.SeverityRisk, q.Scheduled, "All are scheduled for later."))
	}
}

func (all *findings) paused(q *inspect.QueueSight) {
	if !q.Paused {
		return
	}
	detail := ""
	if q.PausedBy != "" {
		detail = "Paused by " + words.Shown(q.PausedBy)
		if !q.PausedSince.IsZero() {
			detail += " at " + words.Moment(q.PausedSince)
		}
		detail += "."
	}
	severity := inspect.SeverityNotice
	if q.Waiting > 0 && q.Recent.Waiting > 0 {
		severity, detail = inspect.SeverityStopped, strings.TrimSpace(detail+" The backlog is growing.")
	}
	all.add(about(paused, severity, q.Waiting, detail))
}

// failing compares the failures of the last while with what is usual for the queue, if that's known; and with how
// many tasks have started: if half of them fail, that's never usual.
func (all *findings) failing(q *inspect.QueueSight) {
	r := q.Recent
	if r.Failed < fewFailures {
		return
	}
	usual := overUsual * q.Usual.Failed * max(r.Over.Minutes(), 1)
	if q.Usual.Known && float64(r.Failed) < usual && 2*r.Failed < r.Started || !q.Usual.Known && 5*r.Failed < r.Started {
		return
	}
	all.add(about(failing, inspect.SeverityStuck, r.Failed, fmt.Sprintf("That was within %s.", words.Roughly(r.Over))))
}

func (all *findings) retrying(q *inspect.QueueSight, limits inspect.CheckOptions) {
	most := max(cmp.Or(limits.MaxRetrying, defaultRetrying), 0)
	if q.Retrying <= most {
		return
	}
	severity, detail := inspect.SeverityNotice, ""
	switch {
	case limits.MaxRetrying != 0:
		severity, detail = inspect.SeverityStuck, fmt.Sprintf("The limit is %d.", most)
	case q.Retrying >= storm && q.Retrying >= q.Waiting+q.Running:
		severity = inspect.SeverityStuck
	}
	all.add(about(retrying, severity, q.Retrying, detail))
}

// slow judges a queue with workers that may start tasks.
func (all *findings) slow(q *inspect.QueueSight, limits inspect.CheckOptions) {
	patience := max(defaultStall, overUsual*q.Usual.RunTime)
	if limits.MaxWaitTime > 0 {
		patience = limits.MaxWaitTime
	}
	busy := q.IdleWorkers == 0 && q.Waiting > 0
	switch {
	case busy && q.Running > 0 && q.Recent.NoStart >= patience:
		all.add(about(stalled, inspect.SeverityStopped, q.Waiting, fmt.Sprintf("Nothing has started for %v.", q.Recent.NoStart.Round(time.Second))))
	case busy && q.Running == 0 && q.Oldest >= patience:
		all.add(about(starved, inspect.SeverityStuck, q.Waiting, fmt.Sprintf("The first one has waited for %v.", q.Oldest.Round(time.Second))))
	}
	if limit := cmp.Or(limits.MaxWaitTime, defaultWait); q.Oldest > limit {
		all.add(about(late, inspect.SeverityStuck, max(q.Waiting, 1), fmt.Sprintf("It could have started %v ago.", q.Oldest.Round(time.Second))))
	}
	if r := q.Recent; busy && r.Waiting >= growing && r.Over >= 20*time.Second && limits.MaxBacklog == 0 {
		all.add(about(backlog, inspect.SeverityRisk, q.Waiting, fmt.Sprintf("That's %s more than %s ago, and all workers are busy.", words.Grouped(r.Waiting), words.Roughly(r.Over))))
	}
}

func (all *findings) happened(s *inspect.Sight) {
	for _, h := range s.Happened {
		ago := s.At.Sub(h.At)
		f := inspect.Finding{Kind: h.Kind, Severity: inspect.SeverityNotice, Queue: h.Queue, Subject: h.Subject}
		switch {
		case h.Kind == evicted && ago < toldEvicted:
			f = about(evicted, inspect.SeverityNotice, 1, fmt.Sprintf("%s, %s ago: %s", words.Shown(h.Subject), words.Roughly(ago), h.Text))
		case h.Kind == dropped && ago < toldDropped:
			f = about(dropped, inspect.SeverityLost, 0, "")
		case h.Kind == lostWrites && ago < toldLoss:
			f.Severity, f.Text = inspect.SeverityLost, fmt.Sprintf("That was %s ago: it restarted with older data or none, or failed over to a replica that was behind. Compare what producers enqueued just before with their own records.", words.Roughly(ago))
		case h.Kind == jobGone:
			f = about(jobGone, inspect.SeverityRisk, 1, fmt.Sprintf("The schedule of %s ended %s ago.", words.Shown(h.Subject), words.Roughly(ago)))
		default:
			continue
		}
		f.Queue, f.Subject = h.Queue, h.Subject
		all.add(f)
	}
}
