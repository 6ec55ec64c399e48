package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

var _ = probed("enqueue",
	probe{seed: busy, call: enqueues("new"), adds: true},
)

func payloads(p ...string) [][]byte {
	return series(len(p), func(i int) []byte { return []byte(p[i]) })
}

func enqueues(p ...string) func(*env) string {
	return func(e *env) string {
		if e.back == nil {
			e.back = NewBack(e.q)
		}
		_, err := e.back.Enqueue(e.ctx, topology.Over(e.line), redisconn.Payloads(context.Background(), payloads(p...)))
		return said(err, "ok")
	}
}

func TestEnqueue(t *testing.T) {
	many := seq("m", 0, 12000)
	hundred := "[" + strings.Join(seq("t", 0, 100), " ") + "]"
	grown := func(by string) string { return strings.TrimSuffix(hundred, "]") + " " + by + "]" }
	fewer := "[" + strings.Join(append(seq("t", 52, 100), "a", "b", "c"), " ") + "]"
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
		{name: "no wake-up while many wait", alive: []string{"w1", "w2", "w3"}, seed: idle.with("queues", hundred), steps: []when{
			{call: enqueues("a"), want: "ok", state: idle.with("queues", grown("a"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"wake:w1 1", "enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: idle.with("queues", grown("a b c"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"enqueue 2"}},
			{call: does("LTRIM", "queues", 0, 50), state: idle.with("queues", fewer, "idle", "(w2=-2m w3=-1m)")},
			{call: enqueues("d"), want: "ok", state: idle.with("queues", strings.TrimSuffix(fewer, "]")+" d]", "idle", "(w2=-2m w3=-1m)"), heard: []string{"enqueue 1"}},
			{call: enqueues("e"), want: "ok", state: idle.with("queues", strings.TrimSuffix(fewer, "]")+" d e]", "idle", "(w3=-1m)"), heard: []string{"wake:w2 1", "enqueue 1"}}}},
		{name: "but when these have gone meanwhile", alive: []string{"w1", "w2"}, seed: idle.with("queues", hundred), steps: []when{
			{call: enqueues("a"), want: "ok", state: idle.with("queues", grown("a"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"wake:w1 1", "enqueue 1"}},
			{call: does("DEL", "queues"), state: idle.with("idle", "(w2=-2m w3=-1m)")},
			{call: enqueues("b"), want: "ok", state: state{"queues": "[b]", "idle": "(w3=-1m)"}, heard: []string{"enqueue 1", "wake:w2 1"}},
			{call: enqueues("c"), want: "ok", state: state{"queues": "[b c]"}, heard: []string{"enqueue 1"}}}},
	})
}

// A caller that adds to a queue learns whether it was alone: nothing waited, and no worker serves it.
func TestAlone(t *testing.T) {
	t.Parallel()
	one := redisconn.Payloads(context.Background(), payloads("a"))
	for verb, add := range map[string]func(*env) (bool, error){
		"enqueue":        func(e *env) (bool, error) { return NewBack(e.q).Enqueue(e.ctx, topology.Over(e.line), one) },
		"enqueue unique": func(e *env) (bool, error) { return EnqueueUnique(e.ctx, e.line, e.q, []byte("a")) },
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
			"a worker is woken":          {state{"idle": "(w1=-1m)"}, verb == "put"}, // put checks only members
			"another waits":              {state{"queues": "[b]"}, false},
			"another waits for its time": {state{"schedule": "(k:y=+1m)", "contents": "(#b:k:y=0)", "keyed:k:y": waits("b", "+1m", 0, 0)}, verb != "put"}, // the others don't check the schedule
		} {
			t.Run(verb+"/"+name, func(t *testing.T) {
				e := beside(t, c.seed, "w1")
				if alone, err := add(e); alone != c.alone || err != nil {
					t.Errorf("%v %v", alone, err)
				}
			})
		}
	}
	t.Run("to a long queue that was drained", func(t *testing.T) {
		e := beside(t, nil)
		b := NewBack(e.q)
		for _, alone := range []bool{true, false} { // from now on without a script
			e.is.Equal(e.must(b.Enqueue(e.ctx, topology.Over(e.line), redisconn.Payloads(context.Background(), payloads(seq("t", 0, 101)...)))), alone)
		}
		e.is.Equal(e.must(b.Enqueue(e.ctx, topology.Over(e.line), one)), false)
		e.must(e.conn.Do("DEL", e.q.Waiting()))
		e.is.Equal(e.must(b.Enqueue(e.ctx, topology.Over(e.line), one)), true)
	})
}
