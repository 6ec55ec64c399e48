package search

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/keys"
)

// Added tasks and occurrences.
//
// The id of an added task follows from its number, and precedes all ids that the specification
// makes. Tasks are added in the order of their numbers.
//
// In a scope with a schedule, task n is the occurrence n, whose time is n ms after everything that becomes due.
// The clock stands still, so each time is in the future until it has started. Each production is an assertion
// of the schedule, as a peer sends it: the first creates it, the others repeat it.

const (
	salt     = "0123456789abc"
	saltCard = salt + "0"
)

func itemID(task uint8) string { return "999-" + strconv.Itoa(int(task)) }

// addedEntry returns the entry of an added task.
func addedEntry(task uint8) string {
	key, _ := keys.AddedKey(itemID(task), salt) // any id and salt will do
	return "k:" + key
}

// keyed returns the number of the entry that cancels of the key are about.
func (sc *scope) keyed() int { return bit(len(sc.tasks) > 0 && sc.tasks[0].added) }

func (sc *scope) recurs() bool { return len(sc.tasks) > 0 && sc.tasks[0].recurs }

// entryName returns the name of an entry from its number.
func (c *codec) entryName(i int) string {
	switch {
	case i == 0:
		return theKey
	case i <= len(c.scope.tasks) && c.scope.tasks[i-1].added:
		return addedEntry(uint8(i))
	}
	return "r:t" + strconv.Itoa(i)
}

// addedOf returns the number of the entry that an added task runs from; 0 if it isn't one.
func (c *codec) addedOf(value string) int {
	key, card, ok := keys.SplitAdded(value)
	if !ok || card == "" {
		return 0
	}
	return c.entryOf("k:"+key, nil)
}

// digest returns what contents calls an entry.
func (c *codec) digest(i int, payload string) string {
	if i > 0 && i <= len(c.scope.tasks) && c.scope.tasks[i-1].added {
		return lane.Digest(c.entryName(i))
	}
	return lane.Digest(payload)
}

// putAdded stores the stream.
func (c *codec) putAdded(s *spec.Store, r *redis) {
	var items [][]string
	for _, t := range r.added {
		if t != 0 {
			items = append(items, []string{itemID(t), saltCard, c.payloads[t]})
		}
	}
	if len(items) > 0 {
		s.Set(queue.Added(), items)
	}
}

// tie returns what the hash of running entries holds about an added task from the stream.
func tie(task, process uint8) (value, name, runner string) {
	name = "a:" + itemID(task) + "-" + salt
	return name + "0", name, processID(process) + ":" + workerID(workerOf(process))
}

// timeOf returns the time of an occurrence.
func timeOf(n uint8) string { return strconv.Itoa(int(ms) + 2*term + int(n)) }

// occurrenceAt returns the occurrence at a time; 0 before the first.
func occurrenceAt(at string) uint8 {
	n, _ := strconv.Atoi(at)
	return uint8(max(n-int(ms)-2*term, 0))
}

// times returns the times of all occurrences.
func (c *codec) times() string {
	var all []string
	for i := range c.scope.tasks {
		all = append(all, timeOf(uint8(i+1)))
	}
	return strings.Join(all, " ")
}

// putCourse stores the schedule.
func (c *codec) putCourse(s *spec.Store, r *redis) {
	if !r.course {
		return
	}
	passed := strconv.Itoa(int(ms))
	if r.passed > 0 {
		passed = timeOf(r.passed)
	}
	s.Set(queue.Recurrence(theKey), hash{"print": "print", "since": "1", "late": "0", "more": timeOf(99), "times": c.times(),
		"payload": c.payloads[1], "card": "", "passed": passed})
	s.Set(queue.Recurring(), zset{theKey: ms + term})
}

// putTurns stores the times of what waits and runs under the key.
func (c *codec) putTurns(about hash, r *redis, e entry) {
	if e.task > 0 {
		about["turn"] = timeOf(e.task)
	}
	if e.process > 0 {
		about["took"] = timeOf(r.process[e.process-1].task)
	}
	if e.task > 0 && e.process > 0 {
		about["keep"], about["counts"], about["low"], about["high"] = "1", "1", "0", "9007199254740991"
	}
}

// assertion returns the call by which a peer asserts the schedule.
func (c *codec) assertion() (verb string, args values) {
	return "recur", values{"period": {strconv.Itoa(term)}, "schedules": {theKey, "print", "1", "0", c.times(), c.payloads[1], ""}}
}

// occurs sets which occurrence a round has started: all have the same payload.
func (c *codec) occurs(o *outcome, q *query) {
	if a := &o.reply.answer; c.scope.recurs() && a.token > 0 {
		a.task = o.redis.process[q.start-1].task
	}
}

// readRunning reads the hash of running entries.
func (c *codec) readRunning(r, was *redis, v hash) {
	for id, name := range v {
		if _, card, ok := keys.SplitAdded(id); ok && card == "" {
			continue // the other field of an added task has the same information
		}
		p := uint8(numbered(id, "p"))
		if at := c.addedOf(name); at > 0 {
			r.process[p-1].entry, r.process[p-1].added, r.entry[at].process = uint8(1+at), true, p
			if _, named, runner := tie(uint8(at), p); v[named] != runner {
				panic(fmt.Sprintf("%s runs as %q", named, v[named]))
			}
			continue
		}
		r.process[p-1].entry = uint8(1 + c.entryOf(name, was))
	}
}

// births checks the occurrences of a schedule: the next one is planned when the previous one
// starts, or is dropped. If the previous one comes back, the next one is removed until the previous
// one starts again.
func (o *observation) births() {
	s := o.s
	for i := range o.scope.tasks {
		t, f := uint8(i+1), &s.past.fate[i]
		there := s.redis.has(t)
		switch {
		case *f == unborn && there:
			*f = accepted
		case *f == accepted && !there && i > 0 && s.past.fate[i-1] == accepted && s.redis.has(t-1):
			*f = unborn
		}
	}
	if o.q.kind != toStep || o.q.start == 0 || s.redis.process[o.q.start-1].token == o.was.process[o.q.start-1].token {
		return
	}
	if t := s.redis.process[o.q.start-1].task; int(t) < len(o.scope.tasks) && !s.redis.has(t+1) {
		s.blame(unplanned)
	}
}

// queued blames an added task that has started before one that was added earlier.
func (o *observation) queued(p process) {
	if p.added && slices.ContainsFunc(o.s.redis.added[:], func(t uint8) bool { return t > 0 && t < p.task }) {
		o.s.blame(overtakes)
	}
}

// addedGone checks what a cancel of the key removes from the stream.
func (o *observation) addedGone(name int) {
	for _, t := range o.was.added {
		if t > 0 && o.covers(name, t, 1+t) && !o.s.redis.has(t) {
			o.s.over(t, gaveUp)
		}
	}
}
