package spec

import (
	"slices"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

func init() { verbs["explain"] = of(explain) }

func explain(q *queue, c store.Call) any {
	q.mustBeIntact()
	entry, payload := c.Arg("entry"), c.Arg("payload")
	most, depth := int(number(c.Arg("most"))), int(number(c.Arg("depth")))
	idle := 0
	if q.is(q.idle, "zset") {
		idle = q.size(q.idle)
	}
	places, line, entries, failures := []any{}, []any{}, []any{}, []any{}
	if entry != "" {
		if line = q.line(entry, depth); len(line) == 0 {
			stored, _ := q.part(entry, "payload")
			entries = q.appendEntry(entries, entry, stored)
		}
		if process, worker, _, ok := q.runsAdded(entry); ok {
			holder, token := q.heldBy(worker, process)
			entries = append(entries, []any{entry, -1, -1, 0, 0, -1, process, holder, token, 0, 0})
		}
	} else {
		places = q.places(payload, most, depth, c.Arg("batch"))
		for _, e := range q.copies(&q.lane, payload, most) {
			entries = q.appendEntry(entries, e, payload)
		}
		failed := failedQueue(c.Arg("head"), c.Arg("tail"), "")
		for _, e := range q.copies(failed, payload, most) {
			if q.is(failed.entry+e, "hash") {
				// The reply doesn't have the time for which it was planned.
				failures = append(failures, append(append([]any{e}, q.failureOf(failed.entry + e)[:7]...), q.word(failed.entry+e, "card")))
			}
		}
	}
	return []any{q.now, bit(q.isPaused()), q.alive(), idle, q.due(), q.waits() + len(q.inBatches(c.Arg("batch"))), q.Store.entries(q.added), places, line, entries, failures}
}

// alive returns how many workers with a current lease serve the queue.
func (q *queue) alive() int { return len(q.between(q.workers, float64(q.now), inf)) }

// places returns how many tasks are before each copy on the list, and in the batches behind it.
func (q *queue) places(payload string, most, depth int, batch string) []any {
	places := []any{}
	for i, item := range slices.Concat(q.tasks(q.waiting), q.inBatches(batch)) {
		if i < depth && item == payload && len(places) < most {
			places = append(places, i)
		}
	}
	return places
}

// copies returns the entries of a lane in which a payload waits.
func (q *queue) copies(l *lane, payload string, most int) (entries []string) {
	if !q.is(l.contents, "zset") {
		return nil
	}
	for _, r := range q.all(l.contents) {
		entry, ok := strings.CutPrefix(r.name, digest(payload)+":")
		if !ok {
			continue
		}
		if most--; most < 0 {
			break
		}
		if !q.isName(l, entry, payload) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// heldBy returns the worker and the token, if that worker holds the process.
func (q *queue) heldBy(worker, process string) (holder string, token int64) {
	if q.is(q.working+worker, "zset") {
		if score, ok := q.score(q.working+worker, process); ok {
			return worker, int64(score)
		}
	}
	return "", 0
}

// appendEntry describes an entry in which something waits (this payload, according to contents) or runs.
func (q *queue) appendEntry(entries []any, entry, payload string) []any {
	key := q.entry + entry
	if !q.is(key, "hash") {
		return entries
	}
	_, waits := q.field(key, "payload")
	process, runs := q.field(key, "process")
	if !waits && !runs {
		return entries
	}
	due, planned := int64(-1), int64(-1)
	if waits {
		due = q.count(key, "due")
	}
	if score, ok := q.score(q.schedule, entry); ok {
		planned = int64(score)
	}
	worker, token := q.heldBy(q.word(key, "holder"), process)
	_, withheld := q.field(key, "withheld")
	crashes := q.count(key, "crashes")
	if waits && !isKey(entry) {
		crashes = q.crashes(payload)
	}
	return append(entries, []any{
		entry, due, planned, q.count(key, "retries"), crashes, q.rank(q.schedule, entry), process, worker, token, q.count(key, "turn"), bit(withheld),
	})
}
