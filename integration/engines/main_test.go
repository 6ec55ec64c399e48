package engines

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	seed   = flag.Uint64("engines.seed", 0, "seed of the faults; 0 chooses one")
	rounds = flag.Int("engines.rounds", 2, "how many failovers, moves and promotions each test has")
	strict = flag.Bool("engines.strict", false, "check the guaranteed times, which a busy machine may exceed")
)

func TestMain(m *testing.M) {
	if c, given := child.Given[load.Config](); given {
		os.Exit(load.Main(c, worqr.Options{}))
	}
	os.Exit(redistest.Main(m.Run))
}

// The guarantees of docs/guarantees.md.
const (
	afterPromotion = 5 * time.Second
	duringMove     = 1500 * time.Millisecond // also during a takeover by a replica
	nodeTimeout    = 2 * time.Second         // of the test cluster
	afterDeath     = nodeTimeout + 2*time.Second
	afterElection  = 2 * time.Second  // what peers may add to the servers' time
	excuse         = 10 * time.Second // for a busy machine
)

// within returns the bound that applies to this run.
func within(promised time.Duration) time.Duration {
	if *strict {
		return promised
	}
	return promised + excuse
}

// dice returns a test's random source and prints its seed.
func dice(t *testing.T) *rand.Rand {
	if *seed == 0 {
		*seed = rand.Uint64()>>1 + 1
	}
	t.Logf("to repeat: go test ./integration/engines -v -run '^%s$' -engines.rounds %d -engines.seed %d", t.Name(), *rounds, *seed)
	return rand.New(rand.NewPCG(*seed, uint64(len(t.Name()))))
}

// figures holds times of one kind.
type figures []time.Duration

func (f figures) String() string {
	if len(f) == 0 {
		return "none"
	}
	sorted := slices.SortedFunc(slices.Values(f), cmp.Compare[time.Duration])
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("worst %v, median %v of %d", ms(sorted[len(sorted)-1]), ms(sorted[len(sorted)/2]), len(sorted))
}

// hold logs the times, and fails if one exceeds the bound.
func (f figures) hold(t *testing.T, what string, promised time.Duration) {
	t.Helper()
	t.Logf("%s: %v", what, f)
	for _, d := range f {
		if d >= within(promised) {
			t.Errorf("%s: %v; %v is promised", what, d.Round(time.Millisecond), promised)
		}
	}
}
