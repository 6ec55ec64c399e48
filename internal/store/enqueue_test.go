package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("enqueue",
	probe{seed: busy, call: enqueues("new"), adds: true},
)

func payloads(p ...string) [][]byte {
	return series(len(p), func(i int) []byte { return []byte(p[i]) })
}

func enqueues(p ...string) func(*env) string {
	return func(e *env) string {
		_, err := Enqueue(e.ctx, e.line, e.q, redisconn.Payloads(context.Background(), payloads(p...)))
		return said(err, "ok")
	}
}

func TestEnqueue(t *testing.T) {
	many := seq("m", 0, 12000)
	idle := state{"idle": "(w1=-3m w2=-2m w3=-1m)"}
	run(t, []scenario{
		{name: "one, no idle worker", alive: []string{"w1"}, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]"}, heard: []string{"enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"enqueue 2"}}}},
		{name: "more than one chunk", steps: []when{
			{call: enqueues(many...), want: "ok", state: state{"queues": "[" + strings.Join(many, " ") + "]"}, heard: []string{"enqueue 12000"}}}},
		{name: "a dead idle worker is skipped", alive: []string{"w2", "w3"}, seed: idle, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]", "idle": "(w3=-1m)"}, heard: []string{"wake:w2 1", "enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"wake:w3 2", "enqueue 2"}}}},
	})
}

// A caller that adds to a queue learns whether it was alone: nothing waited, and no worker serves it.
func TestAlone(t *testing.T) {
	t.Parallel()
	one := redisconn.Payloads(context.Background(), payloads("a"))
	for verb, add := range map[string]func(*env) (bool, error){
		"enqueue":        func(e *env) (bool, error) { return Enqueue(e.ctx, e.line, e.q, one) },
		"enqueue unique": func(e *env) (bool, error) { return enqueueUnique(e.ctx, e.line, e.q, []byte("a")) },
		"enqueue once": func(e *env) (bool, error) {
			_, alone, err := EnqueueOnce(e.ctx, e.line, e.q, "n", time.Minute, one)
			return alone, err
		},
		"put": func(e *env) (bool, error) {
			return Put(e.ctx, e.line, e.q, "k:x", Change{Payload: []byte("a"), When: Always})
		},
	} {
		for name, c := range map[string]struct {
			seed  state
			alone bool
		}{
			"nothing is there":           {nil, true},
			"a worker serves it":         {member, false},
			"a worker is woken":          {state{"idle": "(w1=-1m)"}, verb == "put" || verb == "enqueue unique"}, // put checks only members
			"another waits":              {state{"queues": "[b]"}, false},
			"another waits for its time": {state{"schedule": "(k:y=+1m)", "contents": "(#b:k:y=0)", "keyed:k:y": waits("b", "+1m", 0, 0)}, verb != "put" && verb != "enqueue unique"}, // the others don't check the schedule
		} {
			t.Run(verb+"/"+name, func(t *testing.T) {
				e := beside(t, c.seed, "w1")
				if alone, err := add(e); alone != c.alone || err != nil {
					t.Errorf("%v %v", alone, err)
				}
			})
		}
	}
}
