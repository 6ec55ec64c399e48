package store

import (
	"strings"
	"testing"
)

var _ = probed("stage",
	probe{seed: busyBatch, call: stages(1, "e"), adds: true},
)

func stages(before int, payloads ...any) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, stage.call(e.q, "batch", "b", "before", before, "ttl", 60_000, "payload", payloads))
		return said(err, "%v", v)
	}
}

func TestStage(t *testing.T) {
	words := seq("t", 0, 5001)
	long := series(len(words), func(i int) any { return words[i] })
	accepted := state{"batch:b": "[a b c]", "batches": "(b=1)", "once:n": "=b +1m"}
	run(t, []scenario{
		{name: "more than unpack takes", steps: []when{
			{call: stages(0, long...), want: "5001", state: state{"batch:b": "[" + strings.Join(words, " ") + "] +1m"}}}},
		{name: "an accepted batch can't grow", seed: accepted, steps: []when{{call: stages(3, "d"), want: "BATCH"}}},
	})
}
