package simulation

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/integration/mutation/mutant"
	"github.com/worqr/worqr/integration/spec"
)

// guards are the mutants that remove a guard from a script, by the names on the lines of Lua.
var guards = sync.OnceValue(func() map[string]*mutant.Mutant {
	s, err := mutant.Read("../..")
	if err != nil {
		panic(err)
	}
	return s.Guards
})

// A sabotage describes how a missing guard is found.
type sabotage struct {
	faults string // that make it fail
	finds  string // a pattern of the violation
	tune   func(o *Options)
}

// By the names of the guards.
var sabotages = map[string]sabotage{
	"returns-front":  {faults: "kill stop", finds: "not in its place"},
	"step-members":   {faults: "pause cut kill", finds: "isn't a member"},
	"repeat-starts":  {faults: "reset", finds: "was not the first", tune: func(o *Options) { o.Copies, o.Deaf = 0.1, 0.01 }},
	"graced":         {faults: "pause cut", finds: "ms of silence"},
	"judge-until":    {faults: "stall restart", finds: "but lives"},
	"blocks":         {finds: "in (the )?schedule"},
	"cancel-covers":  {faults: "kill pause stop", finds: "which is canceled|stopping of .* which doesn't run"},
	"lock-taken":     {finds: "lock"},
	"leave-number":   {faults: "hold reset", finds: "by a request from before its last round", tune: func(o *Options) { o.Copies, o.Guests = 0.5, true }},
	"gap-left":       {finds: "lock", tune: func(o *Options) { o.Concurrency = 1 }},
	"trim-said":      {faults: "pause cut", finds: "is over|has ended, but"},
	"trim-stopped":   {finds: "is over|has ended, but"},
	"begins-holding": {finds: "isn't in holders"},
	"behind-batches": {finds: "in front of", tune: func(o *Options) { o.Deadly = 0.1 }},
	"haul-order":     {finds: "doesn't move the batch"},
	"batch-told":     {finds: "a task of a batch starts"},
	"tokens-rise":    {finds: "token"},
	"add-once":       {faults: "reset", finds: "was added once|again"},
	"expired-starts": {finds: "after it has expired"},
	"occurs-once":    {finds: "after|is planned", tune: func(o *Options) { o.Recurring = true }},
	"occurs-next":    {finds: "the next one isn't planned", tune: func(o *Options) { o.Recurring = true }},
}

// patience is how many runs it may take to find a sabotage.
const patience = 40

// The simulation works: without a guard, an invariant is soon broken and
// reported.
func TestSabotage(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(sabotages)) {
		s := sabotages[name]
		t.Run(name, func(t *testing.T) {
			finds := regexp.MustCompile(s.finds)
			var next atomic.Uint64
			var found atomic.Bool
			var mu sync.Mutex
			said := "nothing"
			t.Run("seeds", func(t *testing.T) {
				for n := range runtime.GOMAXPROCS(0) {
					t.Run(fmt.Sprint(n), func(t *testing.T) {
						t.Parallel()
						for !found.Load() {
							seed := next.Add(1)
							if seed > patience {
								return
							}
							r := runOf(t, s.options(t, name, seed))
							mu.Lock()
							for _, w := range r.Wrong {
								if found.Load() {
									break
								}
								said = fmt.Sprintf("seed %d: %s", seed, w)
								found.Store(finds.MatchString(w))
							}
							mu.Unlock()
						}
					})
				}
			})
			if !found.Load() {
				t.Errorf("not found in %d runs; the last violation was: %s", patience, said)
			}
			t.Log(said)
		})
	}
}

// options returns the options of a run that may find the sabotage.
func (s sabotage) options(t *testing.T, guard string, seed uint64) *Options {
	m := guards()[guard]
	if m == nil {
		t.Fatal("no line of Lua has a mark with this guard")
	}
	o := New(seed)
	o.Safety = 3 * time.Minute
	o.Calm = 2 * time.Second
	o.Rewrite, o.Deadly = m.Rewrite, 0
	o.Faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !slices.Contains(strings.Fields(s.faults), f.name)
	})
	if s.tune != nil {
		s.tune(o)
	}
	return o
}

// Each guard marked on a line of Lua is removed somewhere: here, or in the specification, for the
// search. Other guards of the specification are in the library.
func TestGuardsAreMarked(t *testing.T) {
	want := slices.Collect(maps.Keys(sabotages))
	for _, r := range spec.Removals {
		if !strings.HasSuffix(r.Where, ".lua") {
			continue
		}
		want = append(want, string(r.Guard))
		if m := guards()[string(r.Guard)]; m != nil && m.File+".lua" != r.Where {
			t.Errorf("the guard %s is marked in %s.lua, not in %s", r.Guard, m.File, r.Where)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(guards())); !slices.Equal(got, slices.Compact(want)) {
		t.Errorf("the guards %q are marked, but %q are removed", got, want)
	}
}
