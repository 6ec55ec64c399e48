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

// The clock of Redis is ahead by a year for three seconds. The task of a worker that dies meanwhile starts on
// another one, and schedules go on, once the clock is right again.
func TestClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		o := &Options{Seed: 1, Queues: []string{"q0"}, Fleet: 2, Lease: 3 * time.Second, Concurrency: 1, MaxCrashes: -1, Recurring: true}
		w := newWorld(o)
		defer w.end()
		r := &run{opts: o, world: w, over: true, seen: map[string]func(*process, context.Context){}} // only this test enqueues
		all, tool := []*process{r.spawn(), r.spawn()}, r.tool("tool")
		time.Sleep(5 * time.Second)
		const payload = "takes 10000 ms"
		starts := make(chan *process, 10)
		r.locked(func() {
			r.seen[payload] = func(p *process, _ context.Context) { starts <- p }
			w.server.jumped += year
		})
		if err := tool.peer.Queue("q0").Enqueue(context.Background(), []byte(payload)); err != nil {
			t.Fatal(err)
		}
		victim := <-starts
		time.Sleep(3 * time.Second)
		r.locked(func() {
			victim.kill(false)
			w.server.jumped -= year
			w.back += year
			clear(w.judge.occurs)
		})
		select {
		case <-starts:
		case <-time.After(3 * o.Lease):
			t.Error("the task of a worker that died doesn't start")
		}
		time.Sleep(2 * time.Minute)
		r.locked(func() {
			for n := range schedules {
				if of := w.judge.occurs["q0 k:"+recurringKey(n)]; of == nil || len(of.all) == 0 {
					t.Errorf("%s doesn't occur", recurringKey(n))
				}
			}
		})
		r.dismiss(tool)
		for _, p := range all {
			if p != victim {
				r.stop(p)
			}
		}
	})
}
