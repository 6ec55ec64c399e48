package store

import (
	"fmt"
	"strings"
	"testing"
)

var _ = probed("haul",
	probe{seed: busyBatch, call: hauls},
)

func hauls(e *env) string {
	a := haul.ask(e.ctx, e.line, e.q)
	told := fmt.Sprint(a.int("left"))
	a.each("damaged", func(d *decoder) { told += " " + d.string() })
	return said(a.err, "%s", told)
}

// numbered returns zset members whose scores are the numbers in their names.
func numbered(name string, n int) []string {
	return series(n, func(i int) string { return fmt.Sprintf("%s%d=%d", name, 100+i, i) })
}

// putsAside returns members of a zset that were set aside.
func putsAside(name string, n int) []string {
	return series(n, func(i int) string { return fmt.Sprintf("%s%d=aside:0", name, 100+i) })
}

func TestHaul(t *testing.T) {
	accepted := state{"batch:b": "[a b c]", "batches": "(b=1)", "once:n": "=b +1m"}
	run(t, []scenario{
		{name: "workers wake", alive: []string{"w1", "w2"}, seed: accepted.with("idle", "(w1=-2m w2=-1m)"), steps: []when{
			{call: hauls, want: "0", heard: []string{"wake:w1 3", "wake:w2 3"}, state: state{"queues": "[a b c]", "once:n": "=b +1m"}}}},
		{name: "one after the other", seed: state{"batch:b": "[a b]", "batch:c": "[c d]", "batches": "(c=1 b=2)"}, steps: []when{
			{call: hauls, want: "1", state: state{"queues": "[c d]", "batch:b": "[a b]", "batches": "(b=2)"}},
			{call: hauls, want: "0", state: state{"queues": "[c d a b]"}}}},
		{name: "missing and overwritten batches are set aside, then the next one is moved",
			seed: state{"queues": "[z]", "batches": "(a=1 b=2 c=3)", "batch:b": "=foreign", "batch:c": "[t u]"}, steps: []when{
				{call: hauls, want: "1 a b", state: state{"queues": "[z]", "batches": "(c=3 a=aside:0 b=aside:0)", "batch:b": "=foreign", "batch:c": "[t u]"}},
				{call: hauls, want: "0", state: state{"queues": "[z t u]", "batches": "(a=aside:0 b=aside:0)", "batch:b": "=foreign"}},
				{call: hauls, want: "0"},
				{call: enqueues("v"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[z t u v]", "batches": "(a=aside:0 b=aside:0)", "batch:b": "=foreign"}},
				{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
		{name: "at most a hundred a call are set aside", seed: state{"batches": "(" + strings.Join(numbered("d", 150), " ") + ")"}, steps: []when{
			{call: func(e *env) string { return hauls(e)[:6] }, want: "50 d10", state: state{"batches": "(" + strings.Join(numbered("d", 150)[100:], " ") + " " + strings.Join(putsAside("d", 100), " ") + ")"}},
			{call: does("DEL", "batches"), state: state{}}}},
		{name: "an id without a name", seed: state{"batches": "(x=0)"}, steps: []when{
			{call: does("ZADD", "batches", 1, ""), state: state{"batches": `(x=0 ""=1)`}},
			{call: hauls, want: "0 x", state: state{"batches": "(x=aside:0)"}}}},
		{name: "a list of another type", seed: accepted.with("queues", "=foreign"), steps: []when{
			{call: hauls, want: "WRONGTYPE", state: accepted.with("queues", "=foreign")}}},
	})
}
