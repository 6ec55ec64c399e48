package worqr

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/store"
)

// A Task is one attempt at a task. Finish, Stop, Retry and Fail end it. If a handler runs
// it, it ends when the handler returns.
type Task struct {
	AttemptID string // a UUIDv7
	Queue     string
	Payload   []byte      // raw; you may change it
	Key       string      // "" if it has none
	Token     int64       // rises with every start on the queue; for fencing in other systems
	Retries   int         // attempts that failed before this one
	Crashes   int         // workers that died holding it
	Failure   *FailedTask // for OnFailed: what happened
	Result    []byte      // set it before the task ends; EventDone carries it

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

// Context returns a context that ends when work on the task should stop. Its cause says
// why, as for a [Handler]; context.Canceled if the task has ended. A task that you made
// yourself has a context that never ends.
func (t *Task) Context() context.Context {
	if t.attempt == nil {
		return context.Background()
	}
	return t.attempt.Context()
}

// StartTask takes the next task: the first that's due in the schedule, else the first on
// the list. It fails with ErrNoTask, and with ErrNotWorking if the worker doesn't serve
// the queue. If ctx ends first, the task returns to the queue.
func (q *Queue) StartTask(ctx context.Context) (*Task, error) {
	tasks, err := q.startTasks(ctx, 1)
	if err != nil {
		return nil, q.wrap("start task", err)
	}
	return tasks[0], nil
}

// StartTasks takes up to n tasks, 1 to 1,000, in their order, and at least one unless it fails.
func (q *Queue) StartTasks(ctx context.Context, n int) ([]*Task, error) {
	tasks, err := q.startTasks(ctx, n)
	return tasks, q.wrap("start tasks", err)
}

func (q *Queue) startTasks(ctx context.Context, n int) ([]*Task, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if n < 1 || n > engine.MaxStarts {
		return nil, fmt.Errorf("%w: can't start %d tasks at once; the limit is 1 to %d", ErrInvalid, n, engine.MaxStarts)
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
	return t.wrap("finish task", t.end(ctx, store.Outcome{Verb: store.Finish, Result: t.Result}))
}

// Stop ends this attempt and returns the task to the front, or drops it if it was canceled.
// It fails as Finish does.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.end(ctx, store.Outcome{Verb: store.Stop}))
}

// Retry ends this attempt as failed and retries the task after delay, or drops it if it was
// canceled. MaxRetries doesn't apply. It fails as Finish does.
func (t *Task) Retry(ctx context.Context, delay time.Duration) error {
	if delay < 0 || delay > engine.Longest {
		return t.wrap("retry task", fmt.Errorf("%w: a delay of %v isn't between 0 and 100 years", ErrInvalid, delay))
	}
	return t.wrap("retry task", t.end(ctx, store.Outcome{Verb: store.Retry, Delay: delay}))
}

// Fail moves the task to the failed queue with the text of reason, or drops it if it was
// canceled. It fails as Finish does.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	return t.wrap("fail task", t.end(ctx, engine.OutcomeOf(reason)))
}

// end says how the attempt ends. No worker holds a task that the caller has made.
func (t *Task) end(ctx context.Context, o store.Outcome) error {
	if t.attempt == nil {
		return unstarted{}
	}
	return t.attempt.End(ctx, o)
}

// unstarted is the ErrNotOwner of a Task that the caller has made.
type unstarted struct{}

func (unstarted) Error() string {
	return "no worker has started this task: it's not from a Handler or StartTask"
}
func (unstarted) Is(target error) bool { return target == ErrNotOwner }

func (t *Task) wrap(verb string, err error) error { return describe(verb, t.Queue, err) }

// Limits of one call.
const (
	// MaxPayloadSize is the largest allowed Options.MaxPayload, in bytes.
	MaxPayloadSize = 512 << 20
	// DefaultMaxPayload is Options.MaxPayload by default, in bytes.
	DefaultMaxPayload = 64 << 20
	// MaxBatchSize is the most payloads that one call may enqueue.
	MaxBatchSize = 100_000

	nonceWindow = 10 * time.Minute
)

// Enqueue adds the payloads to the back of the queue, in their order: all of them, or none
// if it fails. It wakes idle workers. You may change the payloads once it has returned.
//
// When the reply was lost it fails with ErrUnknownOutcome, and repeating it may add the
// tasks twice; EnqueueOnce doesn't. It fails with ErrInvalid when there is no payload, and
// with ErrTooLarge beyond MaxBatchSize or Options.MaxPayload.
func (q *Queue) Enqueue(ctx context.Context, payloads ...[]byte) error {
	err := q.checkPayloads(payloads)
	if err == nil {
		err = q.peer.producer.Enqueue(ctx, q.target(), payloads)
	}
	return q.wrap("enqueue", err)
}

// EnqueueOnce is like Enqueue, but safe to repeat: within ten minutes, only the first call
// with the nonce, 1 to MaxKeySize bytes, enqueues. Fresh is true for that one.
func (q *Queue) EnqueueOnce(ctx context.Context, nonce string, payloads ...[]byte) (fresh bool, err error) {
	switch {
	case nonce == "":
		return false, q.wrap("enqueue once", fmt.Errorf("%w: the nonce is empty", ErrInvalid))
	case len(nonce) > MaxKeySize:
		return false, q.wrap("enqueue once", tooLarge("a nonce of %d bytes; at most %d", len(nonce), MaxKeySize))
	}
	if err = q.checkPayloads(payloads); err == nil {
		fresh, err = q.peer.producer.EnqueueOnce(ctx, q.target(), nonce, nonceWindow, payloads)
	}
	return fresh, q.wrap("enqueue once", err)
}

// EnqueueUnique adds the payload to the back of the queue. It fails with ErrDuplicate while
// an equal payload that EnqueueUnique added waits or runs.
func (q *Queue) EnqueueUnique(ctx context.Context, payload []byte) error {
	err := q.checkPayloads([][]byte{payload})
	if err == nil {
		err = q.peer.producer.EnqueueUnique(ctx, q.target(), payload)
	}
	return q.wrap("enqueue unique", err)
}

// target is the queue for the producer.
func (q *Queue) target() store.Target {
	return store.Target{Name: q.name, ID: q.id, Keys: q.keys}
}

// checkPayloads fails where there are none, too many, or one is too large.
func (q *Queue) checkPayloads(payloads [][]byte) error {
	switch {
	case q.bad != nil:
		return q.bad
	case len(payloads) == 0:
		return fmt.Errorf("%w: there is no payload", ErrInvalid)
	case len(payloads) > MaxBatchSize:
		return tooLarge("%d payloads at once; at most %d, so split them", len(payloads), MaxBatchSize)
	}
	for i, p := range payloads {
		if most := q.peer.opts.MaxPayload; len(p) > most {
			which := "the payload"
			if len(payloads) > 1 {
				which = fmt.Sprintf("payload %d of %d", i+1, len(payloads))
			}
			return tooLarge("%s has %d bytes; at most %d, so raise Options.MaxPayload, or store the data elsewhere and enqueue a reference to it", which, len(p), most)
		}
	}
	return nil
}

// tooLarge is the error of what is over a limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %w: "+format, append([]any{ErrInvalid, ErrTooLarge}, args...)...)
}

// Cancel removes every waiting copy of the payload and stops those that run, in whatever
// process: their contexts end with ErrCanceled, and they never run again, even if their
// worker dies. The report's Wait waits
// for those that ran. When Cancel fails halfway, call it again.
func (q *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if len(payload) > MaxPayloadSize {
		return nil, q.wrap("cancel", tooLarge("a payload of %d bytes; at most %d", len(payload), MaxPayloadSize))
	}
	payload = bytes.Clone(payload) // the connection may read it for longer than this call takes
	// What was accepted is canceled, too. Where a key is of another type, it is not in a batch,
	// or the next call fails.
	if err := q.peer.producer.Haul(ctx, q.target()); err != nil && !store.IsWrongType(err) {
		return nil, q.wrap("cancel", err)
	}
	receipt, err := store.Cancel(ctx, q.peer.calls, q.keys, payload)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: receipt.Removed, queue: q, receipt: receipt}, nil
}

// CancelKey removes what waits under the key and stops what runs, as Cancel does.
func (q *Queue) CancelKey(ctx context.Context, key string) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if err := checkKey(key); err != nil {
		return nil, q.wrap("cancel", err)
	}
	receipt, err := store.CancelKey(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: receipt.Removed, queue: q, receipt: receipt}, nil
}

// A CancelReport says what a cancel did. It isn't safe for concurrent use.
type CancelReport struct {
	Removed  int // waiting copies
	Stopped  int // running copies; set by Wait
	Finished int // running copies that finished before they were stopped; set by Wait

	queue   *Queue
	receipt store.Receipt
}

// Wait blocks until everything that was running at this cancel has ended, and sets Stopped
// and Finished. If a worker died, that takes until a peer has returned its tasks. When it
// fails you may call it again. ErrUnknownOutcome means that Redis lost its record of the
// running tasks.
func (c *CancelReport) Wait(ctx context.Context) error {
	if c.receipt.Token == 0 {
		return nil // nothing ran
	}
	examine := time.Now().Add(examineEach)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		over, tally, err := c.receipt.IsOver(ctx, c.queue.peer.calls, c.queue.keys)
		if err == nil && over {
			c.Stopped, c.Finished = tally.Stopped, tally.Finished
			return nil
		}
		if err == nil && time.Now().After(examine) {
			examine = time.Now().Add(examineEach)
			err = c.examine(ctx)
		}
		if err != nil {
			return c.queue.wrap("wait for cancel", err)
		}
		select {
		case <-ctx.Done():
			return c.queue.wrap("wait for cancel", context.Cause(ctx))
		case <-time.After(store.Jitter(pause)):
		}
	}
}

// examineEach is how often Wait asks whether those it waits for can answer at all.
const examineEach = time.Second

// examine fails when nobody will ever say that the cancel is over.
func (c *CancelReport) examine(ctx context.Context) error {
	forgotten, err := c.receipt.IsForgotten(ctx, c.queue.peer.calls, c.queue.keys)
	if forgotten {
		return store.ErrForgotten
	}
	return err
}

// Format implements fmt.Formatter.
func (t Task) Format(s fmt.State, _ rune) { show(s, "task", t) }

// LogValue implements slog.LogValuer.
func (t Task) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("attempt_id", t.AttemptID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

// Format implements fmt.Formatter.
func (c CancelReport) Format(s fmt.State, _ rune) { show(s, "cancel", c) }

// LogValue implements slog.LogValuer.
func (c CancelReport) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("removed", c.Removed), slog.Int("stopped", c.Stopped), slog.Int("finished", c.Finished))
}
