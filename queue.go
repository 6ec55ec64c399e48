package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Len returns how many tasks wait, on the list and in the schedule, due or not.
func (q *Queue) Len(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("count", q.bad)
	}
	n, err := store.Len(ctx, q.peer.calls, q.keys)
	return n, q.wrap("count", err)
}

// Peek returns the payload that starts next, or ErrNoTask when nothing is due.
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

// Tasks yields the waiting payloads, front first, except tasks whose key is running.
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
	Key       string // "" if it has none
	Token     int64
	StartedAt time.Time // by that peer's clock
}

// Running yields the tasks that workers hold, running or prefetched, worker by worker.
func (q *Queue) Running(ctx context.Context) iter.Seq2[RunningTask, error] {
	return listed(store.Running(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list running tasks"), func(t store.RunningTask) RunningTask {
		return RunningTask{AttemptID: t.Attempt, WorkerID: t.Worker, Payload: t.Payload, Key: t.Key, Token: t.Token, StartedAt: store.StartedAt(t.Attempt)}
	})
}

// QueueStats are counts of one queue.
type QueueStats struct {
	Waiting     int // on the list
	Scheduled   int // in the schedule: under a key, or waiting for a retry
	Running     int // held by workers, running or prefetched
	Failed      int // in the failed queue, without those that OnFailed works on
	Workers     int
	IdleWorkers int // with free slots and nothing to do
	Paused      bool
}

// Stats reads the counts of the queue.
func (q *Queue) Stats(ctx context.Context) (QueueStats, error) {
	if q.bad != nil {
		return QueueStats{}, q.wrap("stats", q.bad)
	}
	c, err := store.Count(ctx, q.peer.calls, q.keys)
	return QueueStats(c), q.wrap("stats", err)
}

// Pause keeps workers from starting tasks of the queue until Resume. OnFailed goes on.
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

// Delete drops all waiting tasks. Running tasks, failed tasks and a pause stay. It may also
// drop tasks added meanwhile; if they arrive too fast, Delete fails.
func (q *Queue) Delete(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("delete", q.bad)
	}
	if err := store.Delete(ctx, q.peer.calls, q.keys); err != nil {
		return q.wrap("delete", err)
	}
	return q.wrap("delete", q.peer.producer.Unlist(ctx, q.target()))
}

// Format implements fmt.Formatter.
func (p *Peer) Format(s fmt.State, _ rune) { show(s, "peer", p) }

// LogValue implements slog.LogValuer.
func (p *Peer) LogValue() slog.Value {
	if p == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("id", p.WorkerID()))
}

// Format implements fmt.Formatter.
func (q Queue) Format(s fmt.State, _ rune) { show(s, "queue", q) }

// LogValue implements slog.LogValuer.
func (q Queue) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", q.name))
}

// Format implements fmt.Formatter.
func (t RunningTask) Format(s fmt.State, _ rune) { show(s, "running task", t) }

// LogValue implements slog.LogValuer.
func (t RunningTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("attempt_id", t.AttemptID), slog.String("worker", t.WorkerID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.String("since", t.StartedAt.Format(time.RFC3339Nano)))
}

// Whatever is printed or logged of a task, with whatever verb, is without its payload,
// its key and its result: these are secret, and have to be asked for by name. But in an
// unexported field of something else fmt calls no methods. Of what is at work, nothing is
// printed that changes.

// show prints what something is and its LogValue.
func show(s fmt.State, what string, of slog.LogValuer) {
	_, _ = fmt.Fprint(s, what, of.LogValue())
}
