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
	from, to string // the lines of Lua, and what replaces them
	faults   string // that make it fail
	finds    string // a pattern of the violation
	tune     func(o *Options)
}

// By the names of the checks.
var sabotages = map[string]sabotage{
	"returns-front": {
		from:   `local moved = redis.pcall('LMOVE', q.process .. id, q.waiting, 'RIGHT', 'RIGHT')`,
		to:     `local moved = redis.pcall('LMOVE', q.process .. id, q.waiting, 'RIGHT', 'LEFT')`,
		faults: "kill stop", finds: "not in its place",
	},
	"step-members": {
		from:   `if not redis.call('ZSCORE', q.workers, worker) then`,
		to:     `if false then`,
		faults: "pause cut kill", finds: "isn't a member",
	},
	"repeat-starts": {
		from:   `if round <= last then`,
		to:     `if round < last then`,
		faults: "reset", finds: "was not the first",
		tune: func(o *Options) { o.Copies, o.Deaf = 0.1, 0.01 },
	},
	"graced": {
		from:   `marks[#marks + 1] = now + grace`,
		to:     `marks[#marks + 1] = now`,
		faults: "pause cut", finds: "ms of silence",
	},
	"judge-until": {
		from:   `local judge = right >= 0 and right <= 2 * grace and (lease == 0 or deadline <= now + lease)`,
		to:     `local judge = right <= 2 * grace and (lease == 0 or deadline <= now + lease) and deadline >= now -- if its own lease has expired, others' may have expired for the same reason`,
		faults: "stall restart", finds: "but lives",
	},
	"blocks": {
		from:  "if process then\n  redis.call('HSET', key, 'keep',",
		to:    "if false then\n  redis.call('HSET', key, 'keep',",
		finds: "in (the )?schedule",
	},
	"cancel-covers": {
		from:   `if canceled and token <= canceled then`,
		to:     `if false then`,
		faults: "kill pause stop", finds: "which is canceled|stopping of .* which doesn't run",
	},
	"leave-number": {
		from:   `if (tonumber(redis.call('HGET', q.rounds, worker)) or 0) > tonumber(ARGV[7]) then`,
		to:     `if false then`,
		faults: "hold reset", finds: "by a request from before its last round",
		tune: func(o *Options) { o.Copies, o.Guests = 0.5, true },
	},
	"trim-said": {
		from:   `local said = redis.call('ZCOUNT', q.canceled, '-inf', lowest[2] or '+inf')`,
		to:     `local said = redis.call('ZCOUNT', q.canceled, '-inf', '+inf')`,
		faults: "pause cut", finds: "is over|has ended, but",
	},
	"trim-stopped": {
		from:  `if #runs == 0 then -- also if it can't be read`,
		to:    `if true then -- also if it can't be read`,
		finds: "is over|has ended, but",
	},
	"begins-holding": {
		from:  `redis.pcall('ZADD', q.holders, 'NX', token - #scores / 2, worker)`,
		to:    ``,
		finds: "isn't in holders",
	},
	"tokens-rise": {
		from:  `redis.call('SET', q.token, token)`,
		to:    ``,
		finds: "token",
	},
	"add-once": {
		from:   "if mark then\n    return { mark, 0 }",
		to:     "if false then\n    return { mark, 0 }",
		faults: "reset", finds: "was added once|again",
	},
	"expired-starts": {
		from:  `prefix, observed and 1 or 0, now }`,
		to:    `prefix, observed and 1 or 0, 0 }`,
		finds: "after it has expired",
	},
	"occurs-once": {
		from:  "courses.pass(entry, number(turn))\n        courses.follow(entry, true)",
		to:    `courses.follow(entry, true)`,
		finds: "after|is planned",
		tune:  func(o *Options) { o.Recurring = true },
	},
	"occurs-next": {
		from:  "courses.pass(entry, number(turn))\n        courses.follow(entry, true)",
		to:    `courses.pass(entry, number(turn))`,
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
	found := 0
	for _, file := range redistest.Sure(filepath.Glob("../../internal/store/*.lua"))(t) {
		found += strings.Count(string(redistest.Sure(os.ReadFile(file))(t)), s.from)
	}
	if found != 1 {
		t.Fatalf("the scripts have these lines %d times: %s", found, s.from)
	}
	return func(script string) string { return strings.ReplaceAll(script, s.from, s.to) }
}
