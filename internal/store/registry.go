package store

import (
	"context"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	enlist = load("enlist")
	unlist = load("unlist")
)

// List puts names of queues into the registry.
func List(ctx context.Context, r Runner, s keys.Space, queues ...string) error {
	calls := make([]redisconn.Call, len(queues))
	for i, q := range queues {
		calls[i] = enlist.Call([]string{s.Registry()}, q)
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
	used := []string{s.Registry()}
	for _, of := range []keys.Queue{q, q.Failed()} {
		used = append(used, of.Waiting(), of.Contents(), of.Batches(), of.Entries(), of.Workers(), of.Suspects(), of.Paused())
	}
	_, err := do(ctx, r, unlist.Call(used, name))
	return err
}
