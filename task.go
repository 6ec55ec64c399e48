package worqr

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
	"github.com/worqr/worqr/worqrtrace"
)

// A Task is one attempt at a task. Finish, Stop, Retry, Snooze and Fail end it, and so does
// returning from its handler. They fail with ErrNotOwner if this worker no longer holds it; after
// other errors you may repeat them. All but Finish drop a canceled task.
type Task struct {
	// AttemptID is <worker>.<round>.<milliseconds>.<number>, and n if the task is named. It's unique within
	// the queue: a worker may use the same one on another, such as the failed queue.
	AttemptID string
	Queue     string
	Payload   []byte              // raw; you may change it
	Key       string              // "" if it has none
	Token     int64               // the fencing token: rises with every start on the queue
	Retries   int                 // attempts that failed before this one
	Crashes   int                 // workers that died holding it
	Attempt   int                 // 1 + Retries + Crashes; stops and snoozes don't count, so 1 doesn't mean that it never ran
	Failure   *inspect.FailedTask // for OnFailed: what happened
	Result    []byte              // you may set it, up to Options.MaxResult; EventDone and Queue.Result carry it

	Headers map[string]string // see TaskSpec
	// EnqueuedAt is when it was added, or an occurrence was planned, by Redis's clock. It's zero for
	// Enqueue.
	EnqueuedAt time.Time
	// DueAt is the time that the last Add gave it, or that of an occurrence. It's zero without one, as in a
	// run of RunNow.
	DueAt     time.Time
	LastError string // of the previous attempt, at most 1,024 bytes; "" if it had none, or its worker died

	attempt *engine.Attempt
	ctx     context.Context // of the handler of batches; else nil
}

// taskOf converts an attempt for the caller.
func taskOf(queue string, a *engine.Attempt) *Task {
	t := &Task{
		AttemptID: a.ID, Queue: queue, Payload: a.Payload, Key: store.KeyOf(a.Name), Token: a.Token,
		Retries: a.Retries, Crashes: a.Crashes, Attempt: a.Retries + a.Crashes + 1, Headers: maps.Clone(a.Metadata.Headers),
		EnqueuedAt: store.Moment(a.Enqueued), DueAt: store.Moment(a.Due), LastError: a.Error.Last(), attempt: a,
	}
	if a.Failure != nil {
		r := store.Record{Payload: a.Payload, Metadata: store.Metadata{Headers: t.Headers}, Enqueued: a.Enqueued, Due: a.Due}
		t.Failure = failure(a.Name, &r, a.Failure)
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

// StartTasks is StartTask for 1 to n tasks in order; n is at most 1,000. A call returns at most 512 tasks, or 256 while
// the queue has named ones, and ends with the one that exceeds 1 MiB of payloads.
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
	return t.wrap("finish task", t.end(ctx, store.End{Verb: store.Done, Result: t.Result}))
}

// Stop ends this attempt and returns the task to the front.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.end(ctx, store.End{Verb: store.Stop}))
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
	if delay < 0 || delay > verdict.Longest {
		return fmt.Errorf("%w: a delay of %v isn't between 0 and 100 years", ErrInvalid, delay)
	}
	return t.end(ctx, store.End{Verb: verb, Delay: delay})
}

// Fail moves the task to the failed queue with the text of reason.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	return t.wrap("fail task", t.end(ctx, verdict.Final(reason)))
}

// end ends the attempt as e says. No worker holds a task that the caller created.
func (t *Task) end(ctx context.Context, e store.End) error {
	if t.attempt == nil {
		return unstarted{}
	}
	return t.attempt.End(ctx, e)
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
// contexts end with ErrCanceled, and they never run again. The report's Wait waits for them. Copies are
// tasks of Enqueue, and unique ones; CancelKey cancels the others. Of more than 10,000 copies on the
// list, Cancel may remove those enqueued meanwhile, too. If it fails halfway, call it again.
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
	receipt, err := store.CancelKey(ctx, q.peer.calls, q.keys, store.NameOf(key))
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return q.cancelReport(began, key, receipt), nil
}

func (q *Queue) cancelReport(began time.Time, key string, r store.Receipt) *CancelReport {
	now := time.Now()
	q.peer.trace.Canceled(worqrtrace.Queue{At: now, Queue: q.name, Key: key, Tasks: r.Removed, Took: now.Sub(began)})
	return &CancelReport{Removed: r.Removed, Running: len(r.Attempts), queue: q, receipt: r}
}

// A CancelReport says what a cancel did. It isn't safe for concurrent use.
type CancelReport struct {
	Removed int // waiting copies
	Running int // attempts that it found running or prefetched; one that stopped at once may be missing

	queue   *Queue
	receipt store.Receipt // its attempts are those that may still run
}

// Wait blocks until every attempt that this cancel found running has ended: stopped, or finished
// before that. If a worker died, that takes until a peer has returned its tasks. The code of a handler that ignores its
// context for longer than Grace, or of a worker that was paused and evicted, may still run. Call it within 30 s.
// After an error you may call it again; ErrUnknownOutcome means that Redis lost its record of the cancel.
func (c *CancelReport) Wait(ctx context.Context) error {
	patient := store.Reads(c.queue.peer.calls, c.queue.peer.opts.CallTimeout)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		over, err := c.receipt.IsOver(ctx, patient, c.queue.keys)
		if over || err != nil {
			return c.queue.wrap("wait for cancel", err)
		}
		select {
		case <-ctx.Done():
			return c.queue.wrap("wait for cancel", context.Cause(ctx))
		case <-time.After(store.Jitter(pause)):
		}
	}
}

func (t Task) Format(s fmt.State, _ rune) { logs.Show(s, "task", t) }

func (t Task) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("attempt_id", t.AttemptID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

func (c CancelReport) Format(s fmt.State, _ rune) { logs.Show(s, "cancel", c) }

func (c CancelReport) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("removed", c.Removed), slog.Int("running", c.Running))
}
