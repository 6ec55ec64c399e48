package spec

import (
	"strings"

	"github.com/worqr/worqr/internal/store"
)

func init() { verbs["check"] = of(check) }

// An examination checks a queue, and repairs what it finds if asked to.
type examination struct {
	*queue
	mend     bool
	worker   string // the owner of the processes
	prefix   string // of the keys of batches
	served   bool   // by a worker whose lease hasn't expired
	back     int    // tasks put to the front of the list
	gaveBack bool   // something was given back
	tries    int    // entries that wait to be retried
	flaws    []any
}

// judges has a function for each kind of name, which checks one thing.
var judges = map[string]func(*examination, string){
	"process": (*examination).orphan, "held": (*examination).lost, "twice": (*examination).twice,
	"working": (*examination).holds, "member": (*examination).lapsed, "suspect": (*examination).suspected,
	"idle": (*examination).idles, "round": (*examination).numbered,
	"running": (*examination).run, "added": (*examination).item, "entry": (*examination).agrees, "scheduled": (*examination).planned, "content": (*examination).content,
	"lock": (*examination).lock, "holder": (*examination).holding, "stopping": (*examination).stops, "canceled": (*examination).logged, "record": (*examination).record, "batch": (*examination).batch, "recurring": (*examination).recurs, "result": (*examination).result, "queue": (*examination).overall,
}

func check(q *queue, c store.Call) any {
	q.whole()
	x := &examination{queue: q, mend: c.Arg("mend") == "1", worker: c.Arg("worker"), prefix: c.Arg("batch"), served: q.alive() > 0, flaws: []any{}}
	judged := 0
	for _, name := range c.Rest() {
		if max(x.carried, x.hashed) >= 1<<20 {
			break
		}
		judges[c.Arg("what")](x, name)
		judged++
	}
	if x.mend {
		q.keepOffset()
		q.keepDrift()
		if x.gaveBack {
			q.trimLog()
		}
		q.alert(&q.lane, x.back)
	}
	return []any{x.flaws, judged, x.tries}
}

// withoutTurn returns the entry of an occurrence.
func withoutTurn(from string) string {
	if i := strings.LastIndexByte(from, '@'); i >= 0 && i+1 < len(from) && strings.Trim(from[i+1:], "0123456789") == "" {
		return from[:i]
	}
	return from
}

// sum returns the digest of the payload that waits in an entry. If the payload is larger than a
// mebibyte, it trusts the entry's own digest instead of reading the payload. It also trusts a
// digest of the entry's name, or of the name that the entry had before it failed: such a task is
// known only by its key.
func (x *examination) sum(payload, entry string) string {
	x.forget()
	said := x.word(x.entry+entry, "digest")
	from, failed := x.field(x.entry+entry, "from")
	byKey := said == digest(entry) || failed && (said == digest(from) || said == digest(withoutTurn(from)))
	if entry != "" && (len(payload) > 1<<20 || byKey) {
		x.named(&x.lane, entry, payload)
		if said, ok := x.names[payload]; ok {
			return said
		}
	}
	x.carried += len(payload)
	return x.digest(payload)
}

func (x *examination) tell(kind, name string, mended bool, detail string) {
	x.flaws = append(x.flaws, []any{kind, name, bit(mended), detail})
}

// flaw reports a finding, and repairs it.
func (x *examination) flaw(kind, name string, cure func()) {
	if x.mend {
		cure()
	}
	x.tell(kind, name, x.mend, "")
}

// A sight is what is found at a key where something should be.
type sight int

const (
	there   sight = iota
	missing       // Redis has lost it, or it has ended
	foreign       // of another type, so nothing is known about it
)

// payload returns what a process runs.
func (q *queue) payload(id string) (string, sight) {
	key := q.process + id
	if !q.is(key, "list") {
		return "", foreign
	}
	items := q.items(key)
	if len(items) == 0 {
		return "", missing
	}
	return items[len(items)-1], there
}

func (q *queue) part(entry, name string) (string, sight) {
	key := q.entry + entry
	if !q.is(key, "hash") {
		return "", foreign
	}
	f, ok := q.field(key, name)
	if !ok {
		return "", missing
	}
	return f, there
}

// lock judges where a lock points. A place on the list is certainly wrong only if the list is
// empty.
func (x *examination) lock(of string) {
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
			return // trusted, since hashing it takes long; Redis checks what surrounds it, too
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
	if seen == missing || seen == there && x.sum(payload, entry) != of {
		x.flaw(flaw, of, func() { x.unset(x.unique, of) })
	}
}

// logged judges a cancel: it may cover a held process, and its token was given out.
func (x *examination) logged(name string) {
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

// record judges a record: it expires.
func (x *examination) record(name string) {
	if v := x.keys[x.cancel+name]; v != nil && v.kind == "hash" && v.expires.IsZero() {
		x.flaw("ttl", name, func() { x.expire(x.cancel+name, 60_000) })
	}
}

// holding judges a holder: it holds something, and has acknowledged no cancel that is still to come.
func (x *examination) holding(worker string) {
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

// stops judges a member of stopping: its process runs.
func (x *examination) stops(member string) {
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

// overall judges the queue as a whole.
func (x *examination) overall(name string) {
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
		x.flaw("leftover", "unique", func() {}) // it is removed at the end of the call
	case n > 0 && !x.locks:
		x.flaw("lock", "offset", func() { x.set(x.unique, "offset", 0) })
	}
	if x.counting && x.waits() == 0 && !x.keyed && x.size(x.contents) == 0 && len(x.owners()) == 0 {
		x.flaw("crash-counts", name, func() { x.del(x.ledger) })
	}
	if _, known := x.haveLeft(); !x.served && (x.waits() == 0 || !known) && x.exists(x.ages) {
		x.flaw("stale", "ages", func() { x.del(x.ages) })
	}
	ready := x.waits() + x.due() + x.Store.entries(x.added) + len(x.inBatches(x.prefix))
	if ready > 0 && x.isPaused() {
		x.tell("paused", name, false, text(ready))
	}
	if ready > 0 && !x.served {
		x.tell("no-worker", name, false, text(ready))
	}
}
