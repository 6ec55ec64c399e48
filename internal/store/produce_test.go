package store

import (
	"strings"
	"testing"
)

func TestProduce(t *testing.T) {
	t.Parallel()
	many := seq("m", 0, 12000)
	hundred := "[" + strings.Join(seq("t", 0, 100), " ") + "]"
	grown := func(by string) string { return strings.TrimSuffix(hundred, "]") + " " + by + "]" }
	fewer := "[" + strings.Join(append(seq("t", 52, 100), "a", "b", "c"), " ") + "]"
	lock := state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}
	idle := state{"idle": "(w1=-3m w2=-2m w3=-1m)"}
	run(t, []scenario{
		{name: "one, nobody idle", alive: []string{"w1"}, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]"}, heard: []string{"enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"enqueue 2"}}}},
		{name: "more than one chunk", steps: []when{
			{call: enqueues(many...), want: "ok", state: state{"queues": "[" + strings.Join(many, " ") + "]"}, heard: []string{"enqueue 12000"}}}},
		{name: "who is gone is passed over", alive: []string{"w2", "w3"}, seed: idle, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]", "idle": "(w3=-1m)"}, heard: []string{"wake:w2 1", "enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"wake:w3 2", "enqueue 2"}}}},
		{name: "nobody is woken while many wait", alive: []string{"w1", "w2", "w3"}, seed: idle.with("queues", hundred), steps: []when{
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
		{name: "once", steps: []when{
			{call: enqueuesOnce("n", "a", "b"), want: "fresh", state: state{"queues": "[a b]", "once:n": "=1 +60m"}, heard: []string{"enqueue 2"}},
			{call: enqueuesOnce("n", "a", "b"), want: "repeated"},
			{call: enqueuesOnce("m", "a"), want: "fresh", state: state{"queues": "[a b a]", "once:n": "=1 +60m", "once:m": "=1 +60m"}, heard: []string{"enqueue 1"}}}},
		{name: "pause", seed: idle, steps: []when{
			{call: pauses, want: "ok", state: idle.with("paused", "=1")},
			{call: pauses, want: "ok"}}},
		{name: "resume", alive: []string{"w1", "w2"}, seed: idle.with("paused", "=1", "queues", "[a b]"), steps: []when{
			{call: resumes, want: "ok", state: state{"queues": "[a b]", "idle": "(w3=-1m)"}, heard: []string{"wake:w1 2", "wake:w2 2"}}}},
		{name: "unique", steps: []when{
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE"},
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "")},
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}}}},
		{name: "unique, removed by somebody else, others wait", seed: lock.with("queues", "[a b]"), steps: []when{
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "[b]")},
			{call: enqueuesUnique("a"), want: "ok", state: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, heard: []string{"enqueue 1"}}}},
		{name: "unique, somebody else removes what stands before it", seed: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, steps: []when{
			{call: does("LREM", "queues", 0, "b"), state: state{"queues": "[a]", "unique": "{#a=w:1 offset=0}"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}}}},
		{name: "delete", seed: busy, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`},
			state: busy.with("queues", "", "unique", "{#b=p:p2 offset="+deleted(3)+"}")}}},
		{name: "delete many locks", seed: state{"queues": "[" + strings.Join(seq("t", 0, 3000), " ") + "]", "unique": "{" + strings.Join(locks(3000), " ") + " offset=0}"},
			steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
	})
}
