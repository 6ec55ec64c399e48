package engine

import "testing"

// Who serves a queue moves a batch only if it is as it was a beat ago: else its producer,
// or somebody else, is at it.
func TestOnlyAbandonedBatchesAreMoved(t *testing.T) {
	t.Parallel()
	var r Session
	for i, beat := range []struct {
		batch string
		moves bool
	}{{"a 9", false}, {"a 7", false}, {"a 7", true}, {"a 7", true}, {"a 5", false}, {"b 5", false}, {"b 5", true}, {"", false}, {"", false}, {"b 5", false}} {
		if moves := r.abandoned(beat.batch); moves != beat.moves {
			t.Errorf("beat %d tells of %q: %v", i, beat.batch, moves)
		}
	}
}
