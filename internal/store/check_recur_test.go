package store

import (
	"testing"
)

// Check finds damage to recurring schedules that nothing else would notice. A peer that has the
// schedule repairs it.
func TestCheckRecurring(t *testing.T) {
	early := "Redis's clock was ahead when it was last asserted or started."
	never, odd, damaged, lost := "Redis has no record of when peers last asserted it.", "Its name isn't a key.", "The record of its next times is damaged.", "The record of its next times is missing."
	seedX := planX.with("recurring", "(k:x=+1m)")
	x := []string{"k:x"}
	says := func(detail string) string { return "recurring k:x|" + detail }
	without := func(more ...string) state {
		return seedX.with("recurrence:k:x", h(append([]string{"print=", "since=0", "late=0", "more=0", "payload=a", "card=", "times=+10m,+20m,+30m", "passed=-1m"}, more...)...))
	}
	broken := func(more ...string) state {
		return seedX.with("recurrence:k:x", h(append([]string{seedX["recurrence:k:x"]}, more...)...))
	}
	run(t, []scenario{
		{name: "as it should be", seed: seedX, steps: []when{{call: checks(true, CheckRecurring, "k:x", "k:y"), state: seedX}}},
		{name: "for a whole hour", seed: planX.with("recurring", "(k:x=now)"), steps: []when{{call: checks(true, CheckRecurring, "k:x")}}},
		{name: "its hash is lost", seed: seedX.with("recurrence:k:x", ""), steps: repair(CheckRecurring, x, says(lost), seedX.with("recurrence:k:x", ""), seedX.with("recurrence:k:x", "", "recurring", ""))},
		{name: "its place is lost", seed: seedX.with("recurring", ""), steps: append(
			repair(CheckRecurring, x, says(never), seedX.with("recurring", ""), seedX.with("recurring", "(k:x=now)")),
			when{call: recurs("x", "1:1a", ""), want: "held", state: planX})},
		{name: "asserted for long", seed: seedX.with("recurring", "(k:x=+2m)"), steps: repair(CheckRecurring, x, says(early),
			seedX.with("recurring", "(k:x=+2m)"), without().with("recurring", "(k:x=now)"))},
		{name: "the last time is an hour ahead", seed: broken("passed=+60m"), steps: []when{{call: checks(true, CheckRecurring, "k:x"), state: broken("passed=+60m")}}},
		{name: "the last time is further ahead", seed: broken("passed=+61m"), steps: repair(CheckRecurring, x, says(early), broken("passed=+61m"), without("passed=now"))},
		{name: "of another name", seed: member.with("recurring", "(odd=-1m)", "recurrence:odd", "{a=1}"), steps: repair(CheckRecurring, []string{"odd"}, "recurring odd|"+odd,
			member.with("recurring", "(odd=-1m)", "recurrence:odd", "{a=1}"), member)},
		{name: "of an empty key", seed: member.with("recurring", "(k:=-1m)"), steps: repair(CheckRecurring, []string{"k:"}, "recurring k:|"+odd, member.with("recurring", "(k:=-1m)"), member)},
		{name: "no print", seed: broken("print="), steps: []when{{call: checks(false, CheckRecurring, "k:x")}}},
		{name: "other types", seed: member.with("recurring", "=5", "recurrence:k:x", "{a=1}"), steps: []when{{call: checks(true, CheckRecurring, "k:x")}}},
		{name: "another type", seed: member.with("recurring", "(k:x=+1m)", "recurrence:k:x", "=5"), steps: []when{{call: checks(true, CheckRecurring, "k:x")}}},
		{name: "nothing of it is left", seed: seedX.with("recurrence:k:x", "{a=1}"), steps: append(
			repair(CheckRecurring, x, says(damaged), seedX.with("recurrence:k:x", "{a=1}"), seedX.with("recurrence:k:x", "{a=1 late=0 more=0 passed=now print= since=0 times=}")),
			when{call: recurs("x", "1:1a", "", "since=7"), want: "wanted"},
			when{call: recurs("x", "1:1a", "+10m +20m +30m", "since=7"), want: "held", state: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "now", "since=7", "a=1", "card="))})},
		{name: "it has no print", seed: seedX.with("recurrence:k:x", h("since=-9m late=0 more=+15m payload=a card= passed=-1m", "times=+10m,+20m,+30m")),
			steps: repair(CheckRecurring, x, says(damaged), nil, without())},
		{name: "odd since, of one that may be late", seed: broken("since=-7", "late=60000"), steps: repair(CheckRecurring, x, says(damaged), nil, without("late=60000"))},
		{name: "odd times", seed: broken("times=x"), steps: repair(CheckRecurring, x, says(damaged), broken("times=x"), without("times="))},
		{name: "odd passed", seed: broken("passed=-7"), steps: repair(CheckRecurring, x, says(damaged), broken("passed=-7"), without("passed=now"))},
		{name: "odd late", seed: broken("late=x"), steps: repair(CheckRecurring, x, says(damaged), broken("late=x"), without())},
		{name: "odd since", seed: broken("since=-7"), steps: repair(CheckRecurring, x, says(damaged), broken("since=-7"), without())},
		{name: "odd more", seed: broken("more=-7"), steps: repair(CheckRecurring, x, says(damaged), broken("more=-7"), without())},
	})
}

func TestCheckResults(t *testing.T) {
	x := []string{"k:x"}
	bad := func(text string) state { return member.with("result:k:x", "="+text) }
	record := func(text, ttl string) state { return member.with("result:k:x", "="+text+ttl) }
	run(t, []scenario{
		{name: "none", seed: member, steps: []when{{call: checks(true, CheckResults, "k:x"), state: member}}},
		{name: "garbage", seed: bad("garbage"), steps: repair(CheckResults, x, "result k:x", bad("garbage"), member)},
		{name: "cut", seed: bad("failed:5:4:odd"), steps: repair(CheckResults, x, "result k:x", bad("failed:5:4:odd"), member)},
		{name: "forever", seed: bad("failed:5:3:odd"), steps: repair(CheckResults, x, "ttl k:x", bad("failed:5:3:odd"), record("failed:5:3:odd", " +43200m"))},
		{name: "none in the failed queue, where all have ended", seed: member, steps: []when{{call: inFailed(checks(true, CheckResults, "k:x"))}}},
		{name: "another type", seed: member.with("result:k:x", "[a]"), steps: []when{{call: checks(true, CheckResults, "k:x")}}},
	})
}

// Even if the data of a schedule is damaged, its waiting task starts and ends.
func TestGuardRecurrence(t *testing.T) {
	ran := takenX.with("contents", "", "keyed:k:x", h(runs("p1", 0, 0), "took=-1m"))
	foreign := []string{"recurrence:k:x", "=foreign"}
	put := []string{"recurring", "(k:x=+60m)", "recurrence:k:x", planX["recurrence:k:x"]}
	again := doneX.with("recurring", "(k:x=+60m)", "recurrence:k:x", takenX["recurrence:k:x"], "schedule", "(k:x=now)", "contents", "(#a:k:x=0)",
		"keyed:k:x", h(waits("a", "now", 1, 0), "turn=-1m", "card=0"))
	lost := member.with("contents", "(#a:k:x=0)", "keyed:k:x", h("due=+10m turn=+10m", "digest="+digest("a")))
	run(t, []scenario{
		{name: "another type", seed: dueX.with(foreign...), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: ran.with(foreign...)},
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX.with("recurring", "(k:x=+60m)").with(foreign...)}}},
		{name: "no times, and no payload", seed: dueX.with("recurrence:k:x", "{passed=-9m}"), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: ran.with("recurrence:k:x", "{passed=now}")}}},
		{name: "no payload", seed: dueX.with("recurrence:k:x", "{passed=-9m times=-1m,+20m}"), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x", state: takenX.with("recurrence:k:x", "{passed=now times=-1m,+20m}",
				"contents", "("+digest("")+":k:x=0)", "keyed:k:x", h(takenX["keyed:k:x"], "payload="))}}},
		{name: "a put task runs: it isn't an occurrence", seed: keyX.with(put...), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX.with(put...)},
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX.with(put...)}}},
		{name: "a retried occurrence is returned with its turn", seed: again, steps: []when{
			{call: begins(3, "p2"), want: "started=a/2@k:x~1[0][-1m]", state: again.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p2", "[a]", "entries", "{p2=k:x}",
				"schedule", "", "keyed:k:x", h(runs("p2", 1, 0), "took=-1m", "held=0", nextX))}}},
		{name: "one that ends, whose payload is lost", seed: planX.with("recurring", "(k:x=-1m)").merged(lost), steps: []when{
			{call: recursAll(1, Whenever), want: "ended=k:x", state: lost}}},
	})
}
