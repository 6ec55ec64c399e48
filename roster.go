package worqr

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// register writes the registration, which is there for people and tools to see.
func (w *worker) register(ctx context.Context, id string) error {
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
	return script.Register(ctx, p.control, p.space, id, w.ttl(), script.Registration{
		Name: p.opts.Name, Host: host, PID: os.Getpid(), Started: w.started, Version: Version, Queues: string(queues),
	})
}

// outdate has the worker be announced anew, in its next turn.
func (w *worker) outdate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated = true
}

// announce writes the registration anew, and lists the queues, if that is out of date.
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
	err := cmp.Or(script.List(ctx, w.peer.control, w.peer.space, names...), w.register(ctx, id))
	if err != nil {
		w.outdate()
	}
	return err
}

// ttl is how long the registration is there without a beat; 0 is for ever.
func (w *worker) ttl() time.Duration {
	if w.peer.opts.Lease < 0 {
		return 0
	}
	return max(w.peer.opts.Lease, time.Second)
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
	w.prune = time.Now().Add(2 * w.ttl())
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
	calls := make([]redisconn.Call, 0, 2*len(ids))
	for _, id := range ids {
		calls = append(calls, redisconn.Command("DEL", p.space.Worker(id)), redisconn.Command("SREM", p.space.Workers(), id))
	}
	return twice(func() error {
		for _, r := range p.control.Do(ctx, calls...) {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	})
}

// A Worker is a registered peer.
type Worker struct {
	ID      string
	Name    string
	Host    string
	PID     int
	Started time.Time // by the clock of the peer
	Version string    // of this library
	Queues  []string  // that it serves
}

// Workers yields the registered peers. Those that have not been heard of for a
// lease are left out. It ends after the first error.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[Worker, error] {
	return func(yield func(Worker, error) bool) {
		for id, err := range p.scan(ctx, p.space.Workers()) {
			if err != nil {
				yield(Worker{}, wrap("list workers", err))
				return
			}
			fields, err := redis.StringMap(p.calls.One(ctx, redisconn.Command("HGETALL", p.space.Worker(id))))
			if err != nil {
				yield(Worker{}, wrap("list workers", err))
				return
			}
			if len(fields) == 0 {
				continue
			}
			w := Worker{ID: id, Name: fields["name"], Host: fields["host"], Version: fields["version"]}
			w.PID, _ = strconv.Atoi(fields["pid"]) // what people wrote there is shown as far as it can be read
			if ms, err := strconv.ParseInt(fields["started"], 10, 64); err == nil {
				w.Started = time.UnixMilli(ms)
			}
			_ = json.Unmarshal([]byte(fields["queues"]), &w.Queues)
			if !yield(w, nil) {
				return
			}
		}
	}
}

// Queues yields the names of the queues that were ever served or filled by
// this library, in no order. It ends after the first error.
func (p *Peer) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range p.scan(ctx, p.space.Registry()) {
			if err != nil {
				yield("", wrap("list queues", err))
				return
			}
			if keys.CheckName(name) == nil && !yield(name, nil) {
				return
			}
		}
	}
}

// scan yields the members of a set, each once.
func (p *Peer) scan(ctx context.Context, key string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if p.bad != nil {
			yield("", p.bad)
			return
		}
		seen := map[string]bool{}
		for cursor := "0"; ; {
			reply, err := redis.Values(p.calls.One(ctx, redisconn.Command("SSCAN", key, cursor, "COUNT", page)))
			var names []string
			if err == nil {
				_, err = redis.Scan(reply, &cursor, &names)
			}
			if err != nil {
				yield("", err)
				return
			}
			for _, n := range names {
				if !seen[n] && !yield(n, nil) {
					return
				}
				seen[n] = true
			}
			if cursor == "0" {
				return
			}
		}
	}
}
