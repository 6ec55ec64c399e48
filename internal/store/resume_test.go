package store

import "testing"

func resumes(e *env) string {
	if err := Resume(e.ctx, e.line, e.q); err != nil {
		return refused(err)
	}
	return "ok"
}

func TestGuardResume(t *testing.T) {
	t.Parallel()
	paused := state{"paused": "=1", "idle": "(w1=-1m)"}
	run(t, []scenario{
		{name: "contents of another type", alive: []string{"w1"}, seed: paused.with("contents", "=foreign"), steps: []when{{call: resumes, want: "WRONGTYPE"}}},
		{name: "a list of another type", alive: []string{"w1"}, seed: paused.with("queues", "=foreign"), steps: []when{{call: resumes, want: "ok", state: state{"queues": "=foreign", "idle": "(w1=-1m)"}}}},
	})
}
