package store

import (
	"fmt"
	"testing"
)

// What is known of a schedule may be damaged: what waits there starts and ends all the same.
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
		{name: "what was put there runs: that is no occurrence", seed: keyX.with(put...), steps: []when{
			{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX.with(put...)},
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}, state: doneX.with(put...)}}},
		{name: "one that is tried again is told with its turn", seed: again, steps: []when{
			{call: begins(3, "p2"), want: "started=a/2@k:x~1[0][-1m]", state: again.with("rounds", "{w1=3}", "token", "=2", "working:w1", "(p2=2)", "process:p2", "[a]", "entries", "{p2=k:x}",
				"schedule", "", "keyed:k:x", h(runs("p2", 1, 0), "took=-1m", "held=0", nextX))}}},
		{name: "one that ends, whose payload is lost", seed: planX.with("recurring", "(k:x=-1m)").merged(lost), steps: []when{
			{call: recursAll(1, Whenever), want: "ended=k:x", state: lost}}},
	})
}

// Of those that nobody asserts, a round withholds five hundred.
func TestGuardWithheld(t *testing.T) {
	e := beside(t, nil)
	seed := dueEntries(600, func(int) int { return 0 })
	for i := range 600 {
		entry := fmt.Sprintf("k:t%04d", i)
		seed["keyed:"+entry] = h(seed["keyed:"+entry], "turn=7")
		seed["recurrence:"+entry] = "{passed=0}"
	}
	e.seed(seed)
	if got := begins(1, "p1")(e); got != "" {
		t.Error(got)
	}
	if n := e.must(e.conn.Do("ZCOUNT", e.q.Schedule(), "-inf", 7)); n != int64(100) {
		t.Error(n, "are due, want 100")
	}
}
