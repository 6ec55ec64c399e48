package store

import "testing"

var _ = probed("resume",
	probe{seed: busy, call: resumes},
	probe{what: "the schedule", seed: busyLane, call: resumes},
)

func resumes(e *env) string {
	return said(Resume(e.ctx, e.line, e.q), "ok")
}

func TestResume(t *testing.T) {
	idle := state{"idle": "(w1=-3m w2=-2m w3=-1m)"}
	timed := state{"idle": "(w2=-1m w3=clock:-2m)"}
	paused := state{"paused": "=1", "idle": "(w1=-1m)"}
	run(t, []scenario{
		{name: "resume", alive: []string{"w1", "w2"}, seed: idle.with("paused", "=1", "queues", "[a b]"), steps: []when{
			{call: resumes, want: "ok", state: state{"queues": "[a b]", "idle": "(w3=-1m)"}, heard: []string{"wake:w1 2", "wake:w2 2"}}}},
		{name: "added tasks wake", alive: []string{"w1", "w2"}, seed: idle.with("paused", "=1", "added", "|1-0-a/0=x 1-1-a/0=y|"), steps: []when{
			{call: resumes, want: "ok", state: state{"added": "|1-0-a/0=x 1-1-a/0=y|", "idle": "(w3=-1m)"}, heard: []string{"wake:w1 2", "wake:w2 2"}}}},
		{name: "due tasks wake workers", alive: []string{"w2", "w3"}, seed: timed.with("paused", "=1", "queues", "[z]", "schedule", "(k:x=-1m k:y=+9m)"), steps: []when{
			{call: resumes, want: "ok", heard: []string{"wake:w2 2", "wake:w3 2"}, state: state{"queues": "[z]", "schedule": "(k:x=-1m k:y=+9m)"}}}},
		{name: "contents of another type", alive: []string{"w1"}, seed: paused.with("contents", "=foreign"), steps: []when{{call: resumes, want: "WRONGTYPE"}}},
		{name: "a list of another type", alive: []string{"w1"}, seed: paused.with("queues", "=foreign"), steps: []when{{call: resumes, want: "ok", state: state{"queues": "=foreign", "idle": "(w1=-1m)"}}}},
	})
}
