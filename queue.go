package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Len returns how many tasks wait, on the list and in the schedule.
func (q *Queue) Len(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("count", q.bad)
	}
	n, err := q.sum(ctx, func(part *Queue) (int, error) { return store.Len(ctx, q.peer.reads, part.keys) })
	return n, q.wrap("count", err)
}

// Peek returns the payload that starts next, or ErrNoTask when nothing is due.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	if q.bad != nil {
		return nil, q.wrap("peek", q.bad)
	}
	var payload []byte
	parts, err := q.known(ctx, false)
	if err != nil {
		return nil, q.wrap("peek", err)
	}
	for _, part := range parts {
		if payload, err = store.Peek(ctx, q.peer.reads, part.keys); !errors.Is(err, store.ErrEmpty) {
			break
		}
	}
	if errors.Is(err, store.ErrEmpty) {
		err = ErrNoTask
	}
	return payload, q.wrap("peek", err)
}

// Tasks yields the waiting payloads, front first, except tasks whose key is running.
func (q *Queue) Tasks(ctx context.Context) iter.Seq2[[]byte, error] {
	rows := rowsOf(ctx, q, store.Tasks, store.InTurn)
	return listed(rows, q.bad, q.wrapper("list tasks"), func(payload []byte) []byte { return payload })
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

// rowsOf lists the rows of all parts, combined by join.
func rowsOf[T any](ctx context.Context, q *Queue, rows func(context.Context, store.Runner, store.Keys) iter.Seq2[T, error],
	join func(parts []iter.Seq2[T, error], yield func(T, error) bool)) iter.Seq2[T, error] {
	if q.spread == nil {
		return rows(ctx, q.peer.reads, q.keys)
	}
	return func(yield func(T, error) bool) {
		parts, err := q.known(ctx, false)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		lists := make([]iter.Seq2[T, error], len(parts))
		for i, part := range parts {
			lists[i] = rows(ctx, q.peer.reads, part.keys)
		}
		join(lists, yield)
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

	Headers    map[string]string
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	LastError  string    // of the attempt before; "" if there was none
	DueAt      time.Time // of Add, and of recurring tasks; else zero

	Attempt, Retries, Crashes int // as in Task; without a key, crashes aren't known
}

// Running yields the tasks that workers hold, running or prefetched.
func (q *Queue) Running(ctx context.Context) iter.Seq2[RunningTask, error] {
	rows := rowsOf(ctx, q, store.Running, store.InTurn)
	return listed(rows, q.bad, q.wrapper("list running tasks"), func(t store.RunningTask) RunningTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return RunningTask{AttemptID: t.Attempt, WorkerID: t.Worker, Payload: t.Payload, Key: t.Key, Token: t.Token, StartedAt: store.StartedAt(t.Attempt),
			Headers: c.Headers, EnqueuedAt: moment(c.Since), LastError: t.Error,
			Attempt: t.Retries + t.Crashes + 1, Retries: t.Retries, Crashes: t.Crashes, DueAt: moment(t.Due)}
	})
}

// QueueStats are counts of one queue.
type QueueStats struct {
	Waiting     int // on the list, and added tasks
	Scheduled   int // in the schedule
	Running     int // held by workers, running or prefetched
	Failed      int // without those that OnFailed is handling
	Workers     int
	IdleWorkers int // with free slots; if the queue is spread, those of the part that has most
	Paused      bool
	// Oldest is how long ago the task that has waited longest could have started, by Redis's clock:
	// the front of the list, the first of Add, or the one most overdue. For the list it's right to
	// about a second or 2 %; it leaves out what came since a peer last served the queue, and may be
	// too high after cancels.
	Oldest time.Duration
	// Tokens counts the tokens given, over all parts. Each start, cancel and lost worker takes one,
	// so the difference of two reads is about how many tasks have started.
	Tokens int64
}

// add adds the counts of a part. All workers serve each part, and those that are idle on one
// may be busy on another.
func (s *QueueStats) add(part QueueStats) {
	s.Waiting, s.Scheduled, s.Running, s.Failed = s.Waiting+part.Waiting, s.Scheduled+part.Scheduled, s.Running+part.Running, s.Failed+part.Failed
	s.Workers, s.IdleWorkers, s.Paused = max(s.Workers, part.Workers), max(s.IdleWorkers, part.IdleWorkers), s.Paused || part.Paused
	s.Oldest, s.Tokens = max(s.Oldest, part.Oldest), s.Tokens+part.Tokens
}

// Stats reads the counts of the queue.
func (q *Queue) Stats(ctx context.Context) (QueueStats, error) {
	if q.bad != nil {
		return QueueStats{}, q.wrap("stats", q.bad)
	}
	var s QueueStats
	var mu sync.Mutex // protects it
	err := q.each(ctx, false, func(part *Queue) error {
		c, err := store.Count(ctx, q.peer.reads, part.keys)
		mu.Lock()
		defer mu.Unlock()
		s.add(QueueStats(c))
		return err
	})
	return s, q.wrap("stats", err)
}

// Pause keeps tasks of the queue from starting until Resume. OnFailed keeps running.
func (q *Queue) Pause(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("pause", q.bad)
	}
	done := q.changes("Pause", "")
	return done(0, q.wrap("pause", q.each(ctx, true, func(part *Queue) error { return store.Pause(ctx, q.peer.calls, part.keys) })))
}

// Resume ends a pause and wakes idle workers.
func (q *Queue) Resume(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("resume", q.bad)
	}
	done := q.changes("Resume", "")
	return done(0, q.wrap("resume", q.each(ctx, true, func(part *Queue) error { return store.Resume(ctx, q.peer.calls, part.keys) })))
}

// Delete drops all waiting tasks, perhaps including some added meanwhile; if they arrive too fast,
// it fails. Running tasks, failed tasks and a pause stay, and so do recurring tasks that a running peer
// has; others end.
func (q *Queue) Delete(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("delete", q.bad)
	}
	done := q.changes("Delete", "")
	err := q.each(ctx, true, func(part *Queue) error {
		if err := store.Delete(ctx, q.peer.calls, part.keys); err != nil {
			return err
		}
		if !part.keys.IsFailed() {
			if err := store.EndRecurring(ctx, q.peer.calls, part.keys); err != nil && !store.IsDenied(err) {
				return err
			}
		}
		return q.peer.producer.Unlist(ctx, part.target())
	})
	return done(0, q.wrap("delete", err))
}

func (p *Peer) Format(s fmt.State, _ rune) { show(s, "peer", p) }

func (p *Peer) LogValue() slog.Value {
	if p == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("id", p.WorkerID()))
}

func (q Queue) Format(s fmt.State, _ rune) { show(s, "queue", q) }

func (q Queue) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", q.name))
}

func (t RunningTask) Format(s fmt.State, _ rune) { show(s, "running task", t) }

func (t RunningTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("attempt_id", t.AttemptID), slog.String("worker", t.WorkerID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.String("since", t.StartedAt.Format(time.RFC3339Nano)))
}

// Printing or logging a task, with any verb, never shows its payload, key or result: these are
// secret, so callers must name the fields. The exception is a task in an unexported field, on which
// fmt calls no methods. Peers and queues print nothing that changes.

// show prints what something is and its LogValue.
func show(s fmt.State, what string, of slog.LogValuer) {
	_, _ = fmt.Fprint(s, what, of.LogValue())
}
