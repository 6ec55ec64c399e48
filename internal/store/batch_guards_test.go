package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// hears is a beat that returns which batch to move next.
func hears(worker string) func(*env) string {
	return func(e *env) string {
		p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, worker, time.Hour, time.Hour, 0))[0])
		return said(err, "%s", p.Batch)
	}
}

func TestGuardBatch(t *testing.T) {
	waiting := member.with("token", "=9", "queues", "[x]", "batches", "(b=1 c=2 d=3 e=aside:0)", "batch:b", "[a y]", "batch:c", "=foreign", "batch:d", "[a]", "batch:e", "[a]")
	many := member.with("token", "=9", "batches", "("+strings.Join(numbered("d", 150), " ")+")")
	for i := range 150 {
		many[fmt.Sprint("batch:d", 100+i)] = "[z]"
	}
	long := strings.Repeat("i", 70)
	run(t, []scenario{
		{name: "explain looks into batches", seed: waiting, steps: []when{{call: explains("", "a"), want: "workers=1 length=4 before=1,3"}}},
		{name: "explain looks into a hundred batches", seed: many, steps: []when{{call: explains("", "a"), want: "workers=1 length=100"}}},
		{name: "explain: batches of another type", seed: member.with("batches", "=foreign", "queues", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=1 before=0"}}},
		{name: "explain tells of as many copies as are asked for", seed: member.with("queues", "[a a]", "batches", "(b=1)", "batch:b", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=3 before=0,1"}}},
		{name: "explain looks no deeper than asked", seed: member.with("queues", "[w x y z]", "batches", "(b=1)", "batch:b", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=5"}}},
		left("paused, and batches wait", waiting.with("paused", "=1"), "paused q 4", CheckQueue, "q"),
		{name: "a beat tells the begin of a long id", seed: member.with("batches", "("+long+"=1)", "batch:"+long, "[a]"), steps: []when{{call: hears("w1"), want: long[:64] + " 1"}}},
		{name: "haul tells the begin of a long id", seed: state{"batches": "(" + long + "=1)"}, steps: []when{{call: hauls, want: "0 " + long[:64], state: state{"batches": "(" + long + "=aside:0)"}}}},
	})
}

func TestGuardCheckBatch(t *testing.T) {
	w := state{"batches": "(b=1)", "batch:b": "[a]"}
	aside := w.with("batches", "(b=aside:0)")
	only := func(name string, seed state) scenario { // looked at
		return scenario{name: name + ", and only looked at", seed: seed, steps: []when{{call: checks(false, CheckBatches, "b"), want: "batch b"}}}
	}
	run(t, []scenario{
		unsaid("to be moved", w, CheckBatches, "b"),
		unsaid("batches of another type", w.with("batches", "=foreign"), CheckBatches, "b"),
		mended("gone", w.with("batch:b", ""), "batch b", state{}, CheckBatches, "b"),
		only("gone", w.with("batch:b", "")),
		left("overwritten", w.with("batch:b", "=foreign"), "batch b", CheckBatches, "b"),
		mended("put aside, and back", aside, "batch b", w.with("batches", "(b=0)"), CheckBatches, "b"),
		only("put aside, and back", aside),
		left("put aside, and overwritten", aside.with("batch:b", "=foreign"), "batch b", CheckBatches, "b"),
	})
}
