package spec

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

func init() { verbs["recur"] = of(recur) }

// Peers assert a schedule for less than longestPeriod. Occurrences that have started don't start again if the clock is
// set back by at most setBack. Both are in ms.
const (
	longestPeriod = 60_000
	setBack       = 3_600_000
)

// withheldFor is how long an unasserted occurrence is withheld, in ms.
const withheldFor = 10_000

// recurrence returns the key of a schedule.
func (q *queue) recurrence(entry string) string {
	return strings.Replace(q.entry, ":keyed:{", ":recurrence:{", 1) + entry
}

func (q *queue) recurring() string {
	return strings.TrimSuffix(strings.Replace(q.entry, ":keyed:{", ":recurring:{", 1), ":")
}

// A course is the state of a schedule.
type course struct {
	passed, late  int64
	times         string
	payload, card string
}

func (q *queue) course(entry string) (c course, ok bool) {
	key := q.recurrence(entry)
	if !q.is(key, "hash") {
		return c, false
	}
	_, ok = q.field(key, "passed")
	return course{q.count(key, "passed"), q.count(key, "late"), q.word(key, "times"), q.word(key, "payload"), q.word(key, "card")}, ok
}

// pass records that an occurrence has started, or was dropped: it isn't planned again, and those missed until
// now don't occur.
func (q *queue) pass(entry string, turn int64) {
	if c, ok := q.course(entry); ok && turn > c.passed {
		q.set(q.recurrence(entry), "passed", max(turn, q.now))
	}
}

func (q *queue) tellLast(entry, outcome, turn string) {
	if _, ok := q.course(entry); ok {
		q.set(q.recurrence(entry), "last", fmt.Sprintf("%s:%s:%d", outcome, turn, q.now))
	}
}

// asserted returns until when a schedule is asserted.
func (q *queue) asserted(entry string) int64 {
	if !q.is(q.recurring(), "zset") {
		return 0
	}
	until, _ := q.score(q.recurring(), entry)
	return int64(until)
}

// areOver reports whether the assertions of any schedules have expired.
func (q *queue) areOver() bool {
	return q.is(q.recurring(), "zset") && len(q.between(q.recurring(), -inf, float64(q.now-1))) > 0
}

var digits = regexp.MustCompile(`\d+`)

// follow plans the next occurrence, after the running one if there is one.
func (q *queue) follow(entry string, runs bool) {
	c, ok := q.course(entry)
	if !ok {
		return
	}
	for _, word := range digits.FindAllString(c.times, -1) {
		at := number(word)
		if at <= c.passed {
			continue
		}
		if c.card == "" {
			c.card = "0"
		}
		q.forget()
		q.await(&q.lane, entry, c.payload, at, 0, 0, q.dated(c.card))
		q.set(q.entry+entry, "turn", at)
		if runs {
			q.set(q.entry+entry, "keep", 1, "counts", 1, "low", 0, "high", int64(never))
		} else {
			q.plan(&q.lane, entry, at)
		}
		return
	}
}

// insert makes the waiting occurrence an extra one of its schedule, if a put asks for that.
func (q *queue) insert(entry, when string) {
	turn := q.turn(entry)
	if c, ok := q.course(entry); when == "extra" && ok && turn != "" && number(turn) > c.passed {
		q.set(q.entry+entry, "turn", min(number(turn), max(q.now, c.passed+1)))
	}
}

// skip drops what waits. If that is an occurrence, it plans the next one.
func (q *queue) skip(entry, outcome string, runs bool) (waited bool) {
	turn := q.turn(entry)
	waited = q.unwait(&q.lane, entry)
	if turn != "" {
		q.tellLast(entry, outcome, text(number(turn)))
		q.follow(entry, runs)
	}
	return waited
}

// stays reports whether an occurrence that is due doesn't start.
func (q *queue) stays(entry string) bool {
	turn := q.turn(entry)
	c, ok := q.course(entry)
	if turn == "" || !ok || number(turn) <= c.passed {
		return false
	}
	if q.asserted(entry) < q.now {
		q.set(q.entry+entry, "due", q.now+withheldFor, "withheld", 1)
		q.plan(&q.lane, entry, q.now+withheldFor)
		return true
	}
	if c.late == 0 || q.now-number(turn) <= c.late {
		return false
	}
	q.skip(entry, "skipped", false)
	return true
}

func recur(q *queue, c store.Call) any {
	q.size(q.recurring())
	q.mustBeIntact()
	answers, ended := []any{}, []any{}
	period, all := number(c.Arg("period")), c.Rest()
	var untils []int64
	for i := 0; i+7 <= len(all); i += 7 {
		untils = append(untils, q.asserted(all[i]))
	}
	for i, until := range untils {
		answers = append(answers, q.assert(period, until, all[7*i:7*i+7]))
	}
	if q.now <= number(c.Arg("judge")) {
		over := q.between(q.recurring(), -inf, float64(q.now-1))
		for _, r := range over[:min(len(over), 50)] {
			if !q.endSchedule(r.name) {
				break
			}
			ended = append(ended, r.name)
		}
	}
	if !q.isPaused() {
		q.alert(&q.lane, 0)
	}
	return []any{answers, ended, q.now}
}

// endSchedule ends a schedule. It returns false if that is too much for this call.
func (q *queue) endSchedule(entry string) bool {
	turn, seen := q.part(entry, "turn")
	if c, ok := q.course(entry); seen == there && (!ok || number(turn) > c.passed) {
		if !q.affords(q.entry + entry) {
			return false
		}
		card := q.cardInSchedule(entry)
		q.unwait(&q.lane, entry)
		q.keepResult(entry, card, store.EndRemoved, "", "")
	}
	q.del(q.recurrence(entry))
	q.remove(q.recurring(), entry)
	return true
}

// affords reports whether a call may drop or copy another payload: up to 1 MiB in total, besides the first.
func (q *queue) affords(key string) bool {
	bytes := 0
	if q.is(key, "hash") {
		bytes = len(q.word(key, "payload"))
	}
	if q.moved > 0 && q.moved+bytes > 1<<20 {
		return false
	}
	q.moved += bytes
	return true
}

// assert returns the answer to the assertion of one schedule.
func (q *queue) assert(period, until int64, s []string) any {
	entry, print, times := s[0], s[1], s[4]
	since, _ := integer(s[2])
	key := q.recurrence(entry)
	if !q.is(key, "hash") {
		return []any{since, 0, "damaged"}
	}
	was, known := q.field(key, "print")
	mine := known && was == print
	ahead, until, passed, began := q.corrected(key, print, max(period, longestPeriod), until)
	if since > q.micros+setBack*1000 {
		since = 0
	}
	lacks := times == "" && (!mine || ahead || q.count(key, "more") <= q.now)
	if mine && times == "" && !lacks && 5*(until-q.now) >= 4*period {
		return []any{max(since, began), 0, "held"}
	}
	if !q.is(q.entry+entry, "hash") {
		return []any{since, 0, "damaged"}
	}
	if mine {
		since = max(since, began)
	} else if since < 0 {
		since = q.micros
	} else if since == 0 {
		since = q.micros
		if m := regexp.MustCompile(print + `:(\d+)`).FindStringSubmatch(q.word(key, "before")); m != nil {
			since = number(m[1])
		}
	}
	if known && !mine && since <= began && until >= q.now {
		return []any{since, 0, "older"}
	}
	before := ""
	if mine && !ahead {
		before = q.word(key, "times")
	}
	if lacks && mine && !ahead {
		q.add(q.recurring(), entry, q.now+period)
		last := q.now
		for _, at := range digits.FindAllString(before, -1) {
			last = max(last, number(at))
		}
		return []any{since, last, "more"}
	} else if lacks && ahead {
		return []any{since, passed, "wanted"}
	} else if lacks {
		return []any{since, q.now, "wanted"}
	}
	if known && !mine && !q.affords(q.entry+entry) {
		return []any{since, q.now, "wanted"}
	}
	if times != "" {
		q.store(key, s, since, passed, before, began, known && !mine)
	}
	q.add(q.recurring(), entry, q.now+period)
	q.mend(entry, passed, known && !mine || ahead, times != "", ahead)
	return []any{since, 0, "held"}
}

// store stores a schedule, with the previous times that are still to come.
func (q *queue) store(key string, s []string, since, passed int64, before string, began int64, replaces bool) {
	var all []string
	last := passed
	for _, at := range digits.FindAllString(before+" "+s[4], -1) {
		if number(at) <= last {
			continue
		}
		if last = number(at); len(all) == 0 || last > q.now {
			all = append(all, at)
		}
	}
	if replaces {
		replaced := append([]string{q.word(key, "print") + ":" + text(began)}, strings.Fields(q.word(key, "before"))...)
		q.set(key, "before", strings.Join(replaced[:min(len(replaced), 4)], " "))
	}
	q.set(key, "print", s[1], "since", since, "late", s[3], "more", (q.now+last)/2, "times", strings.Join(all, " "), "payload", s[5], "card", s[6], "passed", passed)
}

// mend plans what is missing, was withheld, or belongs to a replaced schedule.
func (q *queue) mend(entry string, passed int64, changed, sent, ahead bool) {
	key := q.entry + entry
	q.lift(entry)
	_, waits := q.field(key, "payload")
	_, runs := q.field(key, "process")
	_, took := q.field(key, "took")
	turn, occurs := q.field(key, "turn")
	_, held := q.field(key, "withheld")
	fresh := waits && occurs && number(turn) > passed
	if changed && !(fresh && number(turn) <= q.now) {
		if fresh {
			card, by := q.cardInSchedule(entry), ""
			if c, ok := q.course(entry); ok {
				by = c.card
			}
			q.unwait(&q.lane, entry)
			q.keepReplaced(entry, card, by)
			waits, held = false, false
		}
		at := q.now
		if ahead {
			at = passed
		}
		q.set(q.recurrence(entry), "passed", at)
	}
	if ahead && waits && occurs && !fresh && !runs && q.count(key, "due") > q.now+setBack {
		q.set(key, "due", q.now)
		q.plan(&q.lane, entry, q.now)
	}
	switch {
	case fresh && held && !runs:
		q.unset(key, "withheld")
		q.set(key, "due", number(turn))
		q.plan(&q.lane, entry, number(turn))
	case !waits && (took || !runs) && (sent || q.affords(q.recurrence(entry))):
		q.follow(entry, runs)
	}
}

// turn returns the time of the occurrence that waits under an entry; "" if none does.
func (q *queue) turn(entry string) string {
	turn, _ := q.part(entry, "turn")
	return turn
}

// took returns the time of the occurrence that a process runs under an entry; "" if it doesn't recur.
func (q *queue) took(id, entry string) string {
	if _, added := q.running[id]; added || !isKey(entry) {
		return ""
	}
	return q.word(q.entry+entry, "took")
}
