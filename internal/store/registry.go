package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The verbs on the keys of the fleet.
var (
	register = verb("register", asWorker)
	agree    = verb("agree", asWorker)
	list     = verb("list", asWorker)
	unlist   = verb("unlist", asWorker)
)

// fleetCall returns the call of a verb on keys of the fleet.
func (v *Verb) fleetCall(s keys.Space, names []string, args ...any) redisconn.Call {
	text := v.script
	if s.Scattered() {
		text = v.apart
	}
	all := redis.Args(text.Begin(len(names)+1, len(args)))
	return text.CallOf(append(all.AddFlat(names).Add(keys.NoneBeside(s, names[0])), args...))
}

// List adds names of queues to the registry.
func List(ctx context.Context, r Runner, s keys.Space, queues ...string) error {
	return failure(doEach(ctx, r, queues, func(q string) redisconn.Call { return list.fleetCall(s, []string{s.Registry()}, q) }))
}

// AddName adds a queue's name to the registry with a plain command, so that a user can be allowed
// to do just that.
func AddName(ctx context.Context, r Runner, s keys.Space, queue string) error {
	_, err := r.One(ctx, redisconn.Command("SADD", s.Registry(), queue))
	return err
}

// use returns the keys of which one exists while a queue has tasks, workers or recurring tasks.
func use(q keys.Queue) []string {
	return []string{q.Waiting(), q.Tasks(), q.Workers(), q.Leaving(), q.Recurring()}
}

// InUse reports whether a queue, or a failed queue, has tasks, workers or recurring tasks, or is
// paused. It asks for key after key, so that it's answered even if the queue's slot is moving.
func InUse(ctx context.Context, r Runner, q keys.Queue) (bool, error) {
	for _, reply := range doEach(ctx, r, use(q), func(key string) redisconn.Call { return redisconn.Command("EXISTS", key) }) {
		if n, err := redis.Int(reply.Value, reply.Err); err != nil || n > 0 {
			return n > 0, err
		}
	}
	paused, err := redis.Bool(r.One(ctx, redisconn.Command("HEXISTS", q.State(), "paused")))
	return paused, err
}

// Unlist removes a queue's name from the registry, unless one of its tasks waits, runs or has
// failed, a worker serves it, it has recurring tasks, or it is paused. It may be repeated.
func Unlist(ctx context.Context, r Runner, s keys.Space, q keys.Queue, name string) error {
	for _, of := range []keys.Queue{q, q.Failed()} {
		// A pause that comes between isn't seen. Then the next task lists the queue again.
		if used, err := InUse(ctx, r, of); err != nil || used {
			return err
		}
	}
	used := slices.Concat(use(q), use(q.Failed()))
	if s.Scattered() {
		return unlistApart(ctx, r, s, used, name)
	}
	_, err := r.One(ctx, unlist.fleetCall(s, slices.Concat([]string{s.Registry()}, used), name))
	return err
}

// unlistApart is Unlist if the registry is on another node than the queue. It checks again
// afterwards, and lists a queue that came into use meanwhile. If it dies before that, the next
// worker or producer of the queue lists it.
func unlistApart(ctx context.Context, r Runner, s keys.Space, used []string, name string) error {
	look := redisconn.Command("EXISTS", redis.Args{}.AddFlat(used)...)
	if n, err := redis.Int(r.One(ctx, look)); err != nil || n > 0 {
		return err
	}
	removed, err := redis.Int(r.One(ctx, redisconn.Command("SREM", s.Registry(), name)))
	if err == nil && removed == 0 {
		return nil
	}
	if err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	n, again := redis.Int(r.One(ctx, look))
	if again != nil || n > 0 {
		again = errors.Join(again, List(ctx, r, s, name))
	}
	return cmp.Or(err, again)
}

// A Registration describes a peer.
type Registration struct {
	Name, Host, Version string
	PID                 int
	Started             time.Time
	Queues              string // JSON array
	Lease               time.Duration
	Stuck               int64
	Protocol            int
}

// Register writes the registration and lists the worker. A ttl of 0 is forever.
func Register(ctx context.Context, r Runner, s keys.Space, worker string, ttl time.Duration, reg Registration) error {
	return failure(r.Do(ctx,
		register.fleetCall(s, []string{s.Worker(worker)}, ttl.Milliseconds(), "name", reg.Name, "host", reg.Host, "pid", reg.PID,
			"started", reg.Started.UnixMilli(), "version", reg.Version, "queues", reg.Queues, "lease", reg.Lease.Milliseconds(),
			"stuck", reg.Stuck, "protocol", reg.Protocol),
		listWorker(s, worker)))
}

func listWorker(s keys.Space, id string) redisconn.Call {
	return list.fleetCall(s, []string{s.Workers()}, id)
}

// Delist removes workers from the list of peers if their registration has expired.
func Delist(ctx context.Context, r Runner, s keys.Space, workers []string) error {
	if s.Scattered() {
		return delistApart(ctx, r, s, workers)
	}
	return failure(doEach(ctx, r, workers, func(id string) redisconn.Call {
		return unlist.fleetCall(s, []string{s.Workers(), s.Worker(id)}, id)
	}))
}

// delistApart is Delist if the list is on another node than the registrations. It checks again
// afterwards, and lists workers that came back meanwhile. A live worker does that itself, too.
func delistApart(ctx context.Context, r Runner, s keys.Space, workers []string) error {
	some, err := unregistered(ctx, r, s, workers)
	if err != nil || len(some) == 0 {
		return err
	}
	_, err = r.One(ctx, redisconn.Command("SREM", redis.Args{s.Workers()}.AddFlat(some)...))
	if err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	gone, again := unregistered(ctx, r, s, some)
	for _, w := range some {
		if again != nil || !slices.Contains(gone, w) {
			again = errors.Join(again, failure(r.Do(ctx, listWorker(s, w))))
		}
	}
	return cmp.Or(err, again)
}

// unregistered returns the workers that have no registration.
func unregistered(ctx context.Context, r Runner, s keys.Space, workers []string) (some []string, err error) {
	there := func(w string) redisconn.Call { return redisconn.Command("EXISTS", s.Worker(w)) }
	for i, reply := range doEach(ctx, r, workers, there) {
		n, err := redis.Int(reply.Value, reply.Err)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			some = append(some, workers[i])
		}
	}
	return some, nil
}
