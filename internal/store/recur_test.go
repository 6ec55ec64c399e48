package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("recur",
	probe{seed: busyLane, call: recurs("v", "1:1a", "+1m +2m"), adds: true},
	probe{what: "known", seed: planX.with("recurring", "(k:x=+30m)"), call: recurs("x", "1:1a", "")},
)

// recurs asserts a schedule with a print and times, or "" for none. how may have "since=" or "late="
// and a number, "judge", and "payload=".
func recurs(key, print, times string, how ...string) func(*env) string {
	return func(e *env) string {
		s := Schedule{Entry: "k:" + spelled(key), Print: print, Payload: []byte("a")}
		now := e.now()
		for word := range strings.FieldsSeq(times) {
			s.Times, s.Renewed = append(s.Times, at(word, now)), print
		}
		until := int64(0)
		for _, h := range how {
			name, value, _ := strings.Cut(h, "=")
			switch name {
			case "judge":
				until = Whenever
			case "payload":
				s.Payload = []byte(value)
			case "card":
				s.Card = []byte(value)
			case "since":
				fmt.Sscan(value, &s.Since)
			case "late":
				s.Late = at(value, 0)
			}
		}
		told, ended, _, err := Recur(e.ctx, e.line, e.q, time.Hour.Milliseconds(), until, []Schedule{s})
		if err != nil {
			return refused(err)
		}
		word := told[0].State
		for _, entry := range ended {
			word += " ended=" + entry
		}
		return word
	}
}

// recursAll asserts several schedules for a period in ms, judges until a time, and returns the whole
// answer.
func recursAll(period, until int64, all ...Schedule) func(*env) string {
	for i := range all {
		if len(all[i].Times) > 0 {
			all[i].Renewed = all[i].Print
		}
	}
	return func(e *env) string {
		told, ended, _, err := Recur(e.ctx, e.line, e.q, period, until, all)
		if err != nil {
			return refused(err)
		}
		var said []string
		for _, a := range told {
			said = append(said, fmt.Sprint(a.State, " ", a.Since, " ", a.After))
		}
		for _, entry := range ended {
			said = append(said, "ended="+entry)
		}
		return strings.Join(said, "; ")
	}
}

// A call judges until a time of Redis, whose clock may have jumped ahead.
func TestJudgesUntil(t *testing.T) {
	e := beside(t, nil)
	e.must(e.conn.Do("HSET", e.q.Recurrence("k:x"), "print", "1:1a", "passed", 1))
	e.must(e.conn.Do("ZADD", e.q.Recurring(), 1, "k:x"))
	before := e.now()
	_, ended, now, err := Recur(e.ctx, e.line, e.q, 60_000, before-1, nil)
	e.is.NoErr(err)
	e.is.Equal(len(ended), 0)
	e.is.True(before <= now && now <= e.now())
	_, ended, _, err = Recur(e.ctx, e.line, e.q, 60_000, now+time.Hour.Milliseconds(), nil)
	e.is.NoErr(err)
	e.is.Equal(ended, []string{"k:x"})
}

// course returns the hash of a schedule with a print, times, and the last time that has passed.
func course(print, times, passed string, more ...string) string {
	return h(append([]string{"print=" + print, "since=-9m", "late=0", "more=+15m", "payload=a", "card=", "times=" + times, "passed=" + passed}, more...)...)
}

var (
	// planX occurs under x.
	planX = member.with("recurring", "(k:x=+60m)", "recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m"),
		"schedule", "(k:x=+10m)", "contents", "(#a:k:x=0)", "keyed:k:x", h(waits("a", "+10m", 0, 0), "turn=+10m", "card=0s13:now"))
	// dueX is planX when the occurrence is due.
	dueX = planX.with("recurrence:k:x", course("1:1a", "-1m,+20m,+30m", "-9m"), "schedule", "(k:x=-1m)", "keyed:k:x", h(waits("a", "-1m", 0, 0), "turn=-1m"))
	// nextX is the occurrence that waits behind a running one.
	nextX = h(waits("a", "+20m", 0, 0), "turn=+20m", "card=0s13:now", rule(1, 1, "0", "never"))
	// takenX is dueX when the occurrence runs.
	takenX = dueX.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "schedule", "",
		"recurrence:k:x", course("1:1a", "-1m,+20m,+30m", "now"), "keyed:k:x", h(runs("p1", 0, 0), "took=-1m", nextX))
	// overX is takenX when the occurrence has ended, and the next one is planned.
	overX = planX.with("rounds", "{w1=2}", "token", "=1", "schedule", "(k:x=+20m)", "keyed:k:x", h(waits("a", "+20m", 0, 0), "turn=+20m", "card=0s13:now"))
)

func lastX(outcome string) string {
	return course("1:1a", "-1m,+20m,+30m", "now", "last="+outcome+":-1m:now")
}

// An extra occurrence starts in addition to those of the schedule: the one that it replaces is planned
// again. An occurrence that is already due isn't extra, and neither is a retry.
func TestExtraOccurrence(t *testing.T) {
	extra := sets("x", "n", "", "extra", "keep")
	now := planX.with("schedule", "(k:x=now)", "keyed:k:x", h(waits("a", "now", 0, 0), "turn=now", "card=0s13:now"))
	retry := planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m"), "keyed:k:x", h(waits("a", "+10m", 1, 0), "turn=-2m"))
	run(t, []scenario{
		{name: "planned", seed: planX, steps: []when{
			{call: extra, want: "ok", state: now},
			{call: begins(1, "p1"), want: "started=a/1@k:x[0s13:now][now]", state: takenX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=now", "held=0s13:now", h(waits("a", "+10m", 0, 0), "turn=+10m", "card=0s13:now", rule(1, 1, "0", "never"))))}}},
		{name: "passed in this millisecond", seed: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "+5m")), steps: []when{
			{call: extra, want: "ok", state: now.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "+5m"),
				"keyed:k:x", h(waits("a", "now", 0, 0), "turn=+5m", "card=0s13:now"))}}},
		{name: "due", seed: dueX, steps: []when{
			{call: extra, want: "ok", state: dueX.with("schedule", "(k:x=now)", "keyed:k:x", h(waits("a", "now", 0, 0), "turn=-1m"))}}},
		{name: "behind one that runs", seed: takenX, steps: []when{
			{call: extra, want: "ok", state: takenX.with("keyed:k:x", h(runs("p1", 0, 0), "took=-1m", h(waits("a", "now", 0, 0), "turn=now", "card=0s13:now", rule(1, 1, "now", "now"))))}}},
		{name: "a retry", seed: retry, steps: []when{
			{call: extra, want: "ok", state: retry.with("schedule", "(k:x=now)", "keyed:k:x", h(waits("a", "now", 1, 0), "turn=-2m"))}}},
		{name: "nothing recurs", seed: member.with("schedule", "(k:x=+10m)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "+10m", 0, 0)), steps: []when{
			{call: extra, want: "ok", state: member.with("schedule", "(k:x=now)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "now", 0, 0))}}},
	})
}

// TestRecur checks the assertions of peers.
func TestRecur(t *testing.T) {
	newX := planX.with("workers", "", "recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now", "since=now"))
	twoX := planX.with("recurrence:k:x", course("1:2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1:1a:-9m"),
		"schedule", "(k:x=+5m)", "contents", "(#b:k:x=0)", "keyed:k:x", h(waits("b", "+5m", 0, 0), "turn=+5m", "card=0s13:now"))
	two := recurs("x", "1:2b", "+5m +6m", "payload=b")
	oneX := func(s state) state { return s.with("recurring", "(k:x=-1m)") }
	retryX := planX.with("recurrence:k:x", course("1:1a", "-1m,+20m,+30m", "-1m"), "schedule", "(k:x=+5m)", "keyed:k:x", h(waits("a", "+5m", 1, 0), "turn=-1m"))
	judges := recursAll(1, Whenever)
	run(t, []scenario{
		{name: "new", steps: []when{
			{call: recurs("x", "1:1a", ""), want: "wanted"},
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: newX},
			{call: recurs("x", "1:1a", ""), want: "held"},
			{call: recurs("x", "1:1a", "-1m +40m"), want: "held", state: newX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m,+40m", "now", "since=now", "more=+20m"))}}},
		{name: "an idle worker keeps its time", alive: []string{"w2"}, seed: state{"idle": "(w2=-1m)"}, steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", heard: []string{"wake:w2 0"}, state: newX}}},
		{name: "more times are wanted", seed: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m", "more=-1m")), steps: []when{
			{call: recurs("x", "1:1a", ""), want: "more"}}},
		{name: "a newer one", seed: planX, steps: []when{
			{call: recurs("x", "1:2b", ""), want: "wanted"},
			{call: two, want: "held", state: twoX},
			{call: recurs("x", "1:1a", ""), want: "older"}, // a peer that has just started
			{call: recurs("x", "1:1a", "+10m"), want: "older"},
			{call: recurs("x", "1:2b", ""), want: "held", state: twoX}}},
		{name: "a newer one: four that were replaced are known", seed: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m", "before=1:4d:-5m,1:3c:-6m,1:2c:-7m,1:0f:-8m")), steps: []when{
			{call: two, want: "held", state: twoX.with("recurrence:k:x", h(twoX["recurrence:k:x"], "before=1:1a:-9m,1:4d:-5m,1:3c:-6m,1:2c:-7m"))}}},
		{name: "a newer one than one of no known age", seed: planX.with("recurrence:k:x", h("print=1:1a", "passed=-1m", "times=+10m")), steps: []when{
			{call: two, want: "held", state: twoX.with("recurrence:k:x", h(twoX["recurrence:k:x"], "before=1:1a:0"))}}},
		{name: "one that was replaced and one that wasn't, by prints after other instants", seed: planX.with("recurrence:k:x", course("9:4d", "+10m,+20m,+30m", "-1m", "before=1:1a:-10m,5:3c:-11m")), steps: []when{
			{call: recurs("x", "", ""), want: "compare"},
			{call: recurs("x", "9:3c", ""), want: "compare"},
			{call: recurs("x", "1:3c", ""), want: "compare"},
			{call: recurs("x", "5:3c", ""), want: "compare"},
			{call: recurs("x", "9:3c", "", "since=1"), want: "older"},
			{call: recurs("x", "5:2b", ""), want: "compare"},
			{call: recurs("x", "9:2b", "", "since=-1"), want: "wanted"},
			{call: recurs("x", "1:4d", "+10m", "since=-1"), want: "compare"},
			{call: recurs("x", "9:4d", ""), want: "held", state: planX.with("recurrence:k:x", course("9:4d", "+10m,+20m,+30m", "-1m", "before=1:1a:-10m,5:3c:-11m"))}}},
		{name: "a newer one, while one waits for its retry", seed: retryX, steps: []when{
			{call: two, want: "held", state: retryX.with("recurrence:k:x", course("1:2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1:1a:-9m"))}}},
		{name: "a newer one, with a leftover time of a past run", seed: takenX.with("recurrence:k:x", course("1:1a", "-1m,+20m,+30m", "-9m"), "contents", "", "keyed:k:x", h(runs("p1", 0, 0), "took=-1m", "turn=-2m")), steps: []when{
			{call: two, want: "held", state: takenX.with("contents", "(#b:k:x=0)", "recurrence:k:x", course("1:2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1:1a:-9m"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-1m", waits("b", "+5m", 0, 0), "turn=+5m", "card=0s13:now", rule(1, 1, "0", "never")))}}},
		{name: "a retry isn't planned for its turn, whatever its entry says", seed: oneX(retryX).with("keyed:k:x", h(retryX["keyed:k:x"], "withheld=1")), steps: []when{
			{call: recurs("x", "1:1a", ""), want: "held", state: retryX.with("keyed:k:x", h(retryX["keyed:k:x"], "withheld=1"))}}},
		{name: "one without a print is none", seed: member.with("recurring", "(k:x=+30m)", "recurrence:k:x", h("passed=-9m", "since=+1m")), steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-9m", "since=now"))}}},
		{name: "its place is lost", seed: planX.with("recurring", ""), steps: []when{
			{call: recurs("x", "1:1a", ""), want: "held", state: planX}}},
		{name: "an added task is there: it goes first", seed: member.with("added", "|1-7-a/0=x|"), steps: []when{
			{call: recurs("@1-7-a", "1:1a", "+10m +20m +30m"), want: "held", state: member.with("recurring", "(k:@1-7-a=+60m)", "recurrence:k:@1-7-a", newX["recurrence:k:x"],
				"schedule", "(k:@1-7-a=1)", "contents", backA["contents"], "keyed:k:@1-7-a", lifted("x", "1", 0, 0))}}},
		{name: "an older one, whose peers stay", seed: oneX(twoX), steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now", "before=1:2b:now,1:1a:-9m"))}}},
		{name: "an older one that has just been changed is the newest", seed: twoX, steps: []when{
			{call: recurs("x", "1:1a", "", "since=-1"), want: "wanted"},
			{call: recurs("x", "1:1a", "+10m +20m +30m", "since=-1"), want: "held", state: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now", "since=now", "before=1:2b:now,1:1a:-9m"))}}},
		{name: "a newer one, while one is due", seed: dueX, steps: []when{
			{call: two, want: "held", state: dueX.with("recurrence:k:x", course("1:2b", "+5m,+6m", "-9m", "since=now", "payload=b", "more=+3m", "before=1:1a:-9m"))}}},
		{name: "a newer one, while one runs", seed: takenX, steps: []when{
			{call: two, want: "held", state: takenX.with("contents", "(#b:k:x=0)", "recurrence:k:x", course("1:2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1:1a:-9m"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-1m", waits("b", "+5m", 0, 0), "turn=+5m", "card=0s13:now", rule(1, 1, "0", "never")))}}},
		{name: "a put task is there: it goes first", seed: keyX, steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: keyX.with("recurring", planX["recurring"], "recurrence:k:x", newX["recurrence:k:x"])}}},
		{name: "and while it runs", seed: runX, steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: runX.with("recurring", planX["recurring"], "recurrence:k:x", newX["recurrence:k:x"])}}},
		{name: "not asserted: it ends", seed: oneX(planX), steps: []when{
			{call: recurs("y", "1:1a", ""), want: "wanted"},
			{call: recurs("y", "1:1a", "", "judge"), want: "wanted ended=k:x", state: member}}},
		{name: "while it runs: the run stays", seed: oneX(takenX), steps: []when{
			{call: recurs("y", "1:1a", "", "judge"), want: "wanted ended=k:x", state: takenX.with("recurring", "", "recurrence:k:x", "", "contents", "", "keyed:k:x", h(runs("p1", 0, 0), "took=-1m"))},
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX}}},
		{name: "it ends: a put task stays", seed: oneX(keyX).with("recurrence:k:x", planX["recurrence:k:x"]), steps: []when{
			{call: judges, want: "ended=k:x", state: keyX}}},
		{name: "it ends without a record: a put task stays", seed: oneX(keyX), steps: []when{
			{call: judges, want: "ended=k:x", state: keyX}}},
		{name: "it ends: a waiting retry stays", seed: oneX(retryX), steps: []when{
			{call: judges, want: "ended=k:x", state: retryX.with("recurring", "", "recurrence:k:x", "")}}},
		{name: "it ends, and nothing is known of it", seed: oneX(planX).with("recurrence:k:x", ""), steps: []when{
			{call: judges, want: "ended=k:x", state: member}}},
		{name: "it ends, and another type is there", seed: member.with("recurring", "(k:x=-1m)", "recurrence:k:x", planX["recurrence:k:x"], "keyed:k:x", "=foreign"), steps: []when{
			{call: judges, want: "ended=k:x", state: member.with("keyed:k:x", "=foreign")}}},
		{name: "damaged", seed: member.with("recurrence:k:x", "[a]"), steps: []when{{call: recurs("x", "1:1a", "+1m"), want: "damaged"}}},
		{name: "an index of another type", seed: member.with("recurring", "[a]"), steps: []when{{call: recurs("x", "1:1a", "+1m"), want: "WRONGTYPE"}}},
		{name: "an index of another type, and nothing is asserted", seed: member.with("recurring", "[a]"), steps: []when{{call: recursAll(1, 0), want: "WRONGTYPE"}}},
		{name: "paused: no wake-up", alive: []string{"w2"}, seed: state{"idle": "(w2=-1m)", "paused": "=1"}, steps: []when{
			{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: newX.with("idle", "(w2=-1m)", "paused", "=1")}}},
	})
}

// An occurrence that lies far ahead was removed. It stays so: the clock wasn't ahead.
func TestRecurRemovedFarAhead(t *testing.T) {
	x := planX.with("recurring", "(k:x=+30m)", "recurrence:k:x", course("1:1a", "+100m,+200m", "+100m"),
		"schedule", "(k:x=+200m)", "keyed:k:x", h(waits("a", "+200m", 0, 0), "turn=+200m", "card=0s13:now"))
	asserted := x.with("recurring", "(k:x=+60m)")
	ends := x.with("recurrence:k:x", course("1:1a", "+100m,+200m", "+100m", "more=-1m"))
	run(t, []scenario{
		{name: "it's asserted", seed: x, steps: []when{{call: recurs("x", "1:1a", ""), want: "held", state: asserted}}},
		{name: "its times run out", seed: ends, steps: []when{
			{call: recurs("x", "1:1a", ""), want: "more", state: ends.with("recurring", "(k:x=+60m)")},
			{call: recurs("x", "1:1a", "+300m"), want: "held", state: asserted.with("recurrence:k:x", course("1:1a", "+100m,+200m,+300m", "+100m", "more=+150m"))},
			{call: recurs("x", "1:1a", ""), want: "held"}}},
	})
}

// Redis's clock was ahead by a year when peers last asserted a schedule, and is right again. The schedule
// goes on at its next time.
func TestRecurClockWasAhead(t *testing.T) {
	const year, later = "+525600m", "+525610m"
	x := func(s state, passed string, more ...string) state {
		return s.with("recurring", "(k:x="+year+")", "recurrence:k:x", course("1:1a", later+",+525620m", passed, append([]string{"more=+525605m"}, more...)...))
	}
	plan := planX.with("schedule", "(k:x="+later+")", "keyed:k:x", h(planX["keyed:k:x"], waits("a", later, 0, 0), "turn="+later))
	next := planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now"))
	wants := when{call: recurs("x", "1:1a", ""), want: "wanted"}
	told := func(s state) when { return when{call: recurs("x", "1:1a", "+10m +20m +30m"), want: "held", state: s} }
	begun := takenX.with("recurring", "(k:x=+60m)", "recurrence:k:x", next["recurrence:k:x"], "keyed:k:x", h(runs("p1", 0, 0), "took=-1m", "card=0s13:now", waits("a", "+10m", 0, 0), "turn=+10m", rule(1, 1, "0", "never")))
	run(t, []scenario{
		{name: "an occurrence started", seed: x(plan, year), steps: []when{wants, told(next), {call: recurs("x", "1:1a", ""), want: "held"}}},
		{name: "the clock is right again, and a peer of another version has asserted it", seed: x(plan, year).with("recurring", "(k:x=+60m)"), steps: []when{wants, told(next)}},
		{name: "none started, but all later times are of that time", seed: x(planX, "-1m").with("recurrence:k:x", course("1:1a", "+10m,"+later, "-1m", "more=+525605m")),
			steps: []when{wants, told(planX)}},
		{name: "one is due", seed: x(dueX, "-9m"), steps: []when{wants, told(dueX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-9m")))}},
		{name: "one runs", seed: x(takenX, year).with("keyed:k:x", h(takenX["keyed:k:x"], waits("a", later, 0, 0), "turn="+later)), steps: []when{wants, told(begun)}},
		{name: "one waits for its retry", seed: x(plan, year).with("schedule", "(k:x=+525601m)", "keyed:k:x", h(waits("a", "+525601m", 1, 0), "turn=-2m")), steps: []when{wants,
			told(next.with("schedule", "(k:x=now)", "keyed:k:x", h(waits("a", "now", 1, 0), "turn=-2m")))}},
		{name: "one that is still to come waits for its retry", seed: x(plan, year).with("schedule", "(k:x=+525601m)", "keyed:k:x", h(waits("a", "+525601m", 1, 0), "turn=+10m")), steps: []when{wants, told(next)}},
		{name: "ahead by less: none starts twice", seed: x(planX.with("schedule", "(k:x=+40m)", "keyed:k:x", h(waits("a", "+40m", 0, 0), "turn=+40m")), "+15m"), steps: []when{wants,
			told(next.with("recurrence:k:x", course("1:1a", "+20m,+30m", "+15m"), "schedule", "(k:x=+20m)", "keyed:k:x", h(next["keyed:k:x"], waits("a", "+20m", 0, 0), "turn=+20m")))}},
		{name: "a task of the user waits under the key", seed: x(keyX, year), steps: []when{wants, told(keyX.with("recurring", "(k:x=+60m)", "recurrence:k:x", next["recurrence:k:x"]))}},
		{name: "another one replaces it", seed: x(plan, year, "since="+year), steps: []when{
			{call: recurs("x", "1:2b", "", "since=7"), want: "wanted"},
			{call: recurs("x", "1:2b", "+10m +20m +30m", "since=7"), want: "held", state: next.with("recurrence:k:x", course("1:2b", "+10m,+20m,+30m", "now", "since=7", "before=1:1a:0"))},
			{call: recursAll(time.Hour.Milliseconds(), 0, Schedule{Entry: "k:x", Print: "1:1a", Since: 1 << 52}), want: "older 0 0"}}},
	})
}

// TestRecurInstant checks the assertions of peers, to the millisecond.
func TestRecurInstant(t *testing.T) {
	at := atInstant
	const now = instant
	x := state{"recurring": "(k:x=" + at(8) + ")", "schedule": "(k:x=" + at(9) + ")", "contents": "(#a:k:x=0)", "keyed:k:x": h(waits("a", at(9), 0, 0), "turn="+at(9)),
		"recurrence:k:x": h("print=1:1a since=7 late=0 payload=a card= more="+at(5), "times="+at(9)+","+at(20), "passed="+at(-9))}
	course := func(more ...string) state {
		return x.with("recurrence:k:x", h(append([]string{x["recurrence:k:x"]}, more...)...))
	}
	until := func(s state, ms int) state { return s.with("recurring", "(k:x="+at(ms)+")") }
	waiting := func(s state, turn int) state {
		return s.with("schedule", "(k:x="+at(turn)+")", "keyed:k:x", h(waits("a", at(turn), 0, 0), "turn="+at(turn)))
	}
	asserts := func(print string, since int64, times ...int64) func(*env) string {
		return recursAll(10, 0, Schedule{Entry: "k:x", Print: print, Since: since, Times: times, Payload: []byte("a")})
	}
	both := until(x, 8).with("recurring", "(k:x="+at(8)+" k:y="+at(8)+")", "recurrence:k:y", x["recurrence:k:x"])
	due := waiting(course("times="+at(-5)+","+at(20), "late=5"), -5).with("workers", "(w1="+at(9)+")")
	started := due.with("workers", "(w1="+at(9)+")", "rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "schedule", "",
		"keyed:k:x", h(runs("p1", 0, 0), "took="+at(-5), waits("a", at(20), 0, 0), "turn="+at(20), "card=0s7:1000999", rule(1, 1, "0", "never")),
		"recurrence:k:x", h(due["recurrence:k:x"], "passed="+at(0)))
	beatsForEver := raw(func(e *env) redisconn.Call { return BeatCall(e.q, "w1", 0, 0, 0) })
	begins := steps(Round{Worker: "w1", Number: 1, Lease: 9 * time.Millisecond, Start: []string{"p1"}})
	runAtInstant(t, []scenario{
		{name: "for most of the period", seed: x, steps: []when{
			{call: asserts("1:1a", 0), want: "held 7 0"},
			{call: asserts("1:1a", 9), want: "held 9 0"}}},
		{name: "for less of it", seed: until(x, 7), steps: []when{{call: asserts("1:1a", 0), want: "held 7 0", state: until(x, 10)}}},
		{name: "for less of it, and since later", seed: until(x, 7), steps: []when{{call: asserts("1:1a", 9), want: "held 9 0", state: until(x, 10)}}},
		{name: "two of them", seed: both, steps: []when{
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "1:1a"}, Schedule{Entry: "k:y", Print: "1:1a"}), want: "held 7 0; held 7 0"}}},
		{name: "more times are wanted from now on", seed: course("more=" + at(0)), steps: []when{
			{call: asserts("1:1a", 0), want: "more 7 1", state: until(course("more="+at(0)), 10)}}},
		{name: "more times are wanted from the last one that has come on", seed: course("more="+at(0), "times="+at(-9)+","+at(0)+","+at(20)), steps: []when{
			{call: asserts("1:1a", 0), want: fmt.Sprint("more 7 ", now), state: until(course("more="+at(0), "times="+at(-9)+","+at(0)+","+at(20)), 10)}}},
		{name: "more times, by another instant", seed: x, steps: []when{
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "2:9c"}), want: "compare 0 1"},
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "1:9c"}), want: "wanted 1000999500 1000999"},
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "2:9c", Since: 6}), want: "compare 6 1"},
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "1:9c", Since: 6}), want: "older 6 0"}}},
		{name: "of a replaced one, its age", seed: course("before=8:9c:5"), steps: []when{
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "1:9c"}), want: "compare 0 8"},
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "8:9c"}), want: "compare 5 1"},
			{call: recursAll(10, 0, Schedule{Entry: "k:x", Print: "8:9d"}), want: "compare 1000999500 1"}}},
		{name: "all of its times have passed", seed: course("more="+at(-1), "times="+at(-5)), steps: []when{
			{call: asserts("1:1a", 0), want: fmt.Sprint("more 7 ", now), state: until(course("more="+at(-1), "times="+at(-5)), 10)}}},
		{name: "no time is known", seed: course("more="+at(-1), "times="), steps: []when{
			{call: asserts("1:1a", 0), want: fmt.Sprint("more 7 ", now), state: until(course("more="+at(-1), "times="), 10)}}},
		{name: "times that are known", seed: x, steps: []when{
			{call: asserts("1:1a", 0, now+20, now+21), want: "held 7 0", state: until(course("times="+at(9)+","+at(20)+","+at(21), "more="+at(10)), 10)}}},
		{name: "another one of the same age, until now", seed: until(course("since=1"), 0), steps: []when{
			{call: asserts("1:2b", 1), want: "older 1 0"}}},
		{name: "until before now", seed: until(course("since=1"), -1), steps: []when{
			{call: asserts("1:2b", 1), want: fmt.Sprint("wanted 1 ", now)}}},
		{name: "of those that are late, the first one occurs", seed: state{"recurring": x["recurring"], "recurrence:k:x": course("times=")["recurrence:k:x"]}, steps: []when{
			{call: asserts("1:1a", 0, now-2, now-1, now, now+7), want: "held 7 0", state: until(waiting(course("times="+at(-2)+","+at(7), "more="+at(3)), -2), 10).with(
				"keyed:k:x", h(waits("a", at(-2), 0, 0), "turn="+at(-2), "card=0s7:1000999"))}}},
		{name: "a newer one, while one is due now", seed: waiting(x, 0), steps: []when{
			{call: asserts("1:2b", JustNow, now+7), want: "held 1000999500 0", state: until(waiting(course("print=1:2b", "since=1000999500", "times="+at(7), "more="+at(3), "before=1:1a:7"), 0), 10)}}},
		{name: "damaged", seed: x.with("recurrence:k:x", "=foreign"), steps: []when{{call: asserts("1:1a", 3), want: "damaged 3 0"}}},
		{name: "damaged, its entry", seed: until(x, 7).with("keyed:k:x", "=foreign"), steps: []when{{call: asserts("1:1a", 3), want: "damaged 3 0"}}},
		{name: "asserted until now: it stays", seed: until(x, 0), steps: []when{{call: recursAll(10, Whenever), want: ""}}},
		{name: "asserted until now: a beat says nothing", seed: until(x, 0).with("workers", "(w1=never)"), steps: []when{
			{call: beatsForEver, want: "[0 0 0 -1 0 [] 0 0 -1 1000999 9007199254740991 0]"}}},
		{name: "asserted until before now: a beat says so", seed: until(x, -1).with("workers", "(w1=never)"), steps: []when{
			{call: beatsForEver, want: "[0 0 0 -1 0 [] 0 0 -1 1000999 9007199254740991 1]"}}},
		{name: "an extra one, and some have passed that are to come", seed: course("passed=" + at(4)), steps: []when{
			{call: sets("x", "a", "", "extra", "keep"), want: "ok", state: course("passed="+at(4)).with("schedule", "(k:x="+at(0)+")", "keyed:k:x", h(waits("a", at(0), 0, 0), "turn="+at(5)))}}},
		{name: "due, and asserted until now", seed: until(due, 0), steps: []when{{call: begins, want: "started=a/1@k:x now=1000999", state: until(started, 0)}}},
		{name: "due, and as late as it may be", seed: due, steps: []when{{call: begins, want: "started=a/1@k:x now=1000999", state: started}}},
	})
}

// A damaged schedule doesn't prevent others from being listed.
func TestDamagedRecurring(t *testing.T) {
	e := beside(t, state{"recurring": "(k:a=+1m k:secret=+1m k:hidden=+1m k:z=+1m)", "recurrence:k:secret": "[a]", "keyed:k:hidden": "=a"})
	var keys []string
	var failed error
	for r, err := range Recurring(e.ctx, e.line, e.q) {
		if err != nil {
			failed = err
			continue
		}
		keys = append(keys, r.Key)
	}
	if fmt.Sprint(keys) != "[a z]" {
		t.Error(keys)
	}
	if failed == nil || !IsWrongType(failed) || !strings.HasPrefix(failed.Error(), "recurring tasks can't be read: 2, the first") || strings.Contains(failed.Error(), "secret") {
		t.Error(failed)
	}
}

// Schedules that no peer asserts end, however many there are; the others stay.
func TestEndRecurring(t *testing.T) {
	e := beside(t, planX)
	for i := range 120 {
		e.must(e.conn.Do("ZADD", e.q.Recurring(), 1, fmt.Sprint("k:", i)))
	}
	e.must(nil, EndRecurring(e.ctx, e.line, e.q))
	if n := e.count("ZCARD", "recurring"); n != 1 {
		t.Errorf("%d are left", n)
	}
}
