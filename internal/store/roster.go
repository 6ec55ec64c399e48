package store

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Worker is the registration of a peer.
type Worker struct {
	ID            string
	Name          string
	Host          string
	PID           int
	StartedAt     time.Time
	Version       string
	Queues        []string
	Lease         time.Duration
	StuckHandlers int // that still run after their context has ended
	Protocol      int
}

// mostRegistered is how many bytes of a registration are read. Any user who may write under the
// prefix can write more.
const mostRegistered = 1 << 20

// registered lists the fields of a registration.
var registered = []string{"name", "host", "pid", "started", "version", "queues", "lease", "stuck", "protocol"}

// Workers yields the registered peers, without entries that are malformed or too long. If nodes
// of a cluster are down, it leaves out the peers registered there, and ends with an
// error.
func Workers(ctx context.Context, r Runner, s keys.Space) iter.Seq2[Worker, error] {
	return rows(func(yield func([]Worker, error) bool) {
		ids := filter(members(ctx, r, "SSCAN", s.Workers()), keys.IsWorker)
		away := absence{of: r}
		read := each(ids, func(some []string) ([]Worker, error) {
			some = slices.DeleteFunc(slices.Clone(some), func(id string) bool { return away.has(s.Worker(id)) })
			workers, err := Registrations(ctx, r, s, some)
			if !s.Scattered() || ctx.Err() != nil || !IsAway(err) {
				return workers, err
			}
			groups := away.groups(some, s.Worker)
			for _, home := range slices.Sorted(maps.Keys(groups)) { // one request for each node
				of, err := Registrations(ctx, r, s, groups[home])
				if err != nil && (ctx.Err() != nil || !IsAway(err)) {
					return workers, err
				}
				away.note(home, err)
				workers = append(workers, of...)
			}
			return workers, nil
		})
		chain(read, func(yield func([]Worker, error) bool) { yield(nil, away.err) })(yield)
	})
}

// Registrations reads the registrations of some workers: first their sizes, then those that aren't
// too long.
func Registrations(ctx context.Context, r Runner, s keys.Space, ids []string) (workers []Worker, err error) {
	var calls []redisconn.Call
	for _, id := range ids {
		for _, field := range registered {
			calls = append(calls, redisconn.Command("HSTRLEN", s.Worker(id), field))
		}
	}
	sizes := r.Do(ctx, calls...)
	calls = nil
	var read []string // that exist
	for i, id := range ids {
		size := 0
		for _, reply := range sizes[i*len(registered) : (i+1)*len(registered)] {
			n, err := redis.Int(reply.Value, reply.Err)
			if err != nil && !IsWrongType(err) {
				return nil, err
			}
			size += n
		}
		if size > 0 && size <= mostRegistered {
			read, calls = append(read, id), append(calls, redisconn.Command("HMGET", redis.Args{s.Worker(id)}.AddFlat(registered)...))
		}
	}
	for i, reply := range r.Do(ctx, calls...) {
		values, err := redis.Strings(reply.Value, reply.Err)
		switch {
		case IsWrongType(err):
			continue // replaced in the meantime
		case err != nil:
			return nil, err
		case len(values) != len(registered):
			return nil, errReply
		case strings.Join(values, "") != "": // it still exists
			workers = append(workers, registration(read[i], values))
		}
	}
	return workers, nil
}

// registration decodes one registration. Malformed values are shown as far as possible.
func registration(id string, values []string) Worker {
	w := Worker{ID: id, Name: values[0], Host: values[1], Version: values[4]}
	w.PID = countIn(values[2])
	w.StartedAt = Moment(numberIn(values[3]))
	_ = json.Unmarshal([]byte(values[5]), &w.Queues)
	w.Lease = time.Duration(min(max(numberIn(values[6]), 0), longestTimeout)) * time.Millisecond
	w.StuckHandlers, w.Protocol = countIn(values[7]), countIn(values[8])
	return w
}

// Queues yields the names of queues in the registry, in no particular order.
func Queues(ctx context.Context, r Runner, s keys.Space) iter.Seq2[string, error] {
	return rows(filter(members(ctx, r, "SSCAN", s.Registry()), func(name string) bool { return keys.CheckName(name) == nil }))
}

// Unregister removes registrations. It may be repeated, and repeats itself once if
// the reply was lost.
func Unregister(ctx context.Context, r Runner, s keys.Space, ids ...string) error {
	calls := make([]redisconn.Call, 0, 2*len(ids))
	for _, id := range ids {
		calls = append(calls, redisconn.Command("DEL", s.Worker(id)), redisconn.Command("SREM", s.Workers(), id))
	}
	return Twice(func() error { return failure(r.Do(ctx, calls...)) })
}

// Prune removes peers whose registration has expired from the list. A live peer adds itself again
// with its next heartbeat.
func Prune(ctx context.Context, r Runner, s keys.Space) error {
	for some, err := range members(ctx, r, "SSCAN", s.Workers()) {
		if err == nil {
			err = Delist(ctx, r, s, some)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PruneSome is Prune for a few random peers, so that its cost doesn't grow with the fleet.
func PruneSome(ctx context.Context, r Runner, s keys.Space) error {
	some, err := redis.Strings(r.One(ctx, redisconn.Command("SRANDMEMBER", s.Workers(), perPage)))
	if err != nil {
		return err
	}
	return Delist(ctx, r, s, some)
}

// Unknown reports whether the queue has neither keys nor a name in the
// registry, as far as the user may read that.
func Unknown(ctx context.Context, r Runner, s keys.Space, q keys.Queue, name string) (bool, error) {
	n, err := redis.Int(r.One(ctx, redisconn.Command("EXISTS", redis.Args{q.State()}.AddFlat(use(q)).AddFlat(use(q.Failed()))...)))
	if err != nil || n > 0 {
		return false, err
	}
	for listed, err := range Queues(ctx, r, s) {
		if redisconn.Denied(err) {
			return false, nil // the queue may be known
		}
		if err != nil || listed == name {
			return false, err
		}
	}
	return true, nil
}
