package simulation

import (
	"bytes"
	"flag"
	"os"
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
	const guard = "blocks"
	var r *Report
	for seed := uint64(1); seed <= patience && (r == nil || len(r.Wrong) == 0); seed++ {
		r = runOf(t, sabotages[guard].options(t, guard, seed))
	}
	if len(r.Wrong) == 0 {
		t.Fatal("it is not found")
	}
	wrong, err := Replay(bytes.NewReader(r.Trace), guards()[guard].Rewrite)
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(r.Wrong[0], ": ") // behind the time
	if len(wrong) == 0 || wrong[0] != first {
		t.Errorf("the replay finds %q first, and the run %q", wrong, first)
	}
}
