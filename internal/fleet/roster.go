package fleet

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// register writes the registration, which is for people and tools, on a connection with a timeout
// that suits the caller.
func (w *worker) register(ctx context.Context, by store.Runner, id string) error {
	f := w.fleet
	names, slots := []string{}, 0
	w.mu.Lock()
	wanted := slices.Collect(maps.Values(w.wanted))
	w.mu.Unlock()
	for _, q := range wanted {
		if q.ID != q.Name {
			continue
		}
		names = append(names, q.ID)
		if q.Handled {
			slots += q.Engine.Options().Concurrency
		}
	}
	slices.Sort(names)
	stuck := f.Engine.Counts.Stuck()
	for i, id := range stuck {
		stuck[i], _ = nameOf(id)
	}
	stuck = slices.Compact(stuck)
	w.mu.Lock()
	switch {
	case len(stuck) == 0:
		w.stuckSince = time.Time{}
	case w.stuckSince.IsZero():
		w.stuckSince = time.Now()
	}
	since, ahead := w.stuckSince, w.aheadLocked()
	w.mu.Unlock()
	host, _ := os.Hostname()
	return store.Register(ctx, by, f.Space, w.ttl(), store.Worker{
		ID: id, Name: f.Name, Host: host, PID: os.Getpid(), StartedAt: w.started, Version: f.Version, Queues: names, Lease: f.Lease, Slots: slots,
		StuckHandlers: int(f.Engine.Counts.Sum().Stuck.Load()), StuckQueues: stuck, StuckSince: since, ClockAhead: ahead, Protocol: f.Protocol.Newest,
	})
}

// outdate makes the worker write its registration and the names of its queues in its next turn.
func (w *worker) outdate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announced = time.Time{}
}

// announceEvery is how often a worker lists its queues again in a cluster. There, a peer that removes a
// name from the list can't check in the same step whether it's in use. It checks again afterwards,
// but may die before that.
const announceEvery = time.Minute

// announce writes the registration and the names of the queues, if they are out of date. The caller
// holds w.joining.
func (w *worker) announce(ctx context.Context) error {
	now := time.Now()
	w.mu.Lock()
	again := w.fleet.Lines.InCluster() && now.Sub(w.announced) >= announceEvery
	if !w.announced.IsZero() && !again || w.evicted || w.closing {
		w.mu.Unlock()
		return nil
	}
	w.announced = now
	id := w.id
	var names []string
	for _, q := range w.wanted {
		names = append(names, q.Name)
	}
	w.mu.Unlock()
	control := w.fleet.Lines.Control
	err := cmp.Or(store.List(ctx, control, w.fleet.Space, names...), w.register(ctx, control, id))
	if err != nil {
		w.outdate()
	}
	return err
}

// ttl returns how long the registration lasts without a heartbeat; 0 is forever. It outlasts the
// worker's eviction, so that the log can contain its name.
func (w *worker) ttl() time.Duration { return store.TTL(w.fleet.Lease) }

// pruneEvery is how often a worker looks for workers on the roster that have died without being evicted by a live
// peer, or without a queue. It does so sooner at first, and if Redis has refused that.
const pruneEvery = time.Hour

// tidy removes the registrations of workers that were evicted a while ago, and sometimes looks for dead ones.
func (w *worker) tidy(ctx context.Context) {
	f, now := w.fleet, time.Now()
	w.mu.Lock()
	var dead []string
	for id, at := range w.dead {
		if now.Sub(at) >= nameless*f.times.Beat/4 {
			dead = append(dead, id)
			delete(w.dead, id)
		}
	}
	prune := !now.Before(w.prune)
	w.mu.Unlock()
	var err error
	if len(dead) > 0 {
		err = store.Unregister(ctx, f.Lines.Calls, f.Space, dead...) // or they expire
	}
	if prune {
		again := pruneEvery
		failed := store.PruneSome(ctx, f.Lines.Calls, f.Space)
		if failed != nil {
			again = w.pruneSoon()
		}
		err = cmp.Or(err, failed)
		w.mu.Lock()
		w.prune = now.Add(again)
		w.mu.Unlock()
	}
	if err != nil {
		f.Log.Debug("worqr: removing the registrations of dead workers", "workers", len(dead), "err", err)
	}
}

// pruneSoon returns after how long those that are dead now have no registration anymore.
func (w *worker) pruneSoon() time.Duration { return max(w.ttl(), time.Second) * 3 / 2 }

// nameless is how long a dead worker stays on the roster, in fourths of the time between two
// heartbeats. A round renews the lease on one queue only, so the lease may expire a heartbeat later
// on another queue, which is noticed a heartbeat after that. Until then, other peers read its name.
const nameless = 9

// registered returns the registrations of workers that still have one, by id, of at most a page. It gives up soon.
func (f *Fleet) registered(ctx context.Context, ids []string) map[string]store.Worker {
	ctx, cancel := context.WithTimeout(ctx, max(f.times.Beat/4, 2*time.Second))
	defer cancel()
	all := map[string]store.Worker{}
	workers, _ := store.Registrations(ctx, f.Lines.Calls, f.Space, ids[:min(len(ids), page)])
	for _, w := range workers {
		all[w.ID] = w
	}
	return all
}
