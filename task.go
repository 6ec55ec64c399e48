package worqr

import (
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

const page = 100 // items of one exchange

// A Task is one attempt at a task. Finish, Stop, Retry and Fail end it.
type Task struct {
	AttemptID string // of the attempt, a UUIDv7
	Queue     string
	Payload   []byte      // raw; yours to change
	Key       string      // "" for a task from the list
	Token     int64       // rises with every start on the queue; for fencing downstream
	Retries   int         // attempts that failed before this one
	Crashes   int         // workers that died holding it
	Failure   *FailedTask // what has happened to it; only for OnFailed
	Result    []byte      // set it before the end; the event "done" has it. Above Options.MaxResult, it has the length and digest

	attempt *engine.Attempt
}

// taskOf is an attempt as the caller gets it.
func taskOf(queue string, a *engine.Attempt) *Task {
	t := &Task{AttemptID: a.ID, Queue: queue, Payload: a.Payload, Token: a.Token, Retries: a.Retries, Crashes: a.Crashes, Key: store.KeyOf(a.Entry), attempt: a}
	if a.Failure != nil {
		t.Failure = failure(a.Failure)
		t.Key = t.Failure.Key
	}
	return t
}

// Context ends when the task is no longer to be worked on. Its cause is then
// ErrCanceled, ErrEvicted, ErrLeaseExpired or ErrShutdown, or context.Canceled once
// the task has ended. A handler's context is derived from it.
func (t *Task) Context() context.Context { return t.attempt.Context() }

// StartTask takes the task at the front of the queue: what is due in the second
// lane, else what is first on the list. MaxCrashes and KeepFailed are those of
// the queue's handler, or their defaults. It fails with ErrNoTask when there is
// none or the queue is paused, and with ErrNotWorking unless
// StartWork was called. If ctx ends while the start is under way, a task that
// was nevertheless taken is put back.
func (q *Queue) StartTask(ctx context.Context) (*Task, error) {
	tasks, err := q.startTasks(ctx, 1)
	if err != nil {
		return nil, q.wrap("start task", err)
	}
	return tasks[0], nil
}

// StartTasks takes up to n tasks from the front of the queue, in their order, in
// one call, or in several if one would block Redis for too long. It returns at least one, or an error as StartTask does; and fails
// with ErrInvalid when n is not from 1 to 1,000.
func (q *Queue) StartTasks(ctx context.Context, n int) ([]*Task, error) {
	tasks, err := q.startTasks(ctx, n)
	return tasks, q.wrap("start tasks", err)
}

func (q *Queue) startTasks(ctx context.Context, n int) ([]*Task, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if n < 1 || n > engine.MaxStarts {
		return nil, fmt.Errorf("%w: %d tasks at once; from 1 to %d", ErrInvalid, n, engine.MaxStarts)
	}
	r, err := q.peer.fleet.Session(q.id)
	if err != nil {
		return nil, err
	}
	attempts, err := r.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	tasks := make([]*Task, len(attempts))
	for i, a := range attempts {
		tasks[i] = taskOf(q.name, a)
	}
	return tasks, nil
}

// Finish ends the task for good, and publishes the event "done". It fails with
// ErrNotOwner if this worker no longer holds the task; then another one may be running
// it. After any other error, ErrUnknownOutcome included, you may repeat it: a finish that
// was carried out and is repeated succeeds.
func (t *Task) Finish(ctx context.Context) error {
	return t.wrap("finish task", t.attempt.End(ctx, store.Outcome{Verb: store.Finish, Result: t.Result}))
}

// Stop ends this attempt and puts the task back to the front of the queue,
// unless it has been canceled meanwhile. Errors are those of Finish.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.attempt.End(ctx, store.Outcome{Verb: store.Stop}))
}

// Retry ends this attempt as failed and retries the task after delay, at once if
// that is 0, unless it was canceled in the meantime. Until then it waits in the
// second lane. Retry doesn't check MaxRetries; look at t.Retries.
// It fails with ErrInvalid when delay is negative or more than a century; other
// errors are those of Finish.
func (t *Task) Retry(ctx context.Context, delay time.Duration) error {
	if delay < 0 || delay > engine.Longest {
		return t.wrap("retry task", fmt.Errorf("%w: a delay of %v", ErrInvalid, delay))
	}
	return t.wrap("retry task", t.attempt.End(ctx, store.Outcome{Verb: store.Retry, Delay: delay}))
}

// Fail ends the task as failed: it goes to the failed queue with the text of
// reason, and with kind broken if that is Broken, unless it has been canceled
// meanwhile. A task of OnFailed stays in the failed queue, and is not taken from
// there again. It fails with ErrInvalid when there is no reason; other errors
// are those of Finish.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	return t.wrap("fail task", t.attempt.End(ctx, engine.OutcomeOf(reason)))
}

func (t *Task) wrap(verb string, err error) error { return wrapOn(t.Queue, verb, err) }
