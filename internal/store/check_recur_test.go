package store

import (
	"testing"
)

// Times of a recurring task that are ahead are corrected; a peer that has the schedule then writes it
// again. Other damage is reported.
func TestCheckRecurring(t *testing.T) {
	seedX := planX.with("recurring", "(k:x=+1m)")
	x := []string{"k:x"}
	passed := func(at string) state {
		return seedX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", at))
	}
	cleared := func(at string) string {
		return course("", "+10m,+20m,+30m", at, "since=0", "more=0")
	}
	odd := "inconsistent k:x the record of a recurring task is incomplete"
	run(t, []scenario{
		unsaid("as it should be", seedX, CheckRecurring, "k:x", "k:y"),
		{name: "asserted for long", seed: seedX.with("recurring", "(k:x=+2m)"), steps: append(
			repair(CheckRecurring, x, "recurring k:x", nil, seedX.with("recurring", "(k:x=now)", "recurrence:k:x", cleared("-1m"))),
			when{call: recurs("x", "1:1a", ""), want: "wanted"},
			when{call: recurs("x", "1:1a", "+10m +20m +30m", "since=7"), want: "held", state: planX.with("recurrence:k:x", course("1:1a", "+10m,+20m,+30m", "-1m", "since=7"))})},
		unsaid("the last time is an hour ahead", passed("+60m"), CheckRecurring, "k:x"),
		unsaid("an occurrence that lies further ahead was removed", seedX.with("recurrence:k:x", course("1:1a", "+100m,+200m", "+100m")), CheckRecurring, "k:x"),
		{name: "the last time is further ahead", seed: passed("+61m"), steps: repair(CheckRecurring, x, "recurring k:x",
			nil, seedX.with("recurring", "(k:x=now)", "recurrence:k:x", cleared("now")))},
		left("its record is lost", seedX.with("recurrence:k:x", ""), odd, CheckRecurring, "k:x"),
		left("its place is lost", seedX.with("recurring", ""), odd, CheckRecurring, "k:x"),
		left("it has no times", seedX.with("recurrence:k:x", "{passed=1 print=1:1a}"), odd, CheckRecurring, "k:x"),
		unsaid("of another type", seedX.with("recurrence:k:x", "[a]"), CheckRecurring, "k:x"),
		unsaid("recurring of another type", seedX.with("recurring", "[a]"), CheckRecurring, "k:x"),
	})
}
