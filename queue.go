package worqr

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// Len returns how many tasks wait, in both lanes, those included whose time is
// still to come: Waiting and Scheduled of Stats together.
func (q *Queue) Len(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("count", q.bad)
	}
	n, err := store.Len(ctx, q.peer.calls, q.keys)
	return n, q.wrap("count", err)
}

// Peek returns the payload that is to start next, and leaves it there. It fails
// with ErrNoTask when nothing waits, or only tasks whose time is still to come.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	if q.bad != nil {
		return nil, q.wrap("peek", q.bad)
	}
	payload, err := store.Peek(ctx, q.peer.calls, q.keys)
	if errors.Is(err, store.ErrEmpty) {
		err = ErrNoTask
	}
	return payload, q.wrap("peek", err)
}

// Tasks yields the waiting payloads, front first: what is due in the schedule, the list
// with the accepted batches behind it, then what is not yet due, without what is blocked
// because its key runs. It reads a page at a time, about a mebibyte while payloads are of
// similar size, so it is no snapshot: tasks that are taken, returned or moved to the list
// meanwhile may be left out or come twice. It ends after the first error.
func (q *Queue) Tasks(ctx context.Context) iter.Seq2[[]byte, error] {
	return listed(store.Tasks(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list tasks"), func(payload []byte) []byte { return payload })
}

// listed makes what a listing of the store yields public.
func listed[T, U any](rows iter.Seq2[T, error], bad error, wrap func(error) error, public func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		var none U
		if bad != nil {
			yield(none, wrap(bad))
			return
		}
		for row, err := range rows {
			if err != nil {
				yield(none, wrap(err))
				return
			}
			if !yield(public(row), nil) {
				return
			}
		}
	}
}

func (q *Queue) wrapper(verb string) func(error) error {
	return func(err error) error { return q.wrap(verb, err) }
}

// A RunningTask is a task that a worker holds.
type RunningTask struct {
	AttemptID string
	WorkerID  string
	Payload   []byte
	Key       string // "" for a task from the list
	Token     int64
	StartedAt time.Time // by the clock of the peer that took it
}

// Running yields the tasks that workers hold, begun or prefetched
// (HandleOptions.Prefetch), worker by worker, oldest first.
// It is no snapshot, and ends after the first error.
func (q *Queue) Running(ctx context.Context) iter.Seq2[RunningTask, error] {
	return listed(store.Running(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list running tasks"), func(t store.RunningTask) RunningTask {
		return RunningTask{AttemptID: t.Attempt, WorkerID: t.Worker, Payload: t.Payload, Key: t.Key, Token: t.Token, StartedAt: store.StartedAt(t.Attempt)}
	})
}

// QueueStats are counts of one queue.
type QueueStats struct {
	Waiting     int // on the list, or in an accepted batch on the way there
	Scheduled   int // in the schedule: under a key, or waiting for a retry
	Running     int // held by workers, also those that no handler has begun yet
	Failed      int // in the failed queue, without those that OnFailed works on
	Workers     int // that serve the queue
	IdleWorkers int // of these, with free slots and nothing to do
	Paused      bool
}

// Stats reads counts of the queue. They are read together, but what workers
// hold is added up after the rest.
func (q *Queue) Stats(ctx context.Context) (QueueStats, error) {
	if q.bad != nil {
		return QueueStats{}, q.wrap("stats", q.bad)
	}
	c, err := store.Count(ctx, q.peer.calls, q.keys)
	return QueueStats(c), q.wrap("stats", err)
}

// Pause keeps every worker from starting tasks of the queue until Resume. What
// runs goes on, and so does OnFailed.
func (q *Queue) Pause(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("pause", q.bad)
	}
	return q.wrap("pause", store.Pause(ctx, q.peer.calls, q.keys))
}

// Resume ends a pause and wakes idle workers.
func (q *Queue) Resume(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("resume", q.bad)
	}
	return q.wrap("resume", store.Resume(ctx, q.peer.calls, q.keys))
}

// Delete drops all that waits, in both lanes, with its locks and its counts of
// crashes, and publishes the event "delete". What runs is not touched: it
// finishes, or is put back. A pause stays, and so do failed tasks; DeleteFailed
// drops those.
//
// What others add meanwhile may be dropped, too. If they add so fast that Delete gets nowhere,
// it fails: stop them, and call it again.
//
// If nobody serves the queue, it isn't paused and no task of it has failed, Delete also takes
// its name off the list that Queues reads. Whoever serves or fills it again lists it.
func (q *Queue) Delete(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("delete", q.bad)
	}
	if err := store.Delete(ctx, q.peer.calls, q.keys); err != nil {
		return q.wrap("delete", err)
	}
	q.back().listed.Store(0)
	err := store.Unlist(ctx, q.peer.calls, q.peer.space, q.keys, q.name)
	if store.IsWrongType(err) || redisconn.Denied(err) {
		return nil // who can't list can't unlist
	}
	return q.wrap("delete", err)
}
