package worqr

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
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
		Stuck: p.counts.stuck.Load(),
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

// mostRegistered is how many bytes of a registration are read. Anybody who may write
// under the prefix can write more.
const mostRegistered = 1 << 20

// registered are the fields of a registration.
var registered = []string{"name", "host", "pid", "started", "version", "queues", "lease", "stuck"}

// Workers yields the registered peers, but not those that were silent for two leases,
// malformed entries, or registrations above a mebibyte. It ends after the first error.
func (p *Peer) Workers(ctx context.Context) iter.Seq2[Worker, error] {
	return func(yield func(Worker, error) bool) {
		var ids []string
		tell := func() (more bool) {
			workers, err := p.registrations(ctx, ids)
			if err != nil {
				yield(Worker{}, wrap("list workers", err))
				return false
			}
			ids = nil
			for _, w := range workers {
				if !yield(w, nil) {
					return false
				}
			}
			return true
		}
		for id, err := range p.scan(ctx, p.space.Workers()) {
			if err != nil {
				yield(Worker{}, wrap("list workers", err))
				return
			}
			if keys.IsWorker(id) {
				ids = append(ids, id)
			}
			if len(ids) == page && !tell() {
				return
			}
		}
		tell()
	}
}

// registrations reads those of some workers: first how long they are, then those that
// are not too long.
func (p *Peer) registrations(ctx context.Context, ids []string) (workers []Worker, err error) {
	var calls []redisconn.Call
	for _, id := range ids {
		for _, field := range registered {
			calls = append(calls, redisconn.Command("HSTRLEN", p.space.Worker(id), field))
		}
	}
	sizes := p.calls.Do(ctx, calls...)
	calls = nil
	var read []string // that are there
	for i, id := range ids {
		size := 0
		for _, reply := range sizes[i*len(registered) : (i+1)*len(registered)] {
			n, err := redis.Int(reply.Value, reply.Err)
			if err != nil && !foreignType(err) {
				return nil, err
			}
			size += n
		}
		if size > 0 && size <= mostRegistered {
			read, calls = append(read, id), append(calls, redisconn.Command("HMGET", redis.Args{p.space.Worker(id)}.AddFlat(registered)...))
		}
	}
	for i, reply := range p.calls.Do(ctx, calls...) {
		values, err := redis.Strings(reply.Value, reply.Err)
		switch {
		case foreignType(err):
			continue // since
		case err != nil:
			return nil, err
		case len(values) != len(registered):
			return nil, errReply
		}
		w := Worker{ID: read[i], Name: values[0], Host: values[1], Version: values[4]}
		w.PID, _ = strconv.Atoi(values[2]) // what people wrote there is shown as far as it can be read
		if ms, err := strconv.ParseInt(values[3], 10, 64); err == nil {
			w.StartedAt = time.UnixMilli(ms)
		}
		_ = json.Unmarshal([]byte(values[5]), &w.Queues)
		if ms, err := strconv.ParseInt(values[6], 10, 64); err == nil {
			w.Lease = time.Duration(ms) * time.Millisecond
		}
		w.StuckHandlers, _ = strconv.Atoi(values[7])
		if strings.Join(values, "") != "" { // it has not gone since
			workers = append(workers, w)
		}
	}
	return workers, nil
}

// Queues yields the names of the queues that were served or filled by this library, and
// not deleted since, in no order. It ends after the first error.
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

// scan yields the members of a set, each once; where there are more than a sieve
// remembers, one may come twice while the set shrinks.
func (p *Peer) scan(ctx context.Context, key string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if p.bad != nil {
			yield("", p.bad)
			return
		}
		found := sieve{}
		for name, err := range p.walk(ctx, 1, func(cursor string) redisconn.Call { return redisconn.Command("SSCAN", key, cursor, "COUNT", page) }) {
			if (err != nil || found.passes(name)) && !yield(name, err) || err != nil {
				return
			}
		}
	}
}

// walk yields the first of every few elements that a command of the SCAN family answers
// with. All that is there throughout comes at least once.
func (p *Peer) walk(ctx context.Context, few int, scan func(cursor string) redisconn.Call) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for cursor := "0"; ; {
			reply, err := redis.Values(p.calls.One(ctx, scan(cursor)))
			var all []string
			if err == nil {
				_, err = redis.Scan(reply, &cursor, &all)
			}
			if err == nil && len(all)%few != 0 {
				err = errReply
			}
			if err != nil {
				yield("", err)
				return
			}
			for some := range slices.Chunk(all, few) {
				if !yield(some[0], nil) {
					return
				}
			}
			if cursor == "0" {
				return
			}
		}
	}
}
