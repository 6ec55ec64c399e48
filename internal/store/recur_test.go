package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("recur",
	probe{seed: busyLane, call: recurs("v", "1a", "+1m +2m"), adds: true},
	probe{what: "known", seed: planX.with("recurring", "(k:x=+30m)"), call: recurs("x", "1a", "")},
)

// recurs asserts a schedule: its print, and its times or "" for none. How is "since=" or "late=" a
// number, "judge", "payload=".
func recurs(key, print, times string, how ...string) func(*env) string {
	return func(e *env) string {
		s := Schedule{Entry: "k:" + key, Print: print, Payload: []byte("a")}
		now := e.now()
		for word := range strings.FieldsSeq(times) {
			s.Times = append(s.Times, at(word, now))
		}
		judge := false
		for _, h := range how {
			name, value, _ := strings.Cut(h, "=")
			switch name {
			case "judge":
				judge = true
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
		told, ended, err := Recur(e.ctx, e.line, e.q, time.Hour.Milliseconds(), judge, []Schedule{s})
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

// each is a schedule as tests have it: asserted by a print, every minute from a time on.
func course(print, times, passed string, more ...string) string {
	return h(append([]string{"print=" + print, "since=-9m", "late=0", "more=+15m", "payload=a", "card=", "times=" + times, "passed=" + passed}, more...)...)
}

var (
	// planX occurs under x.
	planX = member.with("recurring", "(k:x=+60m)", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "-1m"),
		"schedule", "(k:x=+10m)", "contents", "(#a:k:x=0)", "keyed:k:x", h(waits("a", "+10m", 0, 0), "turn=+10m", "card=0s13:now"))
	// dueX is when that is due.
	dueX = planX.with("recurrence:k:x", course("1a", "-1m,+20m,+30m", "-9m"), "schedule", "(k:x=-1m)", "keyed:k:x", h(waits("a", "-1m", 0, 0), "turn=-1m"))
	// next is what waits behind a run.
	nextX = h(waits("a", "+20m", 0, 0), "turn=+20m", "card=0s13:now", rule(1, 1, "0", "never"))
	// takenX is when it runs.
	takenX = dueX.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=k:x}", "schedule", "",
		"recurrence:k:x", course("1a", "-1m,+20m,+30m", "now"), "keyed:k:x", h(runs("p1", 0, 0), "took=-1m", nextX))
	// overX is when it has ended, and the next one is planned.
	overX = planX.with("rounds", "{w1=2}", "token", "=1", "schedule", "(k:x=+20m)", "keyed:k:x", h(waits("a", "+20m", 0, 0), "turn=+20m", "card=0s13:now"))
)

func lastX(outcome string) string {
	return course("1a", "-1m,+20m,+30m", "now", "last="+outcome+":-1m:now")
}

// An extra occurrence starts beside those of the schedule: the one in whose place it waits is planned
// again. One that is due already is none, and neither is a retry.
func TestExtraOccurrence(t *testing.T) {
	t.Parallel()
	extra := sets("x", "n", "", "extra", "keep")
	now := planX.with("schedule", "(k:x=now)", "keyed:k:x", h(waits("a", "now", 0, 0), "turn=now", "card=0s13:now"))
	retry := planX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "-1m"), "keyed:k:x", h(waits("a", "+10m", 1, 0), "turn=-2m"))
	run(t, []scenario{
		{name: "planned", seed: planX, steps: []when{
			{call: extra, want: "ok", state: now},
			{call: begins(1, "p1"), want: "started=a/1@k:x[0s13:now][now]", state: takenX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "now"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=now", "held=0s13:now", h(waits("a", "+10m", 0, 0), "turn=+10m", "card=0s13:now", rule(1, 1, "0", "never"))))}}},
		{name: "passed in this millisecond", seed: planX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "+5m")), steps: []when{
			{call: extra, want: "ok", state: now.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "+5m"),
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

// An occurrence starts, and the next one waits behind it until it has ended for good.
func TestRecurrence(t *testing.T) {
	t.Parallel()
	again := func(due string, retries, crashes int) state {
		return takenX.with("rounds", "{w1=2}", "working:w1", "", "process:p1", "", "entries", "", "schedule", "(k:x="+due+")",
			"keyed:k:x", h(waits("a", due, retries, crashes), "turn=-1m"))
	}
	grave := []string{"failed:schedule", "(k:p1=now)", "failed:contents", "(#a:k:p1=0)"}
	late := course("1a", "-9m,-1m,+20m,+30m", "-20m", "late=60000")
	run(t, []scenario{
		{name: "start, repeated", seed: dueX, steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: takenX},
			{call: begins(1, "p1"), want: "started=a/1@k:x"}}},
		{name: "finish", seed: takenX, steps: []when{{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"},
			state: overX.with("recurrence:k:x", lastX("finished"))}}},
		{name: "drop", seed: takenX, steps: []when{{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: overX.with("recurrence:k:x", lastX("canceled"))}}},
		{name: "retry, start, and the next waits again", seed: takenX, steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok", state: again("now", 1, 0)},
			{call: begins(3, "p2"), want: "started=a/2@k:x~1", state: takenX.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p1", "", "process:p2", "[a]",
				"entries", "{p2=k:x}", "keyed:k:x", h(runs("p2", 1, 0), "took=-1m", nextX))}}},
		{name: "stop", seed: takenX, steps: []when{{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: again("1", 0, 0)}}},
		{name: "its worker is failed", seed: takenX, steps: []when{{call: fails("w1"), want: "known=true returned=1",
			state: again("1", 0, 1).with("workers", "", "rounds", "", "token", "=2")}}},
		{name: "fail: its grave is not of the key", seed: takenX, steps: []when{{call: ends(2, "p1", 1, Fail, Outcome{Kind: Failed, Reason: "r"}), want: "settled=ok",
			state: overX.with("recurrence:k:x", lastX("failed")).with(grave...).with("failed:keyed:k:p1",
				h(waits("a", "now", 0, 0), "kind=failed", "reason=r", "tries=0", "deaths=0", "worker=w1", "at=now", "from=k:x@-1m"))}}},
		{name: "crashed too often", seed: dueX.with("keyed:k:x", h(waits("a", "-1m", 0, 2), "turn=-1m")), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 2, Start: []string{"p1"}}), want: "again buried=1", state: overX.with("rounds", "{w1=1}", "token", "",
				"recurrence:k:x", lastX("crashed"), "failed:schedule", "(k:p1.001=now)", "failed:contents", "(#a:k:p1.001=0)", "failed:keyed:k:p1.001",
				h(waits("a", "now", 0, 0), "kind=crashed", `reason="2 workers died holding it"`, "tries=0", "deaths=2", "worker=w1", "at=now", "from=k:x@-1m"))}}},
		{name: "missed ones occur once", seed: dueX.with("recurrence:k:x", course("1a", "-9m,-1m,+20m,+30m", "-20m"), "schedule", "(k:x=-9m)",
			"keyed:k:x", h(waits("a", "-9m", 0, 0), "turn=-9m")), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: takenX.with("recurrence:k:x", course("1a", "-9m,-1m,+20m,+30m", "now"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-9m", nextX))}}},
		{name: "or not at all", seed: dueX.with("recurrence:k:x", late, "schedule", "(k:x=-9m)", "keyed:k:x", h(waits("a", "-9m", 0, 0), "turn=-9m")), steps: []when{
			{call: begins(1, "p1"), state: overX.with("rounds", "{w1=1}", "token", "", "recurrence:k:x", h(late, "passed=now", "last=skipped:-9m:now"))}}},
		{name: "late, but in time", seed: dueX.with("recurrence:k:x", h(dueX["recurrence:k:x"], "late=180000")), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: takenX.with("recurrence:k:x", h(takenX["recurrence:k:x"], "late=180000"))}}},
		{name: "nobody asserts it: withheld, until somebody does", seed: dueX.with("recurring", "(k:x=-1m)"), steps: []when{
			{call: begins(1, "p1"), state: dueX.with("rounds", "{w1=1}", "recurring", "(k:x=-1m)", "schedule", "(k:x=now)",
				"keyed:k:x", h(waits("a", "now", 0, 0), "turn=-1m", "withheld=1"))},
			{call: begins(2, "p1"), state: dueX.with("rounds", "{w1=2}", "recurring", "(k:x=-1m)", "schedule", "(k:x=now)",
				"keyed:k:x", h(waits("a", "now", 0, 0), "turn=-1m", "withheld=1"))},
			{call: recurs("x", "1a", ""), want: "held", state: dueX.with("rounds", "{w1=2}")}}},
		{name: "its times have run out: nothing is planned", seed: dueX.with("recurrence:k:x", course("1a", "-1m", "-9m")), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: takenX.with("recurrence:k:x", course("1a", "-1m", "now"), "contents", "", "keyed:k:x", h(runs("p1", 0, 0), "took=-1m"))},
			{call: recurs("x", "1a", "+20m +30m"), want: "held", state: takenX.with("recurrence:k:x", course("1a", "+20m,+30m", "now"))}}},
		{name: "its card", seed: dueX.with("recurrence:k:x", course("1a", "-1m,+20m,+30m", "-9m", "card=0t4:1500"), "keyed:k:x", h(waits("a", "-1m", 0, 0), "turn=-1m", "card=0t4:1500")), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x[0t4:1500][-1m]", state: takenX.with("recurrence:k:x", course("1a", "-1m,+20m,+30m", "now", "card=0t4:1500"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-1m", "held=0t4:1500", nextX, "card=0t4:1500s13:now"))},
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok", state: again("now", 1, 0).with("recurrence:k:x", course("1a", "-1m,+20m,+30m", "now", "card=0t4:1500"),
				"keyed:k:x", h(waits("a", "now", 1, 0), "turn=-1m", "card=0t4:1500"))}}},
		{name: "its put card has expired", seed: dueX.with("keyed:k:x", h(waits("a", "-1m", 0, 0), "turn=-1m", "card=10000000000000001")), steps: []when{
			{call: begins(1, "p1"), want: "again buried=1 expired=1", state: overX.with("rounds", "{w1=1}", "token", "", "recurrence:k:x", lastX("expired"),
				"failed:schedule", "(k:p1.001=now)", "failed:contents", "(#a:k:p1.001=0)", "failed:keyed:k:p1.001",
				h(waits("a", "now", 0, 0), "kind=expired", `reason="its time was over before it started"`, "tries=0", "deaths=0", "worker=w1", "at=now", "from=k:x", "card=10000000000000001"))}}},
		{name: "started before its time", seed: planX, steps: []when{
			{call: sets("x", "b", ""), want: "ok", state: planX.with("schedule", "(k:x=now)", "contents", "(#b:k:x=0)", "keyed:k:x", h(waits("b", "now", 0, 0), "turn=+10m"))},
			{call: begins(1, "p1"), want: "started=b/1@k:x", state: takenX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "+10m"), "process:p1", "[b]",
				"keyed:k:x", h(runs("p1", 0, 0), "took=+10m", nextX))}}},
		{name: "removed: the one after it is planned", seed: planX, steps: []when{
			{call: removes("k:x"), want: "removed=true", state: overX.with("rounds", "", "token", "", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "+10m", "last=removed:+10m:now"))}}},
		{name: "removed behind a run: the one after it is planned", seed: takenX, steps: []when{
			{call: removes("k:x"), want: "removed=true", state: takenX.with("recurrence:k:x", course("1a", "-1m,+20m,+30m", "+20m", "last=removed:+20m:now"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-1m", waits("a", "+30m", 0, 0), "turn=+30m", "card=0s13:now", rule(1, 1, "0", "never")))}}},
		{name: "canceled: the one after it is planned", seed: planX, steps: []when{
			{call: cancelsKey("x"), want: "removed=1 token=0", state: overX.with("rounds", "", "token", "", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "+10m", "last=canceled:+10m:now"))}}},
		{name: "its payload is canceled: a peer plans the one after it", seed: planX.with("recurring", "(k:x=+30m)"), steps: []when{
			{call: cancels("a"), want: "removed=1 token=0", heard: []string{"cancel a"}, state: planX.with("recurring", "(k:x=+30m)", "token", "=1", "cancel:#a", "{finished=0 stopped=0 token=1} +1m",
				"schedule", "", "contents", "", "keyed:k:x", "", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "+10m"))},
			{call: recurs("x", "1a", ""), want: "held", state: overX.with("rounds", "", "cancel:#a", "{finished=0 stopped=0 token=1} +1m", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "+10m"))}}},
		{name: "canceled while it runs: the next one stays", seed: takenX.with("holders", "(w1=0)"), alive: []string{"w1"}, steps: []when{
			{call: cancelsKey("x"), want: "removed=0 token=2", heard: []string{"wake:w1 0"}, state: takenX.with("token", "=2", "holders", "(w1=0)", "canceled", "(k:x=2)",
				"cancel:k:x", "{finished=0 stopped=0 token=2} +1440m", "stopping", "("+stoppedKey("k:x", 1, "p1")+"=0)")}}},
	})
}

// What peers assert.
func TestRecur(t *testing.T) {
	t.Parallel()
	newX := planX.with("workers", "", "recurrence:k:x", course("1a", "+10m,+20m,+30m", "now", "since=now"))
	twoX := planX.with("recurrence:k:x", course("2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1a:-9m"),
		"schedule", "(k:x=+5m)", "contents", "(#b:k:x=0)", "keyed:k:x", h(waits("b", "+5m", 0, 0), "turn=+5m", "card=0s13:now"))
	two := recurs("x", "2b", "+5m +6m", "payload=b")
	oneX := func(s state) state { return s.with("recurring", "(k:x=-1m)") }
	run(t, []scenario{
		{name: "new", steps: []when{
			{call: recurs("x", "1a", ""), want: "wanted"},
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", state: newX},
			{call: recurs("x", "1a", ""), want: "held"},
			{call: recurs("x", "1a", "-1m +40m"), want: "held", state: newX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m,+40m", "now", "since=now", "more=+20m"))}}},
		{name: "an idle worker keeps its time", alive: []string{"w2"}, seed: state{"idle": "(w2=-1m)"}, steps: []when{
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", heard: []string{"wake:w2 0"}, state: newX}}},
		{name: "more times are wanted", seed: planX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "-1m", "more=-1m")), steps: []when{
			{call: recurs("x", "1a", ""), want: "more"}}},
		{name: "a newer one", seed: planX, steps: []when{
			{call: recurs("x", "2b", ""), want: "wanted"},
			{call: two, want: "held", state: twoX},
			{call: recurs("x", "1a", ""), want: "older"}, // one that has just started
			{call: recurs("x", "1a", "+10m"), want: "older"},
			{call: recurs("x", "2b", ""), want: "held", state: twoX}}},
		{name: "an older one, whose peers stay", seed: oneX(twoX), steps: []when{
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", state: planX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "now", "before=2b:now,1a:-9m"))}}},
		{name: "an older one that has just been changed is the newest", seed: twoX, steps: []when{
			{call: recurs("x", "1a", "", "since=-1"), want: "wanted"},
			{call: recurs("x", "1a", "+10m +20m +30m", "since=-1"), want: "held", state: planX.with("recurrence:k:x", course("1a", "+10m,+20m,+30m", "now", "since=now", "before=2b:now,1a:-9m"))}}},
		{name: "a newer one, while one is due", seed: dueX, steps: []when{
			{call: two, want: "held", state: dueX.with("recurrence:k:x", course("2b", "+5m,+6m", "-9m", "since=now", "payload=b", "more=+3m", "before=1a:-9m"))}}},
		{name: "a newer one, while one runs", seed: takenX, steps: []when{
			{call: two, want: "held", state: takenX.with("contents", "(#b:k:x=0)", "recurrence:k:x", course("2b", "+5m,+6m", "now", "since=now", "payload=b", "more=+3m", "before=1a:-9m"),
				"keyed:k:x", h(runs("p1", 0, 0), "took=-1m", waits("b", "+5m", 0, 0), "turn=+5m", "card=0s13:now", rule(1, 1, "0", "never")))}}},
		{name: "a put task is there: it goes first", seed: keyX, steps: []when{
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", state: keyX.with("recurring", planX["recurring"], "recurrence:k:x", newX["recurrence:k:x"])}}},
		{name: "and while it runs", seed: runX, steps: []when{
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", state: runX.with("recurring", planX["recurring"], "recurrence:k:x", newX["recurrence:k:x"])}}},
		{name: "nobody asserts it: it ends", seed: oneX(planX), steps: []when{
			{call: recurs("y", "1a", ""), want: "wanted"},
			{call: recurs("y", "1a", "", "judge"), want: "wanted ended=k:x", state: member}}},
		{name: "while it runs: what runs stays", seed: oneX(takenX), steps: []when{
			{call: recurs("y", "1a", "", "judge"), want: "wanted ended=k:x", state: takenX.with("recurring", "", "recurrence:k:x", "", "contents", "", "keyed:k:x", h(runs("p1", 0, 0), "took=-1m"))},
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX}}},
		{name: "damaged", seed: member.with("recurrence:k:x", "[a]"), steps: []when{{call: recurs("x", "1a", "+1m"), want: "damaged"}}},
		{name: "an index of another type", seed: member.with("recurring", "[a]"), steps: []when{{call: recurs("x", "1a", "+1m"), want: "WRONGTYPE"}}},
		{name: "paused: nobody is told", alive: []string{"w2"}, seed: state{"idle": "(w2=-1m)", "paused": "=1"}, steps: []when{
			{call: recurs("x", "1a", "+10m +20m +30m"), want: "held", state: newX.with("idle", "(w2=-1m)", "paused", "=1")}}},
	})
}

// A call drops or copies at most 1 MiB of payloads, besides the first one, and reads none whose digest is
// kept. The rest is for the next calls.
func TestRecurPages(t *testing.T) {
	count(t)
	const n, size = 20, 400 << 10
	start := func(t *testing.T) (*env, []Schedule) {
		e := newEnv(t, redistest.URL(), nil)
		var all []Schedule
		far := e.now() + time.Hour.Milliseconds()
		for i := range n {
			all = append(all, Schedule{Entry: fmt.Sprint("k:", i), Print: "1a", Times: []int64{far}})
		}
		told, _, err := Recur(e.ctx, e.line, e.q, 60_000, false, all)
		if err != nil || told[n-1].State != ScheduleHeld {
			t.Fatal(told, err)
		}
		for i := range n { // as somebody puts them
			if _, err := Put(e.ctx, e.line, e.q, all[i].Entry, Change{Payload: []byte(strings.Repeat("x", size)), When: Always, At: far}); err != nil {
				t.Fatal(err)
			}
		}
		e.counted()
		return e, all
	}
	unread := func(t *testing.T, e *env) {
		t.Helper()
		if hashed, read := e.counted(); hashed+read > 0 {
			t.Errorf("%d bytes are hashed, %d read", hashed, read)
		}
	}
	t.Run("another schedule", func(t *testing.T) {
		e, all := start(t)
		for i := range all {
			all[i].Print, all[i].Since = "2b", e.now()*2000
		}
		states := map[string]int{}
		for calls := 0; states[ScheduleHeld] < n; calls++ {
			told, _, err := Recur(e.ctx, e.line, e.q, 60_000, false, all)
			if err != nil || calls > n {
				t.Fatal(states, err)
			}
			was := states[ScheduleHeld]
			clear(states)
			for _, a := range told {
				states[a.State]++
			}
			if held := states[ScheduleHeld]; held > was+3 || held < was+1 {
				t.Errorf("%d after %d", held, was)
			}
			if states[ScheduleHeld]+states[ScheduleWanted] != n {
				t.Error(states)
			}
		}
		unread(t, e)
	})
	t.Run("ends", func(t *testing.T) {
		e, _ := start(t)
		for i := range n {
			e.must(e.conn.Do("ZADD", e.q.Recurring(), 1, fmt.Sprint("k:", i)))
		}
		for left := n; left > 0; {
			_, ended, err := Recur(e.ctx, e.line, e.q, 60_000, true, nil)
			if err != nil || len(ended) == 0 || len(ended) > 3 {
				t.Fatal(len(ended), err)
			}
			left -= len(ended)
		}
		unread(t, e)
		if n := e.count("ZCARD", "contents"); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// A schedule that is damaged keeps none of the others from being listed.
func TestDamagedRecurring(t *testing.T) {
	t.Parallel()
	e := newEnv(t, redistest.URL(), nil)
	e.seed(state{"recurring": "(k:a=+1m k:secret=+1m k:hidden=+1m k:z=+1m)", "recurrence:k:secret": "[a]", "keyed:k:hidden": "=a"})
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
	if failed == nil || !IsWrongType(failed) || !strings.HasPrefix(failed.Error(), "2 recurring tasks can't be read") || strings.Contains(failed.Error(), "secret") {
		t.Error(failed)
	}
}

// What nobody asserts ends, however much it is; the rest stays.
func TestEndRecurring(t *testing.T) {
	t.Parallel()
	e := newEnv(t, redistest.URL(), nil)
	e.seed(planX)
	for i := range 120 {
		e.must(e.conn.Do("ZADD", e.q.Recurring(), 1, fmt.Sprint("k:", i)))
	}
	e.must(nil, EndRecurring(e.ctx, e.line, e.q))
	if n := e.count("ZCARD", "recurring"); n != 1 {
		t.Errorf("%d are left", n)
	}
}
