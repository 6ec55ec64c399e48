package spec

import (
	"cmp"
	"time"

	"github.com/worqr/worqr/internal/store"
)

func init() {
	verbs["enqueue"] = enqueue
	verbs["enqueue_once"] = enqueueOnce
	verbs["remove"] = of(remove)
	verbs["put"] = of(put)
	verbs["requeue"] = of(requeue)
	verbs["resume"] = of(resume)
	verbs["delete"] = of(deleteQueue)
}

// pushAll adds payloads to the back, and wakes a worker for each. It returns how many tasks waited
// before. alone reports whether none did, no worker was woken, and the queue has no members.
func (s *Store) pushAll(waiting, idle, workers, wake, observers string, payloads []string) (before int, alone bool) {
	before = s.length(waiting)
	s.push(waiting, payloads...)
	woken := s.wakes(idle, wake, len(payloads))
	s.Publish(observers, text(len(payloads)))
	return before, before+woken == 0 && !s.exists(workers)
}

func enqueue(s *Store, c store.Call, _ time.Time) any {
	before, alone := s.pushAll(c.Key("waiting"), c.Key("idle"), c.Key("workers"), c.Arg("wake"), c.Arg("enqueue"), c.Rest())
	if alone {
		return -1
	}
	return before
}

func enqueueOnce(s *Store, c store.Call, _ time.Time) any {
	if s.exists(c.Key("once")) {
		return 0
	}
	_, alone := s.pushAll(c.Key("waiting"), c.Key("idle"), c.Key("workers"), c.Arg("wake"), c.Arg("enqueue"), c.Rest())
	s.put(c.Key("once"), "1")
	s.expire(c.Key("once"), number(c.Arg("window")))
	return 1 + bit(alone)
}

func resume(q *queue, _ store.Call) any {
	q.mustBeIntact()
	q.del(q.paused)
	waiting := q.waits() + q.Store.entries(q.added)
	if q.scheduled {
		waiting += q.due()
		q.earlier = true
	}
	q.alert(&q.lane, waiting)
	return 1
}

func remove(q *queue, c store.Call) any {
	if _, waits := q.field(q.entry+c.Arg("entry"), "payload"); !waits && !q.adding {
		return 0
	}
	q.mustBeIntact()
	return bit(q.takeAway(c.Arg("entry"), store.EndRemoved))
}

// A rule bounds the time of a waiting task; two in a row combine into one.
type rule struct{ low, high int64 }

func ruleOf(when string, at int64) rule {
	switch when {
	case "never":
		return rule{0, never}
	case "later":
		return rule{at, never}
	case "earlier":
		return rule{0, at}
	}
	return rule{at, at} // always, unique
}

func (r rule) apply(time int64) int64 { return min(max(time, r.low), r.high) }

// An upcoming is the waiting task of a key.
type upcoming struct {
	payload               string
	due, retries, crashes int64
	rule                  rule
	keep, counts          bool // keep the payload; keep the counts
}

// upcoming returns the waiting task of a key.
func (q *queue) upcoming(key string) upcoming {
	high := int64(never)
	if f, ok := q.field(key, "high"); ok {
		high = number(f)
	}
	return upcoming{
		payload: q.word(key, "payload"), due: q.count(key, "due"), retries: q.count(key, "retries"), crashes: q.count(key, "crashes"),
		rule: rule{q.count(key, "low"), high}, keep: q.word(key, "keep") == "1", counts: q.word(key, "counts") == "1",
	}
}

// changed returns what u becomes when by is put under the same key.
func (u upcoming) changed(by upcoming) upcoming {
	by.due = by.rule.apply(u.due)
	by.rule = rule{by.rule.apply(u.rule.low), by.rule.apply(u.rule.high)}
	if by.keep {
		by.payload = u.payload
	}
	if by.counts {
		by.retries, by.crashes = u.retries, u.crashes
	}
	by.keep, by.counts = by.keep && u.keep, by.counts && u.counts
	return by
}

// dated returns a card with the enqueue time of its task.
func (q *queue) dated(card string) string {
	return card + "s" + text(len(text(q.now))) + ":" + text(q.now)
}

// carded sets the card of an entry, with its time, or removes it. The previous one is deleted.
func (q *queue) carded(entry, card string, waits bool) {
	key := q.entry + entry
	if waits && keepsFor(q.word(key, "held")) == 0 {
		q.keepReplaced(entry, q.word(key, "card"), card)
	}
	if card == "" {
		q.unset(key, "card")
		return
	}
	q.set(key, "card", q.dated(card))
}

// putBefore returns what a call with the same nonce has put, if there was one.
func (q *queue) putBefore(c store.Call) (first string, done bool) {
	if number(c.Arg("window")) == 0 {
		return "", false
	}
	return q.get(c.Key("once"))
}

// marks records what was put with a nonce.
func (q *queue) marks(c store.Call, entry string) {
	if window := number(c.Arg("window")); window > 0 {
		q.put(c.Key("once"), entry)
		q.expire(c.Key("once"), window)
	}
}

func put(q *queue, c store.Call) any {
	entry, payload := c.Arg("entry"), c.Arg("payload")
	keep, counts, key := c.Arg("keep") == "1", c.Arg("counts") == "1", q.entry+entry
	if mark, done := q.putBefore(c); done {
		return []any{0, mark}
	}
	q.mustBeIntact()
	q.lift(entry)
	waiting, waits := q.field(key, "payload")
	_, runs := q.field(key, "process")
	if c.Arg("when") == "unique" && (waits || runs) && q.has(Duplicate) {
		return Refusal("DUPLICATE an equal unique task is waiting or running")
	}
	at := cmp.Or(number(c.Arg("at")), q.now)
	is := upcoming{payload: payload, due: at, rule: ruleOf(c.Arg("when"), at), keep: keep, counts: keep || counts}
	moves := true
	if waits {
		was := q.upcoming(key)
		is = was.changed(is)
		moves = is.due != was.due
	}
	same := waits && keep
	changes := !waits || is.payload != waiting
	if waits && changes {
		q.named(&q.lane, entry, waiting)
		q.remove(q.contents, q.digest(waiting)+":"+entry)
		q.unset(key, "digest")
	}
	q.set(key, "payload", is.payload, "due", is.due, "retries", is.retries, "crashes", is.crashes)
	if changes {
		if c.Arg("by_key") == "1" {
			q.name(is.payload, digest(entry))
		}
		q.keepDigest(&q.lane, entry, is.payload)
		q.add(q.contents, q.digest(is.payload)+":"+entry, 0)
	}
	if !same && (waits || c.Arg("card") != "") { // one that Redis has lost leaves its card
		q.carded(entry, c.Arg("card"), waits)
	}
	if waits && !runs && !keep && !counts {
		q.unset(key, "error")
	}
	switch {
	case runs && q.has(Blocks):
		q.set(key, "keep", bit(is.keep), "counts", bit(is.counts), "low", is.rule.low, "high", is.rule.high)
	case moves:
		q.plan(&q.lane, entry, is.due)
		if !q.isPaused() {
			q.alert(&q.lane, 0)
		}
	}
	if !waits {
		q.Publish(c.Arg("enqueue"), "1")
	}
	q.marks(c, entry)
	if waits {
		return []any{0, ""}
	}
	return []any{1 + bit(!q.exists(q.waiting) && !q.exists(q.workers) && !q.exists(q.added) && q.size(q.contents) == 1), ""}
}

func requeue(q *queue, c store.Call) any {
	failed := failedQueue(c.Arg("head"), c.Arg("tail"), "")
	q.length(q.waiting)
	q.size(failed.schedule)
	q.size(failed.contents)
	q.mustBeIntact()
	requeued, looked, bytes := 0, 0, 0
	for _, entry := range c.Rest() {
		key, payload, waits, runs := failed.entry+entry, "", false, false
		if q.is(key, "hash") {
			payload, waits = q.field(key, "payload")
			_, runs = q.field(key, "process")
		}
		if bytes > 0 && bytes+len(payload) > 1<<20 {
			break
		}
		looked++
		from := ""
		if waits {
			from, _ = q.field(key, "from")
		}
		if !waits || runs || from != "" && q.exists(q.entry+from) {
			continue
		}
		bytes += len(payload)
		card := q.word(key, "card")
		q.unwait(failed, entry)
		if from == "" {
			q.push(q.waiting, payload)
		} else {
			q.await(&q.lane, from, payload, q.now, 0, 0, q.again(card))
			q.plan(&q.lane, from, q.now)
			q.forgetResult(from, card)
		}
		requeued++
	}
	if requeued > 0 {
		q.alert(&q.lane, requeued)
		q.Publish(c.Arg("enqueue"), text(requeued))
	}
	return []any{requeued, looked}
}

// deleteQueue drops waiting tasks.
func deleteQueue(q *queue, c store.Call) any {
	q.mustBeIntact()
	if c.Arg("list") == "1" {
		q.length(q.waiting) // refuses a key that isn't a list
		q.del(q.waiting)
		q.del(q.ledger)
		q.del(q.ages)
		q.Publish(c.Arg("delete"), "")
	}
	added, bytes := q.dropLine()
	members := q.all(q.contents)
	for _, m := range members[:min(len(members), 50)] {
		if bytes >= 1<<20 {
			break
		}
		of, entry := m.name[:min(40, len(m.name))], m.name[min(41, len(m.name)):]
		payload, _ := q.part(entry, "payload")
		bytes += len(payload)
		if keepsFor(q.cardInSchedule(entry)) > 0 {
			q.tellEnd(entry)
		}
		q.unwaitAs(&q.lane, entry, of)
		q.remove(q.contents, m.name)
	}
	return q.size(q.contents) + added
}
