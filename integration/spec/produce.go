package spec

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

func init() {
	verbs["enqueue"] = enqueue
	verbs["enqueue_once"] = enqueueOnce
	verbs["enqueue_unique"] = enqueueUnique
	verbs["rouse"] = rouse
	verbs["pause"] = pause
	verbs["cancel"] = of(cancel)
	verbs["cancel_key"] = of(cancelKey)
	verbs["remove"] = of(remove)
	verbs["put"] = of(put)
	verbs["requeue"] = of(requeue)
	verbs["resume"] = of(resume)
	verbs["delete"] = of(deleteQueue)
}

// pushAll adds payloads to the back and wakes as many workers. It tells how many waited
// before, and whether nothing did and nobody is there.
func (s *Store) pushAll(waiting, idle, workers, wake, observers string, payloads []string) (before int, alone bool) {
	before = s.length(waiting)
	s.push(waiting, payloads...)
	woken := s.wakes(idle, wake, len(payloads))
	s.publish(observers, text(len(payloads)))
	return before, before+woken == 0 && !s.exists(workers)
}

func enqueue(s *Store, c store.Call, _ time.Time) any {
	s.behind(c.Key("batches"))
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
	s.behind(c.Key("batches"))
	_, alone := s.pushAll(c.Key("waiting"), c.Key("idle"), c.Key("workers"), c.Arg("wake"), c.Arg("enqueue"), c.Rest())
	s.put(c.Key("once"), "1")
	s.expire(c.Key("once"), number(c.Arg("window")))
	return 1 + bit(alone)
}

func enqueueUnique(s *Store, c store.Call, _ time.Time) any {
	waiting, unique, payload := c.Key("waiting"), c.Key("unique"), c.Arg("payload")
	s.behind(c.Key("batches"))
	text_, _ := s.field(unique, "offset")
	offset, _ := integer(text_)
	gaps := s.size(c.Key("gaps"))
	if !s.has(GapPushed) {
		gaps = 0
	}
	items := s.items(waiting)
	q := &queue{Store: s, gaps: c.Key("gaps"), offset: offset}
	if where, locked := s.field(unique, digest(payload)); locked {
		place, waits := position(where)
		held := !waits
		if at := q.ahead(place); waits && at >= 0 && at < int64(len(items)) {
			held = items[at] == payload
		}
		if i := slices.Index(items, payload); !held && i >= 0 {
			s.set(unique, digest(payload), "w:"+text(q.at(int64(i))))
			held = true
		}
		if held && s.has(Duplicate) {
			return Refusal("DUPLICATE an equal unique task waits or runs")
		}
	}
	_, alone := s.pushAll(waiting, c.Key("idle"), c.Key("workers"), c.Arg("wake"), c.Arg("enqueue"), []string{c.Arg("payload")})
	s.set(unique, "offset", offset, digest(payload), "w:"+text(offset+int64(len(items)+gaps)))
	return 1 + bit(alone)
}

func rouse(s *Store, c store.Call, _ time.Time) any {
	return s.wakes(c.Key("idle"), c.Arg("wake"), int(number(c.Arg("count"))))
}

func pause(s *Store, c store.Call, _ time.Time) any {
	s.put(c.Key("paused"), "1")
	return 1
}

func resume(q *queue, _ store.Call) any {
	q.whole()
	q.del(q.paused)
	waiting := q.waits()
	if q.scheduled {
		waiting += q.due()
		q.earlier = true
	}
	q.alert(&q.lane, waiting)
	return 1
}

func cancel(q *queue, c store.Call) any {
	channel, payload := c.Arg("channel"), c.Arg("payload")
	said, _ := integer(c.Arg("left"))
	since, _ := integer(c.Arg("since"))
	left := int(said)
	after, last := c.Arg("after"), c.Arg("until")
	token := q.givesTokens()
	q.whole()
	name := digest(payload)
	q.fields(q.cancel + name)
	q.size(q.workers)
	q.size(q.holders)
	length := q.length(q.waiting)
	page := func(most, bytes int) int { return max(min(most, bytes/max(len(payload), 1)), 1) }
	first, listed := left < 0, left != 0
	switch {
	case first:
		left = length
	case left > 0 && q.has(BackCounted): // or as many have come back in any order
		left = max(left, int(token-since))
	}
	if !strings.HasPrefix(last, name+":") {
		last = ""
	}
	lock, _ := q.field(q.unique, name)
	if !q.locks {
		lock = ""
	}
	removed, unlocks := 0, false
	if left > 0 {
		most := q.Copies
		if q.locks {
			most = min(most, 150)
		}
		most = min(left, page(most, 4<<20))
		removed, unlocks = q.removeCopies(payload, lock, most)
		if left -= removed; removed < most {
			left, unlocks = 0, true
		}
	}
	if late := q.has(LateUntil); late && listed || !late && first {
		last = ""
		for _, m := range q.all(q.contents) {
			if (left == 0 || !late) && strings.HasPrefix(m.name, name+":") {
				last = m.name
			}
		}
	}
	if left == 0 && last != "" && removed < q.Entries {
		var n int
		n, after, last = q.removeEntries(payload, after, last, page(q.Entries, 256<<10))
		removed += n
	}
	q.unset(q.ledger, name)
	ends := left == 0 && last == ""
	switch kind, place, _ := strings.Cut(lock, ":"); kind {
	case "e":
		_, waits := q.score(q.contents, name+":"+place)
		unlocks = !waits
	case "w":
	default:
		unlocks = kind != "p" && ends
	}
	if lock != "" && unlocks && q.has(CancelUnlocks) {
		q.unset(q.unique, name)
	}
	q.keepOffset()

	token, stopped, finished, given := q.logPage(name, token, first, ends)
	if ends {
		message := payload
		if len(payload) > 1024 || large.MatchString(payload) {
			message = "sha1:" + name + ":" + text(len(payload))
		}
		q.publish(channel, message)
	}
	return []any{removed, token, stopped, finished, left, given, after, last}
}

// removeEntries removes a page of the entries that have a payload, behind one and up to
// another, and returns how many waited, and between which the rest are.
func (q *queue) removeEntries(payload, after, last string, most int) (removed int, _, _ string) {
	n, name := 0, digest(payload)
	for _, m := range q.all(q.contents) {
		entry, ok := strings.CutPrefix(m.name, name+":")
		if !ok || m.name <= after || m.name > last || n == most {
			continue
		}
		n++
		waits := false
		if q.is(q.entry+entry, "hash") {
			p, there := q.field(q.entry+entry, "payload")
			waits = there && p == payload
		}
		if waits {
			q.unwait(&q.lane, entry)
			removed++
		} else {
			q.remove(q.contents, m.name)
		}
		after = m.name
	}
	if n < most || after == last {
		last = ""
	}
	return removed, after, last
}

// logPage puts the cancel of a page on record: each does, since any may be the last that
// its caller hears of.
func (q *queue) logPage(name string, last int64, first, ends bool) (token, stopped, finished, given int64) {
	if first && q.has(FirstLogs) || ends && q.has(LastLogs) || !first && !ends && q.has(PagesLog) {
		return q.logCancel(name, last)
	}
	return 0, 0, 0, last
}

var large = regexp.MustCompile(`(?s)^sha1:[0-9a-fA-F]+:[0-9]+$`)

// removeCopies removes the first copies from the list, and tells whether the lock was
// on one of them, or on something in front of the last. What stood at the front was as
// good as taken; what was removed elsewhere leaves a gap.
func (q *queue) removeCopies(payload, lock string, most int) (removed int, unlocks bool) {
	var left []string
	var gaps []int64
	furthest, taken := -1, 0
	for i, item := range q.items(q.waiting) {
		if item != payload || removed == most {
			left = append(left, item)
			continue
		}
		if i == removed {
			taken++
		} else if q.locks {
			gaps = append(gaps, q.at(int64(i)))
		}
		removed++
		furthest = i
	}
	if place, ok := position(lock); ok && q.locks {
		unlocks = q.ahead(place) <= int64(furthest)
	}
	q.change(q.waiting, "list", func(v *value) { v.list = left })
	for _, gap := range gaps {
		if !q.has(GapLeft) {
			break
		}
		q.add(q.gaps, text(gap), gap)
	}
	if q.locks {
		q.offset += int64(taken)
	}
	return removed, unlocks
}

func cancelKey(q *queue, c store.Call) any {
	entry := c.Arg("entry")
	token := q.givesTokens()
	process, runs := q.field(q.entry+entry, "process")
	holder, held := q.field(q.entry+entry, "holder")
	q.fields(q.cancel + entry)
	q.size(q.workers)
	q.size(q.holders)
	q.whole()
	removed := bit(q.unwait(&q.lane, entry))
	if !runs {
		return []any{removed, 0, 0, 0}
	}
	token, stopped, finished, _ := q.logCancel(entry, token)
	if token > 0 && held && q.has(KeyStops) && q.is(q.working+holder, "zset") {
		if begun, ok := q.score(q.working+holder, process); ok {
			if q.is(q.stopping, "zset") {
				q.add(q.stopping, StoppingAs(entry, int64(begun), process), 0)
			}
			q.publish(q.wake+holder, "0")
		}
	}
	return []any{removed, token, stopped, finished}
}

func remove(q *queue, c store.Call) any {
	if _, waits := q.field(q.entry+c.Arg("entry"), "payload"); !waits {
		return 0
	}
	q.whole()
	q.unwait(&q.lane, c.Arg("entry"))
	return 1
}

func put(q *queue, c store.Call) any {
	entry, payload, when := c.Arg("entry"), c.Arg("payload"), c.Arg("when")
	keep, counts := c.Arg("keep") == "1", c.Arg("counts") == "1"
	key := q.entry + entry
	stored := func(name string) string { f, _ := q.field(key, name); return f }
	waiting, waits := q.field(key, "payload")
	_, runs := q.field(key, "process")
	q.whole()
	at := number(c.Arg("at"))
	if at == 0 {
		at = q.now
	}
	low, high := at, at // the bounds that the rule sets
	if when == "never" || when == "earlier" {
		low = 0
	}
	if when == "never" || when == "later" {
		high = never
	}
	bound := func(time int64) int64 { return min(max(time, low), high) }

	due, retries, crashes := at, int64(0), int64(0)
	moves, stay := true, keep || counts
	newLow, newHigh := low, high
	if waits {
		before := number(stored("due"))
		due = bound(before)
		moves = due != before
		if keep {
			payload = waiting
		}
		if stay {
			retries, crashes = number(stored("retries")), number(stored("crashes"))
		}
		top := int64(never)
		if f, ok := q.field(key, "high"); ok {
			top = number(f)
		}
		newLow, newHigh = bound(number(stored("low"))), bound(top)
		stay = stay && stored("counts") == "1"
		keep = keep && stored("keep") == "1"
	}
	if waits && payload != waiting {
		q.named(&q.lane, entry, waiting)
		q.remove(q.contents, q.digest(waiting)+":"+entry)
		q.unset(key, "digest")
	}
	q.set(key, "payload", payload, "due", due, "retries", retries, "crashes", crashes)
	if !waits || payload != waiting {
		q.keepDigest(key, payload)
		q.add(q.contents, q.digest(payload)+":"+entry, 0)
	}
	switch {
	case runs && q.has(Blocks):
		q.set(key, "keep", bit(keep), "counts", bit(stay), "low", newLow, "high", newHigh)
	case moves:
		q.plan(&q.lane, entry, due)
		if !q.isPaused() {
			q.alert(&q.lane, 0)
		}
	}
	if waits {
		return 0
	}
	q.publish(c.Arg("enqueue"), "1")
	return 1 + bit(!q.exists(q.waiting) && !q.exists(q.workers) && q.size(q.contents) == 1)
}

func requeue(q *queue, c store.Call) any {
	failed := failedQueue(c.Arg("head"), c.Arg("tail"), "")
	q.length(q.waiting)
	q.size(failed.schedule)
	q.size(failed.contents)
	q.whole()
	requeued, looked, bytes := 0, 0, 0
	for _, grave := range c.Rest() {
		key, payload, waits, runs := failed.entry+grave, "", false, false
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
		q.unwait(failed, grave)
		if from == "" {
			q.push(q.waiting, payload)
		} else {
			q.await(&q.lane, from, payload, q.now, 0, 0)
			q.plan(&q.lane, from, q.now)
		}
		requeued++
	}
	if requeued > 0 {
		q.alert(&q.lane, requeued)
		q.publish(c.Arg("enqueue"), text(requeued))
	}
	return []any{requeued, looked}
}

// deleteQueue drops what waits, with the locks on it. The model needs no pages of locks.
func deleteQueue(q *queue, c store.Call) any {
	q.whole()
	if c.Arg("list") != "0" {
		if q.locks {
			q.offset += int64(q.length(q.waiting)+q.size(q.gaps)) + 1<<24
			q.del(q.gaps)
		}
		q.del(q.waiting)
		q.del(q.ledger)
		if q.locks {
			q.set(q.unique, "offset", q.offset)
		}
	}
	if c.Arg("list") == "1" {
		q.publish(c.Arg("delete"), "")
	}
	members := q.all(q.contents)
	bytes := 0
	for _, m := range members[:min(len(members), 100)] {
		if bytes >= 1<<20 {
			break
		}
		of, entry := m.name[:min(40, len(m.name))], m.name[min(41, len(m.name)):]
		if q.is(q.entry+entry, "hash") {
			payload, _ := q.field(q.entry+entry, "payload")
			bytes += len(payload)
		}
		q.unwait(&q.lane, entry)
		q.remove(q.contents, m.name)
		if where, ok := q.field(q.unique, of); ok && q.locks && where == "e:"+entry {
			q.unset(q.unique, of)
		}
	}
	batches := q.dropBatches(c.Arg("batch"))
	left := q.size(q.contents) + batches
	if q.locks {
		q.change(q.unique, "hash", func(v *value) {
			for of, where := range v.hash {
				if place, waits := position(where); waits && place < q.offset {
					delete(v.hash, of)
				}
			}
		})
		if q.fields(q.unique) == 1 {
			q.del(q.unique)
			q.del(q.gaps)
		}
	}
	return []any{"0", left, batches}
}
