package store

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/keys"
)

// An Added task has a card, and waits in a stream beside the list.
type Added struct {
	Card    []byte // as Card.Append writes it
	Payload []byte
}

// bareCard is the card of a task without properties.
var bareCard = []byte{'0'}

// One call adds at most AddedLength tasks, and at most addedSize bytes of cards and payloads unless it is
// one task.
const (
	AddedLength = 2000
	addedSize   = 1 << 20
)

// firstAdded returns how many of the tasks one call adds.
func firstAdded(tasks []Added) int {
	size := 0
	for i, t := range tasks {
		if size += len(t.Card) + len(t.Payload); i == AddedLength || i > 0 && size > addedSize {
			return i
		}
	}
	return len(tasks)
}

// SpansAdded reports whether the tasks are too many for one call.
func SpansAdded(tasks []Added) bool { return firstAdded(tasks) < len(tasks) }

// Add adds tasks behind those that were added before, all or none. It returns the name of the
// first, from which keys.AddedKeys makes the keys of all. The salt comes from NewSalt. If the nonce
// was used before within the window, Add adds nothing: then fresh is false, and the name is that of
// the first call. alone reports whether the queue was empty and unserved.
func Add(ctx context.Context, r Runner, q keys.Queue, salt, nonce string, window time.Duration, tasks []Added) (first string, fresh, alone bool, err error) {
	values := make([]any, 0, 2*len(tasks))
	for _, t := range tasks {
		card := t.Card
		if len(card) == 0 {
			card = bareCard
		}
		values = append(values, card, t.Payload)
	}
	a := add.ask(ctx, r, q, "once", nonce, "window", window.Milliseconds(), "salt", salt, "task", values)
	first, how := a.string("first"), a.int("fresh")
	return first, how > 0, how == 2, a.err
}
