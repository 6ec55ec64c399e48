package spec

import (
	"strings"

	"github.com/worqr/worqr/internal/store"
)

const kept = 4 // in the first digit of a card: it keeps the task's result

// keepsFor returns for how many ms a task with this card keeps its result; 0 if it doesn't.
func keepsFor(card string) int64 {
	from := 1
	if cardHas(card, expires) {
		from += 16
	}
	if !cardHas(card, kept) || len(card) < from+10 || strings.Trim(card[:from+10], "0123456789") != "" {
		return 0
	}
	return number(card[from : from+10])
}

// keepResult stores how the task of an entry ended, if its card asks for that.
func (q *queue) keepResult(entry, card, how, reason, result string) {
	head, tail, _ := strings.Cut(q.entry, ":keyed:{")
	ms := keepsFor(card)
	if entry == "" || ms == 0 || strings.HasSuffix(head, ":failed") {
		return
	}
	reason = reason[:min(len(reason), store.MaxError)]
	key := head + ":result:{" + tail + entry
	q.put(key, how+":"+text(q.micros)+":"+text(len(reason))+":"+reason+result)
	q.expire(key, ms)
	q.tellEnd(entry)
}

// keepReplaced keeps the result of a task that is replaced by one that keeps none.
func (q *queue) keepReplaced(entry, card, by string) {
	if keepsFor(by) == 0 {
		q.keepResult(entry, card, store.EndReplaced, "", "")
	}
}

// forgetResult removes the result of an entry whose task will run again.
func (q *queue) forgetResult(entry, card string) {
	if head, tail, _ := strings.Cut(q.entry, ":keyed:{"); keepsFor(card) > 0 {
		q.del(head + ":result:{" + tail + entry)
	}
}

// tellEnd notifies callers that wait for the end of an entry's task.
func (q *queue) tellEnd(entry string) {
	q.Publish(strings.TrimSuffix(q.wake, "wake:")+"end:"+digest(entry), "")
}

// cardInSchedule returns the card of the waiting part of an entry, unless a task runs there whose result
// will be kept.
func (q *queue) cardInSchedule(entry string) string {
	if !q.is(q.entry+entry, "hash") {
		return ""
	}
	if _, waits := q.field(q.entry+entry, "payload"); !waits || keepsFor(q.word(q.entry+entry, "held")) > 0 {
		return ""
	}
	return q.word(q.entry+entry, "card")
}

// takeAway removes what waits for an entry, which ends with outcome how.
func (q *queue) takeAway(entry, how string) bool {
	card := q.cardInSchedule(entry)
	if w, ok := q.waitsAdded(entry); ok {
		card = w.card
	}
	removed := q.withdraw(entry) || q.unwait(&q.lane, entry)
	if removed {
		q.keepResult(entry, card, how, "", "")
	}
	return removed
}
