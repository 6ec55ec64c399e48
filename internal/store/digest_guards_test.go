package store

import (
	"strings"
	"testing"
)

// What somebody names of a payload is believed where it can be one, and of that task only.
func TestGuardDigest(t *testing.T) {
	large, mebi := strings.Repeat("l", 65537), strings.Repeat("m", 1<<20)
	wrong, none := strings.Repeat("ab", 20), strings.Repeat("z", 40)
	due := func(payload string, fields ...string) string {
		return h(append([]string{waits(payload, "+9m", 0, 0)}, fields...)...)
	}
	names := func(payload, named string) func(*env) string { // a put
		return func(e *env) string {
			a := put.ask(e.ctx, e.line, e.q, "once", "", "entry", "k:x", "payload", payload, "at", at("+9m", e.now()), "when", "always", "keep", 0, "counts", 0,
				"card", "", "by_key", 0, "window", 0, "digest", named)
			fresh := a.int("fresh")
			return said(a.err, "%d", fresh)
		}
	}
	known := state{"schedule": "(k:x=+9m)", "contents": "(" + digest(large) + ":k:x=0)", "keyed:k:x": due(large, "digest="+digest(large))}
	run(t, []scenario{
		{name: "no digest", steps: []when{{call: names("a", none), want: "2", heard: []string{"enqueue 1"},
			state: state{"schedule": "(k:x=+9m)", "contents": "(#a:k:x=0)", "keyed:k:x": due("a")}}}},
		{name: "unique, and no digest", steps: []when{{call: func(e *env) string {
			v, err := e.line.One(e.ctx, enqueueUnique.call(e.q, "payload", "a", "digest", none))
			return said(err, "%v", v)
		}, want: "2", heard: []string{"enqueue 1"}, state: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}}}},
		{name: "what it named goes with the payload", seed: known, steps: []when{{call: names("a", ""), want: "0",
			state: state{"schedule": "(k:x=+9m)", "contents": "(#a:k:x=0)", "keyed:k:x": due("a")}}}},
		{name: "not large", steps: []when{{call: names(large[1:], ""), want: "2", heard: []string{"enqueue 1"},
			state: state{"schedule": "(k:x=+9m)", "contents": "(" + digest(large[1:]) + ":k:x=0)", "keyed:k:x": due(large[1:])}}}},
		{name: "not large, and runs", seed: keyX.with("contents", "("+digest(large[1:])+":k:x=0)", "keyed:k:x", waits(large[1:], "-1m", 0, 0)), steps: []when{
			{call: begins(1, "p1"), want: "started=" + large[1:] + "/1@k:x", state: runX.with("process:p1", "["+large[1:]+"]", "keyed:k:x", runs("p1", 0, 0))}}},
		{name: "check: of a mebibyte", seed: state{"schedule": "(k:x=+9m)", "contents": "(" + wrong + ":k:x=0)", "keyed:k:x": due(mebi, "digest="+wrong)}, steps: []when{
			{call: checks(false, CheckEntries, "k:x"), want: "schedule k:x"}}},
		{name: "of another failed task", seed: state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(" + wrong + ":k:g1=0 " + digest(large) + ":k:g2=0)",
			"failed:keyed:k:g1": h(graveOf(large, "-9m"), "digest="+wrong), "failed:keyed:k:g2": h(graveOf(large, "-9m"), "digest="+digest(large))}, steps: []when{
			{call: requeues("k:g1", "k:g2"), want: "requeued=2", heard: []string{"enqueue 2"}, state: state{"queues": "[" + large + " " + large + "]"}}}},
	})
}

// What is known by its key is another task than those with its payload, also one that waits
// under the key.
func TestGuardDigestOfKey(t *testing.T) {
	running := runX.with("keyed:k:x", h(runs("p1", 2, 1), "sum=p1:"+digest("k:x")))
	record := "{finished=0 stopped=0 token=2}"
	run(t, []scenario{
		{name: "it finishes, and is large", seed: running.with("token", "=2", "holders", "(w1=0)", "canceled", "(#a=2)", "cancel:#a", record+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{Size: Large + 1, Digest: digest("a")}), want: "settled=ok seen=2", heard: []string{"done w1 65537:" + digest("a")},
				state: doneX.with("token", "=2", "cancel:#a", record+" +1m")}}},
		{name: "it gives way", seed: running.with("contents", "(#a:k:x=0)", "keyed:k:x", h(running["keyed:k:x"], waits("a", "+9m", 0, 0), rule(0, 0, "+9m", "+9m"))), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: backX.with("schedule", "(k:x=+9m)", "keyed:k:x", waits("a", "+9m", 0, 0))}}},
	})
}

// A digest that a worker names of a payload that isn't large is not believed.
func TestGuardDigestOfSmall(t *testing.T) {
	named := Outcome{Size: Large + 1, Digest: strings.Repeat("ab", 20)}
	var all []scenario
	for _, payload := range []string{"a", strings.Repeat("l", Large)} {
		seed, back := runX.with("process:p1", "["+payload+"]"), doneX.with("contents", "("+name(digest(payload)+":k:x")+"=0)")
		all = append(all,
			scenario{name: itoa(len(payload)) + " bytes, stopped", seed: seed, steps: []when{{call: ends(2, "p1", 1, Stop, named), want: "settled=ok",
				state: back.with("schedule", "(k:x=1)", "keyed:k:x", waits(payload, "1", 2, 1))}}},
			scenario{name: itoa(len(payload)) + " bytes, tried again", seed: seed, steps: []when{{call: ends(2, "p1", 1, Retry, named), want: "settled=ok",
				state: back.with("schedule", "(k:x=now)", "keyed:k:x", waits(payload, "now", 3, 1))}}})
	}
	run(t, all)
}

// What an entry names of its payload is not believed of the same one on the list.
func TestGuardDigestOfOthers(t *testing.T) {
	e := beside(t, nil)
	large, wrong := strings.Repeat("l", 65537), strings.Repeat("ab", 20)
	e.seed(member.with("queues", "["+large+"]", "ledger", "{"+digest(large)+"=1}", "schedule", "(k:x=-1m)", "contents", "("+wrong+":k:x=0)",
		"keyed:k:x", h(waits(large, "-1m", 0, 0), "digest="+wrong)))
	a := e.round(Round{Number: 1, Start: []string{"p1", "p2"}})
	if len(a.Started) != 2 || a.Started[0].Crashes != 0 || a.Started[1].Crashes != 1 {
		t.Errorf("%d started", len(a.Started))
		for _, s := range a.Started {
			t.Errorf("%q with %d crashes", s.Entry, s.Crashes)
		}
	}
}
