package worqr

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// A checkup is one walk through the keyspace. What is there is found by pages;
// whether it is as it should be is asked of Redis, thing by thing.
type checkup struct {
	peer   *Peer
	ctx    context.Context
	opts   CheckOptions
	mend   bool
	report *CheckReport
	now    int64 // ms, by the clock of Redis, when it began

	patients map[keys.Queue]*patient
	present  map[string]bool          // workers that are registered
	members  map[string]bool          // of any queue
	known    map[string]time.Duration // leases of workers
	doubts   []doubt
	said     map[string]bool // findings, so that none comes twice
	skipped  int             // doubts beyond maxDoubts
}

// A patient is a queue under examination.
type patient struct {
	queue     *Queue
	used      bool            // something waits or runs, or somebody serves it
	processes map[string]bool // that have a list, and whose holder was not seen yet
	holders   map[string]bool // workers that may hold something
	retries   int             // tasks that wait to be retried
	runs      runs            // what is held
	members   []string
}

// A doubt is looked at again a lease later. It tells whether that was in vain.
type doubt func() error

func (p *Peer) checkUp(ctx context.Context, opts *CheckOptions, mend bool) (*CheckReport, error) {
	if p.bad != nil {
		return nil, p.bad
	}
	c := &checkup{
		peer: p, ctx: ctx, mend: mend, report: &CheckReport{prefix: cmp.Or(p.opts.Prefix, keys.DefaultPrefix)},
		patients: map[keys.Queue]*patient{}, present: map[string]bool{}, members: map[string]bool{}, said: map[string]bool{},
		known: map[string]time.Duration{},
	}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	for _, part := range []func() error{c.server, c.walk, c.queues, c.lists, c.again} {
		if err := part(); err != nil {
			return nil, lacking(err)
		}
	}
	names := map[string]bool{}
	for _, pt := range c.patients {
		names[pt.queue.name] = true
	}
	c.report.Queues = len(names)
	c.report.sort()
	return c.report, nil
}

// walk reads the names of all keys.
func (c *checkup) walk() error {
	return c.scan(func(page []string) error {
		var known []keys.Key
		var types []redisconn.Call
		for _, key := range page {
			k, ok := c.peer.space.Parse(key)
			switch {
			case ok:
				known = append(known, k)
				types = append(types, redisconn.Command("TYPE", key))
			case !c.peer.space.Others(key):
				c.found(Finding{Kind: findingUnknown, Severity: SeverityNotice, Key: clip(key),
					Text: "No key of a queue has this name. Whoever has put it there should use another prefix."})
			}
		}
		some := map[keys.Queue]map[store.What][]string{}
		for i, r := range c.peer.calls.Do(c.ctx, types...) {
			is, err := redis.String(r.Value, r.Err)
			if err != nil {
				return err
			}
			k := known[i]
			switch is {
			case "none":
				continue // it has gone meanwhile
			case string(k.Type):
				c.note(k, some)
			default:
				c.foreign(k, is)
			}
			c.report.Keys++
		}
		for q, of := range some {
			for what, names := range of {
				if err := c.judge(c.patients[q], what, "", names); err != nil {
					return err
				}
			}
		}
		return c.nonces(known)
	})
}

// note takes in a key.
func (c *checkup) note(k keys.Key, some map[keys.Queue]map[store.What][]string) {
	if k.Queue == nil {
		if k.Kind == "worker" {
			c.present[k.Part] = true
		}
		return
	}
	pt := c.patient(k)
	if some[*k.Queue] == nil {
		some[*k.Queue] = map[store.What][]string{}
	}
	switch k.Kind {
	case "queues", "contents", "workers", "process", "working", "batches":
		pt.used = true
	}
	switch k.Kind {
	case "process":
		pt.processes[k.Part] = true
	case "working":
		pt.holders[k.Part] = true
	case "keyed":
		some[*k.Queue][store.CheckEntries] = append(some[*k.Queue][store.CheckEntries], k.Part)
	case "cancel":
		some[*k.Queue][store.CheckRecords] = append(some[*k.Queue][store.CheckRecords], k.Part)
	}
}

func (c *checkup) patient(k keys.Key) *patient {
	pt := c.patients[*k.Queue]
	if pt == nil {
		q := c.peer.Queue(k.Name)
		if k.Queue.IsFailed() {
			q = q.failed()
		}
		pt = &patient{queue: q, processes: map[string]bool{}, holders: map[string]bool{}}
		c.patients[*k.Queue] = pt
	}
	return pt
}

// foreign reports a key that holds something else.
func (c *checkup) foreign(k keys.Key, is string) {
	f := Finding{Kind: findingType, Severity: SeverityError,
		Text: fmt.Sprintf("This key is a %s but must be a %s. Move or delete it; worqr doesn't touch it. The rest of the queue was checked.", shown(is), k.Type)}
	if k.Queue == nil {
		f.Key = clip(c.peer.space.Worker(k.Part))
		if k.Kind != "worker" {
			f.Key = c.peer.space.Workers()
			if k.Kind == "registry" {
				f.Key = c.peer.space.Registry()
			}
		}
	} else {
		head, tail := k.Queue.Around()
		f.Queue, f.Key = c.patient(k).queue.id, head+k.Kind+tail
		if k.Part != "" {
			f.Key += ":" + veil(k.Kind, k.Part)
		}
	}
	c.found(f)
}

// nonces looks for marks that would stay forever.
func (c *checkup) nonces(known []keys.Key) error {
	known = slices.DeleteFunc(slices.Clone(known), func(k keys.Key) bool { return k.Kind != "once" })
	ttls := make([]redisconn.Call, len(known))
	for i, k := range known {
		ttls[i] = redisconn.Command("PTTL", k.Queue.Once(k.Part))
	}
	for i, r := range c.peer.calls.Do(c.ctx, ttls...) {
		ttl, err := redis.Int64(r.Value, r.Err)
		if err != nil {
			return err
		}
		if ttl != -1 {
			continue
		}
		k, d := known[i], diagnoses[findingTTL]
		if c.mend {
			if _, err := c.peer.calls.One(c.ctx, redisconn.Command("PEXPIRE", k.Queue.Once(k.Part), nonceWindow.Milliseconds())); err != nil {
				return err
			}
		}
		c.found(d.finding(findingTTL, c.patient(k).queue.id, k.Queue.Once(veil(k.Kind, k.Part)), "", "", c.mend))
	}
	return nil
}

// queues examines each queue.
func (c *checkup) queues() error {
	for _, pt := range slices.SortedFunc(maps.Values(c.patients), func(a, b *patient) int { return strings.Compare(a.queue.id, b.queue.id) }) {
		if err := c.queue(pt); err != nil {
			return pt.queue.wrap("examine", err)
		}
	}
	return nil
}

// queue examines who holds something before all that may be waiting for them.
func (c *checkup) queue(pt *patient) error {
	q := pt.queue.keys
	for key, what := range map[string]store.What{q.Workers(): store.CheckMembers, q.Suspects(): store.CheckSuspects} {
		err := c.fields("ZSCAN", key, func(names []string) error {
			for i, name := range names {
				pt.holders[name], c.members[name] = true, true
				if what == store.CheckMembers {
					pt.members = append(pt.members, name)
					names[i] = ":" + name
				}
			}
			return c.judge(pt, what, "", names)
		})
		if err != nil {
			return err
		}
	}
	if err := c.held(pt); err != nil {
		return err
	}
	for _, part := range []struct {
		command, key string
		what         store.What
	}{
		{"ZSCAN", q.Idle(), store.CheckIdle},
		{"HSCAN", q.Rounds(), store.CheckRounds},
		{"HSCAN", q.Entries(), store.CheckRunning},
		{"ZSCAN", q.Schedule(), store.CheckScheduled},
		{"ZSCAN", q.Contents(), store.CheckContents},
		{"HSCAN", q.Unique(), store.CheckLocks},
		{"ZSCAN", q.Canceled(), store.CheckCanceled},
		{"ZSCAN", q.Holders(), store.CheckHolding},
		{"ZSCAN", q.Stopping(), store.CheckStopping},
		{"ZSCAN", q.Batches(), store.CheckBatches},
	} {
		err := c.fields(part.command, part.key, func(names []string) error { return c.judge(pt, part.what, "", names) })
		if err != nil {
			return err
		}
	}
	if err := c.judge(pt, store.CheckQueue, "", []string{pt.queue.name}); err != nil {
		return err
	}
	return cmp.Or(c.health(pt), c.leases(pt))
}

// held examines what workers hold, and then what nobody does. Processes that have
// started since their keys were read are not known, and of no interest.
func (c *checkup) held(pt *patient) error {
	q := pt.queue.keys
	workers := slices.Sorted(maps.Keys(pt.holders))
	if err := c.judge(pt, store.CheckHolders, "", workers); err != nil {
		return err
	}
	holder := map[string]string{}
	for _, w := range workers {
		err := c.pairs("ZSCAN", q.Working(w), func(ids, tokens []string) error {
			for i, id := range ids {
				delete(pt.processes, id)
				pt.runs.add(c, run{process: id, worker: w, token: tokens[i]})
				if other := holder[id]; other != "" && other != w {
					if err := c.judge(pt, store.CheckTwice, other, []string{id + ":" + w}); err != nil {
						return err
					}
				}
				holder[id] = w
			}
			return c.judge(pt, store.CheckHeld, w, ids)
		})
		if err != nil {
			return err
		}
	}
	// The newest first, so that the oldest stands foremost in the end.
	orphans := slices.Sorted(maps.Keys(pt.processes))
	slices.Reverse(orphans)
	return c.judge(pt, store.CheckProcesses, "", orphans)
}

// judge has things of a queue judged, some at a time, and takes in what is wrong.
func (c *checkup) judge(pt *patient, what store.What, worker string, names []string) error {
	most := page
	if what == store.CheckProcesses || what == store.CheckCanceled {
		most = max(1, page*page/max(page, len(pt.holders))) // each is looked for at all of these
	}
	for len(names) > 0 {
		v, err := store.Check(c.ctx, c.peer.calls, pt.queue.keys, what, worker, c.mend, names[:min(most, len(names))])
		if store.IsWrongType(err) {
			return nil // that was found, and nothing can be told beside it
		}
		if err != nil {
			return err
		}
		names = names[v.Judged:]
		pt.retries += v.Retries
		for _, f := range v.Flaws {
			if err := c.flaw(pt, what, worker, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDoubts is how many things are looked at again. Others are counted: somebody has
// written more names than a fleet has.
const maxDoubts = 10_000

// doubt has something be looked at again, a lease later.
func (c *checkup) doubt(again doubt) {
	if len(c.doubts) == maxDoubts {
		c.skipped++
		return
	}
	c.doubts = append(c.doubts, again)
}

// flaw takes in what is wrong, or looks again later.
func (c *checkup) flaw(pt *patient, what store.What, worker string, f store.Flaw) error {
	kind := FindingKind(f.Kind)
	d := diagnoses[kind]
	if kind == findingUnserved && pt.queue.keys.IsFailed() {
		return nil // failed tasks may stay
	}
	if d.patience && !f.Mended {
		c.doubt(func() error { return c.secondLook(pt, what, f) })
		return nil
	}
	return c.conclude(pt, what, worker, f, d)
}

// secondLook is for what was found a lease ago.
func (c *checkup) secondLook(pt *patient, what store.What, before store.Flaw) error {
	name := before.Name
	if what == store.CheckMembers {
		name = before.Detail + ":" + name
	}
	v, err := store.Check(c.ctx, c.peer.calls, pt.queue.keys, what, "", c.mend, []string{name})
	if store.IsWrongType(err) {
		return nil
	}
	for _, f := range v.Flaws {
		if f.Kind != before.Kind || what == store.CheckMembers && f.Detail != before.Detail {
			continue
		}
		d := diagnoses[FindingKind(f.Kind)]
		if FindingKind(f.Kind) == findingPaused && grown(before.Detail, f.Detail) {
			d = gathering
		}
		if err := c.conclude(pt, what, "", f, d); err != nil {
			return err
		}
	}
	return err
}

// grown compares two numbers.
func grown(before, now string) bool {
	return len(now) > len(before) || len(now) == len(before) && now > before
}

// conclude reports what is wrong.
func (c *checkup) conclude(pt *patient, what store.What, worker string, f store.Flaw, d diagnosis) error {
	kind := FindingKind(f.Kind)
	if f.Mended && (kind == findingStray || kind == findingUnfinished || kind == findingDead) {
		err := c.goOn(pt, f.Name, kind == findingDead)
		if err != nil && !store.IsWrongType(err) {
			return err
		}
		f.Mended = err == nil // else it goes on once the key is repaired
	}
	q := pt.queue.keys
	key, subject := "", f.Name
	switch what {
	case store.CheckProcesses:
		key = q.Process(f.Name)
	case store.CheckHeld, store.CheckTwice:
		key, subject = q.Process(f.Name), worker
	case store.CheckHolders:
		key = q.Working(f.Name)
		switch kind {
		case findingToken:
			key = q.Token()
		case findingCancel:
			key = q.Holders()
		}
	case store.CheckMembers:
		key = q.Workers()
	case store.CheckSuspects:
		key = q.Suspects()
	case store.CheckIdle:
		key = q.Idle()
	case store.CheckRounds:
		key = q.Rounds()
	case store.CheckRunning:
		key = q.Entries()
	case store.CheckEntries, store.CheckScheduled, store.CheckContents:
		key, subject = q.Keyed(veil("keyed", f.Name)), ""
	case store.CheckLocks:
		key = q.Unique()
	case store.CheckCanceled:
		key, subject = q.Canceled(), veil("cancel", f.Name)
	case store.CheckHolding:
		key = q.Holders()
	case store.CheckStopping:
		key = q.Stopping()
	case store.CheckRecords:
		key, subject = q.Cancel(veil("cancel", f.Name)), ""
	case store.CheckBatches:
		key, subject = q.Batch(veil("batch", f.Name)), ""
	case store.CheckQueue:
		key, subject = map[FindingKind]string{findingToken: q.Token(), findingLedger: q.Ledger(), findingUnserved: q.Waiting(), findingPaused: q.Paused()}[kind], ""
		if key == "" {
			key = q.Unique()
		}
		if f.Name == "gaps" {
			key = q.Gaps()
		}
	}
	c.found(d.finding(kind, pt.queue.id, key, subject, f.Detail, f.Mended))
	return nil
}

func (d diagnosis) finding(kind FindingKind, queue, key, subject, detail string, mended bool) Finding {
	says, then := d.says, d.cure
	if strings.Contains(says, "%s") {
		says = fmt.Sprintf(says, shown(detail))
	}
	if mended {
		then = d.cured
	}
	return Finding{Kind: kind, Severity: d.severity, Queue: queue, Key: key, Subject: subject, Text: says + " " + then, Repaired: mended}
}

// found reports a finding, once.
func (c *checkup) found(f Finding) {
	id := fmt.Sprintln(f.Kind, f.Queue, f.Key, f.Subject, f.Text)
	if slices.Contains(c.opts.Ignore, f.Kind) || c.said[id] {
		return
	}
	if len(c.said) < 10*maxFindings { // beyond, those that are counted may be counted twice
		c.said[id] = true
	}
	c.report.add(f)
}

// again looks again at what was doubtful, a lease later.
func (c *checkup) again() error {
	if len(c.doubts) == 0 {
		return nil
	}
	if c.skipped > 0 {
		c.notice(findingUnreadable, SeverityNotice, fmt.Sprintf("%d more things look odd than Check looks at twice (%d). Repair what it reports, and check again.", c.skipped, maxDoubts))
	}
	lease := c.peer.opts.Lease
	if lease < 0 {
		lease = defaultLease
	}
	select {
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-time.After(lease):
	}
	for _, look := range c.doubts {
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}

// scan yields the keys of the namespace, a page at a time.
func (c *checkup) scan(take func(page []string) error) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(c.peer.calls.One(c.ctx, redisconn.Command("SCAN", cursor, "MATCH", c.peer.space.Keys(), "COUNT", 10*page)))
		var some []string
		if err == nil {
			_, err = redis.Scan(reply, &cursor, &some)
		}
		if err == nil {
			err = take(some)
		}
		if err != nil || cursor == "0" {
			return err
		}
	}
}

// fields yields the members of a zset or the fields of a hash, a page at a time.
func (c *checkup) fields(command, key string, take func(names []string) error) error {
	return c.pairs(command, key, func(names, _ []string) error { return take(names) })
}

// pairs yields them with their scores or values.
func (c *checkup) pairs(command, key string, take func(names, values []string) error) error {
	for cursor := "0"; ; {
		reply, err := redis.Values(c.peer.calls.One(c.ctx, redisconn.Command(command, key, cursor, "COUNT", page)))
		if store.IsWrongType(err) {
			return nil // that was found
		}
		var pairs, names, values []string
		if err == nil {
			_, err = redis.Scan(reply, &cursor, &pairs)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			names, values = append(names, pairs[i]), append(values, pairs[i+1])
		}
		if err == nil {
			err = take(names, values)
		}
		if err != nil || cursor == "0" {
			return err
		}
	}
}

// veil is the last part of a key without what may be secret: what users have
// named.
func veil(kind, part string) string {
	switch {
	case kind == "process" || kind == "working" || kind == "batch" || kind == "cancel" && isDigest(part) || kind == "keyed" && strings.HasPrefix(part, "r:"):
		return clip(part)
	case store.KeyOf(part) != "":
		return store.EntryOf(veil("", store.KeyOf(part)))
	}
	sum := sha1.Sum([]byte(part))
	return "#" + hex.EncodeToString(sum[:])
}

// isDigest reports whether it is one of a payload. What users have named may be as long.
func isDigest(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 2*sha1.Size
}

// shown is what others have written, bounded, and quoted where a terminal would act on
// it.
func shown(s string) string {
	s = clip(s)
	for _, r := range s {
		if r == '"' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// clip bounds what others have named.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
