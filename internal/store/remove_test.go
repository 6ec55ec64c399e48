package store

import (
	"testing"

	"github.com/gomodule/redigo/redis"
)

var _ = probed("remove",
	probe{seed: busyLane, call: removes("k:z")},
)

func removes(entry string) func(*env) string {
	return func(e *env) string {
		r := e.line.Do(e.ctx, RemoveCall(e.q, spelled(entry)))[0]
		removed, err := redis.Bool(r.Value, r.Err)
		return said(err, "removed=%t", removed)
	}
}

func TestRemove(t *testing.T) {
	run(t, []scenario{
		{name: "nothing", seed: runX, steps: []when{{call: removes("k:x"), want: "removed=false"}, {call: removes("k:y"), want: "removed=false"}}},
		{name: "waits", seed: keyX, steps: []when{{call: removes("k:x"), want: "removed=true", state: member}}},
		{name: "blocked", seed: blockedX, steps: []when{{call: removes("k:x"), want: "removed=true", state: runX}}},
	})
}
