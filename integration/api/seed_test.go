package api

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var (
	randomSeed  = flag.Uint64("random.seed", 0, "first seed of TestRandom; 0 is a new one")
	randomSeeds = flag.Uint64("random.seeds", 1, "how many seeds TestRandom tries")
)

// eachSeed runs try as a subtest for each of times × -random.seeds seeds.
func eachSeed(t *testing.T, times uint64, try func(t *testing.T, seed uint64)) {
	t.Parallel()
	first := *randomSeed
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed < first+times*(*randomSeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			try(t, seed)
		})
	}
}
