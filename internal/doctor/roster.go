package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// lists checks the lists of peers and of queues. Both are for people and tools. They are written
// separately, later than other keys, and peers repair them in passing; so everything is checked
// twice.
func (c *checkup) lists() error {
	if !c.isWhole() {
		return nil // a worker on none of the queues seen may be on another one
	}
	return c.passOver(nil, c.rosters())
}

func (c *checkup) rosters() error {
	if err := c.absent(); err != nil {
		return err
	}
	if err := c.stuckHandlers(); err != nil {
		return err
	}
	for w, err := range store.Roster(c.ctx, c.Runner, c.Space) {
		if store.IsWrongType(err) {
			break // that was reported
		}
		if err != nil {
			return err
		}
		if !c.present[w] && !c.members[w] {
			c.doubt(func() error { return c.departed(w) })
		}
	}
	for w := range c.members {
		if !c.present[w] {
			c.doubt(func() error { return c.unregistered(w) })
		}
	}
	for w := range c.present {
		if !c.members[w] {
			c.doubt(func() error { return c.idler(w) })
		}
	}
	return nil
}

// absent schedules a second check of queues and workers that are missing on their list.
func (c *checkup) absent() error {
	used := map[string][]*exam{} // by name
	for _, e := range c.exams {
		if e.used {
			used[e.name] = append(used[e.name], e)
		}
	}
	queues, err := store.Missing(c.ctx, c.Runner, c.Space, slices.Collect(maps.Keys(used)))
	if err != nil {
		return err
	}
	for _, name := range queues {
		for _, e := range used[name] {
			c.doubt(func() error { return c.unlisted(e) })
		}
	}
	workers, err := store.MissingWorkers(c.ctx, c.Runner, c.Space, slices.Collect(maps.Keys(c.present)))
	if err != nil {
		return err
	}
	for _, w := range workers {
		c.doubt(func() error { return c.unlistedWorker(w) })
	}
	return nil
}

// unlisted reports a queue that isn't listed, so tools don't show it.
func (c *checkup) unlisted(e *exam) error {
	missing, err := store.IsUnlisted(c.ctx, c.Runner, c.Space, e.keys, e.name)
	if err != nil || !missing {
		return err
	}
	f := inspect.Finding{Kind: registry, Severity: inspect.SeverityNotice, Queue: e.id, Key: c.Space.Registry(),
		Text: "The queue isn't on the list of queues, so Queues doesn't show it. Repair adds it."}
	if c.Repair {
		if err := store.List(c.ctx, c.Runner, c.Space, e.name); err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Text, f.Repaired = "The queue was not on the list of queues, so Queues didn't show it. It was added.", true
	}
	c.found(f)
	return nil
}

// forgetful is how long a worker that died before it served anything may stay on the list of peers:
// the next peer that starts removes it.
const forgetful = time.Hour

// departed reports a worker on the list of peers that no other key mentions.
func (c *checkup) departed(w string) error {
	if time.Since(store.StartedAt(w)) < forgetful {
		return nil
	}
	if listed, there, err := store.Listing(c.ctx, c.Runner, c.Space, w); err != nil || !listed || there {
		return err
	}
	if queues, err := c.serves(w); err != nil || queues > 0 {
		return err
	}
	f := inspect.Finding{Kind: roster, Severity: inspect.SeverityNotice, Key: c.Space.Workers(), Subject: words.Clip(w),
		Text: "A worker that is gone is on the list of peers. Repair removes it."}
	if c.Repair {
		if err := store.Delist(c.ctx, c.Runner, c.Space, []string{w}); err != nil {
			return err
		}
		f.Text, f.Repaired = "A worker that is gone was on the list of peers. It was removed.", true
	}
	c.found(f)
	return nil
}

// unregistered reports a member without a registration, so people can't see it.
func (c *checkup) unregistered(w string) error {
	if _, there, err := store.Listing(c.ctx, c.Runner, c.Space, w); err != nil || there {
		return err
	}
	for q := range c.exams {
		until, err := store.Deadline(c.ctx, c.Runner, q, w)
		if err != nil || until == 0 {
			continue
		}
		now, err := store.NowAt(c.ctx, c.Runner, q)
		if err != nil {
			return err
		}
		if until > now {
			c.found(inspect.Finding{Kind: roster, Severity: inspect.SeverityNotice, Key: c.Space.Worker(words.Clip(w)), Subject: words.Clip(w),
				Text: "A worker serves queues but isn't registered, so Workers doesn't show it. Its next heartbeat registers it; if it doesn't, look at its log."})
			return nil
		}
	}
	return nil
}

// unlistedWorker reports a registered worker that isn't listed.
func (c *checkup) unlistedWorker(w string) error {
	if listed, there, err := store.Listing(c.ctx, c.Runner, c.Space, w); err != nil || listed || !there {
		return err
	}
	f := inspect.Finding{Kind: roster, Severity: inspect.SeverityNotice, Key: c.Space.Workers(), Subject: words.Clip(w),
		Text: "A registered worker is not on the list of peers. Repair adds it."}
	if c.Repair {
		if err := store.Relist(c.ctx, c.Runner, c.Space, w); err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Text, f.Repaired = "A registered worker was not on the list of peers. It was added.", true
	}
	c.found(f)
	return nil
}

// idler reports a worker that is registered for queues but isn't a member of any. A worker without
// a lease may be long gone, since its registration doesn't expire.
func (c *checkup) idler(w string) error {
	names, endless, err := store.RegisteredFor(c.ctx, c.Runner, c.Space, w)
	if err != nil || len(names) == 0 {
		return err // it is gone, serves no queue, or can't be read
	}
	if queues, err := c.serves(w); err != nil || queues > 0 {
		return err
	}
	f := inspect.Finding{Kind: roster, Severity: inspect.SeverityNotice, Key: c.Space.Worker(words.Clip(w)), Subject: words.Clip(w),
		Text: "A worker is registered for queues but serves none of them. If its process is running, look at its log."}
	if endless {
		f.Text += " It has no lease; Repair removes its registration; if it's alive, it registers again."
		if c.Repair {
			if err := store.Unregister(c.ctx, c.Runner, c.Space, w); err != nil {
				return err
			}
			f.Text, f.Repaired = "A worker without a lease was registered for queues and served none of them. Its registration was removed; if it's alive, it registers again.", true
		}
	}
	c.found(f)
	return nil
}

// leases reports that members of a queue have different leases: either each judges the others by
// its own lease, or two services share a queue by accident.
func (c *checkup) leases(e *exam) error {
	if !c.isWhole() {
		return nil // the leases there can't be read
	}
	for ids := range slices.Chunk(e.members, perCall) {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, known := c.known[id]; return known })
		leases, err := store.Leases(c.ctx, c.Runner, c.Space, ids)
		if err != nil {
			return err
		}
		for i, id := range ids {
			c.known[id] = leases[i] // 0 if unknown
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
