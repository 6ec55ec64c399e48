package store

import (
	"testing"
)

// While there are locks, crashes or cancels, ends are hashed, so they cost more.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome     Outcome
		not, beside int
	}{
		{Outcome{Verb: Finish, Plain: true}, 2, 8},
		{Outcome{Verb: Finish, Plain: true, Size: 16 << 10}, 2, 48},
		{Outcome{Verb: Drop, Plain: true, Size: 16 << 10}, 4, 50},
		{Outcome{Verb: Finish, Size: 16 << 10}, 12, 58},
		{Outcome{Verb: Finish, Plain: true, Size: 1 << 20}, 56, 62}, // its digest is sent
		{Outcome{Verb: Stop, Plain: true, Size: 600}, 10, 10},
		{Outcome{Verb: Finish, Added: true, Card: 8 << 10}, 86, 92},
	} {
		if not, beside := c.outcome.Cost(false, false), c.outcome.Cost(false, true); not != c.not || beside != c.beside {
			t.Errorf("%+v costs %d and %d, want %d and %d", c.outcome, not, beside, c.not, c.beside)
		}
	}
}
