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

// register writes the registration, which is for people and tools, on a connection with a timeout
// that suits the caller.
func (w *worker) register(ctx context.Context, by store.Runner, id string) error {
	f := w.fleet
	w.mu.Lock()
	names := []string{}
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
		Stuck: f.Engine.Counts().Stuck.Load(), Protocol: f.Protocol.Newest,
	})
}

// outdate makes the worker rewrite its registration in its next turn.
func (w *worker) outdate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated = true
}

// listEvery is how often a worker lists its queues again in a cluster. There, a peer that removes a
// name from the list can't check in the same step whether it's in use. It checks again afterwards,
// but may die before that.
const listEvery = time.Minute

// announce rewrites the registration and the list of queues if they are out of date. The caller
// holds w.joining.
func (w *worker) announce(ctx context.Context) error {
	w.mu.Lock()
	again := isTime(&w.list)
	if again {
		w.list = time.Now().Add(listEvery)
	}
	if !w.outdated && !again || w.evicted || w.closing {
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

// ttl returns how long the registration lasts without a beat; 0 is forever. It outlasts the
// worker's eviction, so that the log can contain its name.
func (w *worker) ttl() time.Duration {
	if w.fleet.Lease < 0 {
		return 0
	}
	return max(2*w.fleet.Lease, time.Second)
}

// pruneLater makes the worker remove dead workers from the roster, once their registrations have
// expired. A worker removes them some time after it starts, in case a peer died after it evicted a
// worker and before it updated the roster, and again if its own update failed. That's enough, since
// other workers start later.
func (w *worker) pruneLater() {
	if w.fleet.Lease < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune = time.Now().Add(w.ttl() * 3 / 2)
}

func (w *worker) pruneIsDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return isTime(&w.prune)
}

// isTime reports once that a time has come, and resets it.
func isTime(t *time.Time) bool {
	if t.IsZero() || time.Now().Before(*t) {
		return false
	}
	*t = time.Time{}
	return true
}

func (f *Fleet) unregister(ctx context.Context, ids ...string) error {
	return store.Unregister(ctx, f.Lines.Control, f.Space, ids...)
}

// registered returns the registrations of the workers that still have one. It gives up soon.
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
