package engine

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// sharing returns the flow of one of several peers that do equal work.
func sharing(peers int) *flow {
	f := &flow{list: true}
	for range 100 {
		f.started(100, 100*peers)
	}
	return f
}

func TestFlow(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		peers           int
		took, way, work time.Duration
		budget          time.Duration
		least, most     time.Duration // of the rest
	}{
		"alone":                    {1, 5 * ms, 0, 3 * ms, store.RoundBudget, 0, 0},
		"alone, held up":           {1, time.Second, 0, 3 * ms, store.RoundBudget, 0, 0},
		"alone, far":               {1, 20 * ms, 10 * ms, 5 * ms, store.FarBudget, 0, 0},
		"among few":                {4, ms, 0, thickTime, thickTime, 0, 0},
		"among more":               {10, ms, 0, thickTime, thickTime, ms, 2 * ms},
		"among many":               {50, 5 * ms, 0, thickTime, thickTime, 40 * ms, 41 * ms},
		"among many, and quick":    {50, ms, 0, thickTime, thickTime, 8 * ms, 9 * ms},
		"among many, and held up":  {50, 60 * ms, 0, thickTime, thickTime, 15 * ms, 25 * ms},
		"among many, too late":     {50, time.Second, 0, thickTime, thickTime, 0, 0},
		"among many, little to do": {50, 50 * ms, 0, quietTime, thickTime, 0, 0},
		"among few, far":           {2, 20 * ms, 10 * ms, 5 * ms, store.FarBudget, 0, ms},
		"among many, and slow":     {50, 5 * ms, 0, thickTime / 4, thickTime, 4 * ms, 8 * ms},
		"among masses":             {1000, 100 * ms, 0, thickTime, thickTime, 1000 * thickTime, 1000 * thickTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sharing(c.peers)
			if got := f.budget(c.way); got != c.budget {
				t.Errorf("the budget is %v, not %v", got, c.budget)
			}
			f.list = false
			if got := f.budget(c.way); got > store.RoundBudget {
				t.Errorf("with tasks of the schedule it is %v", got)
			}
			if got := f.rest(c.took, c.way, c.work); got < c.least || got > c.most {
				t.Errorf("the rest is %v, not from %v to %v", got, c.least, c.most)
			}
		})
	}
}

// A token that jumps, as when someone overwrites it, is forgotten after a few rounds.
func TestFlowForgetsJumps(t *testing.T) {
	t.Parallel()
	f := sharing(5)
	f.started(100, 1_000_000_000)
	for range 40 {
		f.started(100, 500)
	}
	if n := f.peers(); n > 6 {
		t.Errorf("it counts %.1f peers", n)
	}
}
