package doctor

import (
	"context"
	"iter"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// WalkDepth is how many tasks of each kind are searched for a header.
const WalkDepth = 10_000

// ByHeader returns the entries of tasks with a header, mostCopies at most: running and waiting ones,
// and those among the newest failed ones. more reports that some waiting tasks weren't searched.
func (q Question) ByHeader(ctx context.Context, name, value string) (found []string, more bool, err error) {
	w := &walk{name: name, value: value}
	over(w, store.AddedCards(ctx, q.Runner, q.keys()), WalkDepth, func(t store.AddedTask) (string, string, []byte) { return t.Key, t.Card, t.Payload })
	over(w, store.Scheduled(ctx, q.Runner, q.keys()), WalkDepth, func(t store.ScheduledTask) (string, string, []byte) { return t.Key, t.Card, t.Payload })
	more = w.cut
	over(w, store.Running(ctx, q.Runner, q.keys()), WalkDepth, func(t store.RunningTask) (string, string, []byte) { return t.Key, t.Card, t.Payload })
	over(w, store.FailedTasks(ctx, q.Runner, q.keys()), failedDepth, func(g store.FailedTask) (string, string, []byte) { return store.KeyOf(g.From), g.Card, g.Payload })
	return w.found, more, w.err
}

// A walk collects the entries of tasks with a header.
type walk struct {
	name, value string
	found       []string
	cut         bool // some weren't searched
	err         error
}

// over adds matches among the first most rows of a listing.
func over[T any](w *walk, rows iter.Seq2[T, error], most int, about func(T) (key, card string, payload []byte)) {
	if w.err != nil || len(w.found) == mostCopies {
		return
	}
	for row, err := range rows {
		if err != nil {
			w.err = err
			return
		}
		if most--; most < 0 {
			w.cut = true
			return
		}
		key, text, payload := about(row)
		card, _ := store.ParseCard(text)
		if v, ok := card.Headers[w.name]; !ok || v != w.value {
			continue
		}
		entry := store.EntryOf(key)
		if key == "" {
			entry = store.UniqueEntry(payload) // others without a key have no headers
		}
		if slices.Contains(w.found, entry) {
			continue
		}
		if w.found = append(w.found, entry); len(w.found) == mostCopies {
			return
		}
	}
}
