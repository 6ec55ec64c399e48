// Chaos runs real peer processes against a real Redis, injects faults on a schedule, and checks
// from their records that no task was lost or finished twice and that nothing is left behind:
//
//	go run ./integration/chaos -campaign kills -seed 1 -kills 2000
//
// The seed determines the schedule, but not the timing: two runs with the same seed have the same
// faults in the same order, but not at the same instants. A failed run therefore keeps its
// histories.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

// campaigns are the kinds of run.
var campaigns = map[string]func(options) *report{
	"kills":    kills,
	"zombies":  zombies,
	"stalls":   stalls,
	"links":    links,
	"restarts": restarts,
	"pubsub":   pubsub,
	"memory":   memory,
	"mix":      mix,
	"tls":      withTLS,
}

func main() {
	if spec, given := child.Given[load.Config](); given {
		os.Exit(load.Main(spec, worqr.Options{TLSConfig: redistest.TLS(spec.URL)}))
	}
	var o options
	names := strings.Join(slices.Sorted(maps.Keys(campaigns)), ", ")
	flag.StringVar(&o.campaign, "campaign", "kills", "the kind of run: "+names)
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the schedule; 0 chooses one")
	flag.StringVar(&o.dir, "dir", "", "directory for histories; if empty, a new one, removed after a run without violations")
	flag.IntVar(&o.peers, "peers", 12, "number of live processes")
	flag.DurationVar(&o.lease, "lease", time.Second, "lease of the peers")
	flag.IntVar(&o.kills, "kills", 200, "peers to kill")
	flag.IntVar(&o.zombies, "zombies", 50, "peers to stop for longer than their lease")
	flag.IntVar(&o.stalls, "stalls", 20, "times to stop Redis, for 1 to 30 s")
	flag.IntVar(&o.cuts, "cuts", 80, "links to cut")
	flag.IntVar(&o.restarts, "restarts", 10, "times to kill Redis")
	flag.StringVar((*string)(&o.fsync), "durability", string(always), "durability of a killed Redis: always, everysec, rdb or none")
	flag.DurationVar(&o.span, "span", time.Minute, "duration of campaigns without a number of faults")
	flag.BoolVar(&o.strict, "strict", false, "check the guaranteed times without an allowance for a busy machine")
	flag.Parse()
	if flag.NArg() > 0 || campaigns[o.campaign] == nil || durable[o.fsync] == nil || o.peers < 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := o.run(os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// run plays the campaign and writes its report. Violations are an error.
func (o *options) run(w io.Writer) (err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64()>>1 + 1
	}
	temporary := o.dir == ""
	if temporary {
		if o.dir, err = os.MkdirTemp("", "worqr-chaos-"); err != nil {
			return err
		}
	}
	began := time.Now()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // for people
	say("campaign    %s, seed %d, lease %v", o.campaign, o.seed, o.lease)
	r := campaigns[o.campaign](*o)
	r.write(w)
	say("took        %v", time.Since(began).Round(time.Second))
	if n := len(r.Violations); n > 0 {
		return fmt.Errorf("FAILED      %d violations; histories in %s\nrepeat      %s", n, o.dir, o.repeat())
	}
	if temporary {
		_ = os.RemoveAll(o.dir) // it is no longer needed
	}
	say("ok")
	return nil
}

// repeat returns the command that repeats the faults.
func (o *options) repeat() string {
	return fmt.Sprintf("go run ./integration/chaos -campaign %s -seed %d -peers %d -lease %v -kills %d -zombies %d -stalls %d -cuts %d -restarts %d -durability %s -span %v -strict=%v",
		o.campaign, o.seed, o.peers, o.lease, o.kills, o.zombies, o.stalls, o.cuts, o.restarts, o.fsync, o.span, o.strict)
}
