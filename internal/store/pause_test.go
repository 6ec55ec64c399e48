package store

import "testing"

var _ = probed("pause",
	probe{seed: busy.with("paused", ""), call: pauses},
)

func pauses(e *env) string {
	return said(Pause(e.ctx, e.line, e.q), "ok")
}

func TestPause(t *testing.T) {
	idle := state{"idle": "(w1=-3m w2=-2m w3=-1m)"}
	run(t, []scenario{
		{name: "pause", seed: idle, steps: []when{
			{call: pauses, want: "ok", state: idle.with("paused", "=1")},
			{call: pauses, want: "ok"}}},
	})
}
