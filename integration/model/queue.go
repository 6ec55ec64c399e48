package model

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A queue is what a script knows of the queue that it works on.
type queue struct {
	lane
	*store
	waiting, suspects, canceled, rounds, unique, token, entries, ledger, paused string // keys
	process, working, cancel                                                    string // prefixes
	now, micros                                                                 int64

	locks     bool  // on payloads; only then
	offset    int64 // is the position of the front
	canceling bool  // somebody has to acknowledge a cancel
	counting  bool  // workers died holding what is not under a key
	keyed     bool  // something runs out of the second lane
	scheduled bool  // something waits there, or has when this call began
	broken    bool  // a key of the second lane is of another type
}

// A lane is where tasks wait that have a time or a key: the second lane of a queue, or
// its failed queue.
type lane struct {
	schedule, contents, idle, workers string // keys
	entry, wake                       string // prefixes

	ready   int   // planned by this call, and due
	first   int64 // when the first of the others planned is due; 0: none
	earlier bool  // whoever keeps the time is to hear of it
}

const (
	never  = 1<<53 - 1 // the deadline of a lease that does not end
	aside  = 1 << 52   // added to the time of what was given up
	clock  = 1 << 43   // added to the score of who keeps the time
	atOnce = 100       // tasks that one call gives back
)

func newQueue(s *store, keys, args []string, at time.Time) *queue {
	q := &queue{
		store: s, waiting: keys[0], suspects: keys[3], canceled: keys[4], rounds: keys[5], unique: keys[6], token: keys[7],
		entries: keys[10], ledger: keys[11], paused: keys[12], process: args[0], working: args[1], cancel: args[2],
		lane: lane{schedule: keys[8], contents: keys[9], idle: keys[2], workers: keys[1], entry: args[4], wake: args[3]},
		now:  at.UnixMilli(), micros: at.UnixMicro(),
	}
	if s.is(q.entries, "hash") {
		q.keyed = s.fields(q.entries) > 0
	}
	q.scheduled = s.is(q.schedule, "zset") && s.size(q.schedule) > 0
	q.broken = !s.is(q.schedule, "zset") || !s.is(q.contents, "zset") || !s.is(q.entries, "hash") || !s.is(q.ledger, "hash")
	offset, _ := s.field(q.unique, "offset")
	q.offset, q.locks = integer(offset)
	q.canceling = s.size(q.canceled) > 0
	s.size(q.suspects)
	q.counting = !q.broken && s.fields(q.ledger) > 0
	return q
}

// whole refuses to go on where a key of the second lane is of another type.
func (q *queue) whole() {
	if q.broken {
		panic(wrongType)
	}
}

func (q *queue) suspecting() bool { return q.size(q.suspects) > 0 }
func (q *queue) isPaused() bool   { return q.exists(q.paused) }

// due is how many entries may start.
func (q *queue) due() int { return len(q.between(q.schedule, -inf, float64(q.now))) }

// waits is how many tasks wait in the list, as far as it is one.
func (q *queue) waits() int {
	if !q.is(q.waiting, "list") {
		return 0
	}
	return q.length(q.waiting)
}

// lastToken is the last token that was given, if the counter is a number.
func (q *queue) lastToken() (int64, bool) {
	if !q.is(q.token, "string") {
		return 0, false
	}
	return asToken(q.get(q.token))
}

// asToken reads what the counter of tokens holds, if there is one and it holds a number.
func asToken(text string, there bool) (int64, bool) {
	if !there {
		return 0, true
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || n != math.Floor(n) || n < 0 || n >= never {
		return 0, false
	}
	return int64(n), true
}

// givesTokens is the last token; without one, what gives tokens is refused.
func (q *queue) givesTokens() int64 {
	token, ok := q.lastToken()
	if !ok {
		panic(refusal("WRONGTYPE the token counter is not a number"))
	}
	return token
}

func (q *queue) deadline(lease int64) int64 {
	if lease > 0 {
		return q.now + lease
	}
	return never
}

// holders are those who hold anything: members, and those being returned.
func (q *queue) holders() (all []string) {
	for _, w := range slices.Concat(q.all(q.workers), q.between(q.suspects, -inf, 0)) {
		if q.exists(q.working + w.name) {
			all = append(all, w.name)
		}
	}
	return all
}

// holder is who holds a process, and its token; "" if nobody does.
func (q *queue) holder(id string) (worker string, token int64) {
	for _, w := range q.holders() {
		if !q.is(q.working+w, "zset") {
			continue
		}
		if score, ok := q.score(q.working+w, id); ok {
			worker, token = w, int64(score)
		}
	}
	return worker, token
}

// logCancel puts a cancel on record, for the workers to acknowledge.
func (q *queue) logCancel(name string, last int64, workers []string) int64 {
	record, token := q.cancel+name, max(last, 1)
	over := q.fields(record) <= 3 // or there is none
	if q.exists(q.workers) {      // who have seen what came before
		token = last + 1
		q.put(q.token, text(token))
	}
	if len(workers) == 0 {
		if over {
			q.set(record, "token", token, "stopped", 0, "finished", 0)
			q.expire(record, 10_000)
		}
		return 0
	}
	if over && q.fields(record) == 3 {
		q.del(record)
	}
	q.add(q.canceled, name, token)
	for _, f := range []string{"stopped", "finished"} {
		if _, ok := q.field(record, f); !ok {
			q.set(record, f, 0)
		}
	}
	q.set(record, "token", token)
	for _, w := range workers {
		q.set(record, "w:"+w, "")
	}
	return token
}

// integer reads a number.
func integer(s string) (int64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return int64(f), err == nil
}

// number reads a count or a time; what others have written there is 0.
func number(s string) int64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || f < 0 || f > never || f != math.Floor(f) {
		return 0
	}
	return int64(f)
}

func digest(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

// isKey reports whether an entry is the key of a user.
func isKey(entry string) bool { return strings.HasPrefix(entry, "k:") }
