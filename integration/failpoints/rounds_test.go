package failpoints_test

import (
	"errors"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// take takes the first of the tasks that the victim holds, to be ended by the call.
func (v *victim) take() *worqr.Task {
	t := v.tasks[0]
	v.tasks = v.tasks[1:]
	return t
}

// rounds are what a worker says to a queue.
var rounds = []*scenario{
	{
		name: "start", wire: "step:start", role: member, repeats: true, fenced: "evicted",
		ready: serve, hands: true, holds: []string{"a", "b"},
		call: func(v *victim) (err error) { v.tasks, err = v.queue.StartTasks(v.ctx, 2); return err },
	},
	{
		name: "finish", wire: "step:finish", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"}, ends: []string{"a"},
		call: func(v *victim) error { return v.take().Finish(v.ctx) },
		left: func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
	},
	{
		name: "finish with result", wire: "step:finish", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"}, ends: []string{"a"},
		call: func(v *victim) error {
			t := v.take()
			t.Result = []byte("result")
			return t.Finish(v.ctx)
		},
		left: func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
	},
	{
		name: "stop", wire: "step:stop", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call: func(v *victim) error { return v.take().Stop(v.ctx) },
		left: either(added(0), []string{"b", "a", "c"}), // a is back before b
	},
	{
		name: "retry", wire: "step:retry", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call: func(v *victim) error { return v.take().Retry(v.ctx, 0) },
		left: either(added(0), []string{"a+1", "b", "c"}),
	},
	{
		name: "snooze", wire: "step:snooze", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call: func(v *victim) error { return v.take().Snooze(v.ctx, 0) },
		left: either(added(0), []string{"a", "b", "c"}),
	},
	{
		name: "fail", wire: "step:fail", role: member, repeats: true, fenced: "lost evicted",
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call:  func(v *victim) error { return v.take().Fail(v.ctx, errors.New("no")) },
		left:  func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
		fails: func(n int) []string { return []string{"a"}[:min(n, 1)] },
	},
	{
		name: "finish under key", wire: "step:finish", role: member, repeats: true, fenced: "lost evicted",
		seed: func(w *world) {
			w.put("a")
			w.enqueue("b", "c")
		},
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"}, ends: []string{"a"},
		call: func(v *victim) error { return v.take().Finish(v.ctx) },
		left: func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
	},
	{
		name: "stop under key", wire: "step:stop", role: member, repeats: true, fenced: "lost evicted",
		seed: func(w *world) {
			w.put("a")
			w.put("b")
			w.enqueue("c")
		},
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call: func(v *victim) error { return v.take().Stop(v.ctx) },
	},
	{
		name: "retry under key", wire: "step:retry", role: member, repeats: true, fenced: "lost evicted",
		seed: func(w *world) {
			w.put("a")
			w.enqueue("b", "c")
		},
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"},
		call: func(v *victim) error { return v.take().Retry(v.ctx, 0) },
		left: either(added(0), []string{"a+1", "b", "c"}),
	},
	{
		name: "finish of unique", wire: "step:finish", role: member, repeats: true, fenced: "lost evicted",
		seed: func(w *world) {
			peertest.Must(w.t, w.queue.EnqueueUnique(w.t.Context(), []byte("a")))
			w.enqueue("b", "c")
		},
		ready: hold, held: []string{"a", "b"}, holds: []string{"b"}, ends: []string{"a"},
		call: func(v *victim) error { return v.take().Finish(v.ctx) },
		left: func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
	},
	{
		name: "acknowledge a cancel", wire: "step:ack", role: member, repeats: true, silent: true,
		ready: hold, held: []string{"b"}, holds: []string{"b"},
		meanwhile: func(w *world) { w.cancel("a") },
		call: func(v *victim) error {
			t := v.take()
			<-t.Context().Done()
			_ = t.Stop(v.ctx) // it may travel with the acknowledgement, and be as late
			<-v.gate.over
			return nil
		},
		left:  func(int) []string { return []string{"b", "c"} },
		after: func(w *world, _ int) { w.canceled(1) },
	},
}
