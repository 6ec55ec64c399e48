package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/lane"
)

// Bounds for the time without faults. The pace of beats is part of the protocol;
// the rest allows for round trips.
const (
	settling = 15 * time.Second // until lost connections have been noticed
	draining = 10 * time.Minute // for the backlog to shrink
)

// liveness is the phase without faults.
func (r *run) liveness() {
	r.heal()
	if !r.wrong() {
		r.reinforce()
		time.Sleep(settling + 4*r.opts.Lease)
		r.assembled()
		r.drain()
	}
	if !r.wrong() && r.opts.Recurring {
		r.probeRecurring()
		r.retire()
		r.drain()
	}
	if !r.wrong() {
		r.probe()
	}
	r.leave()
	r.locked(func() {
		w := r.world
		w.Simulated = w.now()
		if lost := w.Rollbacks + w.Wipes; lost == 0 && r.stored > w.judge.Finished {
			w.judge.violation("the peers count %d finished tasks, but there were %d", r.stored, w.judge.Finished)
		}
	})
	if !r.wrong() {
		r.nothingLeft()
	}
}

func (r *run) violation(format string, args ...any) {
	r.locked(func() { r.world.judge.violation(format, args...) })
}

// heal ends all faults.
func (r *run) heal() {
	r.locked(func() {
		w := r.world
		w.record.note(w.now(), "-", "faults are over")
		r.over, r.healed = true, true
		w.copies, w.deaf, w.delay = 0, 0, r.opts.Latency
		for _, p := range w.all {
			for l := range p.links {
				if l.up.lost || l.down.lost {
					l.reset()
				}
			}
		}
	})
}

// assembled checks that every process serves every queue again, whatever happened
// to it.
func (r *run) assembled() {
	r.locked(func() {
		j := r.world.judge
		for _, name := range r.opts.Queues {
			serve := map[*process]bool{}
			for w := range j.lane(name, false).Workers {
				serve[j.homes[w]] = true
			}
			for _, p := range r.world.all {
				if p.served && !p.dead && !p.stopped && !serve[p] {
					j.violation("%s lives, but doesn't serve %s", p.name, name)
				}
			}
		}
	})
}

// drain checks that all remaining tasks are done.
func (r *run) drain() {
	tool := r.tool("tool")
	defer r.dismiss(tool)
	for fewest, since := math.MaxInt, time.Now(); ; {
		left := 0
		for _, name := range r.opts.Queues {
			q := tool.peer.Queue(name)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := q.Resume(ctx)
			if err == nil {
				_, err = q.RequeueAllFailed(ctx)
			}
			cancel()
			if err != nil {
				r.violation("this fails without faults: %v", err)
				return
			}
		}
		time.Sleep(time.Second)
		r.locked(func() {
			for _, all := range r.world.judge.places {
				for payload := range all {
					if r.retired || !isRecurring(payload) {
						left++
					}
				}
			}
		})
		switch {
		case left == 0:
			return
		case left < fewest: // a small fleet may have much to do
			fewest, since = left, time.Now()
		case time.Since(since) > draining+r.behind():
			r.violation("without faults, the backlog stays at %d tasks or more: %s", fewest, r.rest())
			return
		}
	}
}

// rest describes what is left.
func (r *run) rest() string {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.world.judge.lanes)) {
		l := r.world.judge.lanes[name]
		if len(l.Waiting)+len(l.Process)+len(l.Tasks) > 0 {
			fmt.Fprintf(&b, "%s at %d: waiting %q, working %v of %v, named %.1000v, ready %v, schedule %v, risky %v, next %.1000v, runs %v, members %v, suspects %v, leaving %v, idle %v, state %v, crashes %v; ",
				name, r.world.judge.ms(), l.Waiting, l.Working, l.Process, l.Tasks, l.Ready, l.Schedule, l.Risky, l.Next, l.Runs, l.Workers, l.Suspects, l.Leaving, l.Idle, l.State, l.Crashes)
		}
	}
	return b.String()
}

// dismiss closes the peer of a tool.
func (r *run) dismiss(p *process) {
	p.cancel()
	_ = p.peer.Close() // it has no worker
}

// probe measures how long it takes until a task starts, until a due task starts,
// until a cancel arrives, and until the tasks of a killed process start
// elsewhere.
func (r *run) probe() {
	tool := r.tool("probe")
	defer r.dismiss(tool)
	d := r.opts.dice("probe")
	trips := 20*time.Millisecond + 40*r.opts.Latency
	look := trips // a message makes the worker look
	if r.opts.Mute {
		look = r.opts.beat()*5/4 + trips
	}
	for n := range 5 {
		q := tool.peer.Queue(pick(d, r.opts.Queues...))
		time.Sleep(r.opts.Lease + time.Duration(d.Float64()*float64(r.opts.Lease)))
		r.world.Wake = max(r.world.Wake, r.expect(look, "a task starts", fmt.Sprintf("takes 10 wake %d", n), func(payload string) error {
			return q.Enqueue(context.Background(), []byte(payload))
		}))

		in := time.Duration(d.Float64() * float64(5*time.Second)).Round(time.Millisecond)
		at := time.Now().Add(in + r.skew())
		took := r.expect(in+look, "a due task starts", fmt.Sprintf("takes 10 due %d", n), func(payload string) error {
			_, err := q.Add(context.Background(), worqr.TaskSpec{Key: "probe", Payload: []byte(payload), At: at})
			return err
		})
		if took < in {
			r.violation("a task started after %v, but was due after %v", took, in)
		}
		r.world.Due = max(r.world.Due, took-in)
	}
	r.probeCancel(tool, look)
	if r.opts.Fleet > 1 {
		r.probeDeath(tool)
	}
	r.drain()
}

// skew returns how far the clock of Redis is ahead.
func (r *run) skew() (d time.Duration) {
	r.locked(func() { d = r.world.server.jumped })
	return d
}

// behind returns how far the clock of Redis has been set back in total. Leases of workers that
// died before end that much later, and scheduled tasks become due that much later.
func (r *run) behind() (d time.Duration) {
	r.locked(func() { d = r.world.back })
	return d
}

// signal notifies a receiver, unless many notifications are pending: a slow receiver must not block.
func signal(what chan<- struct{}) {
	select {
	case what <- struct{}{}:
	default:
	}
}

// expect checks that a handler starts a task in time, and returns how long it
// took.
func (r *run) expect(within time.Duration, what, payload string, hand func(payload string) error) time.Duration {
	begun := make(chan struct{}, 100)
	r.locked(func() { r.seen[payload] = func(*process, context.Context) { signal(begun) } })
	began := time.Now()
	if err := hand(payload); err != nil {
		r.violation("%s: %v", what, err)
		return 0
	}
	select {
	case <-begun:
		took := time.Since(began)
		if took > within {
			r.violation("it takes %v until %s, but may take %v", took, what, within)
		}
		return took
	case <-time.After(time.Minute):
		r.violation("it takes more than a minute until %s: %s", what, r.rest())
	}
	return 0
}

// probeCancel measures how long it takes until a handler receives a cancel, and
// until its caller learns that it has ended.
func (r *run) probeCancel(tool *process, look time.Duration) {
	const payload = "takes 30000 cancel"
	heard := make(chan struct{}, 100)
	q := tool.peer.Queue(r.opts.Queues[0])
	r.expect(time.Minute, "a long task starts", payload, func(payload string) error {
		r.locked(func() {
			begun := r.seen[payload]
			r.seen[payload] = func(p *process, ctx context.Context) {
				begun(p, ctx)
				context.AfterFunc(ctx, func() {
					if errors.Is(context.Cause(ctx), worqr.ErrCanceled) {
						signal(heard)
					}
				})
			}
		})
		return q.Enqueue(context.Background(), []byte(payload))
	})
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	report, err := q.Cancel(context.Background(), []byte(payload))
	if err != nil {
		r.violation("a cancel fails: %v", err)
		return
	}
	within := r.opts.beat()*3/2 + 20*r.opts.Latency
	if !r.opts.Mute {
		within = look
	}
	select {
	case <-heard:
		took := time.Since(began)
		r.world.figures.Cancel = max(r.world.figures.Cancel, took)
		if took > within {
			r.violation("it takes %v until a handler receives a cancel, but may take %v", took, within)
		}
	case <-time.After(time.Minute):
		r.violation("no handler receives a cancel within a minute: %s", r.rest())
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := report.Wait(ctx); err != nil || report.Removed != 0 {
		r.violation("the cancel of one running task reports %d and %v", report.Removed, err)
	}
}

// probeDeath measures how long it takes until the tasks of a killed process start
// elsewhere.
func (r *run) probeDeath(tool *process) {
	if r.opts.MaxCrashes == 1 {
		return // after one crash, its tasks fail instead of starting again
	}
	fleet := r.living()
	holders := make(chan *process, 1000)
	q := tool.peer.Queue(r.opts.Queues[0])
	for n := range 2 * len(fleet) {
		payload := fmt.Sprintf("takes 1000 death %d", n)
		r.locked(func() { r.seen[payload] = func(p *process, _ context.Context) { holders <- p } })
		if err := q.Enqueue(context.Background(), []byte(payload)); err != nil {
			r.violation("an enqueue fails: %v", err)
			return
		}
	}
	victim := <-holders
	var held []string
	r.locked(func() {
		held = r.heldBy(victim)
		r.world.Kills++
		victim.kill(false)
	})
	began := time.Now()
	begun := map[string]bool{}
	r.locked(func() {
		for _, payload := range held {
			r.seen[payload] = func(*process, context.Context) { begun[payload] = true }
		}
	})
	within := r.opts.Lease*3/2 + 100*r.opts.Latency
	for left := len(held); left > 0; {
		time.Sleep(time.Millisecond)
		r.locked(func() { left = len(r.heldBy(victim)) })
		took := time.Since(began)
		r.world.Recover = max(r.world.Recover, took)
		if took > within {
			r.violation("it takes more than %v until the tasks of a killed process are returned: %s", took, r.rest())
			return
		}
	}
	limit := time.Now().Add(time.Minute + time.Duration(len(held))*2*time.Second) // as there are slots
	for left := len(held); left > 0; {
		time.Sleep(10 * time.Millisecond)
		left = 0
		r.locked(func() {
			for _, payload := range held {
				if !begun[payload] && r.world.judge.places[q.Name()][payload] > 0 { // otherwise it was done
					left++
				}
			}
		})
		if time.Now().After(limit) {
			r.violation("%d tasks of a killed process don't start in time: %s", left, r.rest())
			return
		}
	}
}

// heldBy returns what the workers of a process hold. The caller holds the mu of the world.
func (r *run) heldBy(p *process) (held []string) {
	for _, l := range r.world.judge.lanes {
		for id, w := range l.Owner {
			if r.world.judge.homes[w] == p {
				held = append(held, l.Payload(id))
			}
		}
	}
	return held
}

// leave makes all processes stop.
func (r *run) leave() {
	for _, p := range r.living() {
		r.stop(p)
		if p.result != nil && !r.wrong() {
			r.violation("%s leaves with the error %v", p.name, p.result)
		}
	}
	r.world.mu.Lock()
	all := slices.Clone(r.world.all)
	r.world.mu.Unlock()
	for _, p := range all {
		<-p.ended
	}
}

// nothingLeft checks that an idle, empty and unserved queue leaves only the keys
// that it may.
func (r *run) nothingLeft() {
	time.Sleep(11*time.Minute + r.behind()) // nonces and records of cancels expire by then, and leases
	tool := r.tool("broom")
	for range 2 { // an expired worker becomes a suspect first
		if _, err := tool.peer.Sweep(context.Background()); err != nil {
			r.violation("the final sweep fails: %v", err)
		}
		time.Sleep(r.opts.Lease)
	}
	r.dismiss(tool)
	r.locked(func() {
		s := r.world.server
		s.begin()
		s.do(request{verb: "GET", args: []string{"-"}}, nil) // lets keys expire
		for _, key := range s.store.Keys() {
			_, _, kind, _, ok := lane.Place(prefix, key)
			if key != prefix+"notes" && key != prefix+"registry" && key != prefix+"protocol" && !(ok && (kind == "state" || kind == "history")) {
				r.world.judge.violation("%s is left: %v", key, s.read(key))
			}
		}
	})
}
