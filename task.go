package worqr

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A Task is one attempt at a task. Finish, Stop, Retry, Snooze and Fail end it, and so does
// returning from its handler. They fail with ErrNotOwner if this worker no longer holds it; after
// other errors you may repeat them. All but Finish drop a canceled task.
type Task struct {
	AttemptID string // a UUIDv7
	Queue     string
	Payload   []byte              // raw; you may change it
	Key       string              // "" if it has none
	Token     int64               // the fencing token: rises with every start on the queue
	Retries   int                 // attempts that failed before this one
	Crashes   int                 // workers that died holding it
	Attempt   int                 // 1 for the first: 1 + Retries + Crashes
	Failure   *inspect.FailedTask // for OnFailed: what happened
	Result    []byte              // you may set it; EventDone and Queue.Result carry it

	Headers map[string]string // see TaskSpec
	// EnqueuedAt is when it was added, or an occurrence was planned, by Redis's clock. It's zero for
	// Enqueue, and for a Key or Unique with none of Headers, Expires, Timeout, MaxRetries and KeepResult.
	EnqueuedAt time.Time
	// DueAt is when it could start, by Redis's clock, or the scheduled time of a recurring task. It's
	// zero if unknown, as for Enqueue.
	DueAt     time.Time
	LastError string // of the previous attempt, at most 1,024 bytes; "" if it had none, or its worker died

	attempt *engine.Attempt
	ctx     context.Context // of the handler of batches; else nil
}

// taskOf converts an attempt for the caller.
func taskOf(queue string, a *engine.Attempt) *Task {
	t := &Task{AttemptID: a.ID, Queue: queue, Payload: a.Payload, Token: a.Token, Retries: a.Retries, Crashes: a.Crashes, Key: store.KeyOf(a.Entry), attempt: a,
		Attempt: a.Retries + a.Crashes + 1, Headers: a.Card.Headers, EnqueuedAt: store.Moment(a.Card.Since), DueAt: store.Moment(a.Due), LastError: a.Error}
	if a.Failure != nil {
		t.Failure = failure(a.Failure)
		t.Key = t.Failure.Key
	}
	return t
}

// Context returns a context that ends when work on the task should stop. Its cause is as for a
// [Handler], or context.Canceled once the task has ended.
func (t *Task) Context() context.Context {
	if t.attempt == nil {
		return context.Background()
	}
	if t.ctx != nil {
		return t.ctx
	}
	return t.attempt.Context()
}

// Draining returns a channel that's closed when the queue begins to drain: Run's context ended, or
// Shutdown, Unhandle, StopWork or StopWorker was called. Except with StopWork and StopWorker, the
// context ends later, so a long handler can save its progress.
func (t *Task) Draining() <-chan struct{} {
	if t.attempt == nil {
		return nil
	}
	return t.attempt.Draining()
}

// StartTask takes the next task. It fails with ErrNoTask if there is none, and with ErrNotWorking
// if the worker doesn't serve the queue. If ctx ends first, the task returns to the queue.
func (q *Queue) StartTask(ctx context.Context) (*Task, error) {
	tasks, err := q.startTasks(ctx, 1)
	if err != nil {
		return nil, q.wrap("start task", err)
	}
	return tasks[0], nil
}

// maxStarted is the most tasks that StartTasks takes.
const maxStarted = 1000

// StartTasks is StartTask for 1 to n tasks in order; n is at most 1,000.
func (q *Queue) StartTasks(ctx context.Context, n int) ([]*Task, error) {
	tasks, err := q.startTasks(ctx, n)
	return tasks, q.wrap("start tasks", err)
}

func (q *Queue) startTasks(ctx context.Context, n int) ([]*Task, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if n < 1 || n > maxStarted {
		return nil, fmt.Errorf("%w: n is %d; it must be between 1 and %d", ErrInvalid, n, maxStarted)
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

// Finish ends the task for good.
func (t *Task) Finish(ctx context.Context) error {
	return t.wrap("finish task", t.end(ctx, store.Outcome{Verb: store.Finish, Result: t.Result}))
}

// Stop ends this attempt and returns the task to the front.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.end(ctx, store.Outcome{Verb: store.Stop}))
}

// Retry ends this attempt as failed and retries the task after delay, whatever MaxRetries says.
func (t *Task) Retry(ctx context.Context, delay time.Duration) error {
	return t.wrap("retry task", t.putOff(ctx, store.Retry, delay))
}

// Snooze ends this attempt and starts the task again after delay. It doesn't count as a retry.
func (t *Task) Snooze(ctx context.Context, delay time.Duration) error {
	return t.wrap("snooze task", t.putOff(ctx, store.Snooze, delay))
}

// putOff ends the attempt, and starts the task again after delay.
func (t *Task) putOff(ctx context.Context, verb store.Ending, delay time.Duration) error {
	if delay < 0 || delay > engine.Longest {
		return fmt.Errorf("%w: a delay of %v isn't between 0 and 100 years", ErrInvalid, delay)
	}
	return t.end(ctx, store.Outcome{Verb: verb, Delay: delay})
}

// Fail moves the task to the failed queue with the text of reason.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	return t.wrap("fail task", t.end(ctx, engine.OutcomeOf(reason)))
}

// end ends the attempt as o says. No worker holds a task that the caller created.
func (t *Task) end(ctx context.Context, o store.Outcome) error {
	if t.attempt == nil {
		return unstarted{}
	}
	return t.attempt.End(ctx, o)
}

// unstarted is the ErrNotOwner of a Task that the caller created.
type unstarted struct{}

func (unstarted) Error() string {
	return "no worker has started this task; a Task must come from a Handler or StartTask"
}
func (unstarted) Is(target error) bool { return target == ErrNotOwner }

func (t *Task) wrap(verb string, err error) error { return describe(verb, t.Queue, err) }

const (
	MaxPayloadSize    = 16 << 20          // largest Options.MaxPayload, in bytes
	DefaultMaxPayload = 1 << 20           // in bytes
	MaxBatchSize      = store.MaxPayloads // payloads of one Enqueue
	MaxBatchBytes     = store.MaxBytes    // their bytes in total, unless it's a single payload

	nonceWindow = 10 * time.Minute
)

// Enqueue adds the payloads to the back of the queue, in order: all, or none if it fails. It wakes
// idle workers. You may change the payloads afterwards.
//
// It fails with ErrInvalid without a payload, and with ErrTooLarge beyond MaxBatchSize, MaxBatchBytes
// or Options.MaxPayload: import more in a loop. Repeating it after ErrUnknownOutcome may add the tasks twice; EnqueueOnce
// doesn't.
func (q *Queue) Enqueue(ctx context.Context, payloads ...[]byte) error {
	began, err := time.Now(), q.checkPayloads(payloads)
	if err == nil {
		err = q.peer.producer.Enqueue(ctx, q.target(), payloads)
	}
	return q.enqueued(began, worqrtrace.Queue{}, q.wrap("enqueue", err), payloads...)
}

// EnqueueOnce is Enqueue, safe to repeat: within ten minutes, only the first call with the nonce, 1
// to MaxKeySize bytes, enqueues and returns true.
func (q *Queue) EnqueueOnce(ctx context.Context, nonce string, payloads ...[]byte) (fresh bool, err error) {
	if err := checkNonce(nonce); err != nil {
		return false, q.wrap("enqueue once", err)
	}
	began := time.Now()
	if err = q.checkPayloads(payloads); err == nil {
		fresh, err = q.peer.producer.EnqueueOnce(ctx, q.target(), nonce, nonceWindow, payloads)
	}
	if err = q.wrap("enqueue once", err); fresh || err != nil {
		err = q.enqueued(began, worqrtrace.Queue{}, err, payloads...)
	}
	return fresh, err
}

// target describes the queue for the producer.
func (q *Queue) target() store.Target {
	return store.Target{Name: q.name, ID: q.id, Keys: q.keys}
}

// checkPayloads fails if there are no payloads, too many, or one is too large.
func (q *Queue) checkPayloads(payloads [][]byte) error {
	switch {
	case q.bad != nil:
		return q.bad
	case len(payloads) == 0:
		return fmt.Errorf("%w: no payloads were given", ErrInvalid)
	case len(payloads) > MaxBatchSize:
		return tooLarge("%d payloads were given; the limit is %d; split them", len(payloads), MaxBatchSize)
	}
	size := 0
	for i, p := range payloads {
		if err := checkSize(p, q.peer.opts.MaxPayload); err != nil && len(payloads) > 1 {
			return fmt.Errorf("payload %d of %d: %w", i+1, len(payloads), err)
		} else if err != nil {
			return err
		}
		size += len(p)
	}
	if len(payloads) > 1 && size > MaxBatchBytes {
		return tooLarge("%d payloads with %d bytes were given; the limit is %d bytes; split them", len(payloads), size, MaxBatchBytes)
	}
	return nil
}

func checkSize(payload []byte, most int) error {
	if len(payload) > most {
		return tooLarge("the payload has %d bytes; the limit is %d; raise Options.MaxPayload, or store the data elsewhere and enqueue a reference to it", len(payload), most)
	}
	return nil
}

// tooLarge returns the error for something that exceeds its limit.
func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %w: "+format, append([]any{ErrInvalid, ErrTooLarge}, args...)...)
}

// Cancel removes every waiting copy of the payload and stops running ones in any process: their
// contexts end with ErrCanceled, and they never run again. The report's Wait waits for them.
// Cancel doesn't find tasks from Add without Key or Unique; use CancelKey. If it fails halfway, call it again.
func (q *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	if len(payload) > MaxPayloadSize {
		return nil, q.wrap("cancel", tooLarge("the payload has %d bytes; the limit is %d", len(payload), MaxPayloadSize))
	}
	began := time.Now()
	payload = bytes.Clone(payload) // the connection may read it for longer than this call takes
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	receipt, err := store.Cancel(ctx, q.peer.calls, q.keys, payload)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return q.cancelReport(began, "", receipt), nil
}

// CancelKey is Cancel for the tasks waiting and running under the key.
func (q *Queue) CancelKey(ctx context.Context, key string) (*CancelReport, error) {
	began := time.Now()
	if err := q.checkKey(key); err != nil {
		return nil, q.wrap("cancel", err)
	}
	receipt, err := store.CancelKey(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return q.cancelReport(began, key, receipt), nil
}

func (q *Queue) cancelReport(began time.Time, key string, r store.Receipt) *CancelReport {
	q.canceled(began, key, r.Removed)
	c := &CancelReport{Removed: r.Removed, queue: q}
	if r.Token > 0 {
		c.open = &r
	}
	return c
}

// A CancelReport says what a cancel did. It isn't safe for concurrent use.
type CancelReport struct {
	Removed  int // waiting copies
	Stopped  int // running copies; set by Wait
	Finished int // running copies that finished before they were stopped; set by Wait

	queue *Queue
	open  *store.Receipt // nil unless tasks were running that may not have ended yet
}

// Wait blocks until every task that this cancel found running has ended, and sets Stopped and
// Finished. If a worker died, that takes until a peer has returned its tasks. After an error you
// may call it again; ErrUnknownOutcome means that Redis lost its record of them.
func (c *CancelReport) Wait(ctx context.Context) error {
	examine := time.Now().Add(examineEach)
	for pause := 2 * time.Millisecond; c.open != nil; pause = min(2*pause, 100*time.Millisecond) {
		err := c.look(ctx, time.Now().After(examine))
		switch {
		case err != nil:
			return c.queue.wrap("wait for cancel", err)
		case c.open == nil:
			return nil
		case time.Now().After(examine):
			examine = time.Now().Add(examineEach)
		}
		select {
		case <-ctx.Done():
			return c.queue.wrap("wait for cancel", context.Cause(ctx))
		case <-time.After(store.Jitter(pause)):
		}
	}
	return nil
}

// look updates the counts. With closely, it fails if Redis has lost its record of the tasks.
func (c *CancelReport) look(ctx context.Context, closely bool) error {
	over, tally, err := c.open.IsOver(ctx, c.queue.peer.patient(), c.queue.keys)
	if err != nil {
		return err
	}
	if over {
		c.Stopped, c.Finished, c.open = tally.Stopped, tally.Finished, nil
		return nil
	}
	if closely {
		if forgotten, err := c.open.IsForgotten(ctx, c.queue.peer.patient(), c.queue.keys); forgotten || err != nil {
			return cmp.Or(err, store.ErrForgotten)
		}
	}
	return nil
}

// patient makes calls that change nothing, for callers that are waiting anyway.
func (p *Peer) patient() store.Runner { return store.Reads(p.calls, p.opts.CallTimeout) }

// examineEach is how often Wait checks whether the workers it waits for still respond.
const examineEach = time.Second

func (t Task) Format(s fmt.State, _ rune) { logs.Show(s, "task", t) }

func (t Task) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("attempt_id", t.AttemptID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

func (c CancelReport) Format(s fmt.State, _ rune) { logs.Show(s, "cancel", c) }

func (c CancelReport) LogValue() slog.Value {
	if c.open != nil { // it isn't known how the running ones ended
		return slog.GroupValue(slog.Int("removed", c.Removed), slog.Bool("waited", false))
	}
	return slog.GroupValue(slog.Int("removed", c.Removed), slog.Int("stopped", c.Stopped), slog.Int("finished", c.Finished))
}
