package spec

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A queue is a script's view of the queue that it works on.
type queue struct {
	lane
	*Store
	waiting, suspects, canceled, rounds, token, entries, ledger, paused, holders, stopping, ages, added string // keys
	process, working, cancel                                                                            string // prefixes
	now, micros                                                                                         int64

	canceling bool              // the cancel log has entries
	counting  bool              // workers died holding tasks without a key
	keyed     bool              // tasks from the schedule or added tasks run
	adding    bool              // added tasks wait
	running   map[string]string // process → name of the running added tasks that were looked up
	scheduled bool              // the schedule has entries, or had when this call began
	broken    bool              // a key of the schedule is of another type
	carried   int               // bytes of the payloads that were returned
	digests
}

// A lane is where tasks with a time or a key wait: the schedule of a queue, or its failed queue.
type lane struct {
	schedule, contents, idle, workers string // keys
	entry, wake                       string // prefixes

	ready   int   // planned by this call, and due
	first   int64 // when the first of the other planned entries is due; 0: none
	earlier bool  // the worker that keeps the time must be woken
}

const (
	never = 1<<53 - 1 // the deadline of a lease that doesn't end
	aside = 1 << 52   // added to the time of a task that has failed permanently
	clock = 1 << 43   // added to the score of the worker that keeps the time

	ancient = 1_000_000_000_000 // in ms: a lower score is the place of a returned task

	atOnceBytes    = 1 << 20 // of the payloads that one call returns or removes
	atOnceWorkers  = 500     // whose tasks it compares
	atOnceSuspects = 1000    // workers marked as suspects
	atOnceFences   = 200     // workers evicted
)

func newQueue(s *Store, keys, args []string, at time.Time) *queue {
	q := &queue{
		Store: s, waiting: keys[0], suspects: keys[3], canceled: keys[4], rounds: keys[5], token: keys[6],
		entries: keys[9], ledger: keys[10], paused: keys[11], holders: keys[12], stopping: keys[13], ages: keys[14], added: keys[15], process: args[0], working: args[1], cancel: args[2],
		lane: lane{schedule: keys[7], contents: keys[8], idle: keys[2], workers: keys[1], entry: args[4], wake: args[3]},
		now:  at.UnixMilli(), micros: at.UnixMicro(),
	}
	if s.is(q.entries, "hash") {
		q.keyed = s.fields(q.entries) > 0
	}
	q.running = map[string]string{}
	q.adding = s.is(q.added, "stream") && s.entries(q.added) > 0
	q.scheduled = s.is(q.schedule, "zset") && s.size(q.schedule) > 0
	q.broken = !s.is(q.schedule, "zset") || !s.is(q.contents, "zset") || !s.is(q.entries, "hash") || !s.is(q.added, "stream") || !s.is(q.ledger, "hash")
	q.canceling = s.size(q.canceled) > 0
	s.size(q.suspects)
	q.counting = !q.broken && s.fields(q.ledger) > 0
	return q
}

// mustBeIntact panics with WRONGTYPE if a key of the schedule has another type.
func (q *queue) mustBeIntact() {
	if q.broken {
		panic(wrongType)
	}
}

func (q *queue) suspecting() bool { return q.size(q.suspects) > 0 }
func (q *queue) isPaused() bool   { return q.exists(q.paused) }

// due returns how many entries may start.
func (q *queue) due() int { return len(q.between(q.schedule, -inf, float64(q.now))) }

// ready returns how many tasks wait in the stream, plus those due in the schedule.
func (q *queue) ready() (n int) {
	if q.adding {
		n = q.Store.entries(q.added)
	}
	if q.scheduled {
		n += q.due()
	}
	return n
}

// waits returns how many tasks wait in the list, or 0 if the key has another type.
func (q *queue) waits() int {
	if !q.is(q.waiting, "list") {
		return 0
	}
	return q.length(q.waiting)
}

// lastToken returns the last token issued, if the counter is a number.
func (q *queue) lastToken() (int64, bool) {
	if !q.is(q.token, "string") {
		return 0, false
	}
	return asToken(q.get(q.token))
}

// given returns the highest token that can have been issued.
func (q *queue) given() float64 {
	if token, ok := q.lastToken(); ok {
		return float64(max(token, 1))
	}
	return never
}

// asToken parses the counter of tokens, if there is one and it is a number.
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

// givesTokens returns the last token. If there is none, the call is refused, since it issues
// tokens.
func (q *queue) givesTokens() int64 {
	token, ok := q.lastToken()
	if !ok {
		panic(Refusal("WRONGTYPE the token counter is not a number"))
	}
	return token
}

func (q *queue) deadline(lease int64) int64 {
	if lease > 0 {
		return q.now + lease
	}
	return never
}

// part returns a field of an entry, if its key is a hash.
func (q *queue) part(entry, name string) (string, bool) {
	if !q.is(q.entry+entry, "hash") {
		return "", false
	}
	return q.field(q.entry+entry, name)
}

// logCancel adds a cancel to the log, for the workers that hold something. given is the last token
// issued afterwards.
func (q *queue) logCancel(name string, last int64) (token, stopped, finished, given int64) {
	record := q.cancel + name
	given = last
	if q.exists(q.workers) { // they have acknowledged the earlier cancels
		given++
		q.put(q.token, text(given))
	}
	token = max(given, 1)
	holds := q.exists(q.holders)
	_, underWay := q.score(q.canceled, name)
	for _, f := range []string{"stopped", "finished"} {
		if _, ok := q.field(record, f); !ok {
			q.set(record, f, 0)
		}
	}
	q.set(record, "token", token)
	if holds {
		q.add(q.canceled, name, token)
		q.expire(record, 86_400_000)
	} else if !underWay {
		q.expire(record, 60_000)
	}
	if !holds {
		token = 0
	}
	return token, q.count(record, "stopped"), q.count(record, "finished"), given
}

// nameOf returns the prefix of the members of stopping that belong to a cancel.
func nameOf(name string) string {
	if isKey(name) {
		return "k" + digest(name)
	}
	return "p" + name
}

// StoppingAs returns the member of stopping that says that a process still runs although a cancel
// covers it.
func StoppingAs(name string, token int64, id string) string {
	return fmt.Sprintf("%s:%016d:%s", nameOf(name), token, id)
}

// holdsNothing removes a worker that holds nothing from holders.
func (q *queue) holdsNothing(worker string) {
	if q.is(q.holders, "zset") {
		q.remove(q.holders, worker)
	}
}

// trimLog removes cancels that have ended from the log: all holders have named the tasks that they
// cover, and none of these tasks runs.
func (q *queue) trimLog() {
	if !q.canceling || !q.is(q.holders, "zset") {
		return
	}
	low := inf
	for _, h := range q.all(q.holders) {
		low = min(low, h.score)
	}
	said := q.between(q.canceled, -inf, low)
	if !q.has(TrimSaid) {
		said = q.all(q.canceled)
	}
	if len(said) == 0 {
		return
	}
	if n := len(said); n > 100 {
		from := int(q.micros % int64(n-99))
		said = said[from:min(from+100, n)]
	}
	for _, c := range said {
		runs := false
		if q.has(TrimStopped) && q.is(q.stopping, "zset") {
			runs = slices.ContainsFunc(q.all(q.stopping), func(r ranked) bool { return strings.HasPrefix(r.name, nameOf(c.name)+":") })
		}
		if !runs {
			q.remove(q.canceled, c.name)
			q.expire(q.cancel+c.name, 60_000)
		}
	}
	if low == inf {
		q.del(q.canceled)
		q.del(q.stopping)
	}
}

// integer parses a number.
func integer(s string) (int64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return int64(f), err == nil
}

// number parses a count or a time; it returns 0 for anything else.
func number(s string) int64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || f < 0 || f > never || f != math.Floor(f) {
		return 0
	}
	return int64(f)
}

// digests holds the digests that tasks have instead of their payloads'.
type digests struct {
	names map[string]string // of the current task
}

// digest returns the digest of a payload.
func (d *digests) digest(payload string) string {
	if name, ok := d.names[payload]; ok {
		return name
	}
	return digest(payload)
}

// forget is called before the next task.
func (d *digests) forget() { d.names = nil }

var hexDigest = regexp.MustCompile(`^[0-9a-f]{40}$`)

// name stores the digest of a payload, if it is one.
func (d *digests) name(payload, as string) {
	if _, ok := d.names[payload]; ok || !hexDigest.MatchString(as) {
		return
	}
	if d.names == nil {
		d.names = map[string]string{}
	}
	d.names[payload] = as
}

func digest(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

// hasName reports whether an entry is a user's key, or a unique task's.
func hasName(entry string) bool { return isKey(entry) || strings.HasPrefix(entry, "u:") }

// isKey reports whether an entry is a user's key.
func isKey(entry string) bool { return strings.HasPrefix(entry, "k:") }
