package store

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/keys"
)

// The short notation of added tasks: see state.

const fullSalt = "000000000000"

var (
	shortName = regexp.MustCompile(`@(\d+-\d+)-([a-f])\b`)
	shortItem = regexp.MustCompile(`([ |]|\ba:)(\d+-\d+)-([a-f])([0-7]|\b)`)
	fullKey   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7000-8[0-9a-f]{3}-[0-9a-f]{2}000000000[a-f]`)
	fullID    = regexp.MustCompile(`(\d+)-(\d+)-` + fullSalt + `([a-f])`)
)

// spelled returns a notation with the keys and names of added tasks as they are in Redis.
func spelled(s string) string {
	if !salted(s) {
		return s // most are short, and some have a mebibyte
	}
	s = shortName.ReplaceAllStringFunc(s, func(short string) string {
		m := shortName.FindStringSubmatch(short)
		key, _ := keys.AddedKey(m[1], fullSalt+m[2])
		return key
	})
	return shortItem.ReplaceAllString(s, "${1}${2}-"+fullSalt+"${3}${4}")
}

// salted reports whether there may be a name in short notation, which ends with "-a" to "-f".
func salted(s string) bool {
	for found := true; found; {
		if _, s, found = strings.Cut(s, "-"); s != "" && 'a' <= s[0] && s[0] <= 'f' {
			return true
		}
	}
	return false
}

// short returns a text with these in short notation. A key with the time of Redis is shown as minutes
// from now, and its sequence relative to the first one seen.
func (e *env) short(text string) string {
	if strings.Contains(text, "-7000-8") {
		text = fullKey.ReplaceAllStringFunc(text, func(key string) string {
			name, _ := keys.AddedName(key)
			return "@" + strings.TrimPrefix(name, "a:")
		})
	}
	if !strings.Contains(text, "-"+fullSalt) {
		return text
	}
	now := e.now()
	return fullID.ReplaceAllStringFunc(text, func(id string) string {
		m := fullID.FindStringSubmatch(id)
		ms, _ := strconv.ParseInt(m[1], 10, 64)
		seq, _ := strconv.Atoi(m[2])
		if ms < 1e12 || ms > 5e13 {
			return m[1] + "-" + m[2] + "-" + m[3]
		}
		if _, seen := e.firsts[m[1]]; !seen {
			e.firsts[m[1]] = seq
		}
		return fmt.Sprintf("%s-%d-%s", minutes(ms-now), seq-e.firsts[m[1]], m[3])
	})
}

func (e *env) shortened(all state) state {
	short := state{}
	if added, ok := all["added"]; ok {
		e.short(added) // so that its ids are the first ones seen
	}
	for k, v := range all {
		short[e.short(k)] = e.short(v)
	}
	return short
}

var (
	// line is two added tasks that wait, and one on the list.
	line = member.with("added", "|1-7-a/0=x 1-8-a/0=y|", "queues", "[a b]")
	// runsA has only the first added task of line, and that runs.
	runsA = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[x]",
		"entries", "{a:1-7-a=p1:w1 p1=a:1-7-a0}")
	// backA is doneX with that task waiting again. Tests add its schedule and hash.
	backA = doneX.with("contents", "(#@:k:@1-7-a=0)")
)

// lifted returns the waiting part of an added task that has become an entry.
func lifted(payload, due string, retries, crashes int, fields ...string) string {
	return h(append(fields, waits(payload, due, retries, crashes), "card=0", "digest="+digestOfA)...)
}

// digestOfA is the digest that stands for the first task of line.
var digestOfA = digest(spelled("k:@1-7-a"))

// tooLate is how a worker ends a task that has expired, and overdue the reason that the failed task has.
var tooLate = Outcome{Kind: Expired, Reason: "its time was over before it started"}

const overdue = `reason="its time was over before it started"`

// failedX returns the keys of the first task of line after it has failed.
func failedX(id string, fields ...string) []string {
	return []string{"failed:schedule", "(k:" + id + "=now)", "failed:contents", "(" + digestOfA + ":k:" + id + "=0)", "failed:keyed:k:" + id,
		failedOf("x", "now", append([]string{"digest=" + digestOfA, "from=k:@1-7-a"}, fields...)...)}
}

func TestAdded(t *testing.T) {
	late := digest(spelled("k:@99999999999999-525001-a"))
	bare := func(entry string) Schedule { // its times have passed
		return Schedule{Entry: spelled(entry), Print: "1:1a", Since: 7, Times: []int64{5}}
	}
	const bareCourse = "{card= late=0 more=now passed=now payload= print=1:1a since=7 times=}"
	waits2 := member.with("added", "|1-7-a/0=x|")
	expires := func(n int64) func(*env) string { return ends(n, "p1", 1, Fail, tooLate) }
	expired := failedX("p1", "card=10000000000000005", "kind=expired", overdue)
	run(t, []scenario{
		{name: "expired", seed: member.with("added", "|1-7-a/10000000000000005=x|"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/1*@k:@1-7-a[10000000000000005][1]", state: runsA.with("entries", "{a:1-7-a=p1:w1 p1=a:1-7-a10000000000000005}")},
			{call: expires(2), want: "settled=ok", state: doneX.with(expired...)}}},
		{name: "expired, in the schedule", seed: backA.with("schedule", "(k:@1-7-a=2)", "keyed:k:@1-7-a", strings.Replace(lifted("x", "2", 0, 0), "card=0", "card=10000000000000005", 1)), steps: []when{
			{call: inTurn(begins(3, "p1"), ends(4, "p1", 2, Fail, tooLate)), want: "started=x/2@k:@1-7-a%[10000000000000005]; settled=ok", state: doneX.with("rounds", "{w1=4}", "token", "=2").with(expired...)}}},
		{name: "a card that only looks like an expiry", seed: member.with("added", "|1-7-a/00000000000000005=x|"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/1*@k:@1-7-a[00000000000000005][1]", state: runsA.with("entries", "{a:1-7-a=p1:w1 p1=a:1-7-a00000000000000005}")}}},
		{name: "not expired, requeued", seed: doneX.with(failedX("p1", "card=10009999999999999h", "kind=expired")...), steps: []when{
			{call: requeues("k:p1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: backA.with("schedule", "(k:@1-7-a=now)", "keyed:k:@1-7-a", strings.Replace(lifted("x", "now", 0, 0), "card=0", "card=10009999999999999h", 1))}}},
		{name: "of late ids", seed: member.with("added", "|99999999999999-525001-a/0=x 99999999999999-1048575-b/0=y|"), steps: []when{
			{call: cancelsKey("@99999999999999-525001-b"), want: "removed=0 token=0"},
			{call: cancelsKey("@99999999999999-525001-a"), want: "removed=1 token=0", state: member.with("added", "|99999999999999-1048575-b/0=y|")},
			{call: cancelsKey("@99999999999999-1048575-b"), want: "removed=1 token=0", state: member}}},
		{name: "expired, of a late id", seed: member.with("added", "|99999999999999-525001-a/10000000000000005=x|"), steps: []when{
			{call: inTurn(func(e *env) string { return begins(1, "p1")(e)[:len("started=x/1*")] }, ends(2, "p1", 1, Fail, Outcome{Kind: Expired, Reason: tooLate.Reason, Due: 99999999999999})),
				want: "started=x/1*; settled=ok", state: doneX.with("failed:schedule", "(k:p1=now)", "failed:contents", "("+late+":k:p1=0)", "failed:keyed:k:p1",
					failedOf("x", "now", "card=10000000000000005", "digest="+late, "kind=expired", overdue, "from=k:@99999999999999-525001-a", "planned=99999999999999"))}}},
		{name: "put again, of an id that is still to come", seed: member.with("added", "|99999999999999-525001-a/0=x|"), steps: []when{
			{call: sets("@99999999999999-525001-a", "y", "+60m", "earlier"), want: "ok", state: member.with("schedule", "(k:@99999999999999-525001-a=now)", "contents", "(#y:k:@99999999999999-525001-a=0)",
				"keyed:k:@99999999999999-525001-a", waits("y", "now", 0, 0))}}},
		{name: "an expiry is compared in all its digits", seed: member.with("added", "|1-7-a/11000000000000005=x|"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/1*@k:@1-7-a[11000000000000005][1]", state: runsA.with("entries", "{a:1-7-a=p1:w1 p1=a:1-7-a11000000000000005}")}}},
		{name: "a foreign card has no expiry", seed: keyX.with("keyed:k:x", h(waits("a", "-1m", 2, 1), "card=x0000000000000005")), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1[x0000000000000005][-1m]", state: runX.with("keyed:k:x", h(runs("p1", 2, 1), "held=x0000000000000005"))}}},
		{name: "with more than a payload", seed: member, steps: []when{
			{call: does("XADD", "added", "1-7", fullSalt+"a0", "x", "more", "y"), state: member.with("added", "|1-7-a/0=x|")},
			{call: begins(1, "p1"), want: "started=x/1", state: rawP.with("process:p1", "[x]")}}},
		{name: "of ids that no key has", seed: member.with("added", "|281474976710655-1048576-a/0=x 281474976710656-7-b/0=y|"), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=x/1,y/2", state: rawP.with("token", "=2", "working:w1", "(p1=1 p2=2)", "process:p1", "[x]", "process:p2", "[y]")}}},
		{name: "foreign items", seed: member.with("added", "|1-7-/foreign=x|"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/1", state: rawP.with("process:p1", "[x]")}}},
		{name: "changed while it waits, and its time stays", seed: waits2, steps: []when{
			{call: sets("@1-7-a", "b", "", "never", "keep"), want: "ok", state: backA.with("rounds", "", "token", "", "schedule", "(k:@1-7-a=1)", "keyed:k:@1-7-a", lifted("x", "1", 0, 0))}}},
		{name: "changed while it runs, with a card", seed: runsA.with("entries", "{a:1-7-a=p1:w1 p1=a:1-7-a0h}"), steps: []when{
			{call: sets("@1-7-a", "b", "+60m"), want: "ok", heard: []string{"enqueue 1"}, state: runsA.with("entries", "{p1=k:@1-7-a}", "contents", "(#b:k:@1-7-a=0)", "keyed:k:@1-7-a",
				h(runs("p1", 0, 0), waits("b", "+60m", 0, 0), rule(0, 0, "+60m", "+60m"), "held=0h", "sum=p1:"+digestOfA))}}},
		{name: "changed while it runs, and half of it is lost", seed: runsA.with("entries", "{a:1-7-a=p1:w1}"), steps: []when{
			{call: sets("@1-7-a", "b", "+60m"), want: "ok", heard: []string{"enqueue 1"}, state: runsA.with("entries", "{p1=k:@1-7-a}", "contents", "(#b:k:@1-7-a=0)", "keyed:k:@1-7-a",
				h(runs("p1", 0, 0), waits("b", "+60m", 0, 0), rule(0, 0, "+60m", "+60m"), "held=0", "sum=p1:"+digestOfA))}}},
		{name: "two with one payload that schedules lift", seed: member.with("added", "|1-7-a/0=x 1-8-a/0=x 1-9-b/0=y|"), steps: []when{
			{call: recursAll(3_600_000, 0, bare("k:@1-7-a"), bare("k:@1-8-a")), want: "held 7 0; held 7 0",
				state: member.with("added", "|1-9-b/0=y|", "recurring", "(k:@1-7-a=+60m k:@1-8-a=+60m)", "recurrence:k:@1-7-a", bareCourse, "recurrence:k:@1-8-a", bareCourse,
					"schedule", "(k:@1-7-a=1 k:@1-8-a=1)", "contents", "(#@:k:@1-7-a=0 #@:k:@1-8-a=0)",
					"keyed:k:@1-7-a", lifted("x", "1", 0, 0), "keyed:k:@1-8-a", strings.Replace(lifted("x", "1", 0, 0), digestOfA, digest(spelled("k:@1-8-a")), 1))}}},
	})
}

// A large payload is stored apart until the task starts; then the task is an entry.
func TestAddedApart(t *testing.T) {
	large := strings.Repeat("l", 16385)
	seed := member.with("added", `|1-7-a/2=""|`, "keyed:k:@1-7-a", h("card=0", "payload="+large))
	seed["added"] = "|1-7-a/2=|"
	running := member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "["+large+"]", "entries", "{p1=k:@1-7-a}",
		"keyed:k:@1-7-a", h(runs("p1", 0, 0), "held=0", "sum=p1:"+digestOfA))
	run(t, []scenario{
		{name: "started", seed: seed, steps: []when{
			{call: begins(1, "p1"), want: "started=" + large + "/1@k:@1-7-a%[0]", state: running},
			{call: ends(2, "p1", 1, Finish, Outcome{Size: len(large)}), want: "settled=ok", heard: []string{"done w1 " + large}, state: doneX}}},
		{name: "lost", seed: seed.with("keyed:k:@1-7-a", ""), steps: []when{
			{call: begins(1, "p1"), want: "", state: member.with("rounds", "{w1=1}")}}},
		{name: "expired", seed: seed.with("added", "|1-7-a/30000000000000005=|"), steps: []when{
			{call: inTurn(begins(1, "p1"), ends(2, "p1", 1, Fail, tooLate)), want: "started=" + large + "/1@k:@1-7-a%[10000000000000005]; settled=ok", state: doneX.with(
				"failed:schedule", "(k:p1=now)", "failed:contents", "("+digestOfA+":k:p1=0)", "failed:keyed:k:p1",
				failedOf(large, "now", "card=10000000000000005", "digest="+digestOfA, "kind=expired", overdue, "from=k:@1-7-a"))}}},
		{name: "explained", seed: seed, steps: []when{{call: explains("k:@1-7-a", ""), want: "workers=1 added=1 line=0@1/0=" + large, state: seed.with("added", `|1-7-a/2=""|`)}}},
		{name: "canceled", seed: seed, steps: []when{{call: cancelsKey("@1-7-a"), want: "removed=1 token=0", state: member}}},
		{name: "canceled, and its payload is lost", seed: seed.with("keyed:k:@1-7-a", ""), steps: []when{{call: cancelsKey("@1-7-a"), want: "removed=1 token=0", state: member}}},
		{name: "deleted", seed: seed, steps: []when{{call: deletes, want: "ok", heard: []string{"delete \"\""}, state: member}}},
		{name: "changed", seed: seed, steps: []when{
			{call: sets("@1-7-a", "b", "+60m"), want: "ok", state: member.with("contents", "(#b:k:@1-7-a=0)", "schedule", "(k:@1-7-a=+60m)", "keyed:k:@1-7-a", waits("b", "+60m", 0, 0))}}},
	})
}

// An added task that waits under the key of a schedule becomes an entry, known only by its key. The
// occurrence of the next schedule, which has the same payload, doesn't get its digest.
func TestRecurBesideAdded(t *testing.T) {
	two := func(e *env) string {
		next := []int64{e.now() + 10*time.Minute.Milliseconds()}
		return recursAll(time.Hour.Milliseconds(), 0, Schedule{Entry: spelled("k:@1-7-a"), Print: "1:1a", Since: 7, Times: next, Payload: []byte("x")},
			Schedule{Entry: "k:y", Print: "1:1a", Since: 7, Times: next, Payload: []byte("x")})(e)
	}
	plan := course("1:1a", "+10m", "now", "since=7", "more=+5m", "payload=x")
	run(t, []scenario{{name: "equal payloads", seed: state{"added": "|1-7-a/0=x|"}, steps: []when{
		{call: two, want: "held 7 0; held 7 0", state: state{"recurring": "(k:@1-7-a=+60m k:y=+60m)", "recurrence:k:@1-7-a": plan, "recurrence:k:y": plan,
			"schedule": "(k:@1-7-a=1 k:y=+10m)", "contents": "(#@:k:@1-7-a=0 #x:k:y=0)", "keyed:k:@1-7-a": lifted("x", "1", 0, 0),
			"keyed:k:y": h(waits("x", "+10m", 0, 0), "turn=+10m", "card=0s13:now")}}}}})
}

// The worker fails a task that has expired or crashed too many workers: the step starts it like any other.
func TestGuardFails(t *testing.T) {
	const over = "10000000000000005"
	kept := "5" + over[1:] + "0003600000"
	crashed := Outcome{Kind: Crashed, Reason: "2 workers died holding it"}
	waiting := func(card string, crashes int) state {
		return keyX.with("keyed:k:x", h(waits("a", "-1m", 0, crashes), "card="+card))
	}
	failedA := func(o Outcome, fields ...string) state {
		return state{}.with("failed:schedule", "(k:p1=now)", "failed:contents", "(#a:k:p1=0)", "failed:keyed:k:p1",
			failedOf("a", "now", append([]string{"from=k:x", "kind=" + string(o.Kind), fmt.Sprintf("reason=%q", o.Reason)}, fields...)...))
	}
	one := func(o Outcome, fields ...string) state { return doneX.merged(failedA(o, fields...)) }
	start := func(crashes int) func(*env) string {
		return steps(Round{Worker: "w1", Number: 1, Crashes: crashes, Start: []string{"p1"}})
	}
	large := strings.Repeat("l", RoundBytes+1)
	two := state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(#x:k:g1=0 #x:k:g2=0)", "failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("x", "-9m")}
	inF := state{"failed:workers": "(w1=+60m)", "failed:schedule": "(k:g1=-9m)", "failed:contents": "(#x:k:g1=0)", "failed:keyed:k:g1": failedOf("x", "-9m", "tries=2", "deaths=1", "planned=-8m", "card="+over)}
	run(t, []scenario{
		{name: "expired, and its result is kept", seed: waiting(kept, 0), steps: []when{
			{call: inTurn(start(3), ends(2, "p1", 1, Fail, tooLate)), want: "started=a/1@k:x[" + kept + "][-1m]; settled=ok",
				state: one(tooLate, "card="+kept).with("result:k:x", "=expired:now:35:its time was over before it started +60m")}}},
		{name: "its workers died, and its result is kept", seed: waiting(keeps, 2), steps: []when{
			{call: inTurn(start(2), ends(2, "p1", 1, Fail, crashed)), want: "started=a/1@k:x!2[" + keeps + "][-1m]; settled=ok",
				state: one(crashed, "deaths=2", "card="+keeps).with("result:k:x", "=failed:now:25:2 workers died holding it +60m")}}},
		{name: "too many have failed", seed: waiting(over, 1).merged(two), steps: []when{
			{call: inTurn(start(3), steps(Round{Worker: "w1", Number: 2, Keep: 1, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Fail, Kind: Expired, Reason: tooLate.Reason}}})),
				want: "started=a/1@k:x!1[" + over + "][-1m]; settled=ok dropped=2", state: one(tooLate, "deaths=1", "card="+over)}}},
		{name: "an occurrence has expired", seed: dueX.with("keyed:k:x", h(waits("a", "-1m", 0, 0), "turn=-1m", "card="+over)), steps: []when{
			{call: inTurn(start(3), ends(2, "p1", 1, Fail, tooLate)), want: "started=a/1@k:x[" + over + "][-1m]; settled=ok",
				state: overX.with("recurrence:k:x", lastX("expired")).merged(failedA(tooLate, "from=k:x@-1m", "card="+over))}}},
		{name: "workers died with an occurrence", seed: dueX.with("keyed:k:x", h(waits("a", "-1m", 0, 2), "turn=-1m")), steps: []when{
			{call: inTurn(start(2), ends(2, "p1", 1, Fail, crashed)), want: "started=a/1@k:x!2; settled=ok",
				state: overX.with("recurrence:k:x", lastX("crashed")).merged(failedA(crashed, "from=k:x@-1m", "deaths=2"))}}},
		{name: "they start beside others, and aren't prefetched", seed: member.with("queues", "[a b c]", "ledger", "{#a=2 #c=2}"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 2, Ahead: 1, Start: []string{"p1", "p2", "p3"}}), want: "started=a/1!2,b/2", state: rawP.with(
				"token", "=2", "working:w1", "(p1=1 p2=2)", "process:p2", "[b]", "queues", "[c]", "ledger", "{#a=2 #c=2}")}}},
		{name: "a large one comes without its payload", seed: member.with("queues", "["+large+"]", "ledger", "{"+digest(large)+"=2}"), steps: []when{
			{call: inTurn(steps(Round{Worker: "w1", Number: 1, Crashes: 2, Start: []string{"p1"}}), steps(Round{Worker: "w1", Number: 1, Crashes: 2, Start: []string{"p1"}}),
				ends(2, "p1", 1, Fail, crashed)), want: `started=""/1!2; started=""/1!2; settled=ok`, state: doneX.with("failed:schedule", "(k:p1=now)", "failed:contents", "("+digest(large)+":k:p1=0)",
				"failed:keyed:k:p1", failedOf(large, "now", "kind=crashed", fmt.Sprintf("reason=%q", crashed.Reason), "deaths=2"))}}},
		{name: "set aside in a failed queue", seed: inF.with("failed:keyed:k:g1", failedOf("x", "-9m", "crashes=2")), steps: []when{
			{call: inFailed(inTurn(start(2), ends(2, "p1", 1, Fail, crashed))), want: `started=x/1@k:g1!2{k:g1 x failed "r" ~0 !0 w1 "" -9m 0}; settled=ok`,
				state: inF.with("failed:rounds", "{w1=2}", "failed:token", "=1", "failed:schedule", "(k:g1=aside:now)", "failed:keyed:k:g1", failedOf("x", "aside:now", "at=-9m", "crashes=2"))}}},
		{name: "in a failed queue", seed: inF, steps: []when{
			{call: inFailed(start(3)), want: `started=x/1@k:g1[` + over + `][-9m]{k:g1 x failed "r" ~2 !1 w1 "" -9m -8m}`, state: state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=1}", "failed:token": "=1",
				"failed:working:w1": "(p1=1)", "failed:process:p1": "[x]", "failed:entries": "{p1=k:g1}",
				"failed:keyed:k:g1": h("kind=failed", "reason=r", "tries=2", "deaths=1", "worker=w1", "at=-9m", "planned=-8m", "from=", runs("p1", 0, 0), "held="+over)}}}},
	})
}
