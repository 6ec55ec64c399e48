package spec

import (
	"fmt"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// details are the optional parts of the reply about a started task.
type details struct {
	due           int64
	card, failure string
	value         string // the field in entries of an added task
}

// tell adds a started task to the reply.
func (r *round) tell(payload string, token int64, entry string, retries, crashes int64, a details) {
	var more any = a.value
	byKey := entry != "" && r.names[payload] == digest(entry)
	size := 0
	if r.brief && len(payload) > 256<<10 {
		payload, size = "", len(payload)
	}
	if a.value != "" {
		entry = a.value
	}
	if (entry != "" || crashes > 0) && a.value == "" || size > 0 {
		var failure any = ""
		if entry != "" && r.failed == nil && a.value == "" {
			failure = append([]any{entry, payload}, r.failureOf(r.entry+entry)...)
		}
		more = []any{entry, retries, crashes, failure, size, a.due, a.card, a.failure, int64(bit(byKey))}
	}
	r.started = append(r.started, payload, token, more)
}

// failureOf returns what an entry of a failed queue stores about its failure.
func (s *Store) failureOf(key string) (fields []any) {
	for _, f := range []struct{ name, none string }{
		{"kind", ""}, {"reason", ""}, {"tries", "0"}, {"deaths", "0"}, {"worker", ""}, {"at", "0"}, {"from", ""}, {"planned", "0"},
	} {
		v, ok := s.field(key, f.name)
		if !ok {
			v = f.none
		}
		fields = append(fields, v)
	}
	return fields
}

// otherID makes an id that no process has from the last one.
func (r *round) otherID() string {
	if r.final == len(r.ids) {
		r.final--
	}
	r.others++
	return fmt.Sprintf("%s.%03d", r.ids[len(r.ids)-1], r.others)
}

// risky reports whether to leave a task to other workers: it's one crash away from failing, and
// this round may start only one such task. read is how many bytes of its payload had to be read and
// hashed.
func (r *round) risky(crashes int64, read int) bool {
	if r.most == 0 || crashes < max(r.most-1, 1) || crashes >= r.most && (r.failed == nil || r.buries(r.failed)) {
		return false
	}
	if r.solo {
		r.solo = false
		return false
	}
	r.pass(costPassed + int64(2*read/bytesOfMicro))
	return true
}

func (r *round) pass(cost int64) {
	r.skipped++
	r.passing += cost
	r.spent += cost
}

// deadly moves a task to the failed queue, and returns true, if too many workers have died holding
// it.
func (r *round) deadly(payload, entry string, retries, crashes int64, card, turn string, due int64) bool {
	if r.most == 0 || crashes < r.most {
		return false
	}
	if r.failed != nil && !r.buries(r.failed) {
		r.trouble = "WRONGTYPE a key of the failed queue is of another type"
		return false
	}
	id := r.otherID()
	if r.failed != nil {
		reason := fmt.Sprint(crashes, " workers died holding it")
		r.addFailed(r.failed, r.worker, id, failure{payload, entry, "crashed", reason, retries, crashes, card, turn, due})
		r.keepResult(entry, card, store.EndFailed, reason, "")
	} else {
		r.putAside("r:"+id, payload, retries, crashes)
	}
	r.unstarted++
	r.gaveUp = true
	r.spent += costUnstarted + int64(len(payload)/bytesOfMicro)
	return true
}

// The costs of starting tasks, in µs: a copy of COST in step.lua. TestCosts compares them.
const (
	costPlain     = 4
	costWatched   = 10
	costEntry     = 25
	costPassed    = 4
	costUnstarted = 50
	bytesOfMicro  = 400
	cardOfMicro   = 100
)

func (r *round) spend(cost int64, payload, card string) {
	r.spent += cost + int64(len(payload)/bytesOfMicro) + int64(len(card)/cardOfMicro)
	if r.first >= len(r.ids)-r.ahead {
		r.space -= int64(len(payload) + len(card))
	}
}

// goesOn reports whether the next id may be used.
func (r *round) goesOn() bool { return r.first < r.final && r.spent < r.budget && r.space > 0 }

// begin gives a token to a task that was taken from where it waited.
func (r *round) begin(payload, entry string, retries, crashes int64, a details) {
	cost := int64(costWatched)
	if entry != "" && a.value == "" {
		cost = costEntry
	}
	r.spend(cost, payload, a.card)
	if crashes > 0 {
		r.final = min(r.final, len(r.ids)-r.ahead)
	}
	r.token++
	r.add(r.working, r.ids[r.first], r.token)
	r.first++
	r.tell(payload, r.token, entry, retries, crashes, a)
}

// passAtMost is the most entries that a round passes over. If that costs at least remembered µs,
// the next round continues behind them.
const (
	passAtMost = 200
	remembered = 200
)

// knows skips the entries that earlier rounds have passed over, if no new ones precede them.
func (r *round) knows(passed int, last string, first int64) {
	if !r.scheduled || passed == 0 {
		return
	}
	all := r.all(r.schedule)
	place := slices.IndexFunc(all, func(e ranked) bool { return e.name == last })
	if place >= 0 && place < passed && all[0].score >= float64(first) {
		r.known = place + 1
	}
}

// fromEntries starts due entries of the schedule, page by page. Entries left to other workers stay
// at the head.
func (r *round) fromEntries(wanted int) {
	if !r.scheduled {
		return
	}
	var page []ranked
	size := min(wanted, passAtMost)
	read, got := 0, 0 // entries that the page should have, and has
	for cleared := 0; r.goesOn() && r.others < 999 && cleared < 500; {
		if len(page) == 0 {
			if read > 0 && got < read || r.skipped >= passAtMost {
				break
			}
			from := r.known + r.skipped
			if read == 0 && r.solo && r.known > 0 {
				from, read = 0, 1
				r.known--
			} else {
				read = size
			}
			all := r.all(r.schedule)
			page = append([]ranked{}, all[min(from, len(all)):min(from+read, len(all))]...)
			if got = len(page); got == 0 {
				break
			}
		}
		if page[0].score > float64(r.now) {
			break
		}
		entry, score := page[0].name, page[0].score
		page = page[1:]
		if cleared += r.startEntry(entry, int64(score)); r.final < r.first {
			break
		}
	}
	r.prefix = []any{0, "", "0"}
	worth := r.known > 0 || r.passing >= remembered || r.skipped > 0 && r.spent >= r.budget
	if all := r.all(r.schedule); worth && r.known+r.skipped > 0 && r.known+r.skipped <= len(all) {
		r.prefix = []any{r.known + r.skipped, all[r.known+r.skipped-1].name, text(int64(all[0].score))}
	}
}

// startEntry starts the task of an entry if it may start. It returns 1 if it only took the entry
// from the head of the schedule, and otherwise 0.
func (r *round) startEntry(entry string, due int64) int {
	key := r.entry + entry
	var payload, card, failed string
	var waits bool
	var retries, crashes int64
	if r.is(key, "hash") {
		payload, waits = r.field(key, "payload")
		retries, crashes = r.count(key, "retries"), r.count(key, "crashes")
		card, failed = r.word(key, "card"), r.word(key, "error")
	} else {
		r.trouble = string(wrongType)
	}
	r.forget()
	if waits {
		r.named(&r.lane, entry, payload)
	}
	read := 0
	if waits && !isKey(entry) {
		if _, named := r.names[payload]; !named && r.counting {
			read = len(payload)
		}
		crashes = r.crashes(payload)
	}
	if turn := r.turn(entry); turn != "" { // an occurrence is due at its own time, whatever the entry's time
		due = number(turn)
	}
	switch {
	case !waits:
		r.remove(r.schedule, entry) // Redis has lost the entry
		r.spent += costPassed
		return 1
	case r.failed != nil && r.isOver(card):
		if r.expire(payload, entry, retries, crashes, card, r.turn(entry), due) {
			r.skip(entry, "expired", false)
		} else {
			r.pass(costPassed)
		}
	case r.stays(entry):
		r.spent += costEntry
		return 1
	case r.failed == nil && r.most > 0 && crashes >= r.most:
		r.putAside(entry, payload, retries, crashes)
		r.gaveUp = true
		r.spent += costUnstarted + int64(len(payload)/bytesOfMicro)
		return 1
	case crashes > 0 && r.first >= len(r.ids)-r.ahead:
		r.final = r.first // it isn't prefetched either
	case r.risky(crashes, read):
	case r.deadly(payload, entry, retries, crashes, card, r.turn(entry), due):
		r.skip(entry, "crashed", false)
		if !isKey(entry) {
			r.forgetCrashes(payload)
			r.moveLock(payload, "e:"+entry, "")
		}
	default:
		r.beginEntry(payload, entry, retries, crashes, details{due: due, card: card, failure: failed})
	}
	return 0
}

// beginEntry starts the task of an entry. If the task is an occurrence, beginEntry plans the next
// one.
func (r *round) beginEntry(payload, entry string, retries, crashes int64, a details) {
	id, turn := r.ids[r.first], r.turn(entry)
	r.queue.started(entry, id, payload, r.worker, retries, crashes, a.card)
	r.moveLock(payload, "e:"+entry, "p:"+id)
	r.begin(payload, entry, retries, crashes, a)
	if turn != "" {
		if r.has(OccursOnce) {
			r.queue.pass(entry, a.due)
		}
		if r.has(OccursNext) {
			r.follow(entry, true)
		}
	}
}

// fromList starts the tasks on the list.
func (r *round) fromList() {
	simple := !r.counting && !r.locks // only the payloads matter
	for r.goesOn() && (simple || r.others < 999) {
		id := r.ids[r.first]
		if !r.is(r.waiting, "list") || r.length(r.waiting) > 0 && !r.is(r.process+id, "list") {
			r.trouble = string(wrongType)
			return
		}
		payload, ok := r.popFront(r.waiting)
		if !ok {
			r.empty = true
			return
		}
		r.push(r.process+id, payload)
		r.drift--
		if simple {
			r.spend(costPlain, payload, "")
			r.token++
			r.add(r.working, id, r.token)
			r.first++
			r.plain = append(r.plain, payload)
			continue
		}
		r.forget()
		crashes := r.crashes(payload)
		if r.locks {
			r.takeLock(payload, id)
		}
		switch {
		case crashes == 0:
			r.begin(payload, "", 0, 0, details{})
		case r.risky(crashes, len(payload)):
			entry := "r:" + r.otherID()
			r.del(r.process + id)
			r.moveLock(payload, "p:"+id, "e:"+entry)
			r.await(&r.lane, entry, payload, r.now, 0, 0, "")
			r.set(r.lane.entry+entry, "digest", r.digest(payload))
			r.plan(&r.lane, entry, r.now)
			r.moved++
			r.spent += costEntry
		case r.deadly(payload, "", 0, crashes, "", "", 0):
			r.del(r.process + id)
			r.forgetCrashes(payload)
			r.moveLock(payload, "p:"+id, "")
		default:
			r.begin(payload, "", 0, crashes, details{})
		}
	}
}
