package worqr

import (
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

const page = 100 // items of one exchange

// A Task is one attempt at a task. Finish, Stop, Retry and Fail end it; a task with a handler
// ends when that returns.
type Task struct {
	AttemptID string // a UUIDv7
	Queue     string
	Payload   []byte      // raw; you may change it
	Key       string      // "" if it has none
	Token     int64       // rises with every start on the queue; for fencing in other systems
	Retries   int         // attempts that failed before this one
	Crashes   int         // workers that died holding it
	Failure   *FailedTask // for OnFailed: what happened
	Result    []byte      // set it before the end; EventDone carries it

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

// Context ends when the task should no longer be worked on. Its cause says why, as for a
// [Handler]; context.Canceled if the task has ended.
func (t *Task) Context() context.Context { return t.attempt.Context() }

// StartTask takes the task at the front: what is due in the schedule, else the first of the
// list. It fails with ErrNoTask, and with ErrNotWorking unless StartWork was called. If ctx
// ends meanwhile, the task is put back.
func (q *Queue) StartTask(ctx context.Context) (*Task, error) {
	tasks, err := q.startTasks(ctx, 1)
	if err != nil {
		return nil, q.wrap("start task", err)
	}
	return tasks[0], nil
}

// StartTasks takes up to n tasks, 1 to 1,000, in their order, and at least one if it doesn't
// fail.
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

// Finish ends the task for good. It fails with ErrNotOwner if this worker no longer holds it.
// After any other error, ErrUnknownOutcome included, you may repeat it.
func (t *Task) Finish(ctx context.Context) error {
	return t.wrap("finish task", t.attempt.End(ctx, store.Outcome{Verb: store.Finish, Result: t.Result}))
}

// Stop ends this attempt and returns the task to the front, or drops it if it was canceled.
// It fails as Finish does.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.attempt.End(ctx, store.Outcome{Verb: store.Stop}))
}

// Retry ends this attempt as failed and retries the task after delay, or drops it if it was
// canceled. MaxRetries doesn't apply. It fails as Finish does.
func (t *Task) Retry(ctx context.Context, delay time.Duration) error {
	if delay < 0 || delay > engine.Longest {
		return t.wrap("retry task", fmt.Errorf("%w: a delay of %v", ErrInvalid, delay))
	}
	return t.wrap("retry task", t.attempt.End(ctx, store.Outcome{Verb: store.Retry, Delay: delay}))
}

// Fail moves the task to the failed queue with the text of reason, or drops it if it was
// canceled. It fails as Finish does.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	return t.wrap("fail task", t.attempt.End(ctx, engine.OutcomeOf(reason)))
}

func (t *Task) wrap(verb string, err error) error { return wrapOn(t.Queue, verb, err) }
