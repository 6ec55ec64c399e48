package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	hours = flag.Float64("sim.hours", 0, "how many hours to simulate; 0 is ten, or one with the race detector")
	seed  = flag.Uint64("sim.seed", 0, "simulate only this seed; 0 means many")
	first = flag.Uint64("sim.first", 0, "the seed of the first run; 0 means a random one")
)

// runOf runs one seed in a bubble.
func runOf(t *testing.T, o *Options) (report *Report) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { report = Run(o) })
	return report
}

// tell fails the test if a run has found violations, with all that is needed to
// reproduce it.
func tell(t *testing.T, o *Options, r *Report) {
	t.Helper()
	if len(r.Wrong) == 0 {
		return
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("worqr-simulation-%d.record", o.Seed))
	if err := os.WriteFile(path, r.Trace, 0o600); err != nil {
		t.Error(err)
	}
	for _, w := range r.Wrong {
		t.Error(w)
	}
	t.Errorf("%v\nreproduce it:    go test ./integration/simulation -run TestSimulation -sim.seed %d\nthe events at the server, in order:    %s", o, o.Seed, path)
}

// Fleets at work, with faults, for hours that take seconds.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		o := New(*seed)
		t.Log(o)
		r := runOf(t, o)
		t.Log("\n" + r.String())
		tell(t, o, r)
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a run needs little memory
	want := time.Duration(*hours * float64(time.Hour))
	if want == 0 {
		want = 10 * time.Hour
		if raced {
			want = time.Hour
		}
	}
	from := *first
	if from == 0 {
		from = uint64(rand.Uint32())
	}
	t.Logf("seeds from %d", from)
	var mu sync.Mutex
	total, next := &Report{}, from
	began := time.Now()
	t.Run("fleets", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					if total.Simulated >= want || len(total.Wrong) > 0 {
						mu.Unlock()
						return
					}
					o := New(next)
					next++
					mu.Unlock()
					r := runOf(t, o)
					tell(t, o, r)
					mu.Lock()
					total.Add(r)
					mu.Unlock()
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("\n%v\nin %v, %.0f times as fast as the clock", total, took.Round(time.Second), total.Simulated.Seconds()/took.Seconds())
}
