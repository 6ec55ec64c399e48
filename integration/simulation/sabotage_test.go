package simulation

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A sabotage removes one check from the scripts, and says how the simulation finds that out.
type sabotage struct {
	edits  []string // lines of Lua, and what replaces them, in turn
	faults string   // that make it fail
	finds  string   // a pattern of the violation
	tune   func(o *Options)
}

// By the names of the checks.
var sabotages = map[string]sabotage{
	"returns-front": {
		edits: []string{
			"local moved = redis.pcall('LMOVE', list, q.queues, 'LEFT', 'RIGHT')\n  if", // lib_end's
			"local moved = redis.pcall('LMOVE', list, q.queues, 'LEFT', 'LEFT')\n  if",
		},
		faults: "kill stop", finds: "not in its place",
	},
	"returns-before": {
		edits:  []string{`comes_back(name, run, 0, attempt.token - FRONT)`, `comes_back(name, run, 0, next_place())`},
		faults: "kill stop", finds: "has the place",
	},
	"starts-members": {
		edits:  []string{"\nif not before then\n", "\nbefore = before or 0\nif false then\n"},
		faults: "pause cut kill", finds: "isn't a member",
	},
	"repeat-starts": {
		edits:  []string{"if round <= before then\n  return { repeated()", "if round < before then\n  return { repeated()"},
		faults: "reset", finds: "was not the first",
		tune: func(o *Options) { o.Copies, o.Deaf = 0.1, 0.01 },
	},
	"starts-paused": {
		edits: []string{`local starts = not state.paused and not returning`, `local starts = not returning`},
		finds: "which is paused",
	},
	// Each of these three would keep a worker from being evicted only because Redis was away.
	"evicts-judges": {
		edits: []string{
			`local may_judge = judge and deadline >= now and not is_far(deadline)`, `local may_judge = true`,
			`local may_judge = now <= judge and judge < now + 2 * grace`, `local may_judge = true`,
			`redis.call('ZADD', q.suspects, 'NX', now + grace, member)`, `redis.call('ZADD', q.suspects, 'NX', now, member)`,
		},
		faults: "stall restart", finds: "but lives",
	},
	"adds-behind": {
		edits: []string{"  if read_run(runs[n]).attempt ~= '' then\n", "  if false then\n"},
		finds: "in two places",
	},
	"cancel-marks": {
		edits: []string{`redis.call('ZADD', working, 'XX', -math.abs(of), id)`, ``},
		finds: "isn't told to stop",
	},
	"leave-number": {
		edits:  []string{"if last and last > round then", "if false then"},
		faults: "hold reset", finds: "by a request from before its last round",
		tune: func(o *Options) { o.Copies, o.Guests = 0.5, true },
	},
	"tokens-rise": {
		edits: []string{
			`redis.call('HSET', q.state, 'token', format('%d', token), 'taken', format('%d', taken))`,
			`redis.call('HSET', q.state, 'taken', format('%d', taken))`,
		},
		finds: "token",
	},
	"add-once": {
		edits:  []string{`local known = nonce and (redis.call('GET', q.once .. nonce) or not tried and redis.call('SET', q.once .. nonce, '', 'XX'))`, `local known = false`},
		faults: "reset", finds: "was added once|again",
	},
	"occurs-once": {
		edits: []string{"    if occurrence > 0 then\n      note_passed(name, occurrence)\n    end\n", ""},
		finds: "has passed",
		tune:  func(o *Options) { o.Recurring = true },
	},
	"occurs-next": {
		edits: []string{`return recurs and plan_occurrence(name)`, `return false`},
		finds: "the next one isn't planned",
		tune:  func(o *Options) { o.Recurring = true },
	},
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
							r := runOf(t, s.options(t, seed))
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
func (s sabotage) options(t *testing.T, seed uint64) *Options {
	o := New(seed)
	o.Safety = 3 * time.Minute
	o.Calm = 2 * time.Second
	o.Rewrite = s.rewrite(t)
	o.Faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !slices.Contains(strings.Fields(s.faults), f.name)
	})
	if s.tune != nil {
		s.tune(o)
	}
	return o
}

// rewrite returns a function that changes the scripts that are sent to Redis. The lines must be in exactly one file.
func (s sabotage) rewrite(t *testing.T) func(script string) string {
	for lines := range slices.Chunk(s.edits, 2) {
		found := 0
		for _, file := range redistest.Sure(filepath.Glob("../../internal/store/*.lua"))(t) {
			found += strings.Count(string(redistest.Sure(os.ReadFile(file))(t)), lines[0])
		}
		if found != 1 {
			t.Fatalf("the scripts have these lines %d times: %s", found, lines[0])
		}
	}
	return strings.NewReplacer(s.edits...).Replace
}
