package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A TaskSpec is a named task for Queue.Add. Zero fields are unset. Every field works with every other,
// except where its comment says so. docs/scheduling.md has a table of them, and of what they cost.
type TaskSpec struct {
	Payload []byte
	// Key names the task, in 1 to MaxKeySize bytes; "" is a new UUID. At most one task with a given
	// key waits, and at most one runs. Add replaces the one that waits. If one runs, the new task
	// waits until it ends, and replaces its retry.
	Key string
	At  time.Time // when to start, by Redis's clock; zero is now
	// Unique refuses the task with ErrDuplicate while another unique task with this payload waits or
	// runs. A failed one doesn't count. The payload takes the place of the key, so Key must be empty,
	// and KeepResult zero.
	Unique bool

	// Headers stay with the task, even when it's retried or fails: up to MaxHeaders, MaxHeaderBytes
	// in total. They may contain any bytes, and aren't logged.
	Headers map[string]string
	// Expires is the time, by Redis's clock, after which neither the task nor a retry starts: it
	// fails as inspect.FailureExpired. Requeued then, it no longer expires.
	Expires    time.Time
	Timeout    time.Duration // overrides HandleOptions.Timeout
	MaxRetries int           // overrides HandleOptions.MaxRetries; negative is none
	// Once, up to MaxKeySize bytes, makes adding the task safe to repeat: for OnceFor, later calls
	// skip a task with it, add the others, and return the first key, and an *OnceError if it has
	// another Key. OnceFor is at most MaxOnceFor; 0 is 24 h.
	Once    string
	OnceFor time.Duration
	// KeepResult is how long the outcome stays available to Queue.Result and Queue.Wait:
	// MinKeepResult to MaxKeepResult.
	KeepResult time.Duration

	// What happens to the task that waits under Key, which must be set:
	KeepPayload bool       // keeps its payload, properties and counts
	KeepCounts  bool       // keeps its retries and crashes; otherwise a new payload resets them
	Reschedule  Reschedule // whether its time changes
}

// Reschedule says whether Add changes the time of the task that waits under its key.
type Reschedule int

const (
	RescheduleAlways    Reschedule = iota // to At
	RescheduleNever                       // not at all
	RescheduleIfLater                     // only to a later time
	RescheduleIfEarlier                   // only to an earlier time
)

var rules = []store.Rule{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

const (
	MaxTasks       = store.MaxTasks       // of one Add
	MaxKeySize     = 1024                 // of a key or nonce, in bytes
	MaxHeaders     = store.MaxHeaders     // of a task
	MaxHeaderBytes = store.MaxHeaderBytes // of their names and values together
	MaxOnceFor     = 30 * 24 * time.Hour

	onceFor    = 24 * time.Hour
	mostTries  = 1_000_000
	maxSpecial = 365 * 24 * time.Hour // Timeout of one task
)

// Add adds up to MaxTasks named tasks, all or none, and returns their keys; "" for a unique one. CancelKey
// cancels them; Cancel finds only unique ones. They start in the order in which they're added or become
// due, and take turns with those of Enqueue. You may change the payloads afterwards.
//
// No two tasks of a call may have the same Key, the same Once, or both Unique and the same payload. More
// than MaxBatchBytes with their headers fail with ErrTooLarge, unless it's a single task; so do tasks
// whose keys have more than 4 MiB waiting. No tasks are no error. Without Once, repeating Add after
// ErrUnknownOutcome may add the tasks twice, or run the one with Key or Unique once more.
func (q *Queue) Add(ctx context.Context, tasks ...TaskSpec) (keys []string, err error) {
	began := time.Now()
	keys, fresh, err := q.add(ctx, tasks)
	err = q.wrap("add", err)
	told := err
	if _, once := errors.AsType[*OnceError](err); once { // the others were added
		told = nil
	}
	if q.peer.trace.Enqueues && (len(fresh) > 0 || told != nil) {
		payloads := make([][]byte, len(fresh))
		for i, n := range fresh {
			payloads[i] = tasks[n].Payload
		}
		var about worqrtrace.Queue
		if len(fresh) == 1 {
			t := &tasks[fresh[0]]
			about = worqrtrace.Queue{Key: t.Key, DueAt: t.At, Headers: t.Headers}
			if keys != nil {
				about.Key = keys[fresh[0]]
			}
		}
		_ = q.enqueued(began, about, told, payloads...)
	}
	return keys, err
}

// add adds tasks. Those are fresh that no earlier call with the same Once has added.
func (q *Queue) add(ctx context.Context, tasks []TaskSpec) (keys []string, fresh []int, err error) {
	all, err := q.prepare(tasks)
	if err != nil || len(tasks) == 0 {
		return nil, nil, err
	}
	for i := range tasks {
		fresh = append(fresh, i)
	}
	names, skipped, err := q.peer.producer.Add(ctx, q.target(), all)
	if err != nil {
		return nil, fresh, err
	}
	for _, n := range slices.Backward(skipped) {
		fresh = slices.Delete(fresh, n, n+1)
	}
	keys = make([]string, len(names))
	for i, name := range names {
		keys[i] = store.KeyOf(name)
	}
	for _, n := range skipped {
		if key := tasks[n].Key; key != "" && key != keys[n] {
			return keys, fresh, &OnceError{keys[n]}
		}
	}
	return keys, fresh, nil
}

// An OnceError says that Add has skipped a task, because an earlier call with its Once added it under Key,
// which is "" if that call was EnqueueOnce. The call's other tasks are added, and Add returns all keys.
type OnceError struct{ Key string }

func (e *OnceError) Error() string {
	return "worqr: an earlier call with this Once added the task under another key; see OnceError.Key"
}

func (e *OnceError) GoString() string { return e.Error() } // without the key, for logs

// Validate returns the error with which Add would refuse the task, without asking Redis. MaxPayload is
// Options.MaxPayload of the peer that adds it. See also CheckName.
func (t TaskSpec) Validate(maxPayload int) error {
	return wrap("validate task", t.check(cmp.Or(maxPayload, DefaultMaxPayload)))
}

// prepare checks tasks, and converts them for the store.
func (q *Queue) prepare(tasks []TaskSpec) ([]store.Task, error) {
	switch {
	case q.bad != nil:
		return nil, q.bad
	case len(tasks) > MaxTasks:
		return nil, tooLarge("%d tasks were given; the limit is %d; split them", len(tasks), MaxTasks)
	}
	all, seen, bytes := make([]store.Task, len(tasks)), map[string]int{}, 0
	for i := range tasks {
		t := &tasks[i]
		err := t.check(q.peer.opts.MaxPayload)
		if err == nil {
			all[i] = t.task()
			bytes += len(t.Payload) + t.headerBytes()
			err = cmp.Or(twice(seen, i, "Key, or unique payload", all[i].Name), twice(seen, i, "Once", "once:"+t.Once))
		}
		if err != nil && len(tasks) > 1 {
			err = fmt.Errorf("task %d of %d: %w", i+1, len(tasks), err)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(tasks) > 1 && bytes > MaxBatchBytes {
		return nil, tooLarge("%d tasks with %d bytes were given; the limit is %d bytes; split them", len(tasks), bytes, MaxBatchBytes)
	}
	return all, nil
}

func (t *TaskSpec) headerBytes() (n int) {
	for name, value := range t.Headers {
		n += len(name) + len(value)
	}
	return n
}

// twice fails if a task of the same call has the same id.
func twice(seen map[string]int, i int, what, id string) error {
	if id == "once:" {
		return nil
	}
	if first, known := seen[id]; known {
		return fmt.Errorf("%w: task %d of the call has the same %s", ErrInvalid, first+1, what)
	}
	seen[id] = i
	return nil
}

// task converts a task for the store.
func (t *TaskSpec) task() store.Task {
	task := store.Task{
		Name: store.NameOf(t.Key), At: millis(t.At), Rule: rules[t.Reschedule],
		KeepRecord: t.KeepPayload, KeepCounts: t.KeepCounts, Nonce: t.Once, Record: t.record(),
	}
	switch {
	case t.Unique:
		task.Name, task.Rule = store.UniqueName(t.Payload), store.Unique
	case t.Key == "":
		task.Name = store.NameOf(store.NewID())
	}
	if t.Once != "" {
		task.Window = cmp.Or(t.OnceFor, onceFor)
	}
	return task
}

// check fails if a field is out of its limits, or can't be combined with another.
func (t *TaskSpec) check(maxPayload int) error {
	if err := checkSize(t.Payload, maxPayload); err != nil {
		return err
	}
	if _, nameless := t.Headers[""]; nameless {
		return fmt.Errorf("%w: the name of a header is empty", ErrInvalid)
	}
	size := t.headerBytes()
	keeps := t.KeepPayload || t.KeepCounts || t.Reschedule != RescheduleAlways
	switch {
	case len(t.Key) > MaxKeySize:
		return tooLarge("the key has %d bytes; the limit is %d", len(t.Key), MaxKeySize)
	case t.Reschedule < 0 || int(t.Reschedule) >= len(rules):
		return fmt.Errorf("%w: unknown Reschedule %d", ErrInvalid, t.Reschedule)
	case t.Unique && t.Key != "":
		return fmt.Errorf("%w: Unique and Key are both set; a unique task is known by its payload", ErrInvalid)
	case t.Unique && t.KeepResult != 0:
		return fmt.Errorf("%w: a unique task can't have KeepResult: it has no key to ask with", ErrInvalid)
	case t.Key == "" && keeps:
		return fmt.Errorf("%w: KeepPayload, KeepCounts and Reschedule need a Key: they are about the task that waits under it", ErrInvalid)
	case len(t.Headers) > MaxHeaders:
		return tooLarge("the task has %d headers; the limit is %d", len(t.Headers), MaxHeaders)
	case size > MaxHeaderBytes:
		return tooLarge("the headers have %d bytes; the limit is %d; put the data into the payload", size, MaxHeaderBytes)
	case t.Timeout < 0 || t.Timeout > maxSpecial:
		return fmt.Errorf("%w: a Timeout of %v isn't between 0 and a year", ErrInvalid, t.Timeout)
	case t.MaxRetries > mostTries:
		return fmt.Errorf("%w: MaxRetries %d is above the maximum of %d", ErrInvalid, t.MaxRetries, mostTries)
	case t.KeepResult != 0 && (t.KeepResult < MinKeepResult || t.KeepResult > MaxKeepResult):
		return fmt.Errorf("%w: a KeepResult of %v isn't between 1 s and 30 days", ErrInvalid, t.KeepResult)
	case t.Once == "" && t.OnceFor != 0:
		return fmt.Errorf("%w: OnceFor is set without Once", ErrInvalid)
	case len(t.Once) > MaxKeySize:
		return tooLarge("Once has %d bytes; the limit is %d", len(t.Once), MaxKeySize)
	case t.OnceFor != 0 && (t.OnceFor < time.Millisecond || t.OnceFor > MaxOnceFor):
		return fmt.Errorf("%w: a OnceFor of %v isn't between 1 ms and 30 days", ErrInvalid, t.OnceFor)
	}
	return cmp.Or(checkTime(t.At), checkTime(t.Expires))
}

// record returns what Redis stores of the task.
func (t *TaskSpec) record() store.Record {
	r := store.Record{
		Due: millis(t.At), Expires: millis(t.Expires), Keep: t.KeepResult, Payload: t.Payload,
		Metadata: store.Metadata{MaxRetries: t.MaxRetries, Headers: t.Headers},
	}
	if t.Timeout > 0 {
		r.Metadata.Timeout = max(t.Timeout, time.Millisecond)
	}
	return r
}

// Forget shortens nonces, those of EnqueueOnce and of TaskSpec.Once: they end after the duration, from 0 to
// MaxOnceFor, unless they end before. Use it once no call can be repeated any more. It asks in pages, and can be
// partly done after an error; repeat it then. The Redis user needs the rule "Worker".
func (q *Queue) Forget(ctx context.Context, after time.Duration, nonces ...string) error {
	err := q.bad
	if err == nil && (after < 0 || after > MaxOnceFor) {
		err = fmt.Errorf("%w: a duration of %v isn't between 0 and 30 days", ErrInvalid, after)
	}
	for _, nonce := range nonces {
		err = cmp.Or(err, checkNonce(nonce))
	}
	if err == nil {
		err = store.Forget(ctx, q.peer.calls, q.keys, after, nonces...)
	}
	return q.wrap("forget", err)
}

func checkNonce(nonce string) error { return checkID("nonce", nonce) }

func checkKey(key string) error { return checkID("key", key) }

func checkID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(id) > MaxKeySize:
		return tooLarge("the %s has %d bytes; the limit is %d", what, len(id), MaxKeySize)
	}
	return nil
}

// year10000 is later than every allowed time.
var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// checkTime compares seconds, since time.Unix can produce times for which neither milliseconds nor
// Before work.
func checkTime(t time.Time) error {
	if t.Unix() >= year10000.Unix() {
		return fmt.Errorf("%w: the time %v is after the year 9999", ErrInvalid, t)
	}
	return nil
}

// millis converts a time that checkTime allows for Redis; 0 is now.
func millis(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() < 0:
		return 1
	}
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) > 0 {
		ms++ // never too early
	}
	return min(max(ms, 1), year10000.UnixMilli()-1) // JSON has no times after the year 9999
}

// RemoveKey drops the task that waits under key, not one that runs, and reports whether there
// was one.
func (q *Queue) RemoveKey(ctx context.Context, key string) (bool, error) {
	if err := q.checkKey(key); err != nil {
		return false, q.wrap("remove", err)
	}
	return q.changeOne("RemoveKey", "remove", key, func() (bool, error) {
		return store.Remove(ctx, q.peer.calls, q.keys, store.NameOf(key))
	})
}

func (t TaskSpec) Format(s fmt.State, _ rune) { logs.Show(s, "task spec", t) }

func (t TaskSpec) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("bytes", len(t.Payload)), slog.Int("headers", len(t.Headers)),
		slog.Duration("timeout", t.Timeout), slog.Int("max_retries", t.MaxRetries))
}
