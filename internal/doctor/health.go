package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/causes"
	"github.com/worqr/worqr/internal/says"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

const (
	recently = 10 * time.Minute // for failures
	before   = time.Hour        // with which they are compared
)

// A run is an attempt that a worker holds.
type run struct {
	attempt, worker string
	by              string    // the worker's name; "" if that isn't known
	since           time.Time // zero if the id doesn't contain it
}

// runs summarizes the runs of a queue, so that not all of them are kept.
type runs struct {
	all    int
	long   int // longer than MaxRunTime
	oldest run
	newest time.Time
}

func (r *runs) add(now int64, limits inspect.CheckOptions, one run) {
	r.all++
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
	if err := c.crashes(e); err != nil {
		return err
	}
	if v := &e.vitals; v.Idle == 0 && v.Waiting() > 0 && !e.keys.IsFailed() {
		counts, err := store.Count(c.ctx, c.Runner, e.keys)
		if err != nil && !store.IsAnswer(err) {
			return err
		}
		v.oldest = counts.Oldest
	}
	if v := &e.vitals; v.recent >= fewFailures || v.Idle == 0 && v.Waiting() > 0 {
		q, at := c.Space.Queue(e.name), time.UnixMilli(v.Now)
		hours, err := store.History(c.ctx, c.Runner, q, at.Add(-24*time.Hour), at.Truncate(time.Hour), true)
		if err != nil && !store.IsAnswer(err) {
			return err
		}
		v.usual = inspect.UsualOf(hours)
		minutes, err := store.History(c.ctx, c.Runner, q, at.Add(-recently), at, false)
		if err != nil && !store.IsAnswer(err) {
			return err
		}
		for _, m := range minutes {
			v.started += int(m.Started)
		}
	}
	if err := c.jobs(e); err != nil {
		return err
	}
	if w := c.known[e.vitals.runs.oldest.worker]; w != nil {
		e.vitals.runs.oldest.by = w.Name
	}
	for _, f := range e.vitals.judge(e.keys, e.name, c.Limits) {
		f.Queue = e.id
		c.found(f)
	}
	return nil
}

// crashes counts the crashes of raw tasks.
func (c *checkup) crashes(e *exam) error {
	if e.keys.IsFailed() {
		return nil
	}
	tasks, most, err := store.Crashes(c.ctx, c.Runner, e.keys, severalCrashes)
	if store.IsAnswer(err) {
		return nil // the key has another type, which was reported, or the user may not read it
	}
	e.vitals.crashing.tasks += tasks
	e.vitals.crashing.most = max(e.vitals.crashing.most, most)
	return err
}

// jobs judges the recurring tasks of a queue.
func (c *checkup) jobs(e *exam) error {
	limit := cmp.Or(c.Limits.MaxWaitTime, defaultWait)
	wrong := map[inspect.FindingKind]inspect.Finding{} // the first, and how many there are
	add := func(kind inspect.FindingKind, key, detail string) {
		f := wrong[kind]
		if f.Count++; f.Count == 1 {
			f.Subject, f.Detail = words.Clip(key), words.Shown(key)+detail
		}
		wrong[kind] = f
	}
	for t, err := range store.Recurring(c.ctx, c.Runner, e.keys) {
		if store.IsAnswer(err) {
			return nil // the key has another type, which was reported
		}
		if err != nil {
			return err
		}
		if last := t.Last(); last.Failed() {
			detail := fmt.Sprintf(", due at %s, %s", words.Moment(last.DueAt), last.Outcome)
			if wrong[jobFailed].Count == 0 {
				detail += c.reason(e, &t)
			}
			add(jobFailed, t.Key, words.Stopped(detail))
		}
		if by := age(e.vitals.Now, t.Next); !t.Next.IsZero() && t.Current.IsZero() && by > limit && e.vitals.Paused == "" {
			add(jobLate, t.Key, fmt.Sprintf(" was due %s ago.", words.Roughly(by)))
		}
	}
	for kind, first := range wrong {
		f := about(kind, inspect.SeverityStuck, first.Count, first.Detail)
		f.Queue, f.Key, f.Subject = e.id, keyOf(e.keys, "recurring"), first.Subject
		c.found(f)
	}
	return nil
}

// reason returns why the last occurrence failed, if it's among the newest failed tasks.
func (c *checkup) reason(e *exam, r *inspect.RecurringTask) string {
	back := fmt.Sprintf("%s@%d", store.NameOf(r.Key), r.Last().DueAt.UnixMilli())
	f, err := store.FailureOf(c.ctx, c.Runner, c.Space.Queue(e.name), store.NameOf(r.Key), back)
	if err != nil || f == nil || f.Error.Last() == "" {
		return ""
	}
	return fmt.Sprintf(": %q", words.Clip(f.Error.Last()))
}

// vitals are what a checkup knows about whether a queue does its work.
type vitals struct {
	store.Queue
	usual    inspect.Usual // by the history, if it matters
	started  int           // recently, by the history; 0 if that isn't known
	firstDue int64         // ms; when the first task that could start was due; 0 if that isn't known
	oldest   time.Duration // that the first task has waited, if no worker is idle
	retries  int           // tasks that wait for a retry, or for a free slot since its time has come
	causes   causeCounts   // why
	crashing crashes
	failed   int // in a failed queue
	recent   int // of them, those that failed recently,
	earlier  int // and within some time before
	runs     runs
}

// count counts the named tasks of a page.
func (v *vitals) count(p *store.Part, kind string) {
	if kind != "tasks" {
		return
	}
	for i := range p.About {
		a := &p.About[i]
		v.crashing.add(a.Crashes)
		if a.Attempt == "" && a.Retries > 0 { // also if its time has come
			v.retries++
			if a.Record.Failure == nil { // otherwise it's an error of OnFailed
				v.causes.add(a.Error.Last())
			}
		}
		if a.Attempt != "" {
			continue
		}
		v.failed++
		if f := a.Record.Failure; f != nil {
			switch ago := age(v.Now, time.UnixMilli(f.At)); {
			case ago <= recently:
				v.recent++
				v.causes.add(f.Error.Last())
			case ago <= recently+before:
				v.earlier++
			}
		}
	}
}

// sight returns what a look at the counts sees of the queue.
func (v *vitals) sight(name string) *inspect.QueueSight {
	s := &inspect.QueueSight{Name: name, Usual: v.usual}
	s.Waiting, s.Running, s.Retrying, s.Workers, s.IdleWorkers = v.Waiting(), v.runs.all, v.retries, v.Members, v.Idle
	s.Silent = v.Members > 0 && v.Alive == 0
	if v.Paused != "" {
		s.Paused = true
		s.PausedBy, s.PausedSince = store.PauseIn(v.Paused)
	}
	s.Oldest = v.oldest
	if v.firstDue > 0 {
		s.Oldest = max(s.Oldest, age(v.Now, time.UnixMilli(v.firstDue)))
	}
	if !v.runs.newest.IsZero() {
		s.Recent.NoStart = age(v.Now, v.runs.newest)
	}
	return s
}

// judge returns the findings about a queue's work that need no second look.
func (v *vitals) judge(q store.Keys, name string, limits inspect.CheckOptions) (all findings) {
	all.long(v, q, limits)
	all.crashes(v, q)
	if q.IsFailed() {
		all.failures(v, q, limits)
		return all
	}
	all.queue(v.sight(name), 0, limits)
	all = slices.DeleteFunc(all, func(f inspect.Finding) bool { return needsPatience(f.Kind) })
	for i := range all {
		f, oldest := &all[i], v.runs.oldest
		switch f.Kind {
		case stalled:
			if f.Key = q.Waiting(); oldest.attempt != "" {
				f.Detail += fmt.Sprintf(" The longest run began %s ago, on %s.", words.Roughly(age(v.Now, oldest.since)), words.Shown(cmp.Or(oldest.by, oldest.worker)))
				f.Text = says.Of(string(stalled)).Text(f.Count, false, f.Detail)
			}
		case starved, backlog:
			f.Key = q.Waiting()
		case late:
			f.Key = q.Schedule()
		case retrying:
			f.Key, f.Detail = q.Schedule(), strings.TrimSpace(f.Detail+" "+v.causes.say())
			f.Text = says.Of(string(retrying)).Text(f.Count, false, f.Detail)
		}
	}
	return all
}

// causeCounts counts errors with the same cause.
type causeCounts map[string]int

const mostCauses = 1000

func (c *causeCounts) add(err string) {
	if err == "" {
		return
	}
	if *c == nil {
		*c = causeCounts{}
	}
	if of := causes.Of(err); len(*c) < mostCauses || (*c)[of] > 0 {
		(*c)[of]++
	}
}

// say names the most frequent causes.
func (c causeCounts) say() string {
	all := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
	var said []string
	for _, of := range all[:min(len(all), 2)] {
		said = append(said, fmt.Sprintf("%q (%s)", words.Clip(of), words.Counted(c[of], "task")))
	}
	if len(said) == 0 {
		return ""
	}
	text := "The last errors: " + strings.Join(said, "; ")
	if more := len(all) - len(said); more > 0 {
		text += "; and " + words.Counted(more, "more cause")
	}
	return words.Stopped(text)
}

// crashes counts the tasks that several workers were lost with.
type crashes struct{ tasks, most int }

const severalCrashes = 2

func (c *crashes) add(n int) {
	if n >= severalCrashes {
		c.tasks++
	}
	c.most = max(c.most, n)
}

func lostWith(c crashes) string {
	if c.tasks == 1 {
		return fmt.Sprintf("So far, that was %d workers.", c.most)
	}
	return fmt.Sprintf("One task was held by %d of them.", c.most)
}

func (all *findings) crashes(v *vitals, q store.Keys) {
	if c := v.crashing; c.tasks > 0 && !q.IsFailed() {
		f := about(crashing, inspect.SeverityStuck, c.tasks, lostWith(c))
		f.Key = q.Tasks()
		all.add(f)
	}
}

func (all *findings) long(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	r := v.runs
	if r.long == 0 {
		return
	}
	f := about(long, inspect.SeverityStuck, r.long, fmt.Sprintf("The limit is %v; the oldest has run for %v, since %s.",
		cmp.Or(limits.MaxRunTime, defaultRun), age(v.Now, r.oldest.since).Round(time.Second), words.Moment(r.oldest.since)))
	f.Key, f.Subject = words.Clip(q.Process(r.oldest.attempt)), words.Clip(r.oldest.worker)
	all.add(f)
}

// failures reports the tasks in a failed queue, and that more have failed lately than usual: in the hour before.
func (all *findings) failures(v *vitals, q store.Keys, limits inspect.CheckOptions) {
	s := &inspect.QueueSight{Recent: inspect.Recent{Over: recently, Failed: v.recent}}
	s.Recent.Started, s.Usual.Failed = cmp.Or(v.started, math.MaxInt), float64(v.earlier)/before.Minutes()
	s.Usual.Known = v.usual.Known || v.earlier > 0 || v.started == 0
	if v.usual.Known {
		s.Usual.Failed = v.usual.Failed
	}
	from := len(*all)
	all.failing(s)
	if v.failed > max(limits.MaxFailed, 0) {
		severity, detail := inspect.SeverityNotice, fmt.Sprintf("%s of them failed in the last 10 minutes.", words.Grouped(v.recent))
		if limits.MaxFailed != 0 {
			severity = inspect.SeverityStuck
		}
		switch v.recent {
		case v.failed:
			detail = "All failed in the last 10 minutes."
		case 0:
			detail = "None failed in the last 10 minutes."
		}
		all.add(about(failed, severity, v.failed, detail))
	}
	for i := from; i < len(*all); i++ {
		f := &(*all)[i]
		if f.Key = keyOf(q, "ready"); f.Kind == failing {
			f.Detail = strings.TrimSpace(f.Detail + " " + v.causes.say())
			f.Text = says.Of(string(failing)).Text(f.Count, false, f.Detail)
		}
	}
}

// leases reports that members of a queue have different leases.
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
		for i := range registered {
			c.known[registered[i].ID] = &registered[i]
		}
	}
	var first *inspect.Worker
	for _, id := range e.members {
		switch w := c.known[id]; {
		case w == nil || w.Lease == 0:
		case first == nil:
			first = w
		case w.Lease != first.Lease:
			var all findings
			all.leases(e.id, first, w, time.UnixMilli(e.vitals.Now))
			all[0].Key = e.keys.Workers()
			c.found(all[0])
			return nil
		}
	}
	return nil
}

func (c *checkup) peers() error {
	if !c.isWhole() {
		return nil // some can't be read
	}
	return c.passOver(nil, c.workers())
}

// workers judges the registrations of peers.
func (c *checkup) workers() error {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(c.present)), perCall) {
		workers, err := store.Registrations(c.ctx, c.Runner, c.Space, ids)
		if err != nil {
			return err
		}
		var all findings
		for i := range workers {
			all.worker(&workers[i])
		}
		for _, f := range all {
			f.Key = c.Space.Worker(f.Subject)
			c.found(f)
		}
	}
	return nil
}
