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
	worker   string // the holder of the processes
	prefix   string // start of the key of a batch
	alive    bool   // a worker with an unexpired lease serves the queue
	returned int    // tasks returned to the front of the list
	gaveBack bool   // a process may have ended
	retries  int    // entries that wait for a retry
	flaws    []any
}

// judges has a function for each kind of name, which checks one thing. The functions have the names
// and the order of those in check.lua. check_entry.go and check_lock.go continue this file.
var judges = map[string]func(*examination, string){
	"process": (*examination).judgeProcess, "held": (*examination).judgeHeld, "twice": (*examination).judgeTwice,
	"working": (*examination).judgeWorking, "member": (*examination).judgeMember, "suspect": (*examination).judgeSuspect,
	"idle": (*examination).judgeIdle, "round": (*examination).judgeRound, "running": (*examination).judgeRunning,
	"entry": (*examination).judgeEntry, "scheduled": (*examination).judgeScheduled, "added": (*examination).judgeAdded,
	"content": (*examination).judgeContent, "lock": (*examination).judgeLock, "holder": (*examination).judgeHolder,
	"stopping": (*examination).judgeStopping, "canceled": (*examination).judgeCanceled, "record": (*examination).judgeRecord,
	"batch": (*examination).judgeBatch, "recurring": (*examination).judgeRecurring, "result": (*examination).judgeResult,
	"queue": (*examination).judgeQueue,
}

func check(q *queue, c store.Call) any {
	q.mustBeIntact()
	x := &examination{queue: q, mend: c.Arg("mend") == "1", worker: c.Arg("worker"), prefix: c.Arg("batch"), alive: q.alive() > len(q.tooLong()), flaws: []any{}}
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
		q.alert(&q.lane, x.returned)
	}
	return []any{x.flaws, judged, x.retries}
}

func (x *examination) tell(kind, name string, mended bool, detail string) {
	x.flaws = append(x.flaws, []any{kind, name, bit(mended), detail})
}

// flaw reports a flaw. With mend, it repairs it first.
func (x *examination) flaw(kind, name string, cure func()) {
	if x.mend {
		cure()
	}
	x.tell(kind, name, x.mend, "")
}

// A sight says what a key has where something should be.
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

// withoutTurn returns the entry of an occurrence.
func withoutTurn(from string) string {
	if i := strings.LastIndexByte(from, '@'); i >= 0 && i+1 < len(from) && strings.Trim(from[i+1:], "0123456789") == "" {
		return from[:i]
	}
	return from
}

// digestIn returns the digest of the payload that waits in an entry. If the payload is larger than
// a mebibyte, digestIn trusts the digest in the entry instead of hashing the payload. It also
// trusts the digest of the entry's name, or of the name that the entry had before it failed: such a
// task is known only by its key.
func (x *examination) digestIn(payload, entry string) string {
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

// endEntry ends the running part of an entry. If the task that waited for that has no due time,
// it's due now.
func (x *examination) endEntry(entry, id string) {
	key := x.entry + entry
	_, timed := integer(x.word(key, "due"))
	if _, waits := x.field(key, "payload"); waits && !timed {
		x.set(key, "due", x.now)
	}
	x.ended(entry, id, "lost")
}

// takeFrom returns a page of the tasks that a worker holds.
func (x *examination) takeFrom(worker string) {
	returned, _, _ := x.takeBack([]string{worker})
	x.returned += returned
	x.gaveBack = true
}

// judgeProcess checks that a worker holds each processing list. The token of an orphan is lost, so
// it's returned with one that no cancel covers.
func (x *examination) judgeProcess(id string) {
	holder := x.holder(id)
	if _, seen := x.payload(id); seen != there || holder != "" {
		return
	}
	token, known := x.lastToken()
	if !known {
		token = never
	}
	mended := x.mend && x.giveBack(x.working, id, max(token, 1)+1, 0, x.keyed) == done
	x.returned += bit(mended)
	x.gaveBack = true
	x.tell("orphan", id, mended, "")
}

// judgeHeld checks that a process that a worker holds has its list. If not, the worker will end it.
func (x *examination) judgeHeld(id string) {
	_, held := x.score(x.working+x.worker, id)
	if _, seen := x.payload(id); held && seen == missing {
		x.tell("no-payload", id, false, "")
	}
}

// judgeTwice checks that not both the worker and another one hold a process. The name is
// process:other. The later start wins, unless only the other worker is a member.
func (x *examination) judgeTwice(name string) {
	id, other, _ := strings.Cut(name, ":")
	if !x.is(x.working+x.worker, "zset") || !x.is(x.working+other, "zset") {
		return
	}
	mine, first := x.score(x.working+x.worker, id)
	theirs, second := x.score(x.working+other, id)
	if !first || !second {
		return
	}
	goes := other
	if member := x.isMember(x.worker); member != x.isMember(other) {
		if !member {
			goes = x.worker
		}
	} else if mine < theirs {
		goes = x.worker
	}
	if x.mend {
		x.remove(x.working+goes, id)
		if !x.exists(x.working + goes) {
			x.holdsNothing(goes)
		}
	}
	x.tell("two-owners", id, x.mend, goes)
}

// judgeWorking checks that a worker that holds something is a member, or that its tasks are being
// returned; that it's listed as a holder; and that its tokens were issued.
func (x *examination) judgeWorking(worker string) {
	if !x.is(x.working+worker, "zset") || x.size(x.working+worker) == 0 {
		return
	}
	held := x.all(x.working + worker)
	highest := int64(held[len(held)-1].score)
	if token, known := x.lastToken(); known && highest > token {
		x.flaw("token", worker, func() {
			x.put(x.token, text(highest))
			x.drift += highest - token
		})
	}
	if x.is(x.holders, "zset") {
		if _, known := x.score(x.holders, worker); !known {
			x.flaw("cancel", worker, func() { x.add(x.holders, worker, 0) })
		}
	}
	if !x.isMember(worker) && !x.isReturning(worker) {
		x.flaw("non-member", worker, func() {
			x.add(x.suspects, worker, -1) // not 0: it's unknown whether it died
			x.takeFrom(worker)
		})
	}
}

// judgeMember evicts a member if no member has an unexpired lease. The name is deadline:worker: a
// worker that has renewed its lease since the caller read that deadline isn't evicted.
func (x *examination) judgeMember(name string) {
	seen, worker, _ := strings.Cut(name, ":")
	score, member := x.score(x.workers, worker)
	if !member || x.alive && !x.isAhead(score) {
		return
	}
	deadline := text(int64(score))
	fails := x.mend && seen == deadline
	if fails {
		x.fence(0, worker)
		x.takeFrom(worker)
	}
	x.tell("expired-worker", worker, fails, deadline)
}

// judgeSuspect checks that a suspect is a member, or that a live worker is returning its tasks.
func (x *examination) judgeSuspect(worker string) {
	mark, suspected := x.score(x.suspects, worker)
	switch {
	case !suspected:
	case mark > 0 && !x.isMember(worker):
		x.flaw("leftover", worker, func() { x.remove(x.suspects, worker) })
	case mark <= 0 && !x.alive:
		x.flaw("unfinished-return", worker, func() { x.takeFrom(worker) })
	}
}

// judgeIdle checks that an idle worker is a member.
func (x *examination) judgeIdle(worker string) {
	if x.is(x.idle, "zset") && x.rank(x.idle, worker) >= 0 && !x.isMember(worker) {
		x.flaw("leftover", worker, func() { x.remove(x.idle, worker) })
	}
}

// judgeRound checks that a worker with a round number is a member. The fence stays while others are
// there.
func (x *examination) judgeRound(worker string) {
	_, known := x.field(x.rounds, worker)
	if known && !x.isMember(worker) && (worker != "fence" && worker != "lease" || x.numbered() == 0) {
		x.flaw("leftover", worker, func() {
			x.unset(x.rounds, worker)
			x.endJoins()
		})
	}
}
