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

// tooLate is the reason of a task that failed because it had expired.
const tooLate = `reason="its time was over before it started"`

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
	expired := func(id string) []string { return failedX(id, "card=10000000000000005", "kind=expired", tooLate) }
	run(t, []scenario{
		{name: "expired", seed: member.with("added", "|1-7-a/10000000000000005=x 1-8-a/0=y|"), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=y/1*@k:@1-8-a[0][1] again unstarted=1 expired=1", state: member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[y]",
				"entries", "{a:1-8-a=p1:w1 p1=a:1-8-a0}").with(expired("p2.001")...)}}},
		{name: "expired, in the schedule", seed: backA.with("schedule", "(k:@1-7-a=2)", "keyed:k:@1-7-a", strings.Replace(lifted("x", "2", 0, 0), "card=0", "card=10000000000000005", 1)), steps: []when{
			{call: begins(3, "p1"), want: "again unstarted=1 expired=1", state: doneX.with("rounds", "{w1=3}").with(expired("p1.001")...)}}},
		{name: "a card that only looks like an expiry", seed: member.with("added", "|1-7-a/00000000000000005=x|"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/1*@k:@1-7-a[00000000000000005][1]", state: runsA.with("entries", "{a:1-7-a=p1:w1 p1=a:1-7-a00000000000000005}")}}},
		{name: "not expired, requeued", seed: doneX.with(failedX("p1", "card=10009999999999999h", "kind=expired")...), steps: []when{
			{call: requeues("k:p1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: backA.with("schedule", "(k:@1-7-a=now)", "keyed:k:@1-7-a", strings.Replace(lifted("x", "now", 0, 0), "card=0", "card=10009999999999999h", 1))}}},
		{name: "of late ids", seed: member.with("added", "|99999999999999-525001-a/0=x 99999999999999-1048575-b/0=y|"), steps: []when{
			{call: cancelsKey("@99999999999999-525001-b"), want: "removed=0 token=0"},
			{call: cancelsKey("@99999999999999-525001-a"), want: "removed=1 token=0", state: member.with("added", "|99999999999999-1048575-b/0=y|")},
			{call: cancelsKey("@99999999999999-1048575-b"), want: "removed=1 token=0", state: member}}},
		{name: "expired, of a late id", seed: member.with("added", "|99999999999999-525001-a/10000000000000005=x|"), steps: []when{
			{call: begins(1, "p1"), want: "again unstarted=1 expired=1", state: member.with("rounds", "{w1=1}", "failed:schedule", "(k:p1.001=now)", "failed:contents", "("+late+":k:p1.001=0)", "failed:keyed:k:p1.001",
				failedOf("x", "now", "card=10000000000000005", "digest="+late, "kind=expired", tooLate, "from=k:@99999999999999-525001-a", "planned=99999999999999"))}}},
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
			{call: begins(1, "p1"), want: "again unstarted=1 expired=1", state: member.with("rounds", "{w1=1}",
				"failed:schedule", "(k:p1.001=now)", "failed:contents", "("+digestOfA+":k:p1.001=0)", "failed:keyed:k:p1.001",
				failedOf(large, "now", "card=10000000000000005", "digest="+digestOfA, "kind=expired", tooLate, "from=k:@1-7-a"))}}},
		{name: "explained", seed: seed, steps: []when{{call: explains("k:@1-7-a", ""), want: "workers=1 added=1 line=0@1/0=" + large, state: seed.with("added", `|1-7-a/2=""|`)}}},
		{name: "canceled", seed: seed, steps: []when{{call: cancelsKey("@1-7-a"), want: "removed=1 token=0", state: member}}},
		{name: "canceled, and its payload is lost", seed: seed.with("keyed:k:@1-7-a", ""), steps: []when{{call: cancelsKey("@1-7-a"), want: "removed=1 token=0", state: member}}},
		{name: "deleted", seed: seed, steps: []when{{call: deletes, want: "ok", heard: []string{"delete \"\""}, state: member}}},
		{name: "changed", seed: seed, steps: []when{
			{call: sets("@1-7-a", "b", "+60m"), want: "ok", state: member.with("contents", "(#b:k:@1-7-a=0)", "schedule", "(k:@1-7-a=+60m)", "keyed:k:@1-7-a", waits("b", "+60m", 0, 0))}}},
	})
}

// addedLine returns a stream of n added tasks.
func addedLine(n int, card, payload string) string {
	all := series(n, func(i int) string { return fmt.Sprintf("1-%d-a/%s=%s", i+1, card, payload) })
	return "|" + strings.Join(all, " ") + "|"
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

// Tasks that have expired or crashed too many workers fail if they can.
func TestGuardExpires(t *testing.T) {
	const over, late = "10000000000000005", "99999999999999-525001-a"
	digestOf := func(name string) string { return digest(spelled("k:@" + name)) }
	failedTask := func(payload string, fields ...string) string {
		return failedOf(payload, "now", append([]string{"kind=expired", tooLate}, fields...)...)
	}
	foreign := state{"failed:schedule": "=foreign"}
	lifted := func(name, due string) state {
		return member.merged(foreign).with("rounds", "{w1=1}", "schedule", "(k:@"+name+"="+due+")", "contents", "(#@:k:@"+name+"=0)",
			"keyed:k:@"+name, h(waits("x", due, 0, 0), "card="+over, "digest="+digestOf(name)))
	}
	again := lifted("1-1-a", "1").with("idle", "(w2=clock:-1m)")
	kept := "5" + over[1:] + "0003600000"
	died := keyX.with("keyed:k:x", h(waits("a", "-1m", 0, 1), "card="+over))
	dead := keyX.with("keyed:k:x", h(waits("a", "-1m", 0, 2), "card="+keeps))
	one := func(payload string, s state, fields ...string) state {
		return s.with("rounds", "{w1=1}", "failed:schedule", "(k:p1.001=now)", "failed:contents", "(#"+payload+":k:p1.001=0)", "failed:keyed:k:p1.001", failedTask(payload, fields...))
	}
	two := state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(#x:k:g1=0 #x:k:g2=0)", "failed:keyed:k:g1": failedOf("x", "-9m"), "failed:keyed:k:g2": failedOf("x", "-9m")}
	ofX := []string{"from=k:x", "planned=-1m", "deaths=1", "card=" + over}
	inF := state{"failed:workers": "(w1=+60m)", "failed:schedule": "(k:g1=-9m)", "failed:contents": "(#x:k:g1=0)", "failed:keyed:k:g1": failedOf("x", "-9m", "tries=2", "deaths=1", "planned=-8m", "card="+over)}
	run(t, []scenario{
		{name: "two with one payload", seed: member.with("added", addedLine(2, over, "x")), steps: []when{
			{call: begins(1, "p1", "p2", "p3"), want: "unstarted=2 expired=2", state: member.with("rounds", "{w1=1}", "failed:schedule", "(k:p3.001=now k:p3.002=now)",
				"failed:contents", "("+digestOf("1-1-a")+":k:p3.001=0 "+digestOf("1-2-a")+":k:p3.002=0)",
				"failed:keyed:k:p3.001", failedTask("x", "from=k:@1-1-a", "card="+over, "digest="+digestOf("1-1-a")),
				"failed:keyed:k:p3.002", failedTask("x", "from=k:@1-2-a", "card="+over, "digest="+digestOf("1-2-a")))}}},
		{name: "nothing can fail", seed: member.merged(foreign).with("added", addedLine(1, over, "x")), steps: []when{
			{call: begins(1, "p1", "p2"), want: "again trouble=WRONGTYPE", state: lifted("1-1-a", "1")}}},
		{name: "nothing can fail, and the clock was set back", seed: member.merged(foreign).with("added", "|"+late+"/"+over+"=x|"), steps: []when{
			{call: begins(1, "p1", "p2"), want: "again trouble=WRONGTYPE", state: lifted(late, "now")}}},
		{name: "nothing can fail: no worker is woken", alive: []string{"w2"}, seed: again, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p1"}}), want: "trouble=WRONGTYPE", state: again.with("rounds", "{w1=2}")}}},
		{name: "it has a crash count", seed: died, steps: []when{{call: begins(1, "p1"), want: "again unstarted=1 expired=1", state: one("a", member, ofX...)}}},
		{name: "its result is kept", seed: keyX.with("keyed:k:x", h(waits("a", "-1m", 0, 0), "card="+kept)), steps: []when{
			{call: begins(1, "p1"), want: "again unstarted=1 expired=1", state: one("a", member, "from=k:x", "planned=-1m", "card="+kept).with(
				"result:k:x", "=expired:now:35:its time was over before it started +60m")}}},
		{name: "its workers died, and its result is kept", seed: dead, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 2, Start: []string{"p1"}}), want: "again unstarted=1", state: one("a", member, "from=k:x", "planned=-1m", "deaths=2", "card="+keeps,
				"kind=crashed", `reason="2 workers died holding it"`).with("result:k:x", "=failed:now:25:2 workers died holding it +60m")}}},
		{name: "too many have failed", seed: died.merged(two), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Keep: 1, Start: []string{"p1"}}), want: "again unstarted=1 expired=1 dropped=2", state: one("a", member, ofX...)}}},
		{name: "in a failed queue", seed: inF, steps: []when{
			{call: inFailed(begins(1, "p1")), want: `started=x/1@k:g1[` + over + `][-9m]{k:g1 x failed "r" ~2 !1 w1 "" -9m -8m}`, state: state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=1}", "failed:token": "=1",
				"failed:working:w1": "(p1=1)", "failed:process:p1": "[x]", "failed:entries": "{p1=k:g1}",
				"failed:keyed:k:g1": h("kind=failed", "reason=r", "tries=2", "deaths=1", "worker=w1", "at=-9m", "planned=-8m", "from=", runs("p1", 0, 0), "held="+over)}}}},
	})
}
