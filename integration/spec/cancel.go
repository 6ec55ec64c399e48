package spec

import (
	"regexp"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

func init() {
	verbs["cancel"] = of(cancel)
	verbs["cancel_key"] = of(cancelKey)
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
