package store

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// busyLane is a queue with everything going on in the schedule: w1 runs a of
// the list, b of x, which blocks e, and c, which is tried again; w2 has lapsed
// while it ran d of y; f of z is due, g is to be tried again, and h has failed.
var busyLane = state{
	"queues": "[q]", "workers": "(w2=-60m w1=+60m)", "suspects": "(w2=-30m)", "rounds": "{w1=4 w2=7}", "token": "=4",
	"working:w1": "(p1=1 p2=2 p3=3)", "process:p1": "[a]", "process:p2": "[b]", "process:p3": "[c]",
	"working:w2": "(p4=4)", "process:p4": "[d]",
	"entries":   "{p2=k:x p3=r:p0 p4=k:y}",
	"keyed:k:x": h(runs("p2", 2, 1), waits("e", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")), "keyed:r:p0": runs("p3", 1, 0), "keyed:k:y": runs("p4", 0, 0),
	"keyed:k:z": waits("f", "-1m", 0, 0), "keyed:r:p9": waits("g", "+60m", 1, 0),
	"schedule": "(k:z=-1m r:p9=+60m)", "contents": "(#e:k:x=0 #f:k:z=0 #g:r:p9=0)",
	"ledger": "{#c=1 #g=1}", "unique": "{#c=p:p3 #g=e:r:p9 offset=0}", "idle": "(w3=clock:-1m)",
	"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#h:k:g1=0)", "failed:keyed:k:g1": graveOf("h", "-9m", "from=k:v"),
}

// laneRound has every outcome that needs the schedule, and starts f.
var laneRound = Round{Worker: "w1", Number: 5, Idle: true, Crashes: 1, Solo: true, Outcomes: []Outcome{
	{Process: "p1", Token: 1, Verb: Retry, Delay: time.Hour}, {Process: "p2", Token: 2, Verb: Fail, Kind: Failed, Reason: "r"}, {Process: "p3", Token: 3, Verb: Stop},
}, Start: []string{"p5", "p6", "p7"}}

// laneVerbs are calls that change busyLane, and the payloads that each may drop.
var laneVerbs = map[string]struct {
	call func(*env) string
	drop string
}{
	"put":         {sets("x", "n", "+5m"), "e"},
	"put waiting": {sets("z", "n", "+5m"), "f"},
	"put new":     {sets("u", "n", "+5m"), ""},
	"remove":      {removes("k:z"), "f"},
	"cancel":      {cancels("g"), "g"},
	"cancel_key":  {cancelsKey("x"), "e"},
	"requeue":     {requeues("k:g1"), ""},
	"delete":      {deletes, "qefg"},
	"resume":      {resumes, ""},
	"step":        {steps(laneRound), "e"},
	"step, fail":  {steps(Round{Worker: "w1", Number: 5, Outcomes: []Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Failed}, {Process: "p3", Token: 3, Verb: Retry}}}), ""},
	"start":       {steps(Round{Worker: "w1", Number: 5, Crashes: 1, Start: []string{"p5", "p6"}}), ""},
	"beat":        {beats("w1", true), ""},
	"sweep":       {sweeps, ""},
	"leave":       {leaves("w1"), "be"},
	"fail":        {fails("w1"), "be"},
}

// reachable are the payloads that can be found: those that nothing names are
// lost.
func reachable(s state) (all []string) {
	member := func(key, name string) bool {
		v := s[key]
		return strings.HasPrefix(v, "(") && strings.Contains(v[1:], name+"=")
	}
	value := func(hash, field string) (string, bool) {
		for _, w := range strings.Fields(strings.Trim(hash, "{}")) {
			if name, v, _ := strings.Cut(w, "="); name == field {
				return v, true
			}
		}
		return "", false
	}
	for k, v := range s {
		failed := ""
		name := k
		if of, ok := strings.CutPrefix(k, "failed:"); ok {
			failed, name = "failed:", of
		}
		kind, rest, _ := strings.Cut(name, ":")
		switch {
		case kind == "queues" && v[0] == '[':
			all = append(all, strings.Fields(strings.Trim(v, "[]"))...)
		case kind == "process" && v[0] == '[' && (member("working:w1", rest) || member("working:w2", rest)):
			all = append(all, strings.Trim(v, "[]"))
		case kind == "keyed" && v[0] == '{':
			_, runs := value(v, "process")
			if payload, ok := value(v, "payload"); ok && (runs || member(failed+"schedule", rest)) {
				all = append(all, payload)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Whatever key of the schedule is of another type: a refusal changes nothing,
// no task is lost or made up, and beats go on.
func TestForeignLane(t *testing.T) {
	t.Parallel()
	for verb, v := range laneVerbs {
		for key, value := range busyLane {
			for kind, foreign := range map[byte]string{'=': "=foreign", '[': "[foreign]", '{': "{foreign=1}", '(': "(foreign=1)"} {
				if kind == value[0] || kind == '[' && value[0] != '{' { // two others are enough
					continue
				}
				switch k, _, _ := strings.Cut(strings.TrimPrefix(key, "failed:"), ":"); k {
				case "schedule", "contents", "keyed", "entries", "ledger", "process", "queues":
				default:
					continue // TestForeignTypes
				}
				t.Run(verb+"/"+key+"/"+string(kind), func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, redistest.URL(), nil)
					before := busyLane.with(key, foreign)
					e.seed(before)
					got := v.call(e)
					after := e.look()
					switch {
					case after[key] != foreign:
						t.Errorf("answered %q and made the foreign key %q", got, after[key])
					case got == "WRONGTYPE" && verb != "leave" && verb != "fail" && verb != "sweep" && !maps.Equal(before, after):
						e.compare(1, before)
					case got != "WRONGTYPE" && strings.Contains(got, "WRONGTYPE") && !strings.Contains(got, "trouble="):
						t.Errorf("failed halfway: %q", got)
						e.compare(1, before)
					case verb == "beat" && got == "WRONGTYPE":
						t.Error("the beat was refused")
					}
					was, is := reachable(before), reachable(after)
					for _, p := range was {
						i := slices.Index(is, p)
						if i < 0 && !strings.Contains(v.drop, p) {
							t.Errorf("answered %q, and %s is lost\n%v", got, p, after)
						}
						if i >= 0 {
							is = slices.Delete(is, i, i+1)
						}
					}
					for _, p := range is {
						if p != "n" && slices.Contains(was, p) {
							t.Errorf("answered %q, and %s is there twice\n%v", got, p, after)
						}
					}
				})
			}
		}
	}
}

// On a full Redis everything goes on in the schedule as on any other, but for
// what adds work.
func TestFullLane(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for verb, v := range laneVerbs {
		t.Run(verb, func(t *testing.T) { // one after the other: the limit is the server's
			free, full := newEnv(t, redistest.URL(), nil), newEnv(t, url, nil)
			seed := busyLane.with("suspects", "(w2=-1m)")
			free.seed(seed)
			full.seed(seed)
			limit := func(n int) { full.must(full.conn.Do("CONFIG", "SET", "maxmemory", n)) }
			limit(1)
			got, want := v.call(full), v.call(free)
			if strings.HasPrefix(verb, "put") {
				if got != "OOM" {
					t.Errorf("answered %q", got)
				}
				full.compare(1, seed)
			} else {
				if got != want {
					t.Errorf("answered %q, want %q", got, want)
				}
				full.compare(1, free.look())
			}
			limit(0)
			full.must(full.conn.Do("FLUSHALL"))
		})
	}
}
