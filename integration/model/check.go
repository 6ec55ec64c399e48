package model

import "strings"

// An examination looks at things of a queue, and mends what it finds if it is to.
type examination struct {
	*queue
	mend   bool
	worker string // whose processes they are
	served bool   // by somebody who has been heard of
	back   int    // tasks put to the front of the list
	flaws  []any
}

// judges say of a thing whether it is as it should be, by what the names are.
var judges = map[string]func(*examination, string){
	"process": (*examination).orphan, "held": (*examination).lost, "twice": (*examination).twice,
	"working": (*examination).holds, "member": (*examination).lapsed, "suspect": (*examination).suspected,
	"idle": (*examination).idles, "round": (*examination).numbered,
	"running": (*examination).run, "entry": (*examination).agrees, "scheduled": (*examination).planned, "content": (*examination).content,
	"lock": (*examination).lock, "canceled": (*examination).logged, "record": (*examination).record, "queue": (*examination).overall,
}

func check(q *queue, args []string) any {
	q.whole()
	x := &examination{queue: q, mend: args[0] == "1", worker: args[2], served: q.alive() > 0, flaws: []any{}}
	for _, name := range args[3:] {
		judges[args[1]](x, name)
	}
	if x.mend {
		q.keepOffset()
		q.alert(&q.lane, x.back)
	}
	return x.flaws
}

func (x *examination) tell(kind, name string, mended bool, detail string) {
	x.flaws = append(x.flaws, []any{kind, name, bit(mended), detail})
}

// flaw tells of what is wrong, and mends it.
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
	missing       // Redis has lost it, or it has gone
	foreign       // of another type, about which nothing can be told
)

// payload is what a process runs.
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

// part is a field of an entry.
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

// lock judges where a lock points. Of places on the list, only that there are none is
// certain.
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
		payload, seen = x.payload(place)
	case "e:":
		payload, seen = x.part(place, "payload")
	case "w:":
		if !x.is(x.waiting, "list") || x.length(x.waiting) > 0 {
			return
		}
		flaw = "stale"
	}
	if seen == missing || seen == there && digest(payload) != of {
		x.flaw(flaw, of, func() { x.unset(x.unique, of) })
	}
}

// logged judges a cancel: somebody is to acknowledge it, sooner or later.
func (x *examination) logged(name string) {
	record := x.cancel + name
	if _, logged := x.score(x.canceled, name); !logged || !x.is(record, "hash") {
		return
	}
	var gone []string
	waits := false
	if v := x.at(record, "hash"); v != nil {
		for f := range v.hash {
			w, named := strings.CutPrefix(f, "w:")
			switch {
			case !named:
			case x.isMember(w) || x.isReturning(w) || x.exists(x.working+w):
				waits = true
			default:
				gone = append(gone, w)
			}
		}
	}
	if waits && gone == nil {
		return
	}
	x.flaw("cancel", name, func() {
		for _, w := range gone {
			x.acknowledge(name, w)
		}
		if !waits {
			x.remove(x.canceled, name)
			x.expire(record, 60_000)
		}
	})
}

// record judges how long a record stays: for a while, once its cancel is over.
func (x *examination) record(name string) {
	record := x.cancel + name
	v := x.keys[record]
	if !x.is(record, "hash") || !x.exists(record) {
		return
	}
	if _, logged := x.score(x.canceled, name); logged == v.expires.IsZero() {
		return
	}
	x.flaw("ttl", name, func() {
		if v.expires.IsZero() {
			x.expire(record, 60_000)
		} else {
			x.persist(record)
		}
	})
}

// overall judges the queue as a whole.
func (x *examination) overall(name string) {
	if _, ok := x.lastToken(); !ok {
		x.tell("token", name, false, "")
	}
	if !x.is(x.waiting, "list") {
		return
	}
	switch n := x.fields(x.unique); {
	case n == 1 && x.locks:
		x.flaw("leftover", "unique", func() {}) // it goes with the end of the call
	case n > 0 && !x.locks:
		x.flaw("lock", "offset", func() { x.set(x.unique, "offset", 0) })
	}
	if x.counting && x.waits() == 0 && !x.keyed && x.size(x.contents) == 0 && len(x.holders()) == 0 {
		x.flaw("ledger", name, func() { x.del(x.ledger) })
	}
	ready := x.waits() + x.due()
	if ready > 0 && x.isPaused() {
		x.tell("paused", name, false, text(ready))
	}
	if ready > 0 && !x.served {
		x.tell("unserved", name, false, text(ready))
	}
}
