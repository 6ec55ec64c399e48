package worqr

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// lists examines the list of peers and that of queues. Both are there for people
// and tools, are written beside all else and later, and mended by whoever comes
// by; so all of it is looked at twice.
func (c *checkup) lists() error {
	var used []*patient
	for _, pt := range c.patients {
		if pt.used {
			used = append(used, pt)
		}
	}
	registry, roster := c.peer.space.Registry(), c.peer.space.Workers()
	err := absent(c, registry, used, func(pt *patient) string { return pt.queue.name }, func(pt *patient) error { return c.unlisted(pt) })
	if err != nil {
		return err
	}
	err = absent(c, roster, slices.Collect(maps.Keys(c.present)), func(w string) string { return w }, c.unlistedWorker)
	if err != nil {
		return err
	}
	if err := c.stuck(); err != nil {
		return err
	}
	for w, err := range store.Roster(c.ctx, c.peer.calls, c.peer.space) {
		if store.IsWrongType(err) {
			break // that was found
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

// absent has those of which a set does not know be looked at again. The set may have any
// number of members, so it is asked, not read.
func absent[T any](c *checkup, set string, all []T, name func(T) string, look func(T) error) error {
	for some := range slices.Chunk(all, page) {
		calls := make([]redisconn.Call, len(some))
		for i, one := range some {
			calls[i] = redisconn.Command("SISMEMBER", set, name(one))
		}
		known, err := c.asks(calls...)
		if err != nil {
			return err
		}
		for i, one := range some {
			if known[i] == 0 {
				c.doubt(func() error { return look(one) })
			}
		}
	}
	return nil
}

// asks makes plain calls that answer with numbers.
func (c *checkup) asks(calls ...redisconn.Call) ([]int64, error) {
	all := make([]int64, len(calls))
	for i, r := range c.peer.calls.Do(c.ctx, calls...) {
		if r.Err != nil && !store.IsWrongType(r.Err) {
			return nil, r.Err
		}
		all[i], _ = redis.Int64(r.Value, r.Err) // what is no number is 0
	}
	return all, nil
}

// unlisted reports a queue of which no tool knows.
func (c *checkup) unlisted(pt *patient) error {
	registry := c.peer.space.Registry()
	q := pt.queue.keys
	n, err := c.asks(redisconn.Command("SISMEMBER", registry, pt.queue.name),
		redisconn.Command("EXISTS", q.Waiting(), q.Contents(), q.Entries(), q.Workers(), q.Suspects(), q.Batches()))
	if err != nil || n[0] == 1 || n[1] == 0 {
		return err
	}
	f := Finding{Kind: findingRegistry, Severity: SeverityNotice, Queue: pt.queue.id, Key: registry,
		Text: "The queue isn't on the list of queues, so Queues doesn't show it. Repair lists it."}
	if c.mend {
		if err := store.List(c.ctx, c.peer.calls, c.peer.space, pt.queue.name); err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Text, f.Repaired = "The queue was not on the list of queues, so tools did not see it. It was listed.", true
	}
	c.found(f)
	return nil
}

// serves reports on how many queues a worker is a member, or being returned.
func (c *checkup) serves(worker string) (queues int, err error) {
	var calls []redisconn.Call
	for q := range c.patients {
		calls = append(calls, redisconn.Command("ZSCORE", q.Workers(), worker), redisconn.Command("ZSCORE", q.Suspects(), worker))
	}
	for _, r := range c.peer.calls.Do(c.ctx, calls...) {
		if r.Err != nil && !store.IsWrongType(r.Err) {
			return 0, r.Err
		}
		if r.Err == nil && r.Value != nil {
			queues++
		}
	}
	return queues, nil
}

// forgetful is how long a worker may be on the list of peers that died before it
// served anything: the next peer that starts takes it off.
const forgetful = time.Hour

// departed reports a worker on the list of peers of which nothing else is known.
func (c *checkup) departed(w string) error {
	s := c.peer.space
	if time.Since(begun(w)) < forgetful {
		return nil
	}
	n, err := c.asks(redisconn.Command("SISMEMBER", s.Workers(), w), redisconn.Command("EXISTS", s.Worker(w)))
	if err != nil || n[0] == 0 || n[1] == 1 {
		return err
	}
	if queues, err := c.serves(w); err != nil || queues > 0 {
		return err
	}
	f := Finding{Kind: findingRoster, Severity: SeverityNotice, Key: s.Workers(), Subject: clip(w),
		Text: "A worker that is gone is on the list of peers. Repair removes it."}
	if c.mend {
		if err := store.Delist(c.ctx, c.peer.calls, s, []string{w}); err != nil {
			return err
		}
		f.Text, f.Repaired = "A worker that is gone was on the list of peers. It was removed.", true
	}
	c.found(f)
	return nil
}

// unregistered reports a member that people cannot see.
func (c *checkup) unregistered(w string) error {
	n, err := c.asks(redisconn.Command("EXISTS", c.peer.space.Worker(w)))
	if err != nil || n[0] == 1 {
		return err
	}
	now, err := store.Now(c.ctx, c.peer.calls)
	if err != nil {
		return err
	}
	for q := range c.patients {
		deadline, err := c.asks(redisconn.Command("ZSCORE", q.Workers(), w))
		if err == nil && deadline[0] > now {
			c.found(Finding{Kind: findingRoster, Severity: SeverityNotice, Key: c.peer.space.Worker(clip(w)), Subject: clip(w),
				Text: "A worker serves queues but isn't registered, so Workers doesn't show it. Its next heartbeat registers it; if it doesn't, look at its log."})
			return nil
		}
	}
	return nil
}

// unlistedWorker reports a registered worker that is not on the list.
func (c *checkup) unlistedWorker(w string) error {
	s := c.peer.space
	n, err := c.asks(redisconn.Command("EXISTS", s.Worker(w)), redisconn.Command("SISMEMBER", s.Workers(), w))
	if err != nil || n[0] == 0 || n[1] == 1 {
		return err
	}
	f := Finding{Kind: findingRoster, Severity: SeverityNotice, Key: s.Workers(), Subject: clip(w),
		Text: "A registered worker is not on the list of peers. Repair lists it."}
	if c.mend {
		if _, err := c.peer.calls.One(c.ctx, redisconn.Command("SADD", s.Workers(), w)); err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Text, f.Repaired = "A registered worker was not on the list of peers. It was listed.", true
	}
	c.found(f)
	return nil
}

// idler reports a worker that is registered for queues and is on none of them. One
// without a lease may have been gone for long, since its registration has no end.
func (c *checkup) idler(w string) error {
	key := c.peer.space.Worker(w)
	text, err := redis.String(c.peer.calls.One(c.ctx, redisconn.Command("HGET", key, "queues")))
	if err != nil && !errors.Is(err, redis.ErrNil) && !store.IsWrongType(err) {
		return err
	}
	var names []string
	if json.Unmarshal([]byte(text), &names) != nil || len(names) == 0 {
		return nil // it is gone, serves none, or cannot be read
	}
	if queues, err := c.serves(w); err != nil || queues > 0 {
		return err
	}
	ttl, err := c.asks(redisconn.Command("PTTL", key))
	if err != nil {
		return err
	}
	f := Finding{Kind: findingRoster, Severity: SeverityNotice, Key: c.peer.space.Worker(clip(w)), Subject: clip(w),
		Text: "A worker is registered for queues and serves none of them. If it lives, look into its log."}
	if ttl[0] == -1 {
		f.Text += " It has no lease; Repair removes its registration, and if it lives it writes that again."
		if c.mend {
			if err := c.peer.unregister(c.ctx, w); err != nil {
				return err
			}
			f.Text, f.Repaired = "A worker without a lease was registered for queues and served none of them. Its registration was removed; if it lives it writes that again.", true
		}
	}
	c.found(f)
	return nil
}
