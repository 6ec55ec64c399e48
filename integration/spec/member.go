package spec

import (
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

func init() {
	verbs["join"] = join
	verbs["beat"] = of(beat)
	verbs["leave"] = of(leave)
	verbs["fail"] = of(fail)
	verbs["sweep"] = of(sweep)
}

var evicted = Refusal("EVICTED the worker is not a member of the queue")

func join(s *Store, c store.Call, at time.Time) any {
	workers, suspects, rounds, worker := c.Key("workers"), c.Key("suspects"), c.Key("rounds"), c.Arg("worker")
	mark, suspected := s.score(suspects, worker)
	_, member := s.score(workers, worker)
	last, _ := integer(s.word(rounds, worker))
	q := &queue{Store: s, rounds: rounds, token: c.Key("token"), now: at.UnixMilli()}
	_, numeric := q.lastToken()
	asked, _ := integer(c.Arg("asked"))
	first, _ := integer(c.Arg("round"))
	fence := q.lastFence()
	switch {
	case !numeric:
		return Refusal("WRONGTYPE the token counter is not a number")
	case suspected && mark <= 0 && s.has(JoinMark):
		return Refusal("EVICTED the worker was evicted or has left")
	case member && last >= first && s.has(JoinCopies):
		return 1
	case asked < fence && s.has(JoinFence):
		return 0
	}
	s.remove(suspects, worker)
	s.add(workers, worker, q.deadline(number(c.Arg("lease"))))
	s.set(rounds, "fence", fence, worker, first)
	if lease, longest := number(c.Arg("lease")), s.count(rounds, "lease"); lease > longest {
		s.set(rounds, "lease", lease)
	}
	return 1
}

// lastFence returns the token when the last worker left.
func (q *queue) lastFence() int64 {
	token, _ := q.lastToken()
	if !q.exists(q.rounds) {
		return token
	}
	fence, _ := integer(q.word(q.rounds, "fence"))
	return min(fence, token)
}

// endJoins invalidates all joins that were sent before.
func (q *queue) endJoins() {
	token, ok := q.lastToken()
	if !ok || !q.is(q.rounds, "hash") {
		return
	}
	q.put(q.token, text(token+1))
	if q.numbered() > 0 {
		q.set(q.rounds, "fence", token+1)
	} else {
		q.del(q.rounds)
	}
}

// numbered returns how many workers have a round number.
func (q *queue) numbered() int {
	_, fenced := q.field(q.rounds, "fence")
	_, leased := q.field(q.rounds, "lease")
	return q.fields(q.rounds) - bit(fenced) - bit(leased)
}

// fence keeps workers from changing anything anymore.
func (q *queue) fence(mark int64, workers ...string) {
	for _, worker := range workers {
		q.add(q.suspects, worker, mark)
		if q.scheduled && q.is(q.idle, "zset") {
			if score, ok := q.score(q.idle, worker); ok && score >= clock {
				q.earlier = true
			}
		}
		if q.has(FenceFirst) {
			q.remove(q.workers, worker)
		}
		if q.is(q.idle, "zset") {
			q.remove(q.idle, worker)
		}
		if !q.has(ReturnHolds) {
			q.holdsNothing(worker)
		}
		if q.has(FenceForgets) && q.is(q.rounds, "hash") {
			q.unset(q.rounds, worker)
		}
	}
	q.endJoins()
}

// takeBack returns a page of the tasks of fenced workers, the newest first.
func (q *queue) takeBack(workers []string) (returned, handled, left int) {
	type held struct {
		working, id string
		token, died int64
	}
	var all []held
	for _, w := range workers {
		working, died := q.working+w, int64(0)
		if mark, ok := q.score(q.suspects, w); ok && mark == 0 {
			died = 1
		}
		if !q.is(working, "zset") {
			continue
		}
		newest := q.all(working)
		if q.has(NewestFirst) {
			slices.Reverse(newest)
		}
		for _, r := range newest[:min(len(newest), q.Returns)] {
			all = append(all, held{working, r.name, int64(r.score), died})
		}
	}
	slices.SortStableFunc(all, func(a, b held) int {
		if !q.has(NewestFirst) {
			a, b = b, a
		}
		return int(b.token - a.token)
	})
	enough := q.carried + atOnceBytes
	for _, h := range all[:min(len(all), q.Returns)] {
		if q.carried >= enough {
			break
		}
		switch q.giveBack(h.working, h.id, h.token, h.died, q.keyed) {
		case done:
			returned++
			handled++
		case gone:
			handled++
		}
	}
	for _, w := range workers {
		working := q.working + w
		switch {
		case !q.is(working, "zset"):
			left++
		case q.size(working) > 0:
			left += q.size(working)
		default:
			if q.has(ReturnEnds) {
				q.holdsNothing(w)
			}
			q.remove(q.suspects, w)
		}
	}
	return returned, handled, left
}

// returning returns a page of the workers whose tasks are being returned.
func (q *queue) returning() (all []string) {
	for _, r := range q.between(q.suspects, -inf, 0) {
		all = append(all, r.name)
	}
	return all[:min(len(all), atOnceWorkers)]
}

// goOn continues returns in progress. open reports whether other tasks may start.
func (q *queue) goOn() (open, again bool) {
	workers := q.returning()
	if len(workers) == 0 {
		return true, false
	}
	returned, handled, _ := q.takeBack(workers)
	q.wakes(q.idle, q.wake, returned)
	again = handled > 0 && len(q.returning()) > 0
	return !again, again
}

// look marks workers whose lease has expired as suspects, and evicts the suspects that were marked
// a grace period ago.
func (q *queue) look(grace int64, judge bool) []any {
	ahead := q.suspectAhead(grace)
	lapsed, more := q.suspect(grace, ahead)
	if lapsed+ahead == 0 && !q.suspecting() {
		return []any{[]any{}, 0, 0, -1}
	}
	failed := []any{}
	var dead []string
	back, due := 0, 0
	for _, r := range q.between(q.suspects, 0, float64(q.now)) {
		if r.score <= 0 || due == atOnceFences {
			continue
		}
		due++
		if deadline, ok := q.score(q.workers, r.name); (!ok || deadline >= float64(q.now) && !q.isAhead(deadline)) && q.has(HeardOf) {
			q.remove(q.suspects, r.name)
			back++
		} else if judge {
			dead = append(dead, r.name)
			held := 0
			if q.is(q.working+r.name, "zset") {
				held = q.size(q.working + r.name)
			}
			failed = append(failed, r.name, held)
		}
	}
	if len(dead) > 0 {
		q.fence(0, dead...)
	}
	more = more || due == atOnceFences && (judge || back > 0)
	returned, handled, left := 0, 0, 0
	if !judge || due < atOnceFences {
		some := dead
		if q.has(Resumes) {
			some = q.returning()
		}
		returned, handled, left = q.takeBack(some)
	}
	q.alert(&q.lane, returned)
	return []any{failed, returned, bit(more || left > 0 && handled > 0), q.nextSuspect()}
}

// suspect marks a page of the workers whose lease has expired; ahead others are suspects for another reason. It
// returns how many have expired, and whether there are more to mark.
func (q *queue) suspect(grace int64, ahead int) (_ int, more bool) {
	lapsed := q.between(q.workers, -inf, float64(q.now-1))
	if len(lapsed) == 0 {
		return 0, false
	}
	noted := 0
	for _, r := range q.between(q.suspects, 0, inf) {
		noted += bit(r.score > 0)
	}
	noted = max(noted-ahead, 0)
	from, most := noted, atOnceSuspects
	if noted >= len(lapsed) {
		from, most = 0, 20
	}
	for _, r := range lapsed[from:min(len(lapsed), from+most)] {
		if _, ok := q.score(q.suspects, r.name); !ok {
			mark := q.now + grace
			if !q.has(Graced) {
				mark = q.now
			}
			q.add(q.suspects, r.name, mark)
		}
	}
	return len(lapsed), len(lapsed) > max(noted, from+most)
}

// nextSuspect returns in how many ms the next suspect will be evicted; -1 if there is none.
func (q *queue) nextSuspect() int64 {
	for _, r := range q.between(q.suspects, 0, inf) {
		if r.score > 0 {
			return max(int64(r.score)-q.now, 0)
		}
	}
	return -1
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

func beat(q *queue, c store.Call) any {
	worker := c.Arg("worker")
	lease, grace := number(c.Arg("lease")), number(c.Arg("grace"))
	until, _ := integer(c.Arg("judge"))
	deadline, member := q.score(q.workers, worker)
	if !member && q.has(BeatMembers) {
		return evicted
	}
	held := q.size(q.working + worker)
	there := q.exists(q.waiting) || q.exists(q.working+worker) || q.exists(q.ages)
	q.remove(q.suspects, worker)
	q.add(q.workers, worker, q.deadline(lease))

	found := []any{[]any{}, 0, 0, -1}
	if !q.broken {
		entitled := until > 0 && (until >= q.now || !q.has(JudgeUntil)) && until-q.now <= 2*grace
		trusted := (deadline >= float64(q.now) || !q.has(LapsedJudges)) && (lease == 0 || deadline <= float64(q.now+lease))
		found = q.look(grace, entitled && trusted)
		q.trimLog()
	}
	waiting := 0
	if there || found[1] != 0 {
		waiting = q.waits()
	}
	waiting += q.ready()
	rank := -1
	if q.is(q.idle, "zset") {
		rank = q.rank(q.idle, worker)
	}
	last := int64(0)
	if held > 0 && q.is(q.holders, "zset") {
		if _, known := q.score(q.holders, worker); !known {
			q.add(q.holders, worker, 0)
		}
	}
	if held == 0 && q.canceling {
		q.holdsNothing(worker)
	}
	if held > 0 && q.canceling {
		token, _ := q.lastToken()
		if all := q.between(q.canceled, -inf, float64(token)); len(all) > 0 {
			last = int64(all[len(all)-1].score)
		}
		if q.is(q.holders, "zset") {
			if said, _ := q.score(q.holders, worker); int64(said) >= last {
				last = 0
			}
		}
	}
	return append([]any{bit(deadline < float64(q.now)), waiting, held, rank, last}, append(found, q.now, int64(deadline), 0)...)
}

func leave(q *queue, c store.Call) any {
	q.mustBeIntact()
	last, _ := integer(q.word(q.rounds, c.Arg("worker")))
	if round, _ := integer(c.Arg("round")); last > round && q.has(LeaveNumber) {
		return []any{0, 0}
	}
	wasFailed := q.failed(c.Arg("worker"))
	if wasFailed || !q.end(c.Arg("worker"), -1) {
		if asked, _ := integer(c.Arg("asked")); (wasFailed || q.lastFence() > asked) && q.has(SpentIDs) {
			return evicted
		}
		if q.has(LeaveFences) {
			q.endJoins()
		}
		return []any{0, 0}
	}
	returned, _, left := q.takeAll(c.Arg("worker"))
	return []any{returned, left}
}

func fail(q *queue, c store.Call) any {
	q.mustBeIntact()
	known := q.isReturning(c.Arg("worker"))
	if c.Arg("begin") == "1" {
		known = q.end(c.Arg("worker"), 0)
	}
	if !known {
		return []any{0, 0, 0, 0}
	}
	returned, handled, left := q.takeAll(c.Arg("worker"))
	return []any{1, returned, handled, left}
}

// takeAll returns the tasks of a removed worker, and ends the call.
func (q *queue) takeAll(worker string) (returned, handled, left int) {
	returned, handled, left = q.takeBack([]string{worker})
	q.trimLog()
	q.alert(&q.lane, returned)
	return returned, handled, left
}

// end fences a member. It reports whether the worker was a member, or its tasks are being returned.
func (q *queue) end(worker string, mark int64) bool {
	leaves := q.isReturning(worker)
	if q.isMember(worker) {
		q.fence(mark, worker)
		return true
	}
	return leaves
}

func (q *queue) isMember(worker string) bool {
	_, member := q.score(q.workers, worker)
	return member
}

// failed reports whether the worker was evicted and its tasks are still being returned.
func (q *queue) failed(worker string) bool {
	at, suspected := q.score(q.suspects, worker)
	return !q.isMember(worker) && suspected && at == 0
}

// isReturning reports whether the tasks of a worker are being returned.
func (q *queue) isReturning(worker string) bool {
	at, suspected := q.score(q.suspects, worker)
	return suspected && at <= 0
}

func sweep(q *queue, c store.Call) any {
	q.mustBeIntact()
	found := q.look(number(c.Arg("grace")), true)
	q.trimLog()
	return found
}
