package lane

import (
	"strings"

	"github.com/worqr/worqr/internal/keys"
)

// The flags in the first digit of a card (internal/store/lib_card.lua).
const (
	cardExpires = 1
	cardApart   = 2
)

// A Waiter is an added task that waits in the stream.
type Waiter struct {
	ID      string // of the item
	Entry   string // "" for an item that someone else wrote
	Card    string
	Payload string // "" if it is stored apart, in the hash of its entry
	Apart   bool
}

func waiter(item []string) (w Waiter) {
	w.ID = item[0]
	if len(item) != 3 {
		return w
	}
	w.Payload = item[2]
	salt, card, ok := keys.SplitField(item[1])
	if key, is := keys.AddedKey(w.ID, salt); ok && is {
		w.Entry, w.Card, w.Apart = "k:"+key, card, HasFlag(card, cardApart)
	}
	return w
}

// Waiters returns the added tasks that wait, the front first.
func (l *Lane) Waiters() []Waiter {
	all := make([]Waiter, len(l.Added))
	for i, item := range l.Added {
		all[i] = waiter(item)
	}
	return all
}

// HasFlag reports whether the first digit of a card has a flag.
func HasFlag(card string, flag int) bool {
	return card != "" && int(card[0]-'0')&flag != 0
}

// Expires is when a task with this card expires, in ms; 0 if it doesn't.
func Expires(card string) int64 {
	if !HasFlag(card, cardExpires) || len(card) < 17 {
		return 0
	}
	return int64(atoi(card[1:17]))
}

// setEntries sets the hash of running entries. An added task has two fields in it: process → name and card, and
// name → process:worker.
func (l *Lane) setEntries(h Hash) {
	l.fields, l.Entries, l.cards, l.runners = h, Hash{}, Hash{}, Hash{}
	for id, v := range h {
		if _, card, ok := keys.SplitAdded(id); ok && card == "" {
			l.runners[id] = v
			continue
		}
		l.Entries[id] = v
		if key, card, ok := keys.SplitAdded(v); ok && card != "" {
			l.Entries[id], l.cards[id] = "k:"+key, card
		}
	}
}

// Runners returns the processes of added tasks that run, by their names: "process:worker".
func (l *Lane) Runners() Hash { return l.runners }

// AddedName returns the name of the added task that a process has started from the stream; "" if it hasn't.
func (l *Lane) AddedName(id string) string {
	if l.cards[id] == "" {
		return ""
	}
	return strings.TrimSuffix(l.fields[id], l.cards[id])
}

// Card returns the card of the task that a process runs; "" if it has none.
func (l *Lane) Card(id string) string {
	if card := l.cards[id]; card != "" {
		return card
	}
	return l.Entry[l.Entries[id]]["held"]
}
