package spec

import (
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/store"
)

func init() { verbs["add"] = add }

// The flags in the first digit of a card.
const (
	expires = 1
	apart   = 2 // the payload is in the hash of the entry
)

func cardHas(card string, flag int) bool {
	flags, _ := strconv.Atoi(card[:min(len(card), 1)])
	return flags&flag != 0
}

// cardWith returns the card with a flag set or cleared.
func cardWith(card string, flag int, on bool) string {
	flags, _ := strconv.Atoi(card[:1])
	if flags &^= flag; on {
		flags |= flag
	}
	return strconv.Itoa(flags) + card[1:]
}

// again returns the card of a task that gets another chance: without an expiry time that has passed.
func (q *queue) again(card string) string {
	if card == "" || !cardHas(card, expires) {
		return card
	}
	if at, ok := integer(card[1:min(len(card), 17)]); !ok || at > q.now {
		return card
	}
	return cardWith(card[:1]+card[min(len(card), 17):], expires, false)
}

// added parses an item of the stream. ok is false if the item isn't an added task: someone else wrote it.
func (it item) added() (entry, name, card string, ok bool) {
	if len(it.pairs) != 2 || len(it.pairs[0]) < 14 {
		return "", "", "", false
	}
	salt, card := it.pairs[0][:13], it.pairs[0][13:]
	key, ok := keys.AddedKey(it.id.String(), salt)
	if !ok || card[0] < '0' || card[0] > '7' {
		return "", "", "", false
	}
	return store.EntryOf(key), "a:" + it.id.String() + "-" + salt, card, true
}

// readAdded parses the field in entries of an added task that runs.
func readAdded(value string) (name, entry, card string, ok bool) {
	key, card, ok := keys.SplitAdded(value)
	if !ok || card == "" || card[0] < '0' || card[0] > '7' {
		return "", "", "", false
	}
	return value[:len(value)-len(card)], store.EntryOf(key), card, true
}

// A waiter is an added task that waits.
type waiter struct {
	id, card, payload string
	since             int64
	apart             bool
}

// waitsAdded returns the added task that waits for an entry.
func (q *queue) waitsAdded(entry string) (w waiter, ok bool) {
	name, ok := keys.AddedName(store.KeyOf(entry))
	if !ok {
		return waiter{}, false
	}
	for _, it := range q.stream(q.added).items {
		_, of, card, ok := it.added()
		if !ok || of != name {
			continue
		}
		w = waiter{id: it.id.String(), card: card, payload: it.pairs[1], since: int64(it.id.ms)}
		if cardHas(card, apart) {
			w.payload, _ = q.field(q.entry+entry, "payload")
			w.card, w.apart = cardWith(card, apart, false), true
		}
		return w, true
	}
	return waiter{}, false
}

// dropAdded removes items from the stream, and the stream with the last one.
func (q *queue) dropAdded(ids ...string) (left int) {
	q.drop(q.added, ids...)
	if left = q.Store.entries(q.added); left == 0 {
		q.del(q.added)
	}
	return left
}

// runsAdded returns the process and worker that run the added task of an entry.
func (q *queue) runsAdded(entry string) (process, worker, name string, ok bool) {
	if name, ok = keys.AddedName(store.KeyOf(entry)); !ok {
		return "", "", "", false
	}
	runs, ok := q.field(q.entries, name)
	if !ok {
		return "", "", "", false
	}
	process, worker, ok = strings.Cut(runs, ":")
	return process, worker, name, ok
}

// withdraw removes the added task that waits for an entry.
func (q *queue) withdraw(entry string) bool {
	w, ok := q.waitsAdded(entry)
	if !ok {
		return false
	}
	if w.apart {
		q.del(q.entry + entry)
	}
	q.dropAdded(w.id)
	return true
}

// lift moves the added task of an entry to the schedule.
func (q *queue) lift(entry string) {
	if w, ok := q.waitsAdded(entry); ok {
		q.forget()
		q.name(w.payload, digest(entry))
		due := min(w.since, q.now) // the clock may have been set back
		q.await(&q.lane, entry, w.payload, due, 0, 0, w.card)
		q.plan(&q.lane, entry, due)
		q.dropAdded(w.id)
	}
	if process, worker, name, ok := q.runsAdded(entry); ok {
		_, _, card, ok := readAdded(q.word(q.entries, process))
		if !ok {
			card = "0"
		}
		q.set(q.entry+entry, "process", process, "tried", 0, "died", 0, "holder", worker, "sum", process+":"+digest(entry), "held", card)
		q.set(q.entries, process, entry)
		q.unset(q.entries, name)
	}
}

func add(s *Store, c store.Call, at time.Time) any {
	window := number(c.Arg("window"))
	if window > 0 {
		if mark, there := s.get(c.Key("once")); there {
			return []any{mark, 0}
		}
	}
	first := streamID{uint64(at.UnixMilli()), uint64(at.UnixMicro() % 1000 * 1046)}
	tasks := c.Rest()
	if last := s.stream(c.Key("added")).last; first.compare(last) <= 0 {
		if last.ms >= 1<<48-1 {
			return Refusal("WRONGTYPE an item in the stream of added tasks is of no time; remove it")
		}
		if first = (streamID{last.ms, last.seq + 1}); last.seq >= 1<<20-uint64(len(tasks)/2) {
			first = streamID{last.ms + 1, 0}
		}
	}
	for i := 0; i+1 < len(tasks); i += 2 {
		id := streamID{first.ms, first.seq + uint64(i/2)}
		card, payload := cardWith(tasks[i], apart, false), tasks[i+1]
		if len(payload) > 16<<10 {
			key, _ := keys.AddedKey(id.String(), c.Arg("salt"))
			s.append(c.Key("added"), id, c.Arg("salt")+cardWith(card, apart, true), "")
			s.set(c.Arg("keyed")+store.EntryOf(key), "payload", payload, "card", card)
		} else {
			s.append(c.Key("added"), id, c.Arg("salt")+card, payload)
		}
	}
	name := "a:" + first.String() + "-" + c.Arg("salt")
	if window > 0 {
		s.put(c.Key("once"), name)
		s.expire(c.Key("once"), window)
	}
	woken := s.wakes(c.Key("idle"), c.Arg("wake"), len(tasks)/2)
	s.Publish(c.Arg("enqueue"), text(len(tasks)/2))
	alone := woken == 0 && s.entries(c.Key("added")) == len(tasks)/2 && !s.exists(c.Key("workers")) && !s.exists(c.Key("waiting"))
	return []any{name, 1 + bit(alone)}
}

// fromAdded starts added tasks: if there are some on the list too, each gets half of the ids.
func (r *round) fromAdded() {
	if !r.adding {
		return
	}
	ids := r.final - r.first
	stop := r.first + max((ids+int(1-r.token%2))/2, ids-r.waits())
	var taken []string
	for _, it := range r.stream(r.added).items {
		if !r.goesOn() || r.first >= stop {
			break
		}
		r.startAdded(it)
		taken = append(taken, it.id.String())
	}
	r.dropAdded(taken...)
}

// startAdded starts the task in an item.
func (r *round) startAdded(it item) {
	entry, name, card, ok := it.added()
	payload, process := it.pairs[1], r.ids[r.first]
	if !ok { // someone else wrote it
		r.push(r.process+process, payload)
		r.begin(payload, "", 0, 0, details{})
		return
	}
	r.forget()
	isApart := cardHas(card, apart)
	if isApart {
		var there bool
		payload, there = r.part(entry, "payload")
		if card = cardWith(card, apart, false); !there {
			return
		}
	}
	about := details{due: int64(it.id.ms), card: card}
	if isApart {
		r.name(payload, digest(entry))
		r.queue.started(entry, process, payload, r.worker, 0, 0, card)
	} else {
		about.value = "a:" + it.id.String() + "-" + it.pairs[0]
		r.push(r.process+process, payload)
		r.set(r.entries, process, about.value, name, process+":"+r.worker)
	}
	r.begin(payload, entry, 0, 0, about)
}

// dropLine drops a page of the added tasks, and returns how many are left.
func (q *queue) dropLine() (left, bytes int) {
	items := q.stream(q.added).items
	var ids []string
	for _, it := range items[:min(len(items), 50)] {
		if bytes >= 1<<20 {
			break
		}
		entry, _, card, ok := it.added()
		if ok && keepsFor(card) > 0 {
			q.tellEnd(entry)
		}
		if ok && cardHas(card, apart) {
			q.del(q.entry + entry)
		}
		ids, bytes = append(ids, it.id.String()), bytes+len(it.pairs[1])
	}
	if len(ids) > 0 {
		left = q.dropAdded(ids...)
	}
	return left, bytes
}
