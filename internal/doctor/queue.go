package doctor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// perCall limits what one call checks and what one exchange reads.
const perCall = 100

// queue checks the holders of tasks before everything that may wait for them, so that an orphan goes in
// front.
func (c *checkup) queue(e *exam) error {
	now, err := store.NowAt(c.ctx, c.Runner, e.keys)
	if err != nil {
		return err
	}
	e.vitals.Now = now
	strays := slices.Sorted(maps.Keys(e.holders)) // unless they are members
	for _, part := range []func() error{
		func() error { return c.pages(e, store.Examined[:2]) },
		func() error { return c.given(e, store.Holders, "", strays) },
		func() error { return c.held(e) },
		func() error { return c.orphans(e) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	if e.returns {
		if err := c.goOn(e); err != nil && !store.IsWrongType(err) {
			return err
		}
	}
	if err := c.pages(e, store.Examined[2:]); err != nil {
		return err
	}
	return cmp.Or(c.whole(e), c.leases(e), c.health(e))
}

// pages checks all of some kinds of keys.
func (c *checkup) pages(e *exam, kinds []string) (err error) {
	for _, kind := range kinds {
		for cursor := "0"; cursor != ""; {
			if cursor, err = c.part(e, kind, cursor, "", nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checkup) held(e *exam) error {
	for worker := range e.holders {
		for ids, err := range store.HeldBy(c.ctx, c.Runner, e.keys, worker) {
			if store.IsWrongType(err) {
				break
			}
			if err != nil {
				return err
			}
			for _, id := range ids {
				delete(e.lists, id)
				e.vitals.runs.add(e.vitals.Now, c.Limits, run{attempt: id, worker: worker, since: store.StartedAt(id)})
			}
			if err := c.given(e, store.Attempts, worker, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

// orphans checks lists that nobody seemed to hold, in the order of their starts, in which repairs return them: those
// that have started since their keys were read are no orphans.
func (c *checkup) orphans(e *exam) error {
	return c.given(e, store.Attempts, "", slices.SortedFunc(maps.Keys(e.lists), store.CompareStarts))
}

// given checks attempts, of a worker if it's known, or workers.
func (c *checkup) given(e *exam, kind, holder string, names []string) error {
	for some := range slices.Chunk(names, perCall) {
		if _, err := c.part(e, kind, "", holder, some); err != nil {
			return err
		}
	}
	return nil
}

// part checks a part of a queue, and returns where the next page begins, "" after the last.
func (c *checkup) part(e *exam, kind, cursor, holder string, names []string) (next string, err error) {
	p, next, err := store.Check(c.ctx, c.Runner, e.keys, kind, cursor, names)
	if store.IsWrongType(err) {
		return "", nil // that was reported, and nothing else can be checked
	}
	if err != nil {
		return "", err
	}
	for i := range p.Attempts {
		p.Attempts[i].Holder = holder
	}
	e.vitals.count(&p, kind)
	for _, w := range p.Workers {
		e.holders[w.ID] = true
		if kind == "workers" && w.Deadline != "" {
			e.members = append(e.members, w.ID)
		}
	}
	for _, f := range p.Judge() {
		if err := c.flaw(e, kind, holder, f); err != nil {
			return "", err
		}
	}
	if next == "0" {
		next = ""
	}
	return next, nil
}

// whole checks the queue as a whole.
func (c *checkup) whole(e *exam) error {
	p, _, err := store.Check(c.ctx, c.Runner, e.keys, store.Attempts, "", nil)
	if store.IsWrongType(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e.vitals.Queue = p.Queue
	for _, f := range p.Queue.Judge() {
		if err := c.flaw(e, "state", "", f); err != nil {
			return err
		}
	}
	if len(e.blocks(&p.Queue, 0)) > 0 {
		c.doubts = append(c.doubts, func() error { return c.stillBlocked(e) })
	}
	return nil
}

// needsPatience reports whether findings of a kind are reported only if they are there a lease later, too.
func needsPatience(kind inspect.FindingKind) bool { return kind == unserved || kind == paused }

// blocks returns what keeps all tasks of a queue from starting. more is how many more wait than at the first look.
func (e *exam) blocks(q *store.Queue, more int) (all findings) {
	v := e.vitals
	v.Queue = *q
	s := v.sight(e.name)
	s.Recent.Waiting = more
	if e.keys.IsFailed() { // tasks may stay in a failed queue
		s.Workers = 1
	}
	all.queue(s, 0, inspect.CheckOptions{})
	return slices.DeleteFunc(all, func(f inspect.Finding) bool { return !needsPatience(f.Kind) })
}

// stillBlocked checks again what blocked a queue a lease ago.
func (c *checkup) stillBlocked(e *exam) error {
	p, _, err := store.Check(c.ctx, c.Runner, e.keys, store.Attempts, "", nil)
	if err != nil {
		return err
	}
	before := e.vitals.Queue
	did := e.blocks(&before, 0)
	for _, f := range e.blocks(&p.Queue, p.Queue.Waiting()-before.Waiting()) {
		if !slices.ContainsFunc(did, func(o inspect.Finding) bool { return o.Kind == f.Kind }) {
			continue
		}
		if f.Queue, f.Key = e.id, keyOf(e.keys, "state"); f.Kind == unserved {
			f.Key = e.keys.Workers()
		}
		c.found(f)
	}
	return nil
}

// mendable are the flaws that a repair mends, and whether tasks must be returned then.
var mendable = map[invariants.Flaw]bool{
	invariants.Unowned: true, invariants.Stuck: true, invariants.Stray: true, invariants.Dead: true, invariants.Unreturned: true,
	invariants.Token: false, invariants.Place: false, invariants.Ahead: false,
}

// flaw repairs and reports a flaw, or schedules a second look.
func (c *checkup) flaw(e *exam, kind, holder string, f invariants.Found) error {
	if diagnoses[invariants.Flaws[f.Flaw].Kind].patience {
		c.doubts = append(c.doubts, func() error { return c.secondLook(e, f) })
		return nil
	}
	return c.conclude(e, kind, holder, f)
}

// secondLook checks again what was wrong with a worker a lease ago. One that has sent a heartbeat has
// another deadline now.
func (c *checkup) secondLook(e *exam, before invariants.Found) error {
	p, _, err := store.Check(c.ctx, c.Runner, e.keys, store.Holders, "", []string{before.Name})
	if store.IsWrongType(err) {
		return nil
	}
	for _, f := range p.Judge() {
		if f == before {
			err = cmp.Or(err, c.conclude(e, store.Holders, "", f))
		}
	}
	return err
}

func (c *checkup) conclude(e *exam, kind, holder string, f invariants.Found) error {
	mended, err := c.mend(e, f)
	if err != nil {
		return err
	}
	about := invariants.Flaws[f.Flaw]
	key, subject := place(e.keys, kind, holder, f)
	c.found(diagnoses[about.Kind].finding(about.Kind, e.id, key, subject, about.Says, mended))
	return nil
}

// mend repairs a flaw, if that's wanted and possible.
func (c *checkup) mend(e *exam, f invariants.Found) (mended bool, err error) {
	returns, can := mendable[f.Flaw]
	if !c.Repair || !can {
		return false, nil
	}
	if mended = f.Flaw == invariants.Unreturned; !mended {
		mended, err = store.Repair(c.ctx, c.Runner, e.keys, f)
	}
	if f.Flaw == invariants.Unowned {
		e.returns = e.returns || mended // all of them together, so that they keep their order
	} else if mended && returns {
		err = c.goOn(e)
	}
	if mended && err == nil && f.Flaw == invariants.Dead {
		err = store.Unregister(c.ctx, c.Runner, c.Space, f.Name)
	}
	if store.IsWrongType(err) {
		return false, nil // it goes on once the key is repaired
	}
	return mended && err == nil, err
}

// goOn returns the tasks of workers that leave.
func (c *checkup) goOn(e *exam) error {
	look, err := store.EvictAll(c.ctx, c.Runner, e.keys, "", 0, c.Lease)
	c.returned += look.Returned
	return err
}

func keyOf(q store.Keys, kind string) string {
	prefix, tail := q.Ends()
	return prefix + ":" + kind + ":" + tail
}

// place returns the key of a flaw, and its subject.
func place(q store.Keys, kind, holder string, f invariants.Found) (key, subject string) {
	switch f.Flaw {
	case invariants.Unowned:
		return q.Process(words.Clip(f.Name)), words.Clip(f.Name)
	case invariants.NoList, invariants.Stranger, invariants.SecondRun:
		return q.Process(words.Clip(f.Name)), words.Clip(holder)
	case invariants.Stray:
		return q.Working(words.Clip(f.Name)), words.Clip(f.Name)
	case invariants.Token, invariants.Place:
		return keyOf(q, "state"), words.Clip(f.Name)
	case invariants.Stuck:
		kind = "runs"
	case invariants.Unreturned:
		kind = "leaving"
	case invariants.Ahead, invariants.HalfPlan:
		kind = "recurring"
	}
	switch kind {
	case store.Holders, "suspects", "leaving", "idle", "rounds":
		return keyOf(q, kind), words.Clip(f.Name)
	}
	return keyOf(q, kind), veil("", f.Name)
}
