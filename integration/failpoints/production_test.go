package failpoints_test

import (
	"slices"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// added returns a, b and c, followed by more n times.
func added(n int, more ...string) []string {
	all := []string{"a", "b", "c"}
	for range n {
		all = append(all, more...)
	}
	return all
}

// either returns what waits before a call has taken effect, and after. The caller may modify the
// result.
func either(before, after []string) func(n int) []string {
	return func(n int) []string {
		return slices.Clone([][]string{before, after}[min(n, 1)])
	}
}

// productions are the calls that add tasks, and those that remove or change them.
var productions = []*scenario{
	{
		name: "enqueue", wire: "enqueue", twice: true, late: []string{"x", "y"}, again: []string{"x", "y"},
		call: func(v *victim) error { return v.queue.Enqueue(v.ctx, []byte("x"), []byte("y")) },
		left: func(n int) []string { return added(n, "x", "y") },
	},
	{
		name: "enqueue once", wire: "enqueue", late: []string{"x"},
		call: func(v *victim) error { return peertest.Failure(v.queue.EnqueueOnce(v.ctx, "nonce", []byte("x"))) },
		left: func(n int) []string { return added(n, "x") },
	},
	{
		name: "put", wire: "add", late: []string{"x"}, again: []string{"x"},
		call: func(v *victim) error {
			return peertest.Failure(v.queue.Add(v.ctx, worqr.TaskSpec{Key: "key", Payload: []byte("x")}))
		},
		left: either(added(0), []string{"x", "a", "b", "c"}),
	},
	{
		name: "cancel of what runs", wire: "cancel",
		seed: func(w *world) {
			w.enqueue("x", "a", "x", "b", "c")
			w.hold(1)
		},
		call:  func(v *victim) error { return peertest.Failure(v.queue.Cancel(v.ctx, []byte("x"))) },
		left:  either([]string{"x", "a", "x", "b", "c"}, added(0)),
		after: func(w *world, n int) { w.stop(n > 0) },
	},
	{
		name: "cancel of a key", wire: "remove",
		seed: func(w *world) {
			w.put("x")
			w.hold(1)
			w.put("x")
			w.enqueue("a", "b", "c")
		},
		call: func(v *victim) error { return peertest.Failure(v.queue.CancelKey(v.ctx, "x")) },
		left: func(n int) []string {
			return []string{"x", "a", "b", "c"}[min(n, 1):] // both were put under one key
		},
		after: func(w *world, n int) { w.stop(n > 0) },
	},
	{
		name: "requeue", wire: "requeue", late: []string{"x"},
		seed: func(w *world) {
			w.enqueue("x")
			w.failFirst()
			w.enqueue("a", "b", "c")
		},
		call:  func(v *victim) error { return peertest.Failure(v.queue.RequeueAllFailed(v.ctx)) },
		left:  func(n int) []string { return added(min(n, 1), "x") },
		fails: func(n int) []string { return []string{"x"}[min(n, 1):] },
	},
}
