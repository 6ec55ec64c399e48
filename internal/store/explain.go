package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var explain = verb("explain", asWorker)

// A Queue is what Redis says about a queue as a whole.
type Queue = invariants.Queue

// A Whereabouts says where the waiting and failed copies of a task are, and what state the queue is in.
type Whereabouts struct {
	Queue  Queue
	Before []int // for each copy on the list, how many are before it there
	Names  []About
	Failed []FailedCopy // newest first
}

// A FailedCopy is a failed task.
type FailedCopy struct {
	Name   string // in the failed queue
	Record Record // without the payload
	Aside  bool   // it has failed there, too
}

// Explain looks for the copies of a payload, or for a name if one is given. The parameters limit it:
// most, the copies of each kind; depth, how far it looks into the list. It searches the newest 1,000
// of the failed tasks. It changes nothing.
func Explain(ctx context.Context, r Runner, q keys.Queue, name string, payload []byte, most, depth int) (*Whereabouts, error) {
	failed, tail := q.Failed().Ends()
	in := explain.ask(ctx, r, q, name, payload, most, depth, failed, tail)
	w := &Whereabouts{Queue: in.queue()}
	before := in.list()
	before.each(func() { w.Before = append(w.Before, int(before.int())) })
	in.join(before)
	names := in.list()
	names.each(func() {
		one := names.list()
		w.Names = append(w.Names, one.about(q.IsFailed()))
		names.join(one)
	})
	in.join(names)
	failures := in.list()
	failures.each(func() {
		one := failures.list()
		w.Failed = append(w.Failed, FailedCopy{one.string(), ReadRecord(one.bytes(), true), one.int() == 1})
		failures.join(one)
	})
	in.join(failures)
	if in.err != nil {
		return nil, in.err
	}
	return w, readCrashes(ctx, r, q, w.Names)
}

// readCrashes fills in the crashes of raw tasks outside the list, which all have the payload that was looked
// for.
func readCrashes(ctx context.Context, r Runner, q keys.Queue, all []About) error {
	i := slices.IndexFunc(all, func(a About) bool { return strings.HasPrefix(a.Name, rawMark) })
	if i < 0 {
		return nil
	}
	n, err := redis.Int(r.One(ctx, redisconn.Command("HGET", q.Crashes(), DigestIn(all[i].Name).String())))
	if err != nil && !errors.Is(err, redis.ErrNil) && !IsRefusal(err) {
		return err
	}
	for i := range all {
		if strings.HasPrefix(all[i].Name, rawMark) {
			all[i].Crashes = n
		}
	}
	return nil
}

// A Holder is a worker that holds a task.
type Holder struct {
	Worker       // its registration, if there's one
	Member bool  // otherwise its tasks are being returned
	Until  int64 // ms of Redis's time; the lease of a member
	Judged int64 // when it may be evicted; 0: it's no suspect
}

// ReadHolder reads a Holder.
func ReadHolder(ctx context.Context, r Runner, s Space, q keys.Queue, worker string) (h Holder, err error) {
	registered, err := Registrations(ctx, r, s, []string{worker})
	if err != nil {
		return h, err
	}
	if len(registered) > 0 {
		h.Worker = registered[0]
	}
	p, _, err := Check(ctx, r, q, Holders, "", []string{worker})
	if err != nil {
		return h, err
	}
	of := p.Workers[0]
	h.Member, h.Until, h.Judged = of.Deadline != "", numberIn(of.Deadline), numberIn(of.Suspect)
	return h, nil
}
