package doctor

import (
	"context"
	"iter"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// WalkDepth is how many tasks of each kind are searched for a header.
const WalkDepth = 10_000

const failedDepth = 1000 // tasks searched in the failed queue, newest first

// ByHeader returns the names of tasks with a header, mostCopies at most: waiting and running ones, and
// those among the newest failed ones. more reports that some waiting tasks weren't searched.
func (q Question) ByHeader(ctx context.Context, name, value string) (found []string, more bool, err error) {
	w := &walk{name: name, value: value}
	over(w, store.Named(ctx, q.Runner, q.keys()), WalkDepth, func(t store.NamedTask) (string, *store.Record) { return t.Name, &t.Record })
	more = w.cut
	over(w, store.Running(ctx, q.Runner, q.keys()), WalkDepth, func(t store.RunningTask) (string, *store.Record) { return t.Name, &t.Record })
	over(w, store.FailedTasks(ctx, q.Runner, q.keys()), failedDepth, func(t store.FailedTask) (string, *store.Record) {
		if t.Record.Failure == nil {
			return "", &t.Record
		}
		return t.Record.Failure.Back, &t.Record
	})
	return w.found, more, w.err
}

// A walk collects the names of tasks with a header.
type walk struct {
	name, value string
	found       []string
	cut         bool // some weren't searched
	err         error
}

// over adds matches among the first most rows of a listing.
func over[T any](w *walk, rows iter.Seq2[T, error], most int, about func(T) (name string, record *store.Record)) {
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
		name, record := about(row)
		v, ok := record.Metadata.Headers[w.name]
		if !ok || v != w.value || name == "" || slices.Contains(w.found, name) {
			continue
		}
		if w.found = append(w.found, name); len(w.found) == mostCopies {
			return
		}
	}
}
