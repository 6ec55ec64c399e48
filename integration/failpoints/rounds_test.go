package failpoints_test

import (
	"errors"

	"github.com/worqr/worqr"
)

// take removes and returns the first task that the victim holds, for the call to end.
func (v *victim) take() *worqr.Task {
	t := v.tasks[0]
	v.tasks = v.tasks[1:]
	return t
}

// ending completes a scenario in which a member that holds the tasks a and b ends a.
func ending(how string, s scenario) *scenario {
	s.wire, s.role, s.repeats, s.fenced = "finish:"+how, member, true, "lost evicted"
	s.ready, s.held, s.holds = hold, []string{"a", "b"}, []string{"b"}
	return &s
}

// finishing completes a scenario in which a is finished.
func finishing(s scenario) *scenario {
	s.ends = []string{"a"}
	s.left = func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] }
	if s.call == nil {
		s.call = func(v *victim) error { return v.take().Finish(v.ctx) }
	}
	return ending("done", s)
}

func withResult(v *victim) error {
	t := v.take()
	t.Result = []byte("result")
	return t.Finish(v.ctx)
}

// starting completes a scenario in which a member gets a and b.
func starting(s scenario) *scenario {
	s.wire, s.role, s.repeats, s.fenced = "start", member, true, "evicted"
	s.ready, s.hands, s.holds = serve, true, []string{"a", "b"}
	s.call = func(v *victim) (err error) { v.tasks, err = v.queue.StartTasks(v.ctx, 2); return err }
	return &s
}

func stop(v *victim) error  { return v.take().Stop(v.ctx) }
func retry(v *victim) error { return v.take().Retry(v.ctx, 0) }

// rounds are the calls that travel in a worker's rounds.
var rounds = []*scenario{
	starting(scenario{name: "start"}),
	finishing(scenario{name: "finish"}),
	ending("stop", scenario{
		name: "stop", call: stop,
		left: either(added(0), []string{"b", "a", "c"}), // a returned first, so b is in front
	}),
	ending("retry", scenario{name: "retry", named: []string{"a"}, call: retry, left: either(added(0), []string{"a+1", "b", "c"})}),
	ending("fail", scenario{
		name:  "fail",
		call:  func(v *victim) error { return v.take().Fail(v.ctx, errors.New("no")) },
		left:  func(n int) []string { return []string{"a", "b", "c"}[min(n, 1):] },
		fails: func(n int) []string { return []string{"a"}[:min(n, 1)] },
	}),
	finishing(scenario{name: "finish under key", seed: func(w *world) {
		w.put("a")
		w.enqueue("b", "c")
	}}),
	ending("retry", scenario{
		name: "retry under key", named: []string{"a"}, call: retry,
		seed: func(w *world) {
			w.put("a")
			w.enqueue("b", "c")
		},
		left: either(added(0), []string{"a+1", "b", "c"}),
	}),
	{
		name: "end of what is canceled", wire: "finish:stop", role: member, repeats: true, silent: true,
		ready: hold, held: []string{"b"}, holds: []string{"b"},
		meanwhile: func(w *world) { w.cancel("a") },
		call: func(v *victim) error {
			t := v.take()
			<-t.Context().Done()
			_ = t.Stop(v.ctx)
			<-v.gate.over
			return nil
		},
		left:  func(int) []string { return []string{"b", "c"} },
		after: func(w *world, _ int) { w.canceled() },
	},
}
