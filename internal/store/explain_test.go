package store

import (
	"fmt"
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
