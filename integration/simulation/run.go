package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A run is one fleet from its beginning to its end.
type run struct {
	opts  *Options
	world *world
	alone sync.Mutex // held by each fault of the server; never waited for

	// Guarded by the mu of the world:
	spawned int
	recent  []string                                         // payloads
	keys    []added                                          // of tasks that may be canceled
	snoozed map[string]int                                   // by payload: how many times a handler has snoozed it
	retired bool                                             // nothing recurs anymore
	over    bool                                             // producers should stop
	healed  bool                                             // there are no more faults
	stored  int                                              // tasks that peers have counted as finished
	seen    map[string]func(p *process, ctx context.Context) // by payload: called when a handler starts it
}

// Run runs the simulation. It must be called in a bubble of testing/synctest.
// First there are faults, and the invariants must hold at every moment. Then
// there are none, and all deadlines must be kept; the remaining tasks are run,
// the fleet leaves, and no keys stay.
func Run(o *Options) *Report {
	w := newWorld(o)
	r := &run{opts: o, world: w, seen: map[string]func(*process, context.Context){}, snoozed: map[string]int{}}
	w.mu.Lock()
	w.server.mute, w.copies, w.deaf = o.Mute, o.Copies, o.Deaf
	w.mu.Unlock()

	r.safety()
	r.liveness()

	w.mu.Lock()
	report := &Report{figures: w.figures, verdict: w.judge.verdict, Runs: 1, Wrong: w.judge.wrong}
	if len(report.Wrong) > 0 {
		report.Trace = w.record.all.Bytes()
	}
	w.mu.Unlock()
	w.end()
	return report
}

// locked calls do while the world stands still.
func (r *run) locked(do func()) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	do()
}

func (r *run) isOver() bool {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	return r.over
}

// wrong reports whether an invariant was broken: then the rest of the run is
// meaningless.
func (r *run) wrong() bool {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	return len(r.world.judge.wrong) > 0
}

// safety is the phase with faults.
func (r *run) safety() {
	var all sync.WaitGroup
	for range r.opts.Fleet {
		r.spawn()
	}
	time.Sleep(2 * r.opts.Lease)
	d := r.opts.dice("faults")
	end := time.Now().Add(r.opts.Safety)
	for time.Now().Before(end) && !r.wrong() {
		time.Sleep(time.Duration(d.ExpFloat64() * float64(r.opts.Calm)))
		if len(r.opts.Faults) > 0 {
			f, own := pick(d, r.opts.Faults...), rand.New(rand.NewPCG(d.Uint64(), 0))
			r.locked(func() { r.world.record.note(r.world.now(), "-", "fault: "+f.name) })
			all.Go(func() { f.do(r, own) })
		}
		r.reinforce()
	}
	all.Wait()
}

// living returns the processes that serve queues.
func (r *run) living() (all []*process) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	for _, p := range r.world.all {
		if p.served && !p.dead && !p.stopped {
			all = append(all, p)
		}
	}
	return all
}

// reinforce replaces the processes that have gone.
func (r *run) reinforce() {
	for len(r.living()) < r.opts.Fleet {
		r.spawn()
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var rest []*process // the others aren't needed anymore
	for _, p := range r.world.all {
		select {
		case <-p.ended:
			if len(p.links) > 0 {
				rest = append(rest, p)
			}
		default:
			rest = append(rest, p)
		}
	}
	r.world.all = rest
}

// stop makes a process leave, and waits for that.
func (r *run) stop(p *process) {
	r.locked(func() { p.stopped = true })
	p.cancel()
	<-p.ended
}
