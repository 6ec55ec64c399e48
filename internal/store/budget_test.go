package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A round starts as many tasks as its budget allows, and at least one.
func TestBudget(t *testing.T) {
	four := member.with("queues", "[a b c d]")
	big := strings.Repeat("x", 4000)
	take := func(n int64, budget, ahead int, ids ...string) func(*env) string {
		return steps(Round{Worker: "w1", Number: n, Idle: true, Crashes: 3, Budget: budget, Ahead: ahead, Start: ids})
	}
	one := four.with("rounds", "{w1=1}", "token", "=1", "queues", "[b c d]", "working:w1", "(p1=1)", "process:p1", "[a]")
	two := one.with("token", "=2", "queues", "[c d]", "working:w1", "(p1=1 p2=2)", "process:p2", "[b]")
	lane := member.with("schedule", "(k:x=-2m k:y=-1m)", "contents", "(#a:k:x=0 #b:k:y=0)", "keyed:k:x", waits("a", "-2m", 0, 0), "keyed:k:y", waits("b", "-1m", 0, 0))
	risky := member.with("schedule", "(r:1=-2m r:2=-1m)", "contents", "("+digest(big)+":r:1=0 "+digest(big+"y")+":r:2=0)", "ledger", "{"+digest(big)+"=2 "+digest(big+"y")+"=2}",
		"keyed:r:1", waits(big, "-2m", 0, 0), "keyed:r:2", waits(big+"y", "-1m", 0, 0))
	known := risky.with("keyed:r:1", h(waits(big, "-2m", 0, 0), "digest="+digest(big)), "keyed:r:2", h(waits(big+"y", "-1m", 0, 0), "digest="+digest(big+"y")))
	failed := state{"failed:workers": member["workers"], "failed:schedule": "(k:x=-2m k:y=-1m)", "failed:contents": "(#b:k:y=0 " + digest(big) + ":k:x=0)",
		"failed:keyed:k:x": waits(big, "-2m", 0, 3), "failed:keyed:k:y": waits("b", "-1m", 0, 3)}
	run(t, []scenario{
		{name: "one in any case", seed: four, steps: []when{
			{call: take(1, 1, 0, "p1", "p2", "p3"), want: "started=a/1 again cut", state: one}}},
		{name: "a repetition returns all", seed: four, steps: []when{
			{call: take(1, 8, 0, "p1", "p2", "p3"), want: "started=a/1,b/2 again cut", state: two},
			{call: take(1, 8, 0, "p1", "p2", "p3"), want: "started=a/1,b/2 again", state: two}}},
		{name: "the last of them", seed: four.with("queues", "[a]"), steps: []when{
			{call: take(1, 1, 0, "p1", "p2"), want: "started=a/1 rank=0", state: one.with("queues", "", "idle", "(w1=now)")}}},
		{name: "as many as there are ids for", seed: four, steps: []when{
			{call: take(1, 8, 0, "p1", "p2"), want: "started=a/1,b/2", state: two}}},
		{name: "the schedule", seed: lane, steps: []when{
			{call: take(1, 25, 0, "p1", "p2"), want: "started=a/1@k:x again cut", state: lane.with("rounds", "{w1=1}", "token", "=1", "schedule", "(k:y=-1m)", "contents", "(#b:k:y=0)",
				"keyed:k:x", runs("p1", 0, 0), "entries", "{p1=k:x}", "working:w1", "(p1=1)", "process:p1", "[a]")}}},
		{name: "large payloads", seed: four.with("queues", "["+big+" b c]"), steps: []when{
			{call: take(1, 14, 0, "p1", "p2"), want: "started=" + big + "/1 again cut", state: one.with("queues", "[b c]", "process:p1", "["+big+"]")}}},
		{name: "risky, and large", seed: member.with("queues", "["+big+" "+big+"y]", "ledger", "{"+digest(big)+"=2 "+digest(big+"y")+"=2}"), steps: []when{
			{call: take(1, 49, 0, "p1", "p2"), want: "again cut", state: member.with("rounds", "{w1=1}", "ledger", "{"+digest(big)+"=2 "+digest(big+"y")+"=2}", "queues", "["+big+"y]",
				"schedule", "(r:p2.001=now)", "contents", "("+digest(big)+":r:p2.001=0)", "keyed:r:p2.001", h(waits(big, "now", 0, 0), "digest="+digest(big)))}}},
		{name: "risky, in the schedule, and their digests are not known", seed: risky, steps: []when{
			{call: take(1, 24, 0, "p1", "p2"), want: "again cut", state: risky.with("rounds", "{w1=1}")}}},
		{name: "risky, in the schedule", seed: known, steps: []when{
			{call: take(1, 24, 0, "p1"), want: "rank=0", state: known.with("rounds", "{w1=1}", "idle", "(w1=clock:now)")}}},
		{name: "set aside in a failed queue", seed: failed, steps: []when{
			{call: inFailed(take(1, 59, 0, "p1")), want: "again cut", state: failed.with("failed:rounds", "{w1=1}", "failed:schedule", "(k:y=-1m k:x=aside:now)", "failed:keyed:k:x", waits(big, "aside:now", 0, 3))}}},
	})
}

// Observers get the length and the digest of a large payload or result: Redis would take too long
// to encode it.
func TestLarge(t *testing.T) {
	long := strings.Repeat("x", Large+1)
	about := "65537:" + digest(long)
	result := Outcome{Plain: true, Result: []byte(long)}
	omitted := result
	omitted.Limit(Large)
	most, some, short := strings.Repeat("m", 50_000), strings.Repeat("s", 50_000), strings.Repeat("r", 1024)
	many := member.with("rounds", "{w1=1}", "token", "=6", "working:w1", "(p1=1 p2=2 p3=3 p4=4 p5=5 p6=6)", "process:p1", "["+most+"]", "process:p2", "["+most+"]",
		"process:p3", "["+most+"]", "process:p4", "["+most+"]", "process:p5", "["+most+"]", "process:p6", "[b]")
	all := Round{Worker: "w1", Number: 2}
	for i := range 6 {
		o := Outcome{Process: fmt.Sprintf("p%d", i+1), Token: int64(i + 1), Verb: Finish, Plain: true}
		switch i {
		case 3, 4:
			o.Result = []byte(some)
		case 5:
			o.Result = []byte(short)
		}
		all.Outcomes = append(all.Outcomes, &o)
	}
	run(t, []scenario{
		{name: "finish", seed: rawP.with("process:p1", "["+long+"]"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{Plain: true}), want: "settled=ok", state: doneX, heard: []string{"done w1 " + about}}}},
		{name: "of a key", seed: runX.with("process:p1", "["+long+"]"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", state: doneX, heard: []string{"done w1 " + about}}}},
		{name: "a result", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Finish, result), want: "settled=ok", state: doneX, heard: []string{"done w1 a " + about}}}},
		{name: "a result that was too large to be sent", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Finish, omitted), want: "settled=ok", state: doneX, heard: []string{"done w1 a " + about}}}},
		{name: "more than one step encodes", seed: many, steps: []when{
			{call: steps(all), want: "settled=ok,ok,ok,ok,ok,ok", state: member.with("rounds", "{w1=2}", "token", "=6"), heard: []string{
				"done w1 " + most + " " + strconv.Quote(some), "done w1 " + most + " " + strconv.Quote(some),
				"done w1 1: 1024:", "done w1 50000:", "done w1 50000:", "done w1 50000:"}}}},
	})
}
