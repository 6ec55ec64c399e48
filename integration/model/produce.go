package model

import (
	"slices"
	"strings"
	"time"
)

// pushAll adds payloads to the back and wakes as many workers.
func (s *store) pushAll(waiting, idle, wake, observers string, payloads []string) int {
	before := s.length(waiting)
	s.push(waiting, payloads...)
	s.wakes(idle, wake, len(payloads))
	s.publish(observers, text(len(payloads)))
	return before
}

func enqueue(s *store, keys, args []string, _ time.Time) any {
	return s.pushAll(keys[0], keys[1], args[0], args[1], args[2:])
}

func enqueueOnce(s *store, keys, args []string, _ time.Time) any {
	if s.exists(keys[2]) {
		return 0
	}
	s.pushAll(keys[0], keys[1], args[0], args[1], args[3:])
	s.put(keys[2], "1")
	s.expire(keys[2], number(args[2]))
	return 1
}

func enqueueUnique(s *store, keys, args []string, _ time.Time) any {
	waiting, unique, payload := keys[0], keys[2], args[2]
	text_, _ := s.field(unique, "offset")
	offset, _ := integer(text_)
	items := s.items(waiting)
	if where, locked := s.field(unique, digest(payload)); locked {
		place, waits := position(where)
		held := !waits
		if at := place - offset; waits && at >= 0 && at < int64(len(items)) {
			held = items[at] == payload
		}
		if i := slices.Index(items, payload); !held && i >= 0 {
			s.set(unique, digest(payload), "w:"+text(offset+int64(i)))
			held = true
		}
		if held {
			return refusal("DUPLICATE an equal unique task waits or runs")
		}
	}
	s.pushAll(waiting, keys[1], args[0], args[1], args[2:])
	s.set(unique, "offset", offset, digest(payload), "w:"+text(offset+int64(len(items))))
	return 1
}

func rouse(s *store, keys, args []string, _ time.Time) any {
	return s.wakes(keys[0], args[0], int(number(args[1])))
}

func pause(s *store, keys, _ []string, _ time.Time) any {
	s.put(keys[0], "1")
	return 1
}

func resume(q *queue, _ []string) any {
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

func cancel(q *queue, args []string) any {
	channel, payload := args[0], args[1]
	token := q.givesTokens()
	q.whole()
	name := digest(payload)
	q.fields(q.cancel + name)
	workers := q.holders()

	// What stands behind a removed copy moves up, and so do the locks on it.
	items, moved := q.items(q.waiting), map[int64]int64{}
	var left []string
	for i, item := range items {
		moved[q.offset+int64(i)] = q.offset + int64(len(left))
		if item != payload {
			left = append(left, item)
		}
	}
	removed := len(items) - len(left)
	q.change(q.waiting, "list", func(v *value) { v.list = left })
	for _, member := range q.all(q.contents) {
		entry, ok := strings.CutPrefix(member.name, name+":")
		if !ok {
			continue
		}
		if q.is(q.entry+entry, "hash") {
			if waits, ok := q.field(q.entry+entry, "payload"); ok && waits == payload {
				q.unwait(&q.lane, entry)
				removed++
				continue
			}
		}
		q.remove(q.contents, member.name)
	}
	q.unset(q.ledger, name)
	if q.locks {
		if lock, ok := q.field(q.unique, name); ok && !strings.HasPrefix(lock, "p:") {
			q.unset(q.unique, name)
		}
		q.change(q.unique, "hash", func(v *value) {
			for of, where := range v.hash {
				place, waits := position(where)
				to, known := moved[place]
				if beyond := q.offset + int64(len(items)); waits && !known && place >= beyond {
					to, known = place-int64(len(items)-len(left)), true
				}
				if waits && known && to != place {
					v.hash[of] = "w:" + text(to)
				}
			}
		})
		if q.fields(q.unique) == 1 {
			q.del(q.unique)
		}
	}
	token = q.logCancel(name, token, workers)
	q.publish(channel, payload)
	return []any{removed, token}
}

func cancelKey(q *queue, args []string) any {
	entry := args[0]
	token := q.givesTokens()
	process, runs := q.field(q.entry+entry, "process")
	q.fields(q.cancel + entry)
	q.whole()
	var holder []string
	if runs {
		for _, w := range q.holders() {
			if _, ok := q.score(q.working+w, process); ok {
				holder = []string{w}
			}
		}
	}
	removed := bit(q.unwait(&q.lane, entry))
	if holder == nil {
		return []any{removed, 0}
	}
	token = q.logCancel(entry, token, holder)
	q.publish(q.wake+holder[0], "0")
	return []any{removed, token}
}

func remove(q *queue, args []string) any {
	if _, waits := q.field(q.entry+args[0], "payload"); !waits {
		return 0
	}
	q.whole()
	q.unwait(&q.lane, args[0])
	return 1
}

func put(q *queue, args []string) any {
	entry, payload, when := args[0], args[1], args[3]
	keep, counts := args[4] == "1", args[5] == "1"
	key := q.entry + entry
	stored := func(name string) string { f, _ := q.field(key, name); return f }
	waiting, waits := q.field(key, "payload")
	_, runs := q.field(key, "process")
	q.whole()
	at := number(args[2])
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
		q.remove(q.contents, digest(waiting)+":"+entry)
	}
	q.set(key, "payload", payload, "due", due, "retries", retries, "crashes", crashes)
	if !waits || payload != waiting {
		q.add(q.contents, digest(payload)+":"+entry, 0)
	}
	switch {
	case runs:
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
	q.publish(args[6], "1")
	return 1
}

func requeue(q *queue, args []string) any {
	failed := failedQueue(args[0], args[1], "")
	q.length(q.waiting)
	q.size(failed.schedule)
	q.size(failed.contents)
	q.whole()
	requeued := 0
	for _, grave := range args[3:] {
		key := failed.entry + grave
		if !q.is(key, "hash") {
			continue
		}
		payload, waits := q.field(key, "payload")
		_, runs := q.field(key, "process")
		from, _ := q.field(key, "from")
		if !waits || runs || from != "" && q.exists(q.entry+from) {
			continue
		}
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
		q.publish(args[2], text(requeued))
	}
	return requeued
}

// deleteQueue drops what waits, with the locks on it. The model needs no pages of locks.
func deleteQueue(q *queue, args []string) any {
	q.whole()
	if args[2] == "1" {
		q.offset += int64(q.length(q.waiting))
		q.del(q.waiting)
		q.del(q.ledger)
		if q.locks {
			q.set(q.unique, "offset", q.offset)
		}
		q.publish(args[0], "")
	}
	members := q.all(q.contents)
	for _, m := range members[:min(len(members), 500)] {
		of, entry := m.name[:min(40, len(m.name))], m.name[min(41, len(m.name)):]
		q.unwait(&q.lane, entry)
		q.remove(q.contents, m.name)
		if where, ok := q.field(q.unique, of); ok && q.locks && where == "e:"+entry {
			q.unset(q.unique, of)
		}
	}
	left := q.size(q.contents)
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
		}
	}
	return []any{"0", left}
}
