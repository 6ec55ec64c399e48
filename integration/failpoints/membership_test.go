package failpoints_test

import (
	"cmp"
	"time"
)

// serve has the victim serve the queue.
func serve(v *victim) error {
	return cmp.Or(v.peer.StartWorker(v.ctx), v.queue.StartWork(v.ctx))
}

// hold has it serve the queue and take two tasks.
func hold(v *victim) (err error) {
	if err = serve(v); err == nil {
		v.tasks, err = v.queue.StartTasks(v.ctx, 2)
	}
	return err
}

// memberships are the calls by which a peer comes, stays and goes.
var memberships = []*scenario{
	{
		name: "register", wire: "register", role: stranger,
		call: func(v *victim) error { return v.peer.StartWorker(v.ctx) },
	},
	{
		name: "join", wire: "join", role: comer,
		ready: func(v *victim) error { return v.peer.StartWorker(v.ctx) },
		call:  func(v *victim) error { return v.queue.StartWork(v.ctx) },
	},
	{
		name: "list", wire: "enlist:registry", role: member, silent: true,
		ready: func(v *victim) error { return v.peer.StartWorker(v.ctx) },
		call:  func(v *victim) error { return v.queue.StartWork(v.ctx) },
	},
	{
		name: "beat", wire: "beat", role: member, silent: true, lease: 3 * time.Second,
		ready: hold, held: []string{"a", "b"}, holds: []string{"a", "b"},
		call: func(v *victim) error {
			<-v.gate.over // of the next beat
			return nil
		},
	},
	{
		name: "leave", wire: "leave", role: goer, repeats: true, fenced: "ok",
		ready: hold, held: []string{"a", "b"},
		call: func(v *victim) error { return v.queue.StopWork(v.ctx) },
	},
	{
		name: "unregister", wire: "DEL", role: stranger, repeats: true,
		ready: hold,
		call:  func(v *victim) error { return v.peer.StopWorker(v.ctx) },
	},
}
