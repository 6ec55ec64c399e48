package worqr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/await"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
)

// failure describes a failed task with a name in the failed queue. If f is nil, another program has written it.
func failure(name string, r *store.Record, f *store.Failure) *inspect.FailedTask {
	if f == nil {
		f = &store.Failure{}
	}
	return &inspect.FailedTask{
		ID:      strings.ReplaceAll(url.PathEscape(name), "%23", "#"), // printable, whatever its key
		Payload: r.Payload, Key: store.KeyOf(f.Back), Kind: f.Kind, Error: f.Error.Last(), Retries: f.Retries, Crashes: f.Crashes,
		WorkerID: f.Worker, FailedAt: store.Moment(f.At), Attempts: f.Error.Attempts(),
		Headers: r.Metadata.Headers, EnqueuedAt: store.Moment(r.Enqueued), DueAt: store.Moment(r.Due),
	}
}

// namesOf returns the names of failed tasks.
func namesOf(ids []string) []string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		if name, err := url.PathUnescape(id); err == nil { // otherwise it's no task's
			all = append(all, name)
		}
	}
	return all
}

// maxIDs is how many tasks of a failed queue one call may name.
const maxIDs = 100_000

// failed returns the failed queue of q: a queue of the same kind, with its own keys. Names contain
// no spaces, so its id differs from every other.
func (q *Queue) failed() *Queue {
	return &Queue{peer: q.peer, name: q.name, id: q.name + " (failed)", keys: q.keys.Failed(), bad: q.bad}
}

// Failed yields the failed tasks, newest first, except those that OnFailed is handling. Those that OnFailed
// has failed for good come first, and those that it will retry last.
func (q *Queue) Failed(ctx context.Context) iter.Seq2[inspect.FailedTask, error] {
	return listed(store.FailedTasks(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list failed tasks"), func(t store.FailedTask) inspect.FailedTask { return *failure(t.Name, &t.Record, t.Record.Failure) })
}

// RequeueFailed puts the failed tasks with these ids at the back of the queue, or under their key,
// resets their counts and attempts, and returns how many. Unknown ids are skipped. Tasks that OnFailed is handling stay, and so
// do those whose key, or for unique ones whose payload, has a task that waits or runs.
func (q *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	return q.withFailed("RequeueFailed", "requeue failed tasks", ids, func(names []string) (int, error) {
		n, err := store.Requeue(ctx, q.peer.calls, q.keys, names)
		return q.requeued(ctx, n), err
	})
}

// RequeueAllFailed is RequeueFailed for all failed tasks.
func (q *Queue) RequeueAllFailed(ctx context.Context) (int, error) {
	return q.withFailed("RequeueAllFailed", "requeue all failed tasks", nil, func([]string) (int, error) {
		n, err := store.RequeueAll(ctx, q.peer.calls, q.keys)
		return q.requeued(ctx, n), err
	})
}

// DeleteFailed drops the failed tasks with these ids, except those that OnFailed is handling,
// and returns their number. If it fails, call it again.
func (q *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	return q.withFailed("DeleteFailed", "delete failed tasks", ids, func(names []string) (int, error) {
		return store.DeleteFailed(ctx, q.peer.calls, q.keys, names)
	})
}

// DeleteAllFailed is DeleteFailed for all failed tasks.
func (q *Queue) DeleteAllFailed(ctx context.Context) (int, error) {
	return q.withFailed("DeleteAllFailed", "delete all failed tasks", nil, func([]string) (int, error) {
		return store.DeleteAllFailed(ctx, q.peer.calls, q.keys)
	})
}

// withFailed changes failed tasks, and returns their number.
func (q *Queue) withFailed(method, verb string, ids []string, do func(names []string) (int, error)) (int, error) {
	if len(ids) > maxIDs {
		return 0, q.wrap(verb, tooLarge("%d ids were given; the limit is %d", len(ids), maxIDs))
	}
	return q.change(method, verb, "", func() (int, error) { return do(namesOf(ids)) })
}

// requeued lists the queue if tasks have returned to it, and returns their number.
func (q *Queue) requeued(ctx context.Context, tasks int) int {
	if tasks > 0 {
		q.peer.producer.List(ctx, q.target())
	}
	return tasks
}

// A PanicPolicy decides what happens to a task whose handler panics. Calling runtime.Goexit counts
// as returning an error.
type PanicPolicy int

const (
	// RetryOnPanic treats a panic as an error.
	RetryOnPanic PanicPolicy = iota
	// FailOnPanic treats a panic as a Permanent error.
	FailOnPanic
)

// Permanent makes a handler's error final: the task goes to the failed queue. If Permanent,
// Malformed, RetryAfter and Snooze are nested, the outermost wins. The first three return nil for
// nil.
func Permanent(err error) error { return verdict.Permanent(err) }

// Malformed is like Permanent, for a payload that can't be decoded: the task fails as
// inspect.FailureMalformed.
func Malformed(err error) error { return verdict.Malformed(err) }

// RetryAfter wraps err so that the task is retried after d instead of Backoff's delay, or
// immediately if d is negative. MaxRetries still applies.
func RetryAfter(err error, d time.Duration) error { return verdict.RetryAfter(err, d) }

// Snooze returns an error that starts the task again after d, or immediately if d isn't positive.
// Use it if it's too early for a task: it isn't a retry, doesn't lengthen Backoff's delay, and isn't
// logged.
func Snooze(d time.Duration) error { return verdict.Snooze(d) }

// IsPermanent reports whether err is, or wraps, a Permanent or Malformed error. If several kinds are
// nested, the outermost counts.
func IsPermanent(err error) bool { return verdict.IsPermanent(err) }

// IsMalformed is like IsPermanent, for Malformed only.
func IsMalformed(err error) bool { return verdict.IsMalformed(err) }

// IsSnooze is like IsPermanent, for Snooze.
func IsSnooze(err error) bool { return verdict.IsSnooze(err) }

// A FailureLog says which handler failures a peer logs.
type FailureLog int

const (
	// LogLimited logs up to 20 failures a second per queue, 50 in all, and counts the rest.
	LogLimited FailureLog = iota
	// LogAll logs every failure, unless the Logger can't keep up.
	LogAll
	// LogPanics logs only panics, within the limits of LogLimited.
	LogPanics
)

// An Outcome says how a task ended.
type Outcome string

const (
	OutcomeFinished Outcome = store.EndFinished
	OutcomeFailed   Outcome = store.EndFailed // for good; it's in the failed queue
	OutcomeCanceled Outcome = store.EndCanceled
	OutcomeExpired  Outcome = store.EndExpired  // before it started
	OutcomeRemoved  Outcome = store.EndRemoved  // by RemoveKey, or with its schedule
	OutcomeReplaced Outcome = store.EndReplaced // by a task under its key without KeepResult
	OutcomeDeleted  Outcome = "deleted"         // with its queue, or Redis lost it
)

// MinKeepResult and MaxKeepResult limit KeepResult.
const (
	MinKeepResult = time.Second
	MaxKeepResult = 30 * 24 * time.Hour
)

// A Result says how a task with KeepResult ended.
type Result struct {
	Outcome Outcome
	Value   []byte    // Task.Result of a task that finished; empty if it was larger than Options.MaxResult
	Error   string    // why the task failed, at most 1,024 bytes
	EndedAt time.Time // by Redis's clock; zero if Outcome is OutcomeDeleted
}

// Result returns the last result under key for as long as KeepResult allows, even while the next
// task waits or runs. Without one, it fails with ErrNotEnded while a task waits or runs, otherwise
// with ErrNoResult. Requeuing a failed task removes its result.
func (q *Queue) Result(ctx context.Context, key string) (*Result, error) {
	r, err := q.result(ctx, key)
	return r, q.wrap("result", err)
}

func (q *Queue) result(ctx context.Context, key string) (*Result, error) {
	if err := q.checkKey(key); err != nil {
		return nil, err
	}
	ends, err := store.Ends(ctx, q.peer.reads, q.keys, []string{store.NameOf(key)})
	switch {
	case err != nil:
		return nil, err
	case ends[0].Ended != nil:
		return resultOf(ends[0].Ended), nil
	case ends[0].Pending():
		return nil, ErrNotEnded
	}
	return nil, await.ErrUnknown
}

// Wait blocks until the task that waits or runs under key ends, and returns its outcome. That task
// must have KeepResult, or Wait fails with ErrNoResult. If no task waits or runs under key, it
// returns the last result immediately.
//
// Wait survives restarts of Redis, and fails when ctx ends or the peer is closed. If Add replaces
// the waiting task, Wait waits for the new one, or returns OutcomeReplaced if that has no
// KeepResult.
func (q *Queue) Wait(ctx context.Context, key string) (*Result, error) {
	if err := q.checkKey(key); err != nil {
		return nil, q.wrap("wait", err)
	}
	ended, err := q.peer.ends.Wait(ctx, q.keys, store.NameOf(key))
	switch {
	case err != nil:
		return nil, q.wrap("wait", err)
	case ended == nil:
		return &Result{Outcome: OutcomeDeleted}, nil
	}
	return resultOf(ended), nil
}

// checkKey fails if the queue's name or the key is bad.
func (q *Queue) checkKey(key string) error { return cmp.Or(q.bad, checkKey(key)) }

func resultOf(e *store.Ended) *Result {
	text := strings.ToValidUTF8(e.Error[:min(len(e.Error), store.MaxError)], "")
	return &Result{Outcome: Outcome(e.End), Value: e.Value, Error: text, EndedAt: time.UnixMicro(e.At)}
}

func (r Result) Format(s fmt.State, _ rune) { logs.Show(s, "result", r) }

func (r Result) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("outcome", string(r.Outcome)), slog.Int("bytes", len(r.Value)), slog.String("at", r.EndedAt.Format(time.RFC3339Nano)))
}
