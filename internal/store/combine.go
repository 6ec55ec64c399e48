package store

import "iter"

// InTurn lists one part after the other.
func InTurn[T any](parts []iter.Seq2[T, error], yield func(T, error) bool) {
	for _, rows := range parts {
		for row, err := range rows {
			if !yield(row, err) {
				return
			}
		}
	}
}

// Sorted merges sorted parts; by compares two rows.
func Sorted[T any](by func(a, b T) int) func(parts []iter.Seq2[T, error], yield func(T, error) bool) {
	return func(parts []iter.Seq2[T, error], yield func(T, error) bool) {
		type head struct {
			row  T
			err  error
			more bool
			next func() (T, error, bool)
		}
		var heads []*head
		for _, rows := range parts {
			next, stop := iter.Pull2(rows)
			defer stop()
			h := &head{next: next}
			h.row, h.err, h.more = next()
			heads = append(heads, h)
		}
		for {
			var first *head
			for _, h := range heads {
				if h.more && (first == nil || h.err != nil || first.err == nil && by(h.row, first.row) < 0) {
					first = h
				}
			}
			if first == nil || !yield(first.row, first.err) || first.err != nil {
				return
			}
			first.row, first.err, first.more = first.next()
		}
	}
}
