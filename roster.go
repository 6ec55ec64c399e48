package worqr

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// register writes the registration, which is there for people and tools to see, by a
// connection whose timeout suits the caller.
func (w *worker) register(ctx context.Context, by *redisconn.Line, id string) error {
	p := w.peer
	w.mu.Lock()
	var names []string
	for id, q := range w.wanted {
		if id == q.name {
			names = append(names, id)
		}
	}
	slices.Sort(names)
	queues, _ := json.Marshal(names) // strings always marshal
	w.mu.Unlock()
	host, _ := os.Hostname()
	return store.Register(ctx, by, p.space, id, w.ttl(), store.Registration{
		Name: p.opts.Name, Host: host, PID: os.Getpid(), Started: w.started, Version: Version, Queues: string(queues), Lease: p.opts.Lease,
		Stuck: p.engine.Counts().Stuck.Load(),
	})
}

// outdate has the worker be announced again, in its next turn.
func (w *worker) outdate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated = true
}

// outdate does so for the present worker.
func (p *Peer) outdate() {
	if w := p.present(); w != nil {
		w.outdate()
	}
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
		names = append(names, q.name)
	}
	w.mu.Unlock()
	err := cmp.Or(store.List(ctx, w.peer.control, w.peer.space, names...), w.register(ctx, w.peer.control, id))
	if err != nil {
		w.outdate()
	}
	return err
}

// ttl is how long the registration is there without a beat; 0 is forever. It is there
// for longer than it takes to fail a worker, so that who does knows whom.
func (w *worker) ttl() time.Duration {
	if w.peer.opts.Lease < 0 {
		return 0
	}
	return max(2*w.peer.opts.Lease, time.Second)
}

// pruneLater has the worker take the dead off the roster, once their registrations
// have ended. It does so some time after it started, since who has found a worker
// dead may itself have died before it could say so, and after it could not say so.
// That is enough: others start later.
func (w *worker) pruneLater() {
	if w.peer.opts.Lease < 0 {
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
	if w.prune.IsZero() || time.Now().Before(w.prune) {
		return false
	}
	w.prune = time.Time{}
	return true
}

// unregister removes registrations.
func (p *Peer) unregister(ctx context.Context, ids ...string) error {
	return store.Unregister(ctx, p.control, p.space, ids...)
}

// A Worker is a registered peer.
type Worker struct {
	ID            string
	Name          string
	Host          string
	PID           int
	StartedAt     time.Time // by the clock of the peer
	Version       string    // of this library
	Queues        []string  // that it serves
	Lease         time.Duration
	StuckHandlers int // handlers that ignore that their context has ended
}

// Workers yields the registered peers, but not those that were silent for two leases,
// malformed entries, or registrations above a mebibyte. It ends after the first error.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[Worker, error] {
	return listed(store.Workers(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list workers", err) }, func(w store.Worker) Worker { return Worker(w) })
}

// Queues yields the names of the queues that were served or filled by this library, and
// not deleted since, in no order. It ends after the first error.
func (p *Peer) Queues(ctx context.Context) iter.Seq2[string, error] {
	return listed(store.Queues(ctx, p.calls, p.space), p.bad, func(err error) error { return wrap("list queues", err) }, func(name string) string { return name })
}
