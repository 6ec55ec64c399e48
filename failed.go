package worqr

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A FailedTask is a task in the failed queue.
type FailedTask struct {
	ID       string // for RequeueFailed and DeleteFailed
	Payload  []byte
	Key      string // "" if it had none
	Kind     FailureKind
	Error    string    // the text of the last error, at most 4,096 bytes
	Retries  int       // attempts that failed before the last
	Crashes  int       // workers that died holding it
	WorkerID string    // that ran it last; for FailureCrashed, the one that moved it to the failed queue
	FailedAt time.Time // by the clock of Redis
}

func failure(g *store.Grave) *FailedTask {
	return &FailedTask{
		ID: store.KeyOf(g.Entry), Payload: g.Payload, Key: store.KeyOf(g.From),
		Kind: FailureKind(g.Kind), Error: g.Reason, Retries: g.Retries, Crashes: g.Crashes,
		WorkerID: g.Worker, FailedAt: time.UnixMilli(g.At),
	}
}

// failed is the failed queue of q: a queue of the same kind, with keys of its
// own. No name contains a space, so it is told from every other.
func (q *Queue) failed() *Queue {
	return &Queue{peer: q.peer, name: q.name, id: q.name + " (failed)", keys: q.keys.Failed(), bad: q.bad}
}

// Failed yields the failed tasks, newest first, without those that OnFailed works on. Tasks
// that OnFailed will retry come last.
func (q *Queue) Failed(ctx context.Context) iter.Seq2[FailedTask, error] {
	return listed(store.FailedTasks(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list failed tasks"), func(g store.Grave) FailedTask { return *failure(&g) })
}

// RequeueFailed puts the failed tasks with these ids at the back of the queue, or under
// their key, with their counts at zero, and returns their number. With no ids it does
// nothing. Tasks whose key already has a waiting task stay, and so do those that OnFailed
// works on. When it fails, call it again.
func (q *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	if err := q.checkIDs(ids); err != nil {
		return 0, q.wrap("requeue failed tasks", err)
	}
	n, err := store.RequeueFailed(ctx, q.peer.calls, q.keys, ids)
	q.requeued(ctx, n)
	return n, q.wrap("requeue failed tasks", err)
}

// RequeueAllFailed is RequeueFailed for all failed tasks.
func (q *Queue) RequeueAllFailed(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("requeue all failed tasks", q.bad)
	}
	n, err := store.RequeueAllFailed(ctx, q.peer.calls, q.keys)
	q.requeued(ctx, n)
	return n, q.wrap("requeue all failed tasks", err)
}

// DeleteFailed drops the failed tasks with these ids, except those that OnFailed is handling,
// and returns their number. With no ids it does nothing. When it fails, call it again.
func (q *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	if err := q.checkIDs(ids); err != nil {
		return 0, q.wrap("delete failed tasks", err)
	}
	n, err := store.DeleteFailed(ctx, q.peer.calls, q.keys, ids)
	return n, q.wrap("delete failed tasks", err)
}

// DeleteAllFailed is DeleteFailed for all failed tasks.
func (q *Queue) DeleteAllFailed(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("delete all failed tasks", q.bad)
	}
	n, err := store.DeleteAllFailed(ctx, q.peer.calls, q.keys)
	return n, q.wrap("delete all failed tasks", err)
}

// checkIDs fails when there are more ids than one call takes.
func (q *Queue) checkIDs(ids []string) error {
	if q.bad == nil && len(ids) > MaxBatchSize {
		return tooLarge("%d ids at once; at most %d", len(ids), MaxBatchSize)
	}
	return q.bad
}

// requeued lists the queue if something went back to it.
func (q *Queue) requeued(ctx context.Context, n int) {
	if n > 0 {
		q.peer.producer.List(ctx, q.target())
	}
}

// Format implements fmt.Formatter.
func (t FailedTask) Format(s fmt.State, _ rune) { show(s, "failed task", t) }

// LogValue implements slog.LogValuer.
func (t FailedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", t.ID), slog.String("kind", string(t.Kind)), slog.String("error", t.Error),
		slog.Int("bytes", len(t.Payload)), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes),
		slog.String("worker", t.WorkerID), slog.String("at", t.FailedAt.Format(time.RFC3339Nano)))
}
