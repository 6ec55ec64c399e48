package spec

import "strconv"

// wakes wakes n idle workers, or all if there are fewer. A message without a receiver doesn't
// count.
func (s *Store) wakes(idle, channel string, n int) (woken int) {
	for range 64 {
		if woken >= n || !s.is(idle, "zset") || s.size(idle) == 0 {
			break
		}
		first := s.all(idle)[0].name
		s.remove(idle, first)
		if s.Publish(channel+first, strconv.Itoa(n)) > 0 {
			woken++
		}
	}
	return woken
}

// keeper reports whether an idle worker keeps the time, and whether any worker is idle.
func (s *Store) keeper(l *lane) (keeps, someone bool) {
	if !s.is(l.idle, "zset") || s.size(l.idle) == 0 {
		return false, false
	}
	all := s.all(l.idle)
	return all[len(all)-1].score >= clock, true
}

// ring wakes the worker that keeps the time. If there is none, it wakes one that then keeps it.
func (s *Store) ring(l *lane) {
	for range 64 {
		if !s.is(l.idle, "zset") || s.size(l.idle) == 0 {
			return
		}
		all := s.all(l.idle)
		last := all[len(all)-1].name
		s.remove(l.idle, last)
		if s.Publish(l.wake+last, "0") > 0 {
			return
		}
	}
}

// next returns when the first entry that isn't due yet will be, if there is one.
func (q *queue) next(l *lane) (due int64, ok bool) {
	for _, r := range q.between(l.schedule, float64(q.now+1), aside-1) {
		return int64(r.score), true
	}
	return 0, false
}

// sooner reports whether the worker that keeps the time must be woken because of something planned.
func (q *queue) sooner(l *lane) bool {
	if l.first > 0 && !l.earlier {
		due, ok := q.next(l)
		l.earlier = ok && due >= l.first
	}
	return l.earlier
}

// alert is called after entries were planned. It wakes workers for due entries, and for tasks
// returned to the front of the list.
func (q *queue) alert(l *lane, returned int) {
	q.wakes(l.idle, l.wake, max(returned, l.ready))
	if q.sooner(l) {
		q.ring(l)
	}
}

func (q *queue) plan(l *lane, entry string, due int64) {
	q.add(l.schedule, entry, due)
	q.scheduled = q.scheduled || l == &q.lane
	switch {
	case due <= q.now:
		l.ready++
	case l.first == 0 || due < l.first:
		l.first = due
	}
}

// await gives an entry a waiting part.
func (q *queue) await(l *lane, entry, payload string, due, retries, crashes int64, card string) {
	q.set(l.entry+entry, "payload", payload, "due", due, "retries", retries, "crashes", crashes)
	if card != "" {
		q.set(l.entry+entry, "card", card)
	}
	q.keepDigest(l, entry, payload)
	q.add(l.contents, q.digest(payload)+":"+entry, 0)
}

// keepsDigest reports whether an entry stores the digest of its task: it's known only by its key.
func (q *queue) keepsDigest(entry, payload string) bool {
	_, named := q.names[payload]
	return isKey(entry) && named
}

// isName reports whether an entry is in contents under the digest of a payload because its task is known
// only by its key, and not because it's a copy.
func (q *queue) isName(l *lane, entry, payload string) bool {
	return isKey(entry) && q.is(l.entry+entry, "hash") && q.word(l.entry+entry, "digest") == digest(payload)
}

// keepDigest stores the digest of the waiting payload in an entry.
func (q *queue) keepDigest(l *lane, entry, payload string) {
	if q.keepsDigest(entry, payload) {
		q.set(l.entry+entry, "digest", q.digest(payload))
	}
}

// named reads the digest that an entry stores of its waiting payload. It's valid only if contents has it, too.
func (q *queue) named(l *lane, entry, payload string) {
	d, ok := q.field(l.entry+entry, "digest")
	if _, waits := q.score(l.contents, d+":"+entry); ok && waits {
		q.name(payload, d)
	}
}

var rules = []string{"keep", "counts", "low", "high"}

// unwait removes the waiting part of an entry, and the entry with it unless it runs.
func (q *queue) unwait(l *lane, entry string) bool { return q.unwaitAs(l, entry, "") }

// unwaitAs is unwait with the digest from contents.
func (q *queue) unwaitAs(l *lane, entry, told string) bool {
	q.forget()
	key := l.entry + entry
	var payload string
	var waits, runs bool
	if q.is(key, "hash") {
		payload, waits = q.field(key, "payload")
		_, runs = q.field(key, "process")
	}
	q.remove(l.schedule, entry)
	if !waits {
		return false
	}
	if told != "" {
		q.name(payload, told)
	} else {
		q.named(l, entry, payload)
	}
	q.remove(l.contents, q.digest(payload)+":"+entry)
	if runs {
		q.unset(key, append([]string{"payload", "due", "retries", "crashes", "digest", "card"}, rules...)...)
	} else {
		q.del(key)
	}
	return true
}

// started turns the waiting part of an entry into a running one.
func (q *queue) started(entry, id, payload, worker string, retries, crashes int64, card string) {
	key := q.entry + entry
	q.remove(q.schedule, entry)
	q.remove(q.contents, q.digest(payload)+":"+entry)
	q.unset(key, "payload", "due", "retries", "crashes", "digest", "card")
	q.set(key, "process", id, "tried", retries, "died", crashes, "holder", worker)
	if card != "" {
		q.set(key, "held", card)
	}
	if q.keepsDigest(entry, payload) {
		q.set(key, "sum", id+":"+q.digest(payload))
	}
	q.set(q.entries, id, entry)
	q.push(q.process+id, payload)
}

// untie removes the fields of a process from entries.
func (q *queue) untie(id string) (added bool) {
	q.unset(q.entries, id)
	name, added := q.running[id]
	if added {
		q.unset(q.entries, name)
	}
	return added
}

// ended removes the running part of an entry, and plans what it blocked.
func (q *queue) ended(entry, id string) {
	key := q.entry + entry
	if q.untie(id) {
		q.del(key)
		return
	}
	if due, ok := q.field(key, "due"); ok {
		q.unset(key, append([]string{"process", "tried", "died", "holder", "sum", "held", "error"}, rules...)...)
		if q.has(BlockedReleased) {
			q.plan(&q.lane, entry, number(due))
		}
	} else {
		q.del(key)
	}
}

// returned makes a running task wait again. If its key was put in the meantime, that put changes it
// as it would change a waiting task. returned reports whether the counts stay.
func (q *queue) returned(entry, id, payload string, due, retries, crashes int64, card string) (counts bool) {
	key := q.entry + entry
	newer, put := "", false
	if _, added := q.running[id]; isKey(entry) && !added {
		newer, put = q.field(key, "payload")
	}
	rule := func(name string) string {
		f, ok := q.field(key, name)
		if !ok && (name == "low" || name == "high") { // Redis had lost the running part
			f, _ = q.field(key, "due")
		}
		return f
	}
	q.untie(id)
	q.unset(key, "process", "tried", "died", "holder", "sum", "held")
	counts = true
	if put {
		ran := q.names // it may be known by its key, and an equal payload by itself
		q.forget()
		q.named(&q.lane, entry, newer)
		q.unset(key, "digest")
		due = min(max(due, number(rule("low"))), number(rule("high")))
		if counts = rule("counts") == "1"; !counts {
			retries, crashes = 0, 0
			q.unset(key, "error")
		}
		if rule("keep") != "1" {
			q.keepReplaced(entry, card, q.word(key, "card"))
			payload, card = newer, ""
		} else {
			q.unset(key, "card")
			waited := q.digest(newer)
			q.names = ran
			q.remove(q.contents, waited+":"+entry)
		}
		q.unset(key, rules...)
	}
	q.await(&q.lane, entry, payload, due, retries, crashes, card)
	q.plan(&q.lane, entry, due)
	return counts
}

// The failed queue of a queue.

func failedQueue(head, tail, wake string) *lane {
	return &lane{
		schedule: head + "schedule" + tail, contents: head + "contents" + tail, idle: head + "idle" + tail,
		workers: head + "workers" + tail, entry: head + "keyed" + tail + ":", wake: wake,
	}
}

func (s *Store) buries(l *lane) bool { return s.is(l.schedule, "zset") && s.is(l.contents, "zset") }

// trim removes the oldest entries with a score of at least low until keep are left. It removes at
// most 128, or fewer if they reach a mebibyte, and returns how many.
func (q *queue) trim(l *lane, low float64, keep int) (dropped int) {
	bytes := 0
	for range min(len(q.between(l.schedule, low, inf))-keep, 128) {
		oldest := q.between(l.schedule, low, inf)[0]
		if given := q.between(l.schedule, aside, inf); len(given) > 0 && given[0].score-aside < oldest.score {
			oldest = given[0]
		}
		if q.is(l.entry+oldest.name, "hash") {
			bytes += len(q.word(l.entry+oldest.name, "payload"))
		}
		q.unwait(l, oldest.name)
		if dropped++; bytes >= 1<<20 {
			break
		}
	}
	return dropped
}

// A failure describes a task that failed.
type failure struct {
	payload, entry, kind, reason string
	retries, crashes             int64
	card                         string
	due                          int64 // a number below ancient isn't a time
}

func (q *queue) addFailed(l *lane, worker, id string, f failure) {
	entry, from := "k:"+id, ""
	if hasName(f.entry) {
		from = f.entry
	}
	q.await(l, entry, f.payload, q.now, 0, 0, f.card)
	q.set(l.entry+entry, "kind", f.kind, "reason", f.reason, "tries", f.retries, "deaths", f.crashes, "worker", worker, "at", q.now, "from", from)
	if f.due >= ancient {
		q.set(l.entry+entry, "planned", f.due)
	}
	q.plan(l, entry, q.now)
}

// putAside sets a task of a failed queue aside: its entry is never due.
func (q *queue) putAside(entry, payload string, retries, crashes int64) {
	q.await(&q.lane, entry, payload, aside+q.now, retries, crashes, "")
	q.plan(&q.lane, entry, aside+q.now)
}
