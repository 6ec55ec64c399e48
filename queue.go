package worqr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Tasks yields the payloads on the list, front first: tasks of Enqueue. Named yields the others.
func (q *Queue) Tasks(ctx context.Context) iter.Seq2[[]byte, error] {
	return listed(store.Tasks(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list tasks"), func(payload []byte) []byte { return payload })
}

// listed converts the rows of a listing of the store for callers.
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

// Named yields the waiting tasks that aren't on the list: those of Add, and those of Enqueue that wait for
// a retry or are risky. First those that are ready, in the order of their starts; then scheduled ones,
// earliest first; then risky ones, and those behind the running task with their key. With states, it yields
// only tasks in one of them.
func (q *Queue) Named(ctx context.Context, states ...inspect.NamedState) iter.Seq2[inspect.NamedTask, error] {
	return listed(store.Named(ctx, q.peer.reads, q.keys, states...), q.bad, q.wrapper("list named tasks"), func(t store.NamedTask) inspect.NamedTask {
		r := &t.Record
		return inspect.NamedTask{Key: store.KeyOf(t.Name), State: t.State, Payload: r.Payload, Headers: r.Metadata.Headers,
			DueAt: store.Moment(cmp.Or(t.At, r.Due)), EnqueuedAt: store.Moment(r.Enqueued), Expires: store.Moment(r.Expires),
			Retries: t.Retries, Crashes: t.Crashes, LastError: t.Error.Last()}
	})
}

// Running yields the tasks that workers hold, running or prefetched.
func (q *Queue) Running(ctx context.Context) iter.Seq2[inspect.RunningTask, error] {
	return listed(store.Running(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list running tasks"), func(t store.RunningTask) inspect.RunningTask {
		r := &t.Record
		return inspect.RunningTask{AttemptID: t.Attempt, WorkerID: t.Worker, Payload: r.Payload, Key: store.KeyOf(t.Name), Token: t.Token,
			StartedAt: store.StartedAt(t.Attempt), Headers: r.Metadata.Headers, EnqueuedAt: store.Moment(r.Enqueued), LastError: t.Error.Last(),
			Attempt: t.Retries + t.Crashes + 1, Retries: t.Retries, Crashes: t.Crashes, DueAt: store.Moment(r.Due)}
	})
}

// Stats reads the counts of the queue.
func (q *Queue) Stats(ctx context.Context) (inspect.QueueStats, error) {
	if q.bad != nil {
		return inspect.QueueStats{}, q.wrap("stats", q.bad)
	}
	stats, err := store.Count(ctx, q.peer.reads, q.keys)
	return stats, q.wrap("stats", err)
}

// Pause keeps tasks of the queue from starting until Resume. OnFailed still runs. Stats tells others
// this peer's Options.Name.
func (q *Queue) Pause(ctx context.Context) error {
	return q.set("Pause", "pause", func() error { return store.Pause(ctx, q.peer.calls, q.keys, q.peer.opts.Name) })
}

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	return q.set("Resume", "resume", func() error { return store.Resume(ctx, q.peer.calls, q.keys) })
}

// Delete drops all waiting tasks, possibly including some added meanwhile. It fails if tasks
// arrive too fast. Running tasks, failed tasks and a pause stay. Recurring tasks end unless a
// running peer has registered them with Every.
func (q *Queue) Delete(ctx context.Context) error {
	return q.set("Delete", "delete", func() error {
		if err := store.Delete(ctx, q.peer.calls, q.keys); err != nil {
			return err
		}
		if !q.keys.IsFailed() {
			if err := store.EndRecurring(ctx, q.peer.calls, q.keys); err != nil && !store.IsDenied(err) {
				return err
			}
		}
		return q.peer.producer.Unlist(ctx, q.target())
	})
}

// set is change for a method that counts no tasks.
func (q *Queue) set(method, verb string, do func() error) error {
	_, err := q.change(method, verb, "", func() (int, error) { return 0, do() })
	return err
}

func (p *Peer) Format(s fmt.State, _ rune) { logs.Show(s, "peer", p) }

func (p *Peer) LogValue() slog.Value {
	if p == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("id", p.WorkerID()))
}

func (q Queue) Format(s fmt.State, _ rune) { logs.Show(s, "queue", q) }

func (q Queue) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", q.name))
}
