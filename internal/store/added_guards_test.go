package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/keys"
)

// heldAdded is a queue on which w1 runs so many added tasks, named 1-1 and so on.
func heldAdded(n int) state {
	s := member.with("rounds", "{w1=1}", "token", "="+itoa(n))
	var held, entries []string
	for i := 1; i <= n; i++ {
		s[fmt.Sprint("process:p", i)] = "[x]"
		held = append(held, fmt.Sprintf("p%d=%d", i, i))
		entries = append(entries, fmt.Sprintf("a:1-%d-a=p%d:w1", i, i), fmt.Sprintf("p%d=a:1-%d-a0", i, i))
	}
	slices.Sort(entries)
	return s.with("working:w1", "("+strings.Join(held, " ")+")", "entries", "{"+strings.Join(entries, " ")+"}")
}

// line of so many added tasks.
func addedLine(n int, card, payload string) string {
	var all []string
	for i := 1; i <= n; i++ {
		all = append(all, fmt.Sprintf("1-%d-a/%s=%s", i, card, payload))
	}
	return "|" + strings.Join(all, " ") + "|"
}

// Added tasks start in turns with the list, whatever else is there.
func TestGuardAddedStarts(t *testing.T) {
	const told = "started=x/1*@k:@1-1-a[0][1],x/2*@k:@1-2-a[0][1]"
	three := heldAdded(3)
	take := func(r Round, ids ...string) func(*env) string {
		r.Worker, r.Number, r.Start = "w1", 1, ids
		return steps(r)
	}
	one := heldAdded(1).with("added", "|1-2-a/0=x|")
	card := "0h0:v2500:" + strings.Repeat("c", 2500)
	big := strings.Repeat("b", 262145)
	odd := member.with("token", "=2")
	failed := state{"failed:workers": "(w1=+60m)", "failed:added": "|1-1-a/10000000000000005=x|"}
	brief := heldAdded(1).with("process:p1", "["+big+"]")
	run(t, []scenario{
		{name: "three of a page", seed: member.with("added", addedLine(3, "0", "x")), steps: []when{
			{call: begins(1, "p1", "p2", "p3", "p4", "p5"), want: told + ",x/3*@k:@1-3-a[0][1]", state: three}}},
		{name: "half of six", seed: member.with("added", addedLine(4, "0", "x"), "queues", "[a b c d]"), steps: []when{
			{call: begins(1, seq("p", 1, 7)...), want: told + ",x/3*@k:@1-3-a[0][1],a/4,b/5,c/6", state: three.with("token", "=6", "added", "|1-4-a/0=x|", "queues", "[d]",
				"process:p4", "[a]", "process:p5", "[b]", "process:p6", "[c]", "working:w1", "(p1=1 p2=2 p3=3 p4=4 p5=5 p6=6)")}}},
		{name: "its turn, after an even token", seed: odd.with("added", "|1-1-a/0=x|", "queues", "[a]"), steps: []when{
			{call: begins(1, "p1"), want: "started=x/3*@k:@1-1-a[0][1]", state: heldAdded(1).with("token", "=3", "working:w1", "(p1=3)", "queues", "[a]")}}},
		{name: "a list of another type", seed: member.with("added", addedLine(2, "0", "x"), "queues", "=foreign"), steps: []when{
			{call: begins(1, "p1", "p2"), want: told, state: heldAdded(2).with("queues", "=foreign")}}},
		{name: "the last id of a stream", seed: member.with("added", "|18446744073709551615-18446744073709551615-a/0=a|"), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=a/1", state: rawP}}},
		{name: "as many as the budget allows", seed: member.with("added", addedLine(2, "0", "x")), steps: []when{
			{call: take(Round{Budget: 10}, "p1", "p2"), want: "started=x/1*@k:@1-1-a[0][1] again cut", state: one}}},
		{name: "as many as their cards allow", seed: member.with("added", "|1-1-a/"+card+"=x 1-2-a/0=x|"), steps: []when{
			{call: take(Round{Budget: 20}, "p1", "p2"), want: "started=x/1*@k:@1-1-a[" + card + "][1] again cut", state: one.with("entries", "{a:1-1-a=p1:w1 p1=a:1-1-a"+card+"}")}}},
		{name: "ahead", seed: member.with("added", addedLine(2, "0", "x")), steps: []when{
			{call: take(Round{Ahead: 1}, "p1", "p2"), want: told, state: heldAdded(2)}}},
		{name: "repeated in brief", seed: brief, steps: []when{
			{call: take(Round{Brief: true}, "p1"), want: `started=""/1*@k:@1-1-a^262145[0][1]`}}},
		{name: "its time is over, in a failed queue", seed: failed, steps: []when{
			{call: inFailed(begins(1, "p1")), want: "started=x/1*@k:@1-1-a[10000000000000005][1]", state: state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=1}", "failed:token": "=1",
				"failed:working:w1": "(p1=1)", "failed:process:p1": "[x]", "failed:entries": "{a:1-1-a=p1:w1 p1=a:1-1-a10000000000000005}"}}}},
		{name: "of another type where it's apart", seed: member.with("added", "|1-1-a/2=|", "keyed:k:@1-1-a", "=foreign"), steps: []when{
			{call: begins(1, "p1"), state: member.with("rounds", "{w1=1}", "keyed:k:@1-1-a", "=foreign")}}},
	})
}

// What is over, or killed too many, fails, unless nothing can fail.
func TestGuardExpires(t *testing.T) {
	const over, late = "10000000000000005", "99999999999999-525001-a"
	digestOf := func(name string) string { return digest(spelled("k:@" + name)) }
	grave := func(payload string, fields ...string) string {
		return graveOf(payload, "now", append([]string{"kind=expired", `reason="its time was over before it started"`}, fields...)...)
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
		return s.with("rounds", "{w1=1}", "failed:schedule", "(k:p1.001=now)", "failed:contents", "(#"+payload+":k:p1.001=0)", "failed:keyed:k:p1.001", grave(payload, fields...))
	}
	two := state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(#x:k:g1=0 #x:k:g2=0)", "failed:keyed:k:g1": graveOf("x", "-9m"), "failed:keyed:k:g2": graveOf("x", "-9m")}
	ofX := []string{"from=k:x", "planned=-1m", "deaths=1", "card=" + over}
	inF := state{"failed:workers": "(w1=+60m)", "failed:schedule": "(k:g1=-9m)", "failed:contents": "(#x:k:g1=0)", "failed:keyed:k:g1": graveOf("x", "-9m", "card="+over)}
	run(t, []scenario{
		{name: "two with one payload", seed: member.with("added", addedLine(2, over, "x")), steps: []when{
			{call: begins(1, "p1", "p2", "p3"), want: "buried=2 expired=2", state: member.with("rounds", "{w1=1}", "failed:schedule", "(k:p3.001=now k:p3.002=now)",
				"failed:contents", "("+digestOf("1-1-a")+":k:p3.001=0 "+digestOf("1-2-a")+":k:p3.002=0)",
				"failed:keyed:k:p3.001", grave("x", "from=k:@1-1-a", "card="+over, "digest="+digestOf("1-1-a")),
				"failed:keyed:k:p3.002", grave("x", "from=k:@1-2-a", "card="+over, "digest="+digestOf("1-2-a")))}}},
		{name: "nothing can fail", seed: member.merged(foreign).with("added", addedLine(1, over, "x")), steps: []when{
			{call: begins(1, "p1", "p2"), want: "again trouble=WRONGTYPE", state: lifted("1-1-a", "1")}}},
		{name: "nothing can fail, and the clock was set back", seed: member.merged(foreign).with("added", "|"+late+"/"+over+"=x|"), steps: []when{
			{call: begins(1, "p1", "p2"), want: "again trouble=WRONGTYPE", state: lifted(late, "now")}}},
		{name: "still nothing can fail: nobody is woken for it", alive: []string{"w2"}, seed: again, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p1"}}), want: "trouble=WRONGTYPE", state: again.with("rounds", "{w1=2}")}}},
		{name: "somebody died of it", seed: died, steps: []when{{call: begins(1, "p1"), want: "again buried=1 expired=1", state: one("a", member, ofX...)}}},
		{name: "its result is kept", seed: keyX.with("keyed:k:x", h(waits("a", "-1m", 0, 0), "card="+kept)), steps: []when{
			{call: begins(1, "p1"), want: "again buried=1 expired=1", state: one("a", member, "from=k:x", "planned=-1m", "card="+kept).with(
				"result:k:x", "=expired:now:35:its time was over before it started +60m")}}},
		{name: "its workers died, and its result is kept", seed: dead, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Crashes: 2, Start: []string{"p1"}}), want: "again buried=1", state: one("a", member, "from=k:x", "planned=-1m", "deaths=2", "card="+keeps,
				"kind=crashed", `reason="2 workers died holding it"`).with("result:k:x", "=failed:now:25:2 workers died holding it +60m")}}},
		{name: "too many have failed", seed: died.merged(two), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Keep: 1, Start: []string{"p1"}}), want: "again buried=1 expired=1 dropped=2", state: one("a", member, ofX...)}}},
		{name: "in a failed queue", seed: inF, steps: []when{
			{call: inFailed(begins(1, "p1")), want: `started=x/1@k:g1[` + over + `][-9m]{k:g1 x failed "r" ~0 !0 w1 ""}`, state: state{"failed:workers": "(w1=+60m)", "failed:rounds": "{w1=1}", "failed:token": "=1",
				"failed:working:w1": "(p1=1)", "failed:process:p1": "[x]", "failed:entries": "{p1=k:g1}",
				"failed:keyed:k:g1": h("kind=failed", "reason=r", "tries=0", "deaths=0", "worker=w1", "at=-9m", "from=", runs("p1", 0, 0), "held="+over)}}}},
	})
}

// A round looks at a thousand added tasks, and fails 999.
func TestGuardAddedSteps(t *testing.T) {
	t.Parallel()
	take := func(ids ...string) func(*env) string {
		return steps(Round{Worker: "w1", Number: 2, Crashes: 3, Start: ids})
	}
	for _, c := range []struct {
		name, line   string
		call         func(*env) string
		left, fields int
	}{
		{"start", addedLine(1010, "0", "x"), take(seq("p", 0, 1010)...), 10, 2000},
		{"fail", addedLine(1010, "10000000000000005", "x"), take("p1", "p2", "p3"), 11, 0},
		{"are lost", addedLine(1010, "2", ""), take("p1", "p2", "p3"), 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, member.with("added", c.line))
			if got := c.call(e); !slices.Contains(strings.Fields(got), "again") {
				t.Error(short(got))
			}
			if left, fields := e.count("XLEN", "added"), e.count("HLEN", "entries"); left != c.left || fields != c.fields {
				t.Errorf("%d are left, want %d; %d fields, want %d", left, c.left, fields, c.fields)
			}
		})
	}
}

// Added tasks that end while nobody listens end together, except those that have more to do.
func TestGuardAddedEnds(t *testing.T) {
	t.Parallel()
	five := heldAdded(5)
	five["entries"] = strings.NewReplacer("p4=a:1-4-a0", "p4=a:1-4-a"+keeps, "a:1-5-a=p5:w1 ", "", "p5=a:1-5-a0", "p5=k:@1-5-a").Replace(five["entries"])
	five["keyed:k:@1-5-a"] = h(runs("p5", 0, 0), "held=0", "sum=p5:"+digest(spelled("k:@1-5-a")))
	for n, c := range map[int]struct{ seed, after state }{
		5:    {five, state{"result:k:@1-4-a": "=finished:now:0: +60m"}},
		1005: {heldAdded(1005), nil},
	} {
		t.Run(itoa(n), func(t *testing.T) {
			e := beside(t, nil)
			e.must(nil, e.ear.Unsubscribe(e.q.Channel(keys.KindDone)))
			e.ear.Receive()
			e.seed(c.seed)
			if got, want := (Outcome{Verb: Finish, Added: true}).each(2, n)(e), "settled="+strings.TrimSuffix(strings.Repeat("ok,", n), ","); got != want {
				t.Error(short(got))
			}
			e.compare(1, member.with("rounds", "{w1=2}", "token", "="+itoa(n)).merged(c.after))
		})
	}
}
