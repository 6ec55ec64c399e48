package simulation

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A sabotage takes a guard out of a script on its way to the server.
type sabotage struct {
	name     string
	verb     string // of the script; "" is all that have the guard
	from, to string
	faults   string // that bring it to light
	finds    string // part of what is then said to be wrong; or another part, after a |
	tune     func(o *Options)
}

func (s sabotage) rewrite(verb, source string) string {
	if s.verb != "" && s.verb != verb || !strings.Contains(source, s.from) {
		return source
	}
	return strings.ReplaceAll(source, s.from, s.to)
}

// isFound reports whether a violation is one that the sabotage leads to.
func (s sabotage) isFound(violation string) bool {
	for part := range strings.SplitSeq(s.finds, "|") {
		if strings.Contains(violation, part) {
			return true
		}
	}
	return false
}

var sabotages = []sabotage{
	{
		name: "returned tasks go to the back", from: "q.waiting, 'RIGHT', 'RIGHT'", to: "q.waiting, 'RIGHT', 'LEFT'",
		faults: "kill stop", finds: "not in its place",
	},
	{
		name: "whoever is no member may go on", verb: "step", from: "if not redis.call('ZSCORE', q.workers, worker) then", to: "if false then",
		faults: "pause cut kill", finds: "no member",
	},
	{
		name: "a copy of a round starts tasks again", verb: "step", from: "if round <= last then", to: "if false then",
		faults: "reset", finds: "was not the first", tune: func(o *Options) { o.Copies, o.Deaf = 0.1, 0.01 },
	},
	{
		name: "the first look fails who has lapsed", from: "marks[#marks + 1] = now + grace",
		to: "marks[#marks + 1] = now", faults: "pause cut", finds: "ms of silence",
	},
	{
		name: "anybody may judge at any time", verb: "beat", from: "right >= 0", to: "true",
		faults: "stall restart", finds: "and lives",
	},
	{
		name: "what is put does not wait for what runs", verb: "put", from: "if process then", to: "if false then",
		faults: "", finds: "in the schedule",
	},
	{
		name: "a cancel does not cover what goes back", from: "if canceled and token <= canceled then", to: "if false then",
		faults: "kill pause stop", finds: "which is canceled|to stop, which does not run",
	},
	{
		name: "a lock does not follow its task", from: "redis.call('HSET', q.unique, digest, 'p:' .. id)", to: "", faults: "", finds: "lock",
	},
	{
		name: "a late leave counts", verb: "leave", from: "> tonumber(ARGV[7])", to: "> 9007199254740991",
		faults: "hold reset", finds: "by a request from before its last round", tune: func(o *Options) { o.Copies, o.Guests = 0.5, true },
	},
	{
		name: "what a cancel removes leaves no gap", verb: "cancel", from: "redis.call('ZADD', q.gaps, unpack(left_by))", to: "", faults: "", finds: "lock",
		tune: func(o *Options) { o.Concurrency = 1 },
	},
	{
		name: "a cancel waits for nobody to say what it covers", from: "lowest[2] or '+inf'", to: "'+inf'", faults: "pause cut", finds: "is over",
	},
	{
		name: "a cancel does not wait for what stops", from: "#runs == 0", to: "true", faults: "", finds: "is over",
	},
	{
		name: "nobody is known to hold something", verb: "step", from: "redis.pcall('ZADD', q.holders, 'NX', token - #scores / 2, worker)", to: "",
		faults: "", finds: "unknown to cancels",
	},
	{
		name: "what is enqueued gets in front of a batch", from: "return unmoved(batches) > 0 and", to: "return false and", faults: "", finds: "in front of",
		tune: func(o *Options) { o.Deadly = 0.1 },
	},
	{
		name: "a batch is moved from its back", verb: "haul", from: "KEYS[1], 'RIGHT', 'LEFT'", to: "KEYS[1], 'LEFT', 'LEFT'", faults: "", finds: "doesn't move the batch",
	},
	{
		name: "no beat tells of a batch", verb: "beat", from: "batch or ''", to: "''", faults: "", finds: "a task of a batch is begun",
	},
	{
		name: "tokens begin anew", verb: "step", from: "redis.call('SET', q.token, token)", to: "", faults: "", finds: "token",
	},
}

// patience is how many runs it may take to find a sabotage.
const patience = 40

// The simulation finds what it is there to find: without a guard, an invariant is
// broken before long, and it says so.
func TestSabotage(t *testing.T) {
	for _, s := range sabotages {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
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
							r := runOf(t, s.options(seed))
							mu.Lock()
							for _, w := range r.Wrong {
								if found.Load() {
									break
								}
								said = fmt.Sprintf("seed %d: %s", seed, w)
								found.Store(s.isFound(w))
							}
							mu.Unlock()
						}
					})
				}
			})
			if !found.Load() {
				t.Errorf("after %d runs, this is what was said: %s", patience, said)
			}
			t.Log(said)
		})
	}
}

// options are those of a run in which the sabotage may come to light.
func (s sabotage) options(seed uint64) *Options {
	o := New(seed)
	o.Safety = 3 * time.Minute
	o.Calm = 2 * time.Second
	o.Rewrite, o.Deadly = s.rewrite, 0
	o.Faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !slices.Contains(strings.Fields(s.faults), f.name)
	})
	if s.tune != nil {
		s.tune(o)
	}
	return o
}

// Each sabotage changes a script that is there.
func TestSabotagesApply(t *testing.T) {
	seen := map[string]bool{}
	o := New(1)
	o.Safety = 5 * time.Second
	var mu sync.Mutex
	o.Rewrite = func(verb, source string) string {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range sabotages {
			if s.rewrite(verb, source) != source {
				seen[s.name] = true
			}
		}
		return source
	}
	runOf(t, o)
	for _, s := range sabotages {
		if !seen[s.name] {
			t.Errorf("%s: there is no such guard", s.name)
		}
	}
}
