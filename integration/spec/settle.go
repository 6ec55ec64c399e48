package spec

import (
	"strings"

	"github.com/worqr/worqr/internal/store"
)

// A fate says what happened to a process or its payload.
type fate int

const (
	done  fate = iota // as requested
	gone              // Redis has lost the payload, or a cancel covers it: it ends
	stuck             // a key has another type, and nothing happens
)

// A run is what a process runs: an entry with its counts, or "" for the list.
type run struct {
	entry       string
	tried, died int64
	sum         string // its digest, if it's known only by its key
	card        string
	value       string // the field in entries of an added task
}

// runs returns what a process runs. It returns false if that can't be read.
func (q *queue) runs(id string, keyed bool) (run, bool) {
	q.forget()
	if !keyed {
		return run{}, true
	}
	entry, ok := q.field(q.entries, id)
	if !ok {
		return run{}, true
	}
	if name, of, card, ok := readAdded(entry); ok {
		q.running[id] = name
		return run{entry: of, sum: digest(of), card: card, value: entry}, true
	}
	key := q.entry + entry
	if !q.is(key, "hash") {
		return run{}, false
	}
	if holder, ok := q.field(key, "process"); ok && holder != id {
		q.unset(q.entries, id) // Redis had lost the entry, and the process runs again
		return run{}, true
	}
	of, sum, _ := strings.Cut(q.word(key, "sum"), ":")
	if of != id {
		sum = ""
	}
	return run{entry: entry, tried: q.count(key, "tried"), died: q.count(key, "died"), sum: sum, card: q.word(key, "held")}, true
}

// crashes returns how many workers died holding a task without a key.
func (q *queue) crashes(payload string) int64 {
	if !q.counting {
		return 0
	}
	n, _ := integer(q.word(q.ledger, q.digest(payload)))
	return n
}

func (q *queue) forgetCrashes(payload string) {
	if q.counting {
		q.unset(q.ledger, q.digest(payload))
	}
}

// covered counts the end of a process in the record of the cancel that covers it, if there is one.
// It reports whether there is. A cancel whose token was never issued covers nothing.
func (q *queue) covered(payload, entry, id string, token int64, field string) (covered bool) {
	if !q.canceling {
		return false
	}
	names := []string{q.digest(payload)}
	if isKey(entry) {
		names = append(names, entry)
	}
	if q.names[payload] == digest(entry) { // it's known only by its key
		names = names[1:]
	}
	for _, name := range names {
		if canceled, ok := q.score(q.canceled, name); ok && canceled <= q.given() && (float64(token) <= canceled || !q.has(CancelSpares)) {
			covered = true
			if record := q.cancel + name; q.is(record, "hash") && q.exists(record) {
				was, ok := q.field(record, field)
				_, recorded := q.field(record, "token")
				if n, valid := integer(was); recorded && (valid || !ok) {
					q.set(record, field, n+1)
				}
			}
			if q.has(EndsStopping) && q.is(q.stopping, "zset") {
				q.remove(q.stopping, StoppingAs(name, token, id))
			}
			if isKey(name) {
				q.remove(q.canceled, name)
				q.expire(q.cancel+name, 60_000)
			}
		}
	}
	return covered
}

// takeOut removes the task of a process.
func (q *queue) takeOut(id string, keyed bool) (payload string, r run, f fate) {
	r, ok := q.runs(id, keyed)
	if !ok || !q.is(q.process+id, "list") {
		return "", r, stuck
	}
	payload, ok = q.popFront(q.process + id)
	if !ok {
		return "", r, gone
	}
	q.name(payload, r.sum)
	return payload, r, done
}

// takeUnlessCanceled removes the task of a process. It ends the process if Redis has lost the task,
// or if looked is true and a cancel covers it.
func (q *queue) takeUnlessCanceled(working, id string, token int64, keyed, looked bool) (payload string, r run, f fate) {
	payload, r, f = q.takeOut(id, keyed)
	switch {
	case f == gone:
		q.clear(working, id, r.entry)
	case f == done && looked && q.covered(payload, r.entry, id, token, "stopped"):
		q.clear(working, id, r.entry)
		q.keepResult(r.entry, r.card, store.EndCanceled, "", "")
		f = gone
	}
	return payload, r, f
}

// clear removes the rest of a process without a payload.
func (q *queue) clear(working, id, entry string) {
	q.remove(working, id)
	if entry != "" {
		q.ended(entry, id)
	}
}

// finish ends a process whose task is finished or dropped.
func (q *queue) finish(working, id string, token int64, field, result string, keyed bool) (string, bool) {
	payload, r, f := q.takeOut(id, keyed)
	if f == stuck {
		return "", false
	}
	if f == done {
		q.covered(payload, r.entry, id, token, field)
		if !isKey(r.entry) {
			q.forgetCrashes(payload)
		}
	}
	q.clear(working, id, r.entry)
	if field != "finished" {
		field = store.EndCanceled
	}
	q.keepResult(r.entry, r.card, field, "", result)
	return payload, true
}

// giveBack returns the task of a process to the front, or ends it if a cancel covers it. died is 1
// if its worker died.
func (q *queue) giveBack(working, id string, token, died int64, keyed bool) fate {
	r, ok := q.runs(id, keyed)
	key := q.process + id
	if !ok {
		return stuck
	}
	if r.entry == "" && !q.canceling && !(q.is(key, "list") && (!q.exists(key) || q.is(q.waiting, "list"))) {
		return stuck
	}
	if !q.is(key, "list") {
		return stuck
	}
	held := q.items(key)
	if len(held) == 0 {
		q.clear(working, id, r.entry)
		return gone
	}
	// If the list has several payloads, the script reads one end and moves the other.
	payload := held[len(held)-1]
	q.name(payload, r.sum)
	if q.has(LogOnReturn) && q.covered(payload, r.entry, id, token, "stopped") {
		q.carried += len(payload)
		q.del(key)
		q.clear(working, id, r.entry)
		q.keepResult(r.entry, r.card, store.EndCanceled, "", "")
		return gone
	}
	if r.entry != "" {
		q.remove(working, id)
		q.del(key)
		crashes := r.died
		if isKey(r.entry) {
			crashes += died
		}
		q.returned(r.entry, id, payload, min(token, q.now), r.tried, crashes, r.card)
	} else {
		if !q.is(q.waiting, "list") {
			return stuck
		}
		q.remove(working, id)
		payload, _ = q.popFront(key)
		q.pushFront(q.waiting, payload)
	}
	if died > 0 && !isKey(r.entry) {
		n, _ := integer(q.word(q.ledger, q.digest(payload)))
		q.set(q.ledger, q.digest(payload), n+died)
		q.counting = true
	}
	q.carried += len(payload)
	return done
}

// putOff plans the task of a process again, and adds failures to its retries. failure is the error
// of this attempt.
func (q *queue) putOff(working, id string, token, delay, failures int64, failure string, keyed bool) fate {
	payload, r, f := q.takeUnlessCanceled(working, id, token, keyed, q.has(LogOnRetry))
	if f != done {
		return f
	}
	q.remove(working, id)
	entry, counts := r.entry, true
	if entry != "" {
		counts = q.returned(entry, id, payload, q.now+delay, r.tried+failures, r.died, r.card)
	} else {
		entry = "r:" + id
		q.await(&q.lane, entry, payload, q.now+delay, failures, 0, "")
		q.plan(&q.lane, entry, q.now+delay)
	}
	if failure != "" && counts {
		q.set(q.entry+entry, "error", failure)
	}
	return done
}
