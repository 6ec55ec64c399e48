package simulation

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// If the clock of Redis jumps ahead and a worker's lease is renewed by a round, that worker doesn't evict
// others whose leases the jump has ended.
func TestJumpEndsTheRightToJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Options{Seed: 1, Queues: []string{"q0"}, Fleet: 1, Lease: 3 * time.Second, Concurrency: 1, MaxCrashes: -1}
		w := newWorld(o)
		defer w.end()
		r := &run{opts: o, world: w, over: true, seen: map[string]func(*process, context.Context){}} // only this test enqueues
		p, tool := r.spawn(), r.tool("tool")
		busy := func(leases int) { // so that there are always rounds
			until := time.Now().Add(time.Duration(leases) * o.Lease)
			for ; time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
				if err := tool.peer.Queue("q0").Enqueue(context.Background(), fmt.Appendf(nil, "takes 10 at %v", w.now())); err != nil {
					t.Fatal(err)
				}
			}
		}
		type beat struct {
			at     time.Duration
			judges bool
		}
		var beats []beat
		r.locked(func() {
			w.told = func(args []string) {
				if req, _, _ := w.server.parse(args); req.verb == "heartbeat" {
					beats = append(beats, beat{w.now(), req.call.Int("judge") > 0})
				}
			}
		})
		// rights returns how many beats were sent, and how many with a right to judge.
		rights := func(from, to time.Duration) (sent, with int) {
			r.locked(func() {
				for _, b := range beats {
					if b.at >= from && b.at < to {
						sent++
						if b.judges {
							with++
						}
					}
				}
			})
			return sent, with
		}
		busy(3)
		jumped := w.now()
		if sent, with := rights(jumped-o.beat(), jumped); sent == 0 || with != sent {
			t.Errorf("%d of %d beats may judge before the clock jumps", with, sent)
		}
		r.locked(func() { w.server.jumped += time.Minute })
		busy(2)
		// The first beat can't know of the jump yet, and by the new time its right has ended.
		if sent, with := rights(jumped+o.beat(), jumped+o.Lease); sent == 0 || with > 0 {
			t.Errorf("%d of %d beats may judge when the clock has just jumped", with, sent)
		}
		now := w.now()
		if sent, with := rights(now-o.beat(), now); sent == 0 || with != sent {
			t.Errorf("%d of %d beats may judge when a lease has gone by", with, sent)
		}
		r.dismiss(tool)
		r.stop(p)
	})
}
