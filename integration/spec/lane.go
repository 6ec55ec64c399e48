package spec

import "strconv"

// wakes wakes as many idle workers, or those there are. A message that nobody hears
// does not count.
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

// keeper tells whether somebody idle keeps the time, and whether somebody is idle.
func (s *Store) keeper(l *lane) (keeps, someone bool) {
	if !s.is(l.idle, "zset") || s.size(l.idle) == 0 {
		return false, false
	}
	all := s.all(l.idle)
	return all[len(all)-1].score >= clock, true
}

// ring tells whoever keeps the time, or has somebody begin to.
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

// next is when the first entry is due that is not yet, if there is one.
func (q *queue) next(l *lane) (due int64, ok bool) {
	for _, r := range q.between(l.schedule, float64(q.now+1), aside-1) {
		return int64(r.score), true
	}
	return 0, false
}

// sooner reports whether whoever keeps the time is to hear of something planned.
func (q *queue) sooner(l *lane) bool {
	if l.first > 0 && !l.earlier {
		due, ok := q.next(l)
		l.earlier = ok && due >= l.first
	}
	return l.earlier
}

// alert ends what plans: it wakes workers for what is due and what was put to the
// front of the list.
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

// keepsDigest reports whether an entry names the digest of its payload: it is large, or the entry
// stands for it.
func (q *queue) keepsDigest(entry, payload string) bool {
	_, named := q.names[payload]
	return len(payload) > namedFrom || isKey(entry) && named
}

// keepDigest has an entry name the digest of what waits.
func (q *queue) keepDigest(l *lane, entry, payload string) {
	if q.keepsDigest(entry, payload) {
		q.set(l.entry+entry, "digest", q.digest(payload))
	}
}

// named takes in the digest that an entry names of what waits: it counts where contents
// has it, too.
func (q *queue) named(l *lane, entry, payload string) {
	d, ok := q.field(l.entry+entry, "digest")
	if _, waits := q.score(l.contents, d+":"+entry); ok && waits {
		q.name(payload, d)
	}
}

var rules = []string{"keep", "counts", "low", "high"}

// unwait removes the waiting part of an entry, and with it the entry unless it runs.
func (q *queue) unwait(l *lane, entry string) bool { return q.unwaitAs(l, entry, "") }

// unwaitAs is unwait, where contents has told the digest.
func (q *queue) unwaitAs(l *lane, entry, told string) bool {
	q.forget()
	key := l.entry + entry
	var payload, turn string
	var waits, runs, occurs bool
	if q.is(key, "hash") {
		payload, waits = q.field(key, "payload")
		_, runs = q.field(key, "process")
		turn, occurs = q.field(key, "turn")
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
		q.unset(key, append([]string{"payload", "due", "retries", "crashes", "digest", "card", "turn"}, rules...)...)
	} else {
		q.del(key)
	}
	if occurs && l == &q.lane {
		q.pass(entry, number(turn))
	}
	return true
}

// started makes what waits in an entry run.
func (q *queue) started(entry, id, payload, worker string, retries, crashes int64, card string) {
	key := q.entry + entry
	q.remove(q.schedule, entry)
	q.remove(q.contents, q.digest(payload)+":"+entry)
	if turn, occurs := q.field(key, "turn"); occurs {
		q.set(key, "took", turn)
	}
	q.unset(key, "payload", "due", "retries", "crashes", "digest", "card", "turn", "withheld")
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

// untie removes what entries has of a process.
func (q *queue) untie(id string) (added bool) {
	q.unset(q.entries, id)
	name, added := q.running[id]
	if added {
		q.unset(q.entries, name)
	}
	return added
}

// ended removes the running part of an entry. What it blocked is planned.
func (q *queue) ended(entry, id, outcome string) {
	key := q.entry + entry
	if q.untie(id) {
		q.del(key)
		return
	}
	if took, occurred := q.field(key, "took"); occurred {
		q.tellLast(entry, outcome, took)
	}
	if due, ok := q.field(key, "due"); ok {
		q.unset(key, append([]string{"process", "tried", "died", "holder", "sum", "held", "took", "error"}, rules...)...)
		if q.has(BlockedReleased) {
			q.plan(&q.lane, entry, number(due))
		}
	} else {
		q.del(key)
	}
}

// returned makes what runs wait again. What was put there meanwhile says what becomes
// of it, as it would have said of what waits. It tells whether the counts stay.
func (q *queue) returned(entry, id, payload string, due, retries, crashes int64, card string) (counts bool) {
	key := q.entry + entry
	newer, put := "", false
	if _, added := q.running[id]; isKey(entry) && !added {
		newer, put = q.field(key, "payload")
	}
	rule := func(name string) string {
		f, ok := q.field(key, name)
		if !ok && (name == "low" || name == "high") { // Redis had lost what runs
			f, _ = q.field(key, "due")
		}
		return f
	}
	took, occurred := q.field(key, "took")
	q.untie(id)
	q.unset(key, "process", "tried", "died", "holder", "sum", "held", "took")
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
	if occurred && isKey(entry) {
		q.set(key, "turn", took)
	}
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

// trim removes the oldest, of those with a score from low on, where there are more
// than keep: 100 at most, and no more once they have a megabyte. It tells how many.
func (q *queue) trim(l *lane, low float64, keep int) (dropped int) {
	bytes := 0
	for range min(len(q.between(l.schedule, low, inf))-keep, 100) {
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

// A failure is what is told of a task that failed.
type failure struct {
	payload, entry, kind, reason string
	retries, crashes             int64
	card                         string
	turn                         string // the time of its occurrence, if it recurs
	due                          int64  // a low one isn't a time
}

func (q *queue) bury(l *lane, worker, id string, f failure) {
	grave, from := "k:"+id, ""
	if isKey(f.entry) {
		from = f.entry
	}
	if f.turn != "" {
		from += "@" + f.turn
	}
	q.await(l, grave, f.payload, q.now, 0, 0, f.card)
	q.set(l.entry+grave, "kind", f.kind, "reason", f.reason, "tries", f.retries, "deaths", f.crashes, "worker", worker, "at", q.now, "from", from)
	if f.due >= ancient {
		q.set(l.entry+grave, "planned", f.due)
	}
	q.plan(l, grave, q.now)
}

// putAside keeps in a failed queue what failed again, never to be due.
func (q *queue) putAside(entry, payload string, retries, crashes int64) {
	q.await(&q.lane, entry, payload, aside+q.now, retries, crashes, "")
	q.plan(&q.lane, entry, aside+q.now)
}
