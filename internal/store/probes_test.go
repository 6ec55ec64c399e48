package store

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A probe is a call of a verb where it has much to do. Tests of what is true of all verbs
// range over these.
type probe struct {
	verb string // probed sets it
	what string // where there are several of a verb
	seed state
	call func(*env) string
	adds bool // it adds work, and is refused on a full Redis
}

// busy is a queue with everything going on: w1 runs a, which is being canceled, and b, which
// is locked; w2's lease expired while it ran c.
var busy = state{
	"queues": "[x y z]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-1m)",
	"idle": "(w3=-1m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2)", "process:p1": "[a]", "process:p2": "[b]",
	"working:w2": "(p3=3)", "process:p3": "[c]",
	"canceled": "(#a=4)", "cancel:#a": "{finished=0 stopped=0 token=4} +1440m",
	"unique": "{#b=p:p2 #y=w:1 offset=0}", "paused": "=1", "once:n": "=1 +60m",
}

// busyLane is a queue with everything going on in the schedule: w1 runs a of
// the list, b of x, which blocks e, and c, which is tried again; w2 has lapsed
// while it ran d of y; f of z is due, g is to be tried again, and h has failed.
var busyLane = state{
	"queues": "[q]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-1m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]",
	"working:w2": "(p4=4)", "process:p4": "[d]",
	"entries":   "{p2=k:x p3=r:p0 p4=k:y}",
	"keyed:k:x": h(runs("p2", 2, 1), waits("e", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")), "keyed:r:p0": runs("p3", 1, 0), "keyed:k:y": runs("p4", 0, 0),
	"keyed:k:z": waits("f", "-1m", 0, 0), "keyed:r:p9": waits("g", "+60m", 1, 0),
	"schedule": "(k:z=-1m r:p9=+60m)", "contents": "(#e:k:x=0 #f:k:z=0 #g:r:p9=0)",
	"ledger": "{#c=1 #g=1}", "unique": "{#c=p:p3 #g=e:r:p9 offset=0}", "idle": "(w3=clock:-1m)",
	"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#h:k:g1=0)", "failed:keyed:k:g1": graveOf("h", "-9m", "from=k:v"),
}

// busyBatch has a batch that is committed and one that is being sent.
var busyBatch = state{"workers": "(w1=+60m)", "idle": "(w3=-1m)", "batch:c": "[a b]", "batches": "(c=1)", "batch:b": "[d] +1m"}

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

// raw makes a call whose answer the library doesn't read.
func raw(call func(e *env) redisconn.Call) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, call(e))
		return said(err, "%s", text(v))
	}
}

// probes are those of all verbs. The test file of a verb has them.
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

// Each verb has a probe, which does something, and is told on no other channels than the
// table says.
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
					t.Errorf("it tells %q, and the table says %q", m, VerbOf(p.verb).Tells)
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

// On a full Redis everything works as on any other, except adding tasks: that is
// refused, and changes nothing.
func TestFull(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for _, p := range probes {
		t.Run(p.name(), func(t *testing.T) { // one after the other: the limit is the server's
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

// A key that somebody put something else under makes a script fail before it changes
// anything, with an error that says why; or it does not matter.
func TestForeign(t *testing.T) {
	t.Parallel()
	for _, p := range probes {
		for key, value := range p.seed {
			kind, _, _ := strings.Cut(strings.TrimPrefix(key, "failed:"), ":")
			foreign := "=foreign"
			switch {
			case value[0] == '=' || kind == "working" || kind == "process":
				continue // its presence is all that counts; or what can't be read stays, and the rest goes on
			case kind == "queues" && strings.Contains("step beat sweep leave fail", p.verb):
				continue // they go on without it: TestQueueOfAnotherType
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
