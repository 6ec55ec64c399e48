package search

import (
	"flag"
	"sync/atomic"
	"testing"
)

var deep = flag.Bool("deep", false, "one more round, lost answer and late copy in each scope: some hours")

// TestScopes visits every state of each scope, and expects no violation.
func TestScopes(t *testing.T) {
	var states atomic.Int64
	t.Cleanup(func() { t.Log(states.Load(), "states") })
	for _, sc := range scopes {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			limit := 200_000
			if *deep {
				limit = 50_000_000
				sc.Rounds++
				sc.Lost++
				sc.Late++
			}
			f := explore(&sc, limit)
			states.Add(int64(f.states))
			if t.Log(f); f.wrong != "" {
				t.Fail()
			}
		})
	}
}
