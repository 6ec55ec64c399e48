package failpoints_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/peertest"
)

// begin starts the victim's worker. Like Run, it retries until that succeeds, since the machine may
// be too busy at first.
func begin(v *victim) (err error) {
	for deadline := time.Now().Add(peertest.Patience); ; {
		if err = v.peer.StartWorker(v.ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// serve makes the victim serve the queue.
func serve(v *victim) (err error) {
	if err = begin(v); err != nil {
		return err
	}
	for deadline := time.Now().Add(peertest.Patience); ; {
		if err = v.queue.StartWork(v.ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// hold makes the victim serve the queue and take two tasks.
func hold(v *victim) (err error) {
	if err = serve(v); err == nil {
		v.tasks, err = v.queue.StartTasks(v.ctx, 2)
	}
	return err
}

// memberships are the calls with which a peer joins, stays and leaves.
var memberships = []*scenario{
	{
		name: "join", wire: "join", role: comer,
		ready: begin,
		call:  func(v *victim) error { return v.queue.StartWork(v.ctx) },
	},
	{
		name: "heartbeat", wire: "heartbeat", role: member, silent: true, lease: 3 * time.Second,
		ready: hold, held: []string{"a", "b"}, holds: []string{"a", "b"},
		call: func(v *victim) error {
			<-v.gate.over // waits for the next beat
			return nil
		},
	},
	{
		name: "leave", wire: "leave", role: goer, repeats: true, fenced: "ok",
		ready: hold, held: []string{"a", "b"},
		call: func(v *victim) error { return v.queue.StopWork(v.ctx) },
	},
	{
		// It takes two calls. If another peer makes the second, no crash is counted.
		name: "leave with many", wire: "leave", role: goer, repeats: true, fenced: "ok",
		seed:  func(w *world) { w.enqueue(many...) },
		ready: holdMany,
		held:  many,
		call:  func(v *victim) error { return v.queue.StopWork(v.ctx) },
		left:  func(int) []string { return slices.Clone(many) },
	},
	{
		// Another peer holds the tasks, which return in two calls.
		name: "evict", wire: "evict", role: stranger,
		seed:      func(w *world) { w.enqueue(many...) },
		meanwhile: func(w *world) { w.patient(len(many)) },
		call: func(v *victim) error {
			for id, err := range v.queue.Running(v.ctx) {
				if err != nil {
					return err
				}
				_, err = v.peer.FailWorker(v.ctx, id.WorkerID)
				return err
			}
			return errors.New("no worker holds a task")
		},
		left: func(n int) []string {
			all := slices.Clone(many)
			for i := range all {
				if n > 0 {
					all[i] += "!"
				}
			}
			return all
		},
		after: func(w *world, n int) { w.parted(n > 0) },
	},
}

// many are more tasks than one call returns to the queue.
var many = func() (all []string) {
	for i := range 150 {
		all = append(all, fmt.Sprint(i))
	}
	return all
}()

// holdMany makes the victim hold all of them.
func holdMany(v *victim) (err error) {
	if err = serve(v); err == nil {
		v.tasks, err = v.queue.StartTasks(v.ctx, len(many))
	}
	return err
}
