package store

import (
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("rouse",
	probe{seed: busy, call: raw(func(e *env) redisconn.Call { return rouse.call(e.q, "count", 2) })},
)

// As many workers are woken as there are tasks. Workers that have left are skipped.
func TestRouse(t *testing.T) {
	rouses := func(count int) func(*env) string {
		return raw(func(e *env) redisconn.Call { return rouse.call(e.q, "count", count) })
	}
	idle := state{"queues": "[a b c]", "idle": "(w1=-3m w2=-2m w3=-1m)"}
	run(t, []scenario{
		{name: "one after the other", alive: []string{"w1", "w2", "w3"}, seed: idle, steps: []when{
			{call: rouses(1), want: "1", heard: []string{"wake:w1 1"}, state: idle.with("idle", "(w2=-2m w3=-1m)")},
			{call: rouses(5), want: "2", heard: []string{"wake:w2 5", "wake:w3 5"}, state: state{"queues": "[a b c]"}},
			{call: rouses(1), want: "0"}}},
		{name: "a dead idle worker is skipped", alive: []string{"w3"}, seed: idle, steps: []when{
			{call: rouses(1), want: "1", heard: []string{"wake:w3 1"}, state: state{"queues": "[a b c]"}}}},
	})
}
