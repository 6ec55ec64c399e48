package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

var _ = probed("step",
	probe{seed: busy, call: steps(round5)},
	probe{what: "of the schedule", seed: busyLane, call: steps(laneRound)},
	probe{what: "fail", seed: busyLane, call: steps(failRound)},
	probe{what: "start", seed: busyLane, call: steps(startRound)},
	probe{what: "overtaken", seed: rawP.with("rounds", "{w1=6}"), call: ends(5, "p1", 1, Stop, Outcome{})},
)

// steps makes a round, with a lease of an hour unless r says otherwise.
func steps(r Round) func(*env) string {
	return func(e *env) string {
		r := r // other tests use it at the same time
		r.Lease = cmp.Or(r.Lease, time.Hour)
		r.Keep = cmp.Or(r.Keep, 1000)
		r.Lease, r.Keep = max(r.Lease, 0), max(r.Keep, 0) // a negative value means 0
		places := e.abridge(&r)
		a, err := Step(e.ctx, e.line, e.q, &r)
		if err != nil {
			return refused(err)
		}
		var w words
		settled := make([]Settled, len(places))
		for i, s := range a.Settled {
			settled[places[i]] = s
		}
		for _, s := range settled {
			w.add("settled", string(s))
		}
		for _, s := range a.Started {
			w.add("started", e.start(s))
		}
		for _, c := range a.Cancels {
			w.add("cancels", fmt.Sprintf("%s/%d", name(c.Name), c.Token))
		}
		w.num("seen", a.Seen, 0)
		w.num("rank", int64(a.Rank), -1)
		w.flag("again", a.Again)
		if a.Due >= 0 {
			w.add("look", minutes(a.Due.Milliseconds()))
		}
		w.num("now", a.Now*min(e.still, 1), 0) // only if the clock stands still
		w.num("dropped", int64(a.Dropped), 0)
		for _, token := range a.Tokens {
			w.add("recorded", fmt.Sprint(token))
		}
		if a.Trouble != "" {
			w.add("trouble", strings.Fields(a.Trouble)[0])
		}
		return e.short(w.String())
	}
}

// start renders a started task: payload/token@entry~retries!crashes, the card and the time in
// brackets, the last error and the failure in braces; * marks an added one, % one that its key
// identifies.
func (e *env) start(s Start) string {
	all := fmt.Sprintf("%s/%d", word(string(s.Payload)), s.Token)
	if s.Added {
		all += "*"
	}
	if s.Entry != "" {
		all += "@" + word(s.Entry)
	}
	if s.ByKey && !s.Added { // its key identifies every added task
		all += "%"
	}
	if s.Retries > 0 {
		all += fmt.Sprint("~", s.Retries)
	}
	if s.Crashes > 0 {
		all += fmt.Sprint("!", s.Crashes)
	}
	if s.Card != "" {
		all += "[" + s.Card + "]"
	}
	if s.Card != "" && s.Due > 0 {
		all += "[" + score(fmt.Sprint(s.Due), e.now()) + "]"
	}
	if s.Error != "" {
		all += "{" + s.Error + "}"
	}
	if g := s.Failure; g != nil {
		at, due := score(fmt.Sprint(g.At), e.now()), score(fmt.Sprint(g.Due), e.now())
		all += fmt.Sprintf("{%s %s %s %q ~%d !%d %s %q %s %s}", g.Entry, word(string(g.Payload)), g.Kind, g.Reason, g.Retries, g.Crashes, g.Worker, g.From, at, due)
	}
	return all
}

func TestStep(t *testing.T) {
	base := state{"queues": "[a b c]", "workers": "(w1=+60m)"}
	two := state{"queues": "[c]", "workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=2",
		"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]"}
	log := two.with("rounds", "{w1=3}", "token", "=3", "canceled", "(#b=3)", "cancel:#b", "{finished=0 stopped=0 token=3} +1440m")
	first := steps(Round{Worker: "w1", Number: 1, Start: []string{"p1", "p2"}})
	out := func(n int64, o ...*Outcome) func(*env) string {
		return steps(Round{Worker: "w1", Number: n, Outcomes: o})
	}
	run(t, []scenario{
		{name: "not a member", seed: base, steps: []when{{call: steps(Round{Worker: "w2", Number: 1, Start: []string{"p1"}}), want: "EVICTED"}}},
		{name: "start, repeat, stale", seed: base, steps: []when{
			{call: first, want: "started=a/1,b/2", state: two},
			{call: first, want: "started=a/1,b/2 again"},
			{call: out(2), state: two.with("rounds", "{w1=2}")},
			{call: first, want: "started=a/1,b/2", state: two.with("rounds", "{w1=2}")},
			{call: out(4), state: two.with("rounds", "{w1=4}")},
			{call: first, want: "started=a/1,b/2", state: two.with("rounds", "{w1=4}")},
			{call: out(5), state: two.with("rounds", "{w1=5}")},
			{call: first, want: "STALE"},
		}},
		{name: "a late copy starts nothing", alive: []string{"w2"}, seed: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "", state: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)", "rounds": "{w1=1}"}},
			{call: puts("queues", "[a]"), state: state{"workers": "(w1=+60m)", "idle": "(w2=-1m)", "rounds": "{w1=1}", "queues": "[a]"}},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "again", heard: []string{"wake:w2 1"},
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "queues": "[a]"}},
		}},
		{name: "overtaken by the round behind it", seed: two, alive: []string{"w1"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 3, Start: []string{"p3", "p4"}, Idle: true}), want: "started=c/3 rank=0",
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3", "idle": "(w1=now)",
					"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]"}},
			{call: puts("queues", "[d]"), state: state{"queues": "[d]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3", "idle": "(w1=now)",
				"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]"}},
			// The round ends its processes, starts nothing, and leaves the idle workers unchanged.
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p5"}, Idle: true,
				Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish}, {Process: "p3", Token: 3, Verb: Stop}}}), want: "settled=ok,ok again", heard: []string{"done w1 a", "wake:w1 1"},
				state: state{"queues": "[c d]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=3",
					"working:w1": "(p2=2)", "process:p2": "[b]"}},
			{call: steps(Round{Worker: "w1", Number: 6}), want: "", state: state{"queues": "[c d]", "workers": "(w1=+60m)", "rounds": "{w1=6}", "token": "=3",
				"working:w1": "(p2=2)", "process:p2": "[b]"}},
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p5"}}), want: "STALE"},
		}},
		{name: "overtaken, of a suspect", seed: two.with("rounds", "{w1=3}", "workers", "(w1=-1m)", "suspects", "(w1=+1m)"), steps: []when{
			{call: out(2), want: "", state: two.with("rounds", "{w1=3}")},
		}},
		{name: "overtaken, without cancels", seed: two.with("rounds", "{w1=3}"), steps: []when{
			{call: cancels("b"), want: "removed=0 token=3", heard: []string{"cancel b"}, state: log},
			{call: out(2), want: ""},
			{call: out(4), want: "cancels=#b/3 seen=3", state: log.with("rounds", "{w1=4}")},
		}},
		{name: "repeat while paused", seed: base, steps: []when{
			{call: first, want: "started=a/1,b/2", state: two},
			{call: puts("paused", "=1"), state: two.with("paused", "=1")},
			{call: first, want: "started=a/1,b/2"},
		}},
		{name: "repeat during a return", seed: two.with("suspects", "(w9=0)", "working:w9", "(p9=0)", "process:p9", "[z]"), steps: []when{
			{call: first, want: "started=a/1,b/2 again", state: two.with("queues", "[z c]", "ledger", "{#z=1}")},
		}},
		{name: "more than there is, idle", seed: state{"queues": "[a]", "workers": "(w1=-5m)", "suspects": "(w1=+1m)"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Idle: true, Start: []string{"p1", "p2"}}), want: "started=a/1 rank=0",
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=1", "idle": "(w1=now)", "working:w1": "(p1=1)", "process:p1": "[a]"}},
			{call: out(2, &Outcome{Process: "p1", Token: 1, Verb: Finish, Result: []byte{}}), want: "settled=ok", heard: []string{`done w1 a ""`},
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=1"}},
		}},
		{name: "binary payloads", seed: state{"workers": "(w1=+60m)"}, steps: []when{
			{call: enqueues("", "\x00", "\xff", "false"), want: "ok", heard: []string{"enqueue 4"},
				state: state{"workers": "(w1=+60m)", "queues": `["" "\x00" "\xff" false]`}},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1", "p2", "p3", "p4", "p5"}}), want: `started=""/1,"\x00"/2,"\xff"/3,false/4`,
				state: state{"workers": "(w1=+60m)", "rounds": "{w1=1}", "token": "=4", "working:w1": "(p1=1 p2=2 p3=3 p4=4)",
					"process:p1": `[""]`, "process:p2": `["\x00"]`, "process:p3": `["\xff"]`, "process:p4": "[false]"}},
		}},
		{name: "outcomes", seed: two, steps: []when{
			{call: out(2, &Outcome{Process: "p1", Token: 9, Verb: Finish}, &Outcome{Process: "p1", Token: 0, Verb: Stop}, &Outcome{Process: "p7", Token: 1, Verb: Drop}),
				want: "settled=gone,gone,gone", state: two.with("rounds", "{w1=2}")},
			{call: out(3, &Outcome{Process: "p1", Token: 1, Verb: Finish, Result: []byte("r")}, &Outcome{Process: "p2", Token: 2, Verb: Drop}),
				want: "settled=ok,ok", heard: []string{`done w1 a "r"`}, state: state{"queues": "[c]", "workers": "(w1=+60m)", "rounds": "{w1=3}", "token": "=2"}},
		}},
		{name: "several stops, newest first as a worker sends them", seed: two, steps: []when{
			{call: out(2, &Outcome{Process: "p2", Token: 2, Verb: Stop}, &Outcome{Process: "p1", Token: 1, Verb: Stop}), want: "settled=ok,ok",
				state: state{"queues": "[a b c]", "workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=2"}},
		}},
		{name: "cascade", alive: []string{"w2"}, seed: base.with("idle", "(w3=-2m w2=-1m)"), steps: []when{
			{call: first, want: "started=a/1,b/2", heard: []string{"wake:w2 1"}, state: two},
		}},
		{name: "paused", alive: []string{"w2"}, seed: base.with("paused", "=1", "idle", "(w2=-1m)"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Idle: true, Start: []string{"p1"}}), want: "rank=1",
				state: base.with("paused", "=1", "idle", "(w2=-1m w1=now)", "rounds", "{w1=1}")},
		}},
	})
}

// However many tasks wait, a round starts a limited number of them, or what has a limited size, and says at once that
// there are more. The next rounds bring the rest.
func TestRoundIsBounded(t *testing.T) {
	const waiting = RoundWeight + 100
	crashed := func(e *env, payload string) { e.must(e.conn.Do("HSET", e.q.Ledger(), digest(payload), 2)) }
	entries := func(e *env, payload string) {
		for i := range waiting {
			name := fmt.Sprintf("r:%d", i)
			e.must(e.conn.Do("HSET", e.q.Keyed(name), "payload", payload, "due", 5, "retries", 0, "crashes", 0, "digest", digest(payload)))
			e.must(e.conn.Do("ZADD", e.q.Contents(), 0, digest(payload)+":"+name))
			e.must(e.conn.Do("ZADD", e.q.Schedule(), 5, name))
		}
	}
	list := func(e *env, payload string) {
		for range waiting {
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), payload))
		}
	}
	added := func(e *env, payload string, n int) {
		for range n {
			e.must(e.conn.Do("XADD", e.q.Added(), "*", NewSalt()+string(bareCard), payload))
		}
	}
	for name, c := range map[string]struct {
		seed    func(e *env)
		crashes int   // after so many, a task fails
		started []int // by each round
	}{
		"list": {seed: func(e *env) { list(e, "a") }, started: []int{RoundWeight, 100}},
		"large": {seed: func(e *env) {
			many := slices.Repeat([]string{strings.Repeat("a", RoundBytes/10)}, 25)
			e.must(e.conn.Do("LPUSH", redis.Args{}.Add(e.q.Waiting()).AddFlat(many)...))
		}, started: []int{11, 11, 3}},
		"crashed": {seed: func(e *env) { list(e, "a"); crashed(e, "b") }, crashes: 4, started: []int{RoundWeight, 100}},
		"added":   {seed: func(e *env) { added(e, "a", waiting) }, started: append(slices.Repeat([]int{RoundWeight / heavy}, 4), 100)},
		"foreign": {seed: func(e *env) {
			for range waiting {
				e.must(e.conn.Do("XADD", e.q.Added(), "*", "", "a"))
			}
		}, started: []int{RoundWeight, 100}},
		"added beside a list": {seed: func(e *env) { added(e, "a", 103); list(e, "b") }, started: []int{103 + 100, 512}},
		"large added ones beside a list": {seed: func(e *env) {
			added(e, strings.Repeat("a", RoundBytes), 3)
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), "b", "b", "b"))
		}, started: []int{2, 2, 2}},
		"entries": {seed: func(e *env) { entries(e, "a") }, started: append(slices.Repeat([]int{RoundWeight / heavy}, 4), 100)},
		"lost": {seed: func(e *env) {
			entries(e, "a")
			for i := range waiting {
				e.must(e.conn.Do("DEL", e.q.Keyed(fmt.Sprintf("r:%d", i))))
			}
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), "b"))
		}, started: []int{0, 1}},
		"risky": {seed: func(e *env) {
			entries(e, "a")
			crashed(e, "a")
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), "b"))
		}, crashes: 3, started: []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, state{"workers": "(w1=+60m)"})
			c.seed(e)
			var passed Passed
			for i, n := range c.started {
				a := e.round(Round{Number: int64(1 + i), Crashes: c.crashes, Start: NewIDs(RoundWeight), Idle: true, Passed: passed})
				last := i == len(c.started)-1
				if passed = *cmp.Or(a.Passed, &passed); len(a.Started) != n || a.More == last {
					t.Errorf("round %d starts %d; more: %v, trouble: %s", i+1, len(a.Started), a.More, a.Trouble)
				}
			}
		})
	}
}
