package spec

import "strings"

// takeFrom starts, or continues, the return of what a worker holds.
func (x *examination) takeFrom(worker string) {
	returned, _, _ := x.takeBack([]string{worker})
	x.back += returned
	x.gaveBack = true
}

// orphan judges a process with a list: a worker holds it. Its token is lost, so it is given back with one that
// no cancel covers.
func (x *examination) orphan(id string) {
	holder := x.holder(id)
	if _, seen := x.payload(id); seen != there || holder != "" {
		return
	}
	token, known := x.lastToken()
	if !known {
		token = never
	}
	mended := x.mend && x.giveBack(x.working, id, max(token, 1)+1, 0, x.keyed) == done
	x.back += bit(mended)
	x.gaveBack = true
	x.tell("orphan", id, mended, "")
}

// lost judges what a worker holds: its list exists. Its end clears it.
func (x *examination) lost(id string) {
	_, held := x.score(x.working+x.worker, id)
	if _, seen := x.payload(id); held && seen == missing {
		x.tell("no-payload", id, false, "")
	}
}

// twice judges what the worker and another one hold, process:other. The later start stays, unless its worker
// isn't a member.
func (x *examination) twice(name string) {
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

// holds judges a worker that holds something: its tokens have been given out, and it is a member, or being
// returned.
func (x *examination) holds(worker string) {
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
	if !x.isMember(worker) && !x.leaves(worker) {
		x.flaw("non-member", worker, func() {
			x.add(x.suspects, worker, -1) // whether it died is unknown
			x.takeFrom(worker)
		})
	}
}

// lapsed judges a member, deadline:worker, when no other worker can. One that has
// renewed its lease since that deadline was read isn't evicted.
func (x *examination) lapsed(name string) {
	seen, worker, _ := strings.Cut(name, ":")
	score, member := x.score(x.workers, worker)
	if !member || x.served {
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

// suspected judges a suspect: it is a member, or its return is in progress.
func (x *examination) suspected(worker string) {
	mark, suspected := x.score(x.suspects, worker)
	switch {
	case !suspected:
	case mark > 0 && !x.isMember(worker):
		x.flaw("leftover", worker, func() { x.remove(x.suspects, worker) })
	case mark <= 0 && !x.served:
		x.flaw("unfinished-return", worker, func() { x.takeFrom(worker) })
	}
}

// idles judges one of the idle workers: it is a member.
func (x *examination) idles(worker string) {
	if x.is(x.idle, "zset") && x.rank(x.idle, worker) >= 0 && !x.isMember(worker) {
		x.flaw("leftover", worker, func() { x.remove(x.idle, worker) })
	}
}

// numbered judges a worker with a round number: it is a member, or the fence beside one.
func (x *examination) numbered(worker string) {
	_, known := x.field(x.rounds, worker)
	if known && !x.isMember(worker) && (worker != "fence" || x.fields(x.rounds) == 1) {
		x.flaw("leftover", worker, func() {
			x.unset(x.rounds, worker)
			x.endJoins()
		})
	}
}
