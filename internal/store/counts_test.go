package store

import (
	"strings"
	"testing"
)

// A queue is silent if it has workers, and all their leases have expired.
func TestSilent(t *testing.T) {
	t.Parallel()
	for workers, want := range map[string]bool{
		"": false, "(w1=+1m)": false, "(w1=-1m)": true, "(w1=-2m w2=-1m)": true, "(w1=-1m w2=+1m w3=-2m)": false,
	} {
		t.Run(workers, func(t *testing.T) {
			e := beside(t, state{}.with("workers", workers))
			counts := sure(Count(e.ctx, e.line, e.q))(t)
			if counts.Silent != want || counts.Workers != strings.Count(workers, "=") {
				t.Errorf("counted %+v", counts)
			}
		})
	}
}
