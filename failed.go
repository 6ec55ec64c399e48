package worqr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A FailedTask is a task in the failed queue.
type FailedTask struct {
	ID       string
	Payload  []byte
	Key      string // "" if it had none
	Kind     FailureKind
	Error    string    // of the last attempt, at most 4,096 bytes
	Retries  int       // attempts that failed before the last
	Crashes  int       // workers that died holding it
	WorkerID string    // that ran it last; for FailureCrashed, that moved it here
	FailedAt time.Time // by Redis's clock

	Headers    map[string]string
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
}

func failure(g *store.Grave) *FailedTask {
	c := store.CardOf(g.From, g.Card)
	return &FailedTask{
		ID: store.KeyOf(g.Entry), Payload: g.Payload, Key: store.KeyOf(g.From),
		Kind: FailureKind(g.Kind), Error: g.Reason, Retries: g.Retries, Crashes: g.Crashes,
		WorkerID: g.Worker, FailedAt: time.UnixMilli(g.At), Headers: c.Headers, EnqueuedAt: moment(c.Since),
	}
}

// failed returns the failed queue of q: a queue of the same kind, with its own keys. Names contain
// no spaces, so its id differs from every other.
func (q *Queue) failed() *Queue {
	f := &Queue{peer: q.peer, name: q.name, in: q.in, id: q.in + " (failed)", keys: q.keys.Failed(), bad: q.bad}
	if q.spread != nil {
		f.spread = &spread{rest: q.spread.rest.failed()}
		for _, part := range q.spread.parts {
			f.spread.parts = append(f.spread.parts, part.failed())
		}
	}
	return f
}

// Failed yields the failed tasks, newest first, without those that OnFailed is handling. Tasks
// that OnFailed will retry come last.
func (q *Queue) Failed(ctx context.Context) iter.Seq2[FailedTask, error] {
	rows := rowsOf(ctx, q, store.FailedTasks, store.Sorted(func(a, b store.Grave) int { return cmp.Compare(b.At, a.At) }))
	return listed(rows, q.bad, q.wrapper("list failed tasks"), func(g store.Grave) FailedTask { return *failure(&g) })
}

// RequeueFailed puts the failed tasks with these ids at the back of the queue, or under their key,
// resets their counts, and returns how many. Tasks that OnFailed is handling stay, and so do those
// whose key has a waiting task. If it fails, call it again.
func (q *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	return q.withFailed(ctx, "RequeueFailed", "requeue failed tasks", len(ids), func(part *Queue) (int, error) {
		return store.RequeueFailed(ctx, q.peer.calls, part.keys, ids)
	})
}

// RequeueAllFailed is RequeueFailed for all failed tasks.
func (q *Queue) RequeueAllFailed(ctx context.Context) (int, error) {
	return q.withFailed(ctx, "RequeueAllFailed", "requeue all failed tasks", 0, func(part *Queue) (int, error) {
		return store.RequeueAllFailed(ctx, q.peer.calls, part.keys)
	})
}

// DeleteFailed drops the failed tasks with these ids, except those that OnFailed is handling,
// and returns their number. If it fails, call it again.
func (q *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	return q.withFailed(ctx, "DeleteFailed", "delete failed tasks", len(ids), func(part *Queue) (int, error) {
		return store.DeleteFailed(ctx, q.peer.calls, part.keys, ids)
	})
}

// DeleteAllFailed is DeleteFailed for all failed tasks.
func (q *Queue) DeleteAllFailed(ctx context.Context) (int, error) {
	return q.withFailed(ctx, "DeleteAllFailed", "delete all failed tasks", 0, func(part *Queue) (int, error) {
		return store.DeleteAllFailed(ctx, q.peer.calls, part.keys)
	})
}

// withFailed changes failed tasks of each part, for a method that names some or all of them, and
// returns how many. The queue is listed if tasks may have returned to it.
func (q *Queue) withFailed(ctx context.Context, method, verb string, ids int, change func(part *Queue) (int, error)) (int, error) {
	switch {
	case q.bad != nil:
		return 0, q.wrap(verb, q.bad)
	case ids > MaxBatchSize:
		return 0, q.wrap(verb, tooLarge("%d ids at once; at most %d", ids, MaxBatchSize))
	}
	done := q.changes(method, "")
	n, err := q.sum(ctx, func(part *Queue) (int, error) {
		n, err := change(part)
		if n > 0 && strings.HasPrefix(verb, "requeue") {
			q.peer.producer.List(ctx, part.target())
		}
		return n, err
	})
	return n, done(n, q.wrap(verb, err))
}

func (t FailedTask) Format(s fmt.State, _ rune) { show(s, "failed task", t) }

func (t FailedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", t.ID), slog.String("kind", string(t.Kind)), slog.String("error", t.Error),
		slog.Int("bytes", len(t.Payload)), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes),
		slog.String("worker", t.WorkerID), slog.String("at", t.FailedAt.Format(time.RFC3339Nano)))
}
