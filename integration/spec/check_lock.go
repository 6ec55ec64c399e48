package spec

import (
	"regexp"
	"strings"
	"time"
)

// judgeLock checks that a lock names the place of its payload. A lock on a position in the list may
// be out of date; only an empty list proves that the position doesn't exist.
func (x *examination) judgeLock(of string) {
	where, locked := x.field(x.unique, of)
	if !locked || of == "offset" {
		return
	}
	kind := where[:min(2, len(where))]
	place := where[len(kind):]
	payload, seen, flaw := "", missing, "lock"
	switch kind {
	case "p:":
		if payload, seen = x.payload(place); len(payload) >= 1<<20 {
			return // trusted, since hashing it takes long. Redis also counts the memory around it
		}
	case "e:":
		payload, seen = x.part(place, "payload")
	case "w:":
		if !x.is(x.waiting, "list") || x.length(x.waiting) > 0 {
			return
		}
		flaw = "stale"
	}
	entry := place
	if kind != "e:" {
		entry = ""
	}
	if seen == missing || seen == there && x.digestIn(payload, entry) != of {
		x.flaw(flaw, of, func() { x.unset(x.unique, of) })
	}
}

// judgeHolder checks that a holder holds something or is a member, and that it has acknowledged no
// cancel that doesn't exist yet.
func (x *examination) judgeHolder(worker string) {
	if !x.is(x.holders, "zset") {
		return
	}
	switch said, known := x.score(x.holders, worker); {
	case known && !x.exists(x.working+worker) && !x.isMember(worker):
		x.flaw("leftover", worker, func() { x.holdsNothing(worker) })
	case known && said > x.given():
		x.flaw("cancel", worker, func() { x.add(x.holders, worker, 0) })
	}
}

// judgeStopping checks that a process listed as stopping is running.
func (x *examination) judgeStopping(member string) {
	if !x.is(x.stopping, "zset") {
		return
	}
	id := member[min(59, len(member)):]
	if _, said := x.score(x.stopping, member); said {
		if _, seen := x.payload(id); seen == missing {
			x.flaw("cancel", id, func() { x.remove(x.stopping, member) })
		}
	}
}

// judgeCanceled checks that a cancel in the log may cover something that a worker holds, and that
// its token was issued.
func (x *examination) judgeCanceled(name string) {
	token, logged := x.score(x.canceled, name)
	flaw := "cancel"
	if token > x.given() {
		flaw = "future-cancel"
	}
	if logged && (flaw == "future-cancel" || !x.exists(x.holders)) {
		x.flaw(flaw, name, func() {
			x.remove(x.canceled, name)
			x.expire(x.cancel+name, 60_000)
		})
	}
}

// judgeRecord checks that the record of a cancel has a TTL.
func (x *examination) judgeRecord(name string) {
	if v := x.keys[x.cancel+name]; v != nil && v.kind == "hash" && v.expires.IsZero() {
		x.flaw("ttl", name, func() { x.expire(x.cancel+name, 60_000) })
	}
}

// judgeBatch checks that a committed batch has its tasks, and isn't set aside.
func (x *examination) judgeBatch(id string) {
	if !x.is(x.batches, "zset") {
		return
	}
	place, known := x.score(x.batches, id)
	key := x.prefix + id
	tasks := len(x.tasks(key))
	if !known || place < aside && tasks > 0 {
		return
	}
	whole := x.is(key, "list")
	if x.mend && tasks > 0 {
		x.add(x.batches, id, 0)
	} else if x.mend && whole {
		x.remove(x.batches, id)
	}
	x.tell("batch", id, x.mend && whole, "")
}

var (
	aNumber  = regexp.MustCompile(`^\d+$`)
	ofTimes  = regexp.MustCompile(`^[\d ]*$`)
	aRecord  = regexp.MustCompile(`^[a-z]+:\d+:(\d+):`)
	thirtyMS = 30 * 24 * time.Hour.Milliseconds()
)

// judgeRecurring checks that each schedule has a member in recurring, and the reverse. To repair a
// damaged schedule, it clears the print, so that peers assert the schedule in full again.
func (x *examination) judgeRecurring(entry string) {
	key, all := x.recurrence(entry), x.recurring()
	if !x.is(key, "hash") || !x.is(all, "zset") {
		return
	}
	until, listed := x.score(all, entry)
	named := isKey(entry) && len(entry) > 2
	switch there := x.exists(key); {
	case !there && !listed:
		return
	case !there || !named:
		if x.mend {
			x.remove(all, entry)
			x.del(key)
		}
		detail := "Its name isn't a key."
		if named {
			detail = "The record of its next times is missing."
		}
		x.tell("recurring", entry, x.mend, detail)
		return
	case !listed:
		if x.mend {
			x.add(all, entry, x.now)
		}
		x.tell("recurring", entry, x.mend, "Redis has no record of when peers last asserted it.")
	}
	ahead := listed && until > float64(x.now+longestPeriod)
	if ahead && x.mend {
		x.add(all, entry, x.now)
	}
	is := map[string]string{"print": "", "times": "", "passed": text(x.now), "since": "0", "late": "0", "more": "0"}
	damaged := false
	for name := range is {
		v, ok := x.field(key, name)
		switch {
		case !ok, name == "times" && !ofTimes.MatchString(v), name != "times" && name != "print" && !aNumber.MatchString(v):
			damaged = true
		case name != "print" && name != "since" && name != "more":
			is[name] = v
		}
	}
	if number(is["passed"]) > x.now+setBack {
		ahead, is["passed"] = true, text(x.now)
	}
	if !damaged && !ahead {
		return
	}
	if x.mend {
		for name, v := range is {
			x.set(key, name, v)
		}
	}
	detail := "The record of its next times is damaged."
	if !damaged {
		detail = "Redis's clock was ahead when it was last asserted or started."
	}
	x.tell("recurring", entry, x.mend, detail)
}

// judgeResult checks that the result of a task is well formed, and has a TTL.
func (x *examination) judgeResult(entry string) {
	head, tail, _ := strings.Cut(x.entry, ":keyed:{")
	key := head + ":result:{" + tail + entry
	if strings.HasSuffix(head, ":failed") || !x.exists(key) || !x.is(key, "string") {
		return
	}
	record, _ := x.Get(key).(string)
	m := aRecord.FindStringSubmatch(record)
	switch {
	case m == nil || int64(len(record)) < int64(len(m[0]))+number(m[1]):
		x.flaw("result", entry, func() { x.del(key) })
	case x.keys[key].expires.IsZero():
		x.flaw("ttl", entry, func() { x.expire(key, thirtyMS) })
	}
}

// judgeQueue checks the queue as a whole.
func (x *examination) judgeQueue(name string) {
	if _, ok := x.lastToken(); !ok {
		x.tell("token", name, false, "")
	}
	if !x.is(x.waiting, "list") {
		return
	}
	if x.exists(x.added) && !x.adding {
		x.flaw("leftover", "added", func() { x.del(x.added) })
	}
	switch n := x.fields(x.unique); {
	case n == 0 && x.exists(x.gaps):
		x.flaw("leftover", "gaps", func() { x.del(x.gaps) })
	case n == 1 && x.locks:
		x.flaw("leftover", "unique", func() {}) // keepOffset removes it
	case n > 0 && !x.locks:
		x.flaw("lock", "offset", func() { x.set(x.unique, "offset", 0) })
	}
	if x.counting && x.waits() == 0 && !x.keyed && x.size(x.contents) == 0 && len(x.owners()) == 0 {
		x.flaw("crash-counts", name, func() { x.del(x.ledger) })
	}
	if _, known := x.haveLeft(); !x.alive && (x.waits() == 0 || !known) && x.exists(x.ages) {
		x.flaw("stale", "ages", func() { x.del(x.ages) })
	}
	ready := x.waits() + x.due() + x.Store.entries(x.added) + len(x.inBatches(x.prefix))
	if ready > 0 && x.isPaused() {
		x.tell("paused", name, false, text(ready))
	}
	if ready > 0 && !x.alive {
		x.tell("no-worker", name, false, text(ready))
	}
}
