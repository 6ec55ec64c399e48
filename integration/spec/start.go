package spec

import (
	"fmt"
	"slices"
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
	if (entry != "" || crashes > 0) && a.value == "" {
		var failure any = ""
		if entry != "" && r.failed == nil {
			failure = append([]any{entry, payload}, r.failureOf(r.entry+entry)...)
		}
		more = []any{entry, retries, crashes, failure, a.due, a.card, a.failure, int64(bit(byKey))}
	}
	if r.most > 0 && crashes >= r.most && len(payload) > 1<<20 {
		payload = ""
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

// risky reports whether to leave a task to other workers: it's one crash away from failing, and
// this round may start only one such task.
func (r *round) risky(crashes int64) bool {
	if crashes < max(r.most-1, 1) || crashes >= r.most {
		return false
	}
	if r.solo {
		r.solo = false
		return false
	}
	r.skipped++
	return true
}

// goesOn reports whether the next id may be used.
func (r *round) goesOn() bool { return r.first < r.final }

// begin gives a token to a task that was taken from where it waited.
func (r *round) begin(payload, entry string, retries, crashes int64, a details) {
	if crashes > 0 {
		r.final = min(r.final, len(r.ids)-r.ahead)
	}
	r.token++
	r.add(r.working, r.ids[r.first], r.token)
	r.first++
	r.tell(payload, r.token, entry, retries, crashes, a)
}

// fromEntries starts due entries of the schedule. Entries left to other workers stay.
func (r *round) fromEntries() {
	if !r.scheduled {
		return
	}
	for _, e := range slices.Clone(r.all(r.schedule)) {
		if !r.goesOn() || e.score > float64(r.now) {
			return
		}
		r.startEntry(e.name, int64(e.score))
	}
}

// startEntry starts the task of an entry if it may start.
func (r *round) startEntry(entry string, due int64) {
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
	if waits && !isKey(entry) {
		crashes = r.crashes(payload)
	}
	switch {
	case !waits:
		r.remove(r.schedule, entry) // Redis has lost the entry
	case crashes > 0 && r.first >= len(r.ids)-r.ahead:
		r.final = r.first // it isn't prefetched either
	case r.risky(crashes):
	default:
		r.beginEntry(payload, entry, retries, crashes, details{due: due, card: card, failure: failed})
	}
}

// beginEntry starts the task of an entry.
func (r *round) beginEntry(payload, entry string, retries, crashes int64, a details) {
	id := r.ids[r.first]
	r.queue.started(entry, id, payload, r.worker, retries, crashes, a.card)
	r.begin(payload, entry, retries, crashes, a)
}

// fromList starts the tasks on the list.
func (r *round) fromList() {
	simple := !r.counting // only the payloads matter
	for r.goesOn() {
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
		if simple {
			r.token++
			r.add(r.working, id, r.token)
			r.first++
			r.plain = append(r.plain, payload)
			continue
		}
		r.forget()
		crashes := r.crashes(payload)
		switch {
		case crashes == 0:
			r.begin(payload, "", 0, 0, details{})
		case r.risky(crashes):
			r.moved++
			entry := fmt.Sprintf("r:%s.%03d", id, r.moved)
			r.del(r.process + id)
			r.await(&r.lane, entry, payload, r.now, 0, 0, "")
			r.set(r.lane.entry+entry, "digest", r.digest(payload))
			r.plan(&r.lane, entry, r.now)
		default:
			r.begin(payload, "", 0, crashes, details{})
		}
	}
}
