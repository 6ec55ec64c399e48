package simulation

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var replay = flag.String("sim.replay", "", "the record of a run whose requests are to be made again")

// A record holds all that the server did: made again in the same order, its
// requests break the same invariants.
func TestReplay(t *testing.T) {
	if *replay != "" {
		f, err := os.Open(*replay)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wrong, err := Replay(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Error(w)
		}
		return
	}
	i := slices.IndexFunc(sabotages, func(s sabotage) bool { return s.verb == "put" })
	var r *Report
	for seed := uint64(1); seed <= patience && (r == nil || len(r.Wrong) == 0); seed++ {
		r = runOf(t, sabotages[i].options(seed))
	}
	if len(r.Wrong) == 0 {
		t.Fatal("the sabotage was not found")
	}
	wrong, err := Replay(bytes.NewReader(r.Trace), sabotages[i].rewrite)
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(r.Wrong[0], ": ") // behind the time
	if len(wrong) == 0 || wrong[0] != first {
		t.Errorf("the replay finds %q first, and the run %q", wrong, first)
	}
}
