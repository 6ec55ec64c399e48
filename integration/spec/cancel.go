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

// A removal is one page of a cancel in progress.
type removal struct {
	*queue
	payload, name string // payload and its digest
	first         bool   // it is the first page
	left          int    // copies that may still wait in the list
	after, last   string // of contents: the last entry of the previous page, and of all
	removed       int
}

func cancel(q *queue, c store.Call) any {
	payload := c.Arg("payload")
	left, _ := integer(c.Arg("left"))
	since, _ := integer(c.Arg("since"))
	token := q.givesTokens()
	q.mustBeIntact()
	r := &removal{queue: q, payload: payload, name: digest(payload), first: left < 0, left: int(left), after: c.Arg("after"), last: c.Arg("until")}
	q.fields(q.cancel + r.name)
	q.size(q.workers)
	q.size(q.holders)
	length := q.length(q.waiting)
	listed := left != 0
	switch {
	case r.first:
		r.left = length
	case r.left > 0 && q.has(BackCounted): // or as many have come back in any order
		r.left = max(r.left, int(token-since))
	}
	if !strings.HasPrefix(r.last, r.name+":") {
		r.last = ""
	}

	r.fromList()
	r.fromEntries(listed)
	q.unset(q.ledger, r.name)
	ends := r.left == 0 && r.last == ""

	token, stopped, finished, given := q.logPage(r.name, token, r.first, ends)
	if ends {
		message := payload
		if len(payload) > 1024 || large.MatchString(payload) {
			message = "sha1:" + r.name + ":" + text(len(payload))
		}
		q.Publish(c.Arg("channel"), message)
	}
	return []any{r.removed, token, stopped, finished, r.left, given, r.after, r.last}
}

// page returns how many copies one page removes.
func (r *removal) page(most int) int {
	return max(min(most, atOnceBytes/max(len(r.payload), 1)), 1)
}

// fromList removes a page of the copies in the list.
func (r *removal) fromList() {
	if r.left <= 0 {
		return
	}
	most := min(r.left, r.page(r.Copies))
	r.removed = r.removeCopies(r.payload, most)
	if r.left -= r.removed; r.removed < most {
		r.left = 0 // there are no more
	}
}

// fromEntries removes a page of the entries, once the list is done. Each page of the list looks up the last
// entry: a task that starts between two pages becomes an entry if it's returned.
func (r *removal) fromEntries(listed bool) {
	if late := r.has(LateUntil); late && listed || !late && r.first {
		r.last = ""
		for _, m := range r.all(r.contents) {
			if (r.left == 0 || !late) && strings.HasPrefix(m.name, r.name+":") {
				r.last = m.name
			}
		}
	}
	if r.left == 0 && r.last != "" && r.removed < r.Entries {
		var n int
		n, r.after, r.last = r.removeEntries(r.payload, r.after, r.last, r.page(r.Entries))
		r.removed += n
	}
}

// removeEntries removes a page of the entries with a payload, after one entry and up to another. It
// returns how many waited, and the bounds of the rest.
func (q *queue) removeEntries(payload, after, last string, most int) (removed int, _, _ string) {
	n, name := 0, digest(payload)
	for _, m := range q.all(q.contents) {
		entry, ok := strings.CutPrefix(m.name, name+":")
		if !ok || m.name <= after || m.name > last || n == most {
			continue
		}
		n++
		if q.isName(&q.lane, entry, payload) {
			after = m.name
			continue
		}
		if p, there := q.part(entry, "payload"); there && p == payload {
			card := q.cardInSchedule(entry)
			q.unwaitAs(&q.lane, entry, name)
			q.keepResult(entry, card, store.EndCanceled, "", "")
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

// logPage adds the cancel to the log. Every page does, since any page may be the last one
// whose reply reaches the caller.
func (q *queue) logPage(name string, last int64, first, ends bool) (token, stopped, finished, given int64) {
	if first && q.has(FirstLogs) || ends && q.has(LastLogs) || !first && !ends && q.has(PagesLog) {
		return q.logCancel(name, last)
	}
	return 0, 0, 0, last
}

var large = regexp.MustCompile(`(?s)^sha1:[0-9a-fA-F]+:[0-9]+$`)

// removeCopies removes the first copies from the list, and returns how many.
func (q *queue) removeCopies(payload string, most int) (removed int) {
	var left []string
	for _, item := range q.items(q.waiting) {
		if item != payload || removed == most {
			left = append(left, item)
			continue
		}
		removed++
	}
	q.change(q.waiting, "list", func(v *value) { v.list = left })
	return removed
}

func cancelKey(q *queue, c store.Call) any {
	entry := c.Arg("entry")
	token := q.givesTokens()
	process, runs := q.field(q.entry+entry, "process")
	holder, held := q.field(q.entry+entry, "holder")
	if !runs {
		process, holder, _, runs = q.runsAdded(entry)
		held = runs
	}
	q.fields(q.cancel + entry)
	q.size(q.workers)
	q.size(q.holders)
	q.mustBeIntact()
	removed := bit(q.takeAway(entry, store.EndCanceled))
	if !runs {
		return []any{removed, 0, 0, 0}
	}
	token, stopped, finished, _ := q.logCancel(entry, token)
	if token > 0 && held && q.has(KeyStops) && q.is(q.working+holder, "zset") {
		if begun, ok := q.score(q.working+holder, process); ok {
			if q.is(q.stopping, "zset") {
				q.add(q.stopping, StoppingAs(entry, int64(begun), process), 0)
			}
			q.Publish(q.wake+holder, "0")
		}
	}
	return []any{removed, token, stopped, finished}
}
