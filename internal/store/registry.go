package store

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// List puts names of queues into the registry.
func List(ctx context.Context, r Runner, s keys.Space, queues ...string) error {
	calls := make([]redisconn.Call, len(queues))
	for i, q := range queues {
		calls[i] = enlist.call(s.Queue(q), "names", s.Registry(), "name", q)
	}
	for _, reply := range r.Do(ctx, calls...) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Unlist takes a queue's name off the registry, unless a task of it waits, runs or has
// failed, somebody serves it, or it is paused. It may be repeated.
func Unlist(ctx context.Context, r Runner, s keys.Space, q keys.Queue, name string) error {
	var used []string
	for _, of := range []keys.Queue{q, q.Failed()} {
		used = append(used, of.Waiting(), of.Contents(), of.Batches(), of.Entries(), of.Workers(), of.Suspects(), of.Paused())
	}
	return unlist.ask(ctx, r, q, "used", used, "name", name).err
}

// A Registration is what a peer says of itself.
type Registration struct {
	Name, Host, Version string
	PID                 int
	Started             time.Time
	Queues              string // JSON array
	Lease               time.Duration
	Stuck               int64
}

// Register writes the registration and lists the worker. A ttl of 0 never
// ends.
func Register(ctx context.Context, r Runner, s keys.Space, worker string, ttl time.Duration, reg Registration) error {
	for _, reply := range r.Do(ctx,
		register.call(s.Queue(""), "worker", worker, "ttl", ttl.Milliseconds(), "name", reg.Name, "host", reg.Host, "pid", reg.PID,
			"started", reg.Started.UnixMilli(), "version", reg.Version, "queues", reg.Queues, "lease", reg.Lease.Milliseconds(), "stuck", reg.Stuck),
		enlist.call(s.Queue(""), "names", s.Workers(), "name", worker)) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Delist takes workers off the list of peers whose registration has ended.
func Delist(ctx context.Context, r Runner, s keys.Space, workers []string) error {
	calls := make([]redisconn.Call, len(workers))
	for i, w := range workers {
		calls[i] = delist.call(s.Queue(""), "worker", w, "id", w)
	}
	for _, reply := range r.Do(ctx, calls...) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// AddName puts a queue's name into the registry by a plain command, so that a user can be
// allowed it and nothing else.
func AddName(ctx context.Context, r Runner, s keys.Space, queue string) error {
	_, err := r.One(ctx, redisconn.Command("SADD", s.Registry(), queue))
	return err
}
