package store

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A probe is a call of a verb that has much to do. Tests that apply to all verbs range over probes.
type probe struct {
	verb string // probed sets it
	what string // if a verb has several
	seed state
	call func(*env) string
	adds bool // it adds tasks, and is refused on a full Redis
}

// busy is a queue with everything in use: w1 runs a, which is being canceled, and b, which
// is locked; w2's lease expired while it ran c.
var busy = state{
	"queues": "[x y z]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-1m)",
	"idle": "(w3=-1m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]",
	"working:w2": "(p3=3)", "process:p3": "[c]",
	"canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m",
	"paused": "=1", "once:n": "=1 +60m",
}

// busyLane is a queue with everything in use in the schedule: w1 runs a of the list, b of x, which
// blocks e, and c, which is a retry; w2's lease expired while it ran d of y; f of z is due, g waits
// for a retry, and h has failed.
var busyLane = state{
	"queues": "[q]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-1m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]",
	"working:w2": "(p4=4)", "process:p4": "[d]",
	"entries":   "{p2=k:x p3=r:p0 p4=k:y}",
	"keyed:k:x": h(runs("p2", 2, 1), waits("e", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")), "keyed:r:p0": runs("p3", 1, 0), "keyed:k:y": runs("p4", 0, 0),
	"keyed:k:z": waits("f", "-1m", 0, 0), "keyed:r:p9": waits("g", "+60m", 1, 0),
	"schedule": "(k:z=-1m r:p9=+60m)", "contents": "(#e:k:x=0 #f:k:z=0 #g:r:p9=0)",
	"ledger": "{#c=1 #g=1}", "idle": "(w3=clock:-1m)",
	"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#h:k:g1=0)", "failed:keyed:k:g1": failedOf("h", "-9m", "from=k:v"),
}

var (
	round5 = Round{Worker: "w1", Number: 5, Idle: true, Outcomes: []*Outcome{
		{Process: "p1", Token: 1, Verb: Stop}, {Process: "p2", Token: 2, Verb: Finish},
	}, Start: []string{"p4"}}
	// laneRound has every outcome that needs the schedule, and starts f.
	laneRound = Round{Worker: "w1", Number: 5, Idle: true, Crashes: 1, Solo: true, Outcomes: []*Outcome{
		{Process: "p1", Token: 1, Verb: Retry, Delay: time.Hour}, {Process: "p2", Token: 2, Verb: Fail, Kind: Failed, Reason: "r"}, {Process: "p3", Token: 3, Verb: Stop},
	}, Start: []string{"p5", "p6", "p7"}}
	failRound  = Round{Worker: "w1", Number: 5, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Failed}, {Process: "p3", Token: 3, Verb: Retry}}}
	startRound = Round{Worker: "w1", Number: 5, Crashes: 1, Start: []string{"p5", "p6"}}
)

// raw makes a call whose reply the library doesn't read.
func raw(call func(e *env) redisconn.Call) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, call(e))
		return said(err, "%s", text(v))
	}
}

// probes has the probes of all verbs. Each verb's test file adds its own.
var probes []probe

// probed adds the probes of a verb.
func probed(verb string, all ...probe) bool {
	for _, p := range all {
		p.verb = verb
		probes = append(probes, p)
	}
	return true
}

func (p probe) name() string { return strings.TrimSuffix(p.verb+", "+p.what, ", ") }

// Each verb has a probe that does something, and publishes only on the channels in the table.
func TestProbes(t *testing.T) {
	t.Parallel()
	probed := map[string]bool{}
	for _, p := range probes {
		probed[p.verb] = true
		t.Run(p.name(), func(t *testing.T) {
			e := beside(t, p.seed, "w1", "w3")
			before := e.look()
			p.call(e)
			heard := e.heard()
			if after := e.look(); len(heard) == 0 && p.verb != "explain" && p.verb != "outcome" && maps.Equal(before, after) {
				t.Error("it changes nothing")
			}
			for _, m := range heard {
				kind, _, _ := strings.Cut(strings.TrimPrefix(m, "failed:"), " ")
				kind, _, _ = strings.Cut(kind, ":")
				if !strings.Contains(" "+VerbOf(p.verb).Tells+" ", " "+kind+" ") {
					t.Errorf("it publishes %q, and the table has %q", m, VerbOf(p.verb).Tells)
				}
			}
		})
	}
	for _, v := range Verbs() {
		if !probed[v.Name] {
			t.Errorf("%s has no probe", v.Name)
		}
	}
}

// On a full Redis everything works as usual, except adding tasks: that is refused, and changes
// nothing.
func TestFull(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for _, p := range probes {
		t.Run(p.name(), func(t *testing.T) { // sequentially, since the limit applies to the whole server
			free, full := newEnv(t, redistest.URL(), nil), newEnv(t, url, nil)
			free.seed(p.seed)
			full.seed(p.seed)
			before := full.look()
			limit := func(n int) { full.must(full.conn.Do("CONFIG", "SET", "maxmemory", n)) }
			limit(1)
			got, want := p.call(full), p.call(free)
			limit(0)
			if p.adds {
				if got != "OOM" {
					t.Errorf("answered %q", got)
				}
				full.compare(1, before)
			} else {
				if got != want {
					t.Errorf("answered %q, want %q", got, want)
				}
				full.compare(1, free.look())
			}
			full.must(full.conn.Do("FLUSHALL"))
		})
	}
}

// A key of the wrong type makes a script fail before it changes anything, with an error that says
// why, or it has no effect.
func TestForeign(t *testing.T) {
	t.Parallel()
	for _, p := range probes {
		for key, value := range p.seed {
			kind, _, _ := strings.Cut(strings.TrimPrefix(key, "failed:"), ":")
			foreign := "=foreign"
			switch {
			case value[0] == '=' || kind == "working" || kind == "process":
				continue // only its presence matters, or it stays unread and the rest works
			case kind == "queues" && strings.Contains("step beat sweep leave fail", p.verb):
				continue // they work without it: TestQueueOfAnotherType
			}
			t.Run(p.name()+"/"+key, func(t *testing.T) {
				e := beside(t, nil)
				before := p.seed.with(key, foreign)
				e.seed(before)
				got := p.call(e)
				if after := e.look(); after[key] != foreign {
					t.Errorf("answered %q and made the foreign key %q", got, after[key])
				}
				if strings.Contains(got, "WRONGTYPE") && !strings.Contains(got, "trouble=") {
					e.compare(1, before)
				}
			})
		}
	}
}

// ruled makes all further calls as a user with these ACL rules.
func (e *env) ruled(rules ...string) {
	e.t.Helper()
	user := e.prefix
	args := []any{"SETUSER", user, "on", ">" + user}
	for _, r := range rules {
		args = append(args, r)
	}
	e.must(e.conn.Do("ACL", args...))
	e.t.Cleanup(func() { _, _ = e.conn.Do("ACL", "DELUSER", user) })
	dial := sure(redisconn.FromURL(strings.Replace(redistest.URL(), "redis://", "redis://"+user+":"+user+"@", 1)))(e.t)
	e.line = redisconn.NewLine(dial, 0)
	e.t.Cleanup(e.line.Close)
}

// Messages are only hints: everything works for a user who may not publish, and if no worker is
// known to be idle.
func TestHintsOnly(t *testing.T) {
	t.Parallel()
	for _, p := range probes {
		for _, without := range []string{"channels", "idle"} {
			if without == "idle" && p.seed["idle"] == "" {
				continue
			}
			t.Run(p.name()+"/"+without, func(t *testing.T) {
				t.Parallel()
				call, seed := p.call, p.seed
				free := newEnv(t, redistest.URL(), nil)
				bound := newEnv(t, redistest.URL(), nil)
				switch without {
				case "channels":
					bound.ruled("~*", "+@all", "resetchannels")
					free.seed(seed)
					bound.seed(seed)
				case "idle":
					free.seed(seed.with("idle", ""))
					bound.seed(seed.with("idle", "=foreign"))
				}
				want, got := call(free), call(bound)
				plain := func(answer string) string { // without the rank, which is 0 if no other worker is idle
					return strings.TrimSpace(strings.NewReplacer("rank=0", "").Replace(answer))
				}
				if without == "channels" && got != want || plain(got) != plain(want) {
					t.Errorf("answered %q, want %q", got, want)
				}
				after := free.look()
				if without == "idle" {
					after = after.with("idle", "=foreign")
				}
				bound.compare(1, after)
			})
		}
	}
}

// If a user may not run a command that isn't essential, scripts do without it.
func TestDenied(t *testing.T) {
	t.Parallel()
	kept := runX.with("keyed:k:x", h(runX["keyed:k:x"], "held="+keeps))
	finish := when{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}}
	finish.state = doneX.with("result:k:x", "=finished:now:0: +60m")
	unkept := finish
	unkept.state = doneX
	noRecord := func(prefix string) []string {
		return []string{"~" + prefix + ":[^r]*", "~" + prefix + ":ro*", "~" + prefix + ":rec*", "+@all", "resetchannels", "&*_{q}_*"}
	}
	mute := func(string) []string { return []string{"~*", "+@all", "resetchannels"} }
	blind := func(string) []string { return []string{"~*", "+@all", "-exists", "resetchannels", "&*_{q}_*"} }
	recorded := state{"result:k:x": "=failed:5:0:"}
	failedTask := recorded.with("failed:schedule", "(k:g1=-9m)", "failed:contents", "(#a:k:g1=0)", "failed:keyed:k:g1", failedOf("a", "-9m", "from=k:x", "card="+keeps))
	for _, c := range []struct {
		name  string
		rules func(prefix string) []string
		seed  state
		step  when
	}{
		{"to wake anybody: as nobody is known to have heard, the next one is tried", mute, state{"idle": "(w1=-2m w2=-1m)"}, when{
			call: sets("x", "a", "+5m"), want: "ok", state: state{"schedule": "(k:x=+5m)", "contents": "(#a:k:x=0)", "keyed:k:x": waits("a", "+5m", 0, 0)}}},
		{"to tell who waits for an end", func(prefix string) []string { return []string{"~*", "+@all", "resetchannels", "&*_{q}_done"} }, kept, finish},
		{"to write how a task ended", noRecord, kept, unkept},
		{"to remove how a task ended", noRecord, failedTask, when{call: requeues("k:g1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: recorded.with(
			"schedule", "(k:x=now)", "contents", "(#a:k:x=0)", "keyed:k:x", h(waits("a", "now", 0, 0), "card="+keeps))}},
		{"to ask what is there", blind, nil, when{
			call: adds("a", "", "0=x"), want: "first=a:now-0-a fresh", heard: []string{"enqueue 1"}, state: state{"added": "|now-0-a/0=x|"}}},
		{"to ask who is there", blind, nil, when{
			call: enqueues("a"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[a]"}}},
		{"to measure payloads", func(string) []string { return []string{"~*", "+@all", "-hstrlen", "resetchannels", "&*_{q}_*"} }, planX, when{
			call: recurs("x", "1:2b", "+6m"), want: "held", state: planX.with("recurrence:k:x", course("1:2b", "+6m", "now", "since=now", "more=+3m", "before=1:1a:-9m"),
				"schedule", "(k:x=+6m)", "keyed:k:x", h(waits("a", "+6m", 0, 0), "turn=+6m", "card=0s13:now"))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, nil)
			e.ruled(c.rules(e.prefix)...)
			e.play(scenario{seed: c.seed, steps: []when{c.step}})
		})
	}
	t.Run("to read how a task ended", func(t *testing.T) {
		e := beside(t, nil)
		e.ruled("~"+e.prefix+":[^r]*", "+@all")
		if ends, err := Ends(e.ctx, e.line, e.q, []string{"k:x"}); err == nil {
			t.Errorf("answered %+v", ends)
		}
	})
}

// text renders a reply.
func text(v any) string {
	switch v := v.(type) {
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, text(one))
		}
		return "[" + strings.Join(all, " ") + "]"
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}
