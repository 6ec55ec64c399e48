package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// register writes the registration, which is there for people and tools to see, by a
// connection whose timeout suits the caller.
func (w *worker) register(ctx context.Context, by store.Runner, id string) error {
	f := w.fleet
	w.mu.Lock()
	var names []string
	for id, q := range w.wanted {
		if id == q.Name {
			names = append(names, id)
		}
	}
	w.mu.Unlock()
	slices.Sort(names)
	queues, _ := json.Marshal(names) // strings always marshal
	host, _ := os.Hostname()
	return store.Register(ctx, by, f.Space, id, w.ttl(), store.Registration{
		Name: f.Name, Host: host, PID: os.Getpid(), Started: w.started, Version: f.Version, Queues: string(queues), Lease: f.Lease,
		Stuck: f.Engine.Counts().Stuck.Load(),
	})
}

// outdate has the worker be announced again, in its next turn.
func (w *worker) outdate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated = true
}

// announce rewrites the registration, and lists the queues, if that is out of date.
// w.joining is held.
func (w *worker) announce(ctx context.Context) error {
	w.mu.Lock()
	if !w.outdated || w.evicted || w.closing {
		w.mu.Unlock()
		return nil
	}
	w.outdated = false
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

// ttl is how long the registration is there without a beat; 0 is forever. It is there
// for longer than it takes to fail a worker, so that who does knows whom.
func (w *worker) ttl() time.Duration {
	if w.fleet.Lease < 0 {
		return 0
	}
	return max(2*w.fleet.Lease, time.Second)
}

// pruneLater has the worker take the dead off the roster, once their registrations
// have ended. It does so some time after it started, since who has found a worker
// dead may itself have died before it could say so, and after it could not say so.
// That is enough: others start later.
func (w *worker) pruneLater() {
	if w.fleet.Lease < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune = time.Now().Add(w.ttl() * 3 / 2)
}

// isToPrune reports once that it is time to.
func (w *worker) isToPrune() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return isTime(&w.prune)
}

// isTime reports once that a time has come.
func isTime(t *time.Time) bool {
	if t.IsZero() || time.Now().Before(*t) {
		return false
	}
	*t = time.Time{}
	return true
}

// unregister removes registrations.
func (f *Fleet) unregister(ctx context.Context, ids ...string) error {
	return store.Unregister(ctx, f.Lines.Control, f.Space, ids...)
}

// registered is what is still registered of workers. It may not take long.
func (f *Fleet) registered(ctx context.Context, ids []string) map[string]store.Worker {
	ctx, cancel := context.WithTimeout(ctx, max(f.lease.Beat/4, 500*time.Millisecond))
	defer cancel()
	all := map[string]store.Worker{}
	for some := range slices.Chunk(ids, page) {
		workers, _ := store.Registrations(ctx, f.Lines.Calls, f.Space, some)
		for _, w := range workers {
			all[w.ID] = w
		}
	}
	return all
}
