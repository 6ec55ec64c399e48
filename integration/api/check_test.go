package api

import (
	"flag"
)

var checkSeed = flag.Uint64("check.seed", 0, "seed of the faults of TestCheckBusyFleet; 0 is a new one")
