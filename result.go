package worqr

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/await"
	"github.com/worqr/worqr/internal/store"
)

// An Outcome says how a task ended.
type Outcome string

const (
	OutcomeFinished Outcome = store.EndFinished
	OutcomeFailed   Outcome = store.EndFailed // for good: it's in the failed queue
	OutcomeCanceled Outcome = store.EndCanceled
	OutcomeExpired  Outcome = store.EndExpired  // before it started
	OutcomeRemoved  Outcome = store.EndRemoved  // by RemoveKey, or with its schedule
	OutcomeReplaced Outcome = store.EndReplaced // by a task under the key that has no KeepResult
	OutcomeDeleted  Outcome = "deleted"         // with its queue, or Redis lost it
)

// MinKeepResult and MaxKeepResult limit KeepResult.
const (
	MinKeepResult = time.Second
	MaxKeepResult = 30 * 24 * time.Hour
)

// A Result is how a task with KeepResult ended.
type Result struct {
	Outcome Outcome
	Value   []byte    // Task.Result of a task that finished; nil if it's larger than Options.MaxResult
	Size    int       // of Task.Result, in bytes
	Error   string    // why the task failed, at most 1,024 bytes
	EndedAt time.Time // by Redis's clock; zero if Outcome is OutcomeDeleted
}

// Result returns how the last task under key with KeepResult ended, for as long as that says, also
// while the next one waits or runs. Without one it fails with ErrNotEnded while a task waits or
// runs, and else with ErrNoResult. Requeueing a failed task removes its result.
func (q *Queue) Result(ctx context.Context, key string) (*Result, error) {
	r, err := q.result(ctx, key)
	return r, q.wrap("result", err)
}

func (q *Queue) result(ctx context.Context, key string) (*Result, error) {
	part, err := q.keyed(ctx, key)
	if err != nil {
		return nil, err
	}
	ends, err := store.Ends(ctx, q.peer.reads, part.keys, []string{store.EntryOf(key)})
	switch {
	case err != nil:
		return nil, err
	case ends[0].Record != nil:
		return resultOf(ends[0].Record), nil
	case ends[0].Pending():
		return nil, ErrNotEnded
	}
	return nil, await.ErrUnknown
}

// Wait blocks until the task that waits or runs under key ends, and returns how. The task must have
// KeepResult. If there is none, Wait returns the last result, or fails with ErrNoResult at once.
//
// Wait survives restarts of Redis, and ends with ctx or the peer. Thousands of calls share a
// connection. If a Put replaces the waiting task, Wait waits for the new one, or returns
// OutcomeReplaced if that has no KeepResult; if the queue is deleted, it returns OutcomeDeleted.
func (q *Queue) Wait(ctx context.Context, key string) (*Result, error) {
	part, err := q.keyed(ctx, key)
	if err != nil {
		return nil, q.wrap("wait", err)
	}
	record, err := q.peer.ends.Wait(ctx, part.keys, store.EntryOf(key))
	switch {
	case err != nil:
		return nil, q.wrap("wait", err)
	case record == nil:
		return &Result{Outcome: OutcomeDeleted}, nil
	}
	return resultOf(record), nil
}

// keyed checks a key, and returns the part of the queue that it is in.
func (q *Queue) keyed(ctx context.Context, key string) (*Queue, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return q.ofKey(ctx, key)
}

func resultOf(r *store.Record) *Result {
	return &Result{Outcome: Outcome(r.End), Value: r.Result, Size: r.Size, Error: r.Error, EndedAt: time.UnixMicro(r.At)}
}

func (r Result) Format(s fmt.State, _ rune) { show(s, "result", r) }

func (r Result) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("outcome", string(r.Outcome)), slog.Int("bytes", r.Size), slog.String("at", r.EndedAt.Format(time.RFC3339Nano)))
}
