package doctor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

// perCall limits what one call checks and what one exchange reads.
const perCall = 60

// queue checks the holders of tasks before everything that may wait for them.
func (c *checkup) queue(e *exam) (err error) {
	if e.now, err = store.NowAt(c.ctx, c.Runner, e.keys); err != nil {
		return err
	}
	for _, what := range []store.What{store.CheckMembers, store.CheckSuspects} {
		if err := c.holders(e, what); err != nil {
			return err
		}
	}
	if err := c.held(e); err != nil {
		return err
	}
	for _, what := range []store.What{store.CheckIdle, store.CheckRunning, store.CheckScheduled, store.CheckAdded, store.CheckContents,
		store.CheckCanceled, store.CheckHolding, store.CheckRecurring} {
		for names, err := range store.Names(c.ctx, c.Runner, e.keys, what) {
			if err == nil && what == store.CheckScheduled && e.keys.IsFailed() {
				err = c.failures(e, names)
			}
			if err := cmp.Or(err, c.judge(e, what, "", names)); err != nil {
				return err
			}
		}
	}
	if err := c.judge(e, store.CheckQueue, "", []string{e.name}); err != nil {
		return err
	}
	return cmp.Or(c.health(e), c.leases(e))
}

// failures counts failed tasks. Of those that fail meanwhile, each is in both counts or in none.
func (c *checkup) failures(e *exam, entries []string) error {
	all, recent, err := store.FailedSince(c.ctx, c.Runner, e.keys, entries, e.now-recently.Milliseconds())
	e.failed, e.recent = e.failed+all, e.recent+recent
	return err
}

// holders checks members or suspects.
func (c *checkup) holders(e *exam, what store.What) error {
	for names, err := range store.Names(c.ctx, c.Runner, e.keys, what) {
		if err != nil {
			return err
		}
		for i, name := range names {
			e.holders[name] = true
			if what == store.CheckMembers {
				e.members = append(e.members, name)
				names[i] = ":" + name
			}
		}
		if err := c.judge(e, what, "", names); err != nil {
			return err
		}
	}
	return nil
}

// held checks what workers hold, and then what no worker holds. Processes that have started since
// their keys were read don't matter.
func (c *checkup) held(e *exam) error {
	workers := slices.Sorted(maps.Keys(e.holders))
	if err := c.judge(e, store.CheckHolders, "", workers); err != nil {
		return err
	}
	holder := map[string]string{}
	for _, w := range workers {
		for ids, err := range store.Runs(c.ctx, c.Runner, e.keys, w) {
			if err != nil {
				return err
			}
			for _, id := range ids {
				delete(e.processes, id)
				e.runs.add(e.now, c.Limits, run{process: id, worker: w})
				if other := holder[id]; other != "" && other != w {
					if err := c.judge(e, store.CheckTwice, other, []string{id + ":" + w}); err != nil {
						return err
					}
				}
				holder[id] = w
			}
			if err := c.judge(e, store.CheckHeld, w, ids); err != nil {
				return err
			}
		}
	}
	// Newest first, so that the oldest ends up in front.
	orphans := slices.Sorted(maps.Keys(e.processes))
	slices.Reverse(orphans)
	return c.judge(e, store.CheckProcesses, "", orphans)
}

// judge checks things of a queue, some at a time, and handles the flaws.
func (c *checkup) judge(e *exam, what store.What, worker string, names []string) error {
	most := perCall
	if what == store.CheckProcesses {
		most = max(1, perCall*perCall/max(perCall, len(e.holders))) // each is looked for at all of them
	}
	for len(names) > 0 {
		v, err := store.Check(c.ctx, c.Runner, e.keys, what, worker, c.Repair, names[:min(most, len(names))])
		if store.IsWrongType(err) {
			return nil // that was reported, and nothing else can be checked
		}
		if err != nil {
			return err
		}
		names = names[v.Judged:]
		e.retries += v.Retries
		for _, f := range v.Flaws {
			if err := c.flaw(e, what, worker, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// flaw reports a flaw, or schedules a second look.
func (c *checkup) flaw(e *exam, what store.What, worker string, f store.Flaw) error {
	kind := inspect.FindingKind(f.Kind)
	d := diagnoses[kind]
	if kind == unserved && e.keys.IsFailed() {
		return nil // tasks may stay in a failed queue
	}
	if d.patience && !f.Mended {
		c.doubts = append(c.doubts, func() error { return c.secondLook(e, what, f) })
		return nil
	}
	return c.conclude(e, what, worker, f, d)
}

// secondLook rechecks a flaw that was found a lease ago.
func (c *checkup) secondLook(e *exam, what store.What, before store.Flaw) error {
	name := before.Name
	if what == store.CheckMembers {
		name = before.Detail + ":" + name
	}
	v, err := store.Check(c.ctx, c.Runner, e.keys, what, "", c.Repair, []string{name})
	if store.IsWrongType(err) {
		return nil
	}
	for _, f := range v.Flaws {
		if f.Kind != before.Kind || what == store.CheckMembers && f.Detail != before.Detail {
			continue
		}
		d := diagnoses[inspect.FindingKind(f.Kind)]
		if inspect.FindingKind(f.Kind) == paused && grown(before.Detail, f.Detail) {
			d = gathering
		}
		if err := c.conclude(e, what, "", f, d); err != nil {
			return err
		}
	}
	return err
}

// grown reports whether a number has increased.
func grown(before, now string) bool {
	return len(now) > len(before) || len(now) == len(before) && now > before
}

func (c *checkup) conclude(e *exam, what store.What, worker string, f store.Flaw, d diagnosis) error {
	kind := inspect.FindingKind(f.Kind)
	if f.Mended && (what == store.CheckHolders && kind == orphan || kind == dead) {
		err := c.goOn(e, f.Name, what == store.CheckMembers)
		if err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Mended = err == nil // otherwise Repair continues once the key is repaired
	}
	key, subject := place(e.keys, what, worker, f)
	if kind == unserved {
		var err error
		if key, err = store.ReadyKey(c.ctx, c.Runner, e.keys); err != nil {
			return err
		}
	}
	c.found(d.finding(kind, e.id, key, subject, f.Detail, f.Mended))
	return nil
}

// goOn continues a worker's return that has begun.
func (c *checkup) goOn(e *exam, worker string, dead bool) error {
	returned, err := store.GoOn(c.ctx, c.Runner, e.keys, worker)
	c.returned += returned
	if err == nil && dead {
		err = store.Unregister(c.ctx, c.Runner, c.Space, worker)
	}
	return err
}

// place returns the key of a flaw, and its subject.
func place(q store.Keys, what store.What, worker string, f store.Flaw) (key, subject string) {
	switch kind := inspect.FindingKind(f.Kind); what {
	case store.CheckProcesses:
		return q.Process(f.Name), f.Name
	case store.CheckHeld, store.CheckTwice:
		return q.Process(f.Name), worker
	case store.CheckHolders:
		if kind == token {
			return q.Token(), f.Name
		}
		return q.Working(f.Name), f.Name
	case store.CheckEntries, store.CheckScheduled, store.CheckContents:
		return q.Keyed(veil("keyed", f.Name)), ""
	case store.CheckCanceled:
		return q.Canceled(), veil("cancel", f.Name)
	case store.CheckRecurring:
		return q.Recurrence(veil("recurrence", f.Name)), ""
	case store.CheckQueue:
		if kind == paused {
			return q.Paused(), ""
		}
		return q.Token(), ""
	}
	return map[store.What]string{
		store.CheckMembers: q.Workers(), store.CheckSuspects: q.Suspects(), store.CheckIdle: q.Idle(),
		store.CheckRunning: q.Entries(), store.CheckAdded: q.Added(), store.CheckHolding: q.Holders(),
	}[what], f.Name
}
