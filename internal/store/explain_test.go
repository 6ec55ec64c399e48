package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

var _ = probed("explain",
	probe{seed: busyLane, call: explains("", "g")},
)

// explains looks for a payload, or for the task of an entry.
func explains(entry, payload string) func(*env) string {
	return func(e *env) string { return explained(e, entry, payload, 4) }
}

func explained(e *env, entry, payload string, depth int) string {
	p, err := Explain(e.ctx, e.line, e.q, spelled(entry), []byte(payload), 2, depth)
	if err != nil {
		return refused(err)
	}
	var w words
	w.flag("paused", p.Paused)
	w.num("workers", int64(p.Workers), 0)
	w.num("idle", int64(p.Idle), 0)
	w.num("ready", int64(p.Ready), 0)
	w.num("length", int64(p.Length), 0)
	w.num("added", int64(p.Added), 0)
	if l := p.Line; l != nil {
		w.add("line", fmt.Sprintf("%d@%s/%s=%s", l.Before, score(fmt.Sprint(l.Since), p.Now), l.Card, word(string(l.Payload))))
	}
	for _, n := range p.Before {
		w.add("before", fmt.Sprint(n))
	}
	time := func(ms int64) string {
		if ms == -1 {
			return "-"
		}
		return score(fmt.Sprint(ms), p.Now)
	}
	for _, x := range p.Entries {
		w.add("entries", fmt.Sprintf("%s@%s/%s~%d!%d#%d<%s %s %d>", x.Name, time(x.Due), time(x.Planned), x.Retries, x.Crashes, x.Before, x.Process, x.Worker, x.Token)+map[bool]string{true: " withheld"}[x.Held]+map[bool]string{true: " " + time(x.Turn)}[x.Turn != 0])
	}
	for _, g := range p.Failed {
		w.add("failures", fmt.Sprintf("%s %s %q ~%d !%d %s %q %s", g.Entry, g.Kind, g.Reason, g.Retries, g.Crashes, g.Worker, g.From, time(g.At)+g.Card))
	}
	return e.short(w.String())
}

// Explain counts the added tasks before one, up to the given number, 2,000 tasks or 1 MiB.
func TestExplainLine(t *testing.T) {
	behind := func(payloads ...string) state {
		payloads = append(slices.Clone(payloads), "y")
		items := series(len(payloads), func(i int) string { return fmt.Sprintf("1-%d-a/0=%s", i, payloads[i]) })
		return member.with("added", "|"+strings.Join(items, " ")+"|")
	}
	large := strings.Repeat("l", 16384)
	mebibyte := slices.Repeat([]string{large}, 64)
	less := slices.Concat(mebibyte[1:], []string{large[1:]})
	var all []scenario
	for _, c := range []struct {
		name   string
		before []string
		depth  int
		want   int
	}{
		{"as many as are looked at", slices.Repeat([]string{"x"}, 4), 4, 4},
		{"more than are looked at", slices.Repeat([]string{"x"}, 5), 4, -1},
		{"many", slices.Repeat([]string{"x"}, 1990), 10_000, 1990},
		{"too many", slices.Repeat([]string{"x"}, 2010), 10_000, -1},
		{"large", mebibyte, 10_000, 64},
		{"too large", append(slices.Clone(mebibyte), "x"), 10_000, -1},
		{"nearly too large", append(less, "x"), 10_000, 65},
	} {
		n := len(c.before)
		explain := func(e *env) string { return explained(e, fmt.Sprintf("k:@1-%d-a", n), "", c.depth) }
		all = append(all, scenario{name: c.name, seed: behind(c.before...), steps: []when{
			{call: explain, want: fmt.Sprintf("workers=1 added=%d line=%d@1/0=y", n+1, c.want)}}})
	}
	run(t, all)
}

func TestExplain(t *testing.T) {
	failed := state{"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#a:k:g1=0)", "failed:keyed:k:g1": failedOf("a", "-9m", "tries=2", "deaths=3", "from=k:x", "card=0h")}
	run(t, []scenario{
		{name: "nowhere", seed: member, steps: []when{{call: explains("", "a"), want: "workers=1"}, {call: explains("k:x", ""), want: "workers=1"}}},
		{name: "on the list", seed: member.with("queues", "[x a y a z a]", "paused", "=1", "idle", "(w1=-1m)", "workers", "(w2=-1m w1=+60m)"), steps: []when{
			{call: explains("", "a"), want: "paused workers=1 idle=1 length=6 before=1,3"},
			{call: explains("", "z"), want: "paused workers=1 idle=1 length=6"}}}, // deeper than 4
		{name: "in the schedule", seed: keyX.with("schedule", "(k:y=-2m k:x=-1m r:p9=+9m)", "contents", "(#a:k:x=0 #a:r:p9=0 #b:k:y=0)",
			"keyed:k:y", waits("b", "-2m", 0, 0), "keyed:r:p9", waits("a", "+9m", 1, 3)), steps: []when{
			{call: explains("", "a"), want: "workers=1 ready=2 entries=k:x@-1m/-1m~2!1#1<  0>,r:p9@+9m/+9m~1!0#2<  0>"},
			{call: explains("k:y", ""), want: "workers=1 ready=2 entries=k:y@-2m/-2m~0!0#0<  0>"}}},
		{name: "died of before", seed: member.with("ledger", "{#a=2}", "schedule", "(r:p9=-9m)", "contents", "(#a:r:p9=0)", "keyed:r:p9", waits("a", "-9m", 0, 0)), steps: []when{
			{call: explains("", "a"), want: "workers=1 ready=1 entries=r:p9@-9m/-9m~0!2#0<  0>"},
			{call: explains("r:p9", ""), want: "workers=1 ready=1 entries=r:p9@-9m/-9m~0!2#0<  0>"}}},
		{name: "blocked", seed: blockedX, steps: []when{
			{call: explains("", "b"), want: "workers=1 entries=k:x@+20m/-~0!0#-1<p1 w1 1>"},
			{call: explains("k:x", ""), want: "workers=1 entries=k:x@+20m/-~0!0#-1<p1 w1 1>"}}},
		{name: "under a key that runs", seed: runX, steps: []when{{call: explains("k:x", ""), want: "workers=1 entries=k:x@-/-~0!0#-1<p1 w1 1>"}}},
		{name: "withheld", seed: dueX.with("keyed:k:x", h(waits("a", "+9m", 0, 0), "turn=-1m", "withheld=1"), "schedule", "(k:x=+9m)"), steps: []when{
			{call: explains("k:x", ""), want: "workers=1 entries=k:x@+9m/+9m~0!0#0<  0> withheld -1m"},
			{call: explains("", "a"), want: "workers=1 entries=k:x@+9m/+9m~0!0#0<  0> withheld -1m"}}},
		{name: "failed", seed: state{"failed:schedule": "(k:g1=-9m)", "failed:contents": "(#a:k:g1=0)", "failed:keyed:k:g1": failedOf("a", "-9m", "tries=2", "from=k:x")}, steps: []when{
			{call: explains("", "a"), want: `failures=k:g1 failed "r" ~2 !0 w1 "k:x" -9m`}}},
		{name: "another type", seed: member.with("queues", "=5", "idle", "=5", "failed:contents", "=5", "keyed:k:x", "=5"), steps: []when{
			{call: explains("", "a"), want: "workers=1"}, {call: explains("k:x", ""), want: "workers=1"}}},
		{name: "the schedule is of another type", seed: member.with("entries", "=foreign"), steps: []when{{call: explains("", "a"), want: "WRONGTYPE"}}},
		{name: "of a key, whatever its payload", seed: keyX.with("queues", "[a]").merged(failed), steps: []when{{call: explains("k:x", "a"), want: "workers=1 ready=1 length=1 entries=k:x@-1m/-1m~2!1#0<  0>"}}},
		{name: "no known holder", seed: member.with("keyed:k:x", runs("p1", 0, 0)), steps: []when{{call: explains("k:x", ""), want: "workers=1 entries=k:x@-/-~0!0#-1<p1  0>"}}},
		{name: "working set of another type", seed: member.with("keyed:k:x", h(runs("p1", 0, 0), "holder=w1"), "working:w1", "=foreign"), steps: []when{
			{call: explains("k:x", ""), want: "workers=1 entries=k:x@-/-~0!0#-1<p1  0>"}}},
		{name: "an added one runs with a late token", seed: runsA.with("token", "=7", "working:w1", "(p1=7)"), steps: []when{
			{call: explains("k:@1-7-a", ""), want: "workers=1 entries=k:@1-7-a@-/-~0!0#-1<p1 w1 7>"}}},
		{name: "an added task, working set of another type", seed: runsA.with("working:w1", "=foreign"), steps: []when{
			{call: explains("k:@1-7-a", ""), want: "workers=1 entries=k:@1-7-a@-/-~0!0#-1<p1  0>"}}},
		{name: "a running retry isn't a copy of an empty payload", seed: rawP.with("ledger", "{"+digest("")+"=2}", "entries", "{p1=r:p0}", "keyed:r:p0", runs("p1", 1, 0)), steps: []when{
			{call: explains("r:p0", ""), want: "workers=1 entries=r:p0@-/-~0!0#-1<p1 w1 1>"}}},
		{name: "failed, with all that is known", seed: failed, steps: []when{{call: explains("", "a"), want: `failures=k:g1 failed "r" ~2 !3 w1 "k:x" -9m0h`}}},
		{name: "failed, and nothing is known", seed: failed.with("failed:keyed:k:g1", "{payload=a}"), steps: []when{{call: explains("", "a"), want: `failures=k:g1  "" ~0 !0  "" 0`}}},
		{name: "failed, of another type", seed: failed.with("failed:keyed:k:g1", "=foreign"), steps: []when{{call: explains("", "a")}}},
	})
}
