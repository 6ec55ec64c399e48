package worqr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A TaskSpec is a named task for Queue.Add. Zero fields are unset. docs/scheduling.md has a table of
// what can be combined, and of what it costs.
type TaskSpec struct {
	Payload []byte
	// Key names the task, in 1 to MaxKeySize bytes; "" is a new UUID. At most one task with a given
	// key waits, and at most one runs. Add replaces the one that waits. If one runs, the new task
	// waits until it ends, and replaces its retry.
	Key string
	At  time.Time // when to start, by Redis's clock; zero is now
	// Unique refuses the task with ErrDuplicate while another unique task with this payload waits or
	// runs. A failed one doesn't count. The payload takes the place of the key.
	Unique bool

	// Headers stay with the task, even when it's retried or fails: up to MaxHeaders, MaxHeaderBytes
	// in total. They may contain any bytes, and aren't logged.
	Headers map[string]string
	// Expires is the time, by Redis's clock, after which neither the task nor a retry starts: it
	// fails as inspect.FailureExpired. Requeued then, it no longer expires.
	Expires    time.Time
	Timeout    time.Duration // overrides HandleOptions.Timeout
	MaxRetries int           // overrides HandleOptions.MaxRetries; negative is none
	// Once, up to MaxKeySize bytes, makes the call safe to repeat: for OnceFor, later calls with it
	// change nothing and return the first key, or an *OnceError if they have another Key. OnceFor
	// is at most MaxOnceFor; 0 is 24 h.
	Once    string
	OnceFor time.Duration
	// KeepResult is how long the outcome stays available to Queue.Result and Queue.Wait:
	// MinKeepResult to MaxKeepResult.
	KeepResult time.Duration

	// What happens to the task that waits under Key:
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

var rules = []store.When{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

const (
	MaxKeySize     = 1024                 // of a key or nonce, in bytes
	MaxHeaders     = store.MaxHeaders     // of a task
	MaxHeaderBytes = store.MaxHeaderBytes // of their names and values together
	MaxOnceFor     = 30 * 24 * time.Hour

	onceFor    = 24 * time.Hour
	mostTries  = 1_000_000
	maxSpecial = 365 * 24 * time.Hour // Timeout of one task
)

// Add adds named tasks, all or none, and returns their keys; "" for a unique one. CancelKey cancels
// them; Cancel finds only those with Key or Unique. They start in order, and take turns with those of
// Enqueue. Tasks with Key, At or Unique start when they're due, before both. You may change the
// payloads afterwards.
//
// Several tasks can't have Key, At, Unique or Once: add such a task in a call of its own. More than
// 2,000 tasks, or 1 MiB in total, fail with ErrTooLarge; a single task may be larger. No tasks are no
// error. Without Once, repeating Add after ErrUnknownOutcome may add the tasks twice, or run the one
// with Key or Unique once more.
func (q *Queue) Add(ctx context.Context, tasks ...TaskSpec) (keys []string, err error) {
	began := time.Now()
	keys, fresh, err := q.add(ctx, tasks)
	if err = q.wrap("add", err); q.peer.trace.Enqueues && (fresh || err != nil) {
		payloads := make([][]byte, len(tasks))
		for i := range tasks {
			payloads[i] = tasks[i].Payload
		}
		var about worqrtrace.Queue
		if len(tasks) == 1 {
			about = worqrtrace.Queue{Key: tasks[0].Key, DueAt: tasks[0].At, Headers: tasks[0].Headers}
		}
		if len(keys) == 1 {
			about.Key = keys[0]
		}
		err = q.enqueued(began, about, err, payloads...)
	}
	return keys, err
}

// add adds tasks. They aren't fresh if a call with the same Once has already added one.
func (q *Queue) add(ctx context.Context, tasks []TaskSpec) (keys []string, fresh bool, err error) {
	added, err := q.prepare(tasks)
	if err != nil || len(tasks) == 0 {
		return nil, false, err
	}
	if t := &tasks[0]; t.Key != "" || t.Unique || !t.At.IsZero() { // then it's the only one
		key, fresh, err := q.schedule(ctx, t, added[0].Card)
		if err != nil {
			return nil, false, err
		}
		return []string{key}, fresh, nil
	}
	return q.peer.producer.Add(ctx, q.target(), store.NewSalt(), added, tasks[0].once())
}

// schedule puts a task into the schedule.
func (q *Queue) schedule(ctx context.Context, t *TaskSpec, card []byte) (key string, fresh bool, err error) {
	entry, when := store.EntryOf(t.Key), rules[t.Reschedule]
	switch {
	case t.Unique:
		entry, when = store.UniqueEntry(t.Payload), store.Unique
	case t.Key == "":
		entry = store.EntryOf(store.NewKey())
	}
	change := store.Change{Payload: t.Payload, At: millis(t.At), When: when, Card: card,
		KeepPayload: t.KeepPayload, KeepCounts: t.KeepCounts, ByKey: t.Key == "" && !t.Unique}
	key, fresh, err = q.peer.producer.Put(ctx, q.target(), entry, change, t.once())
	if err == nil && t.Key != "" && key != t.Key {
		err = &OnceError{key}
	}
	return key, fresh, err
}

// An OnceError says that Add did nothing, because an earlier call with this Once added the task
// under Key.
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

// prepare checks tasks, and returns what Redis stores of them.
func (q *Queue) prepare(tasks []TaskSpec) ([]store.Added, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if len(tasks) > store.AddedLength {
		return nil, tooMany(len(tasks))
	}
	added := make([]store.Added, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		err := t.check(q.peer.opts.MaxPayload)
		if err == nil && len(tasks) > 1 && (t.Key != "" || t.Unique || t.Once != "" || !t.At.IsZero()) {
			err = fmt.Errorf("%w: a task with Key, At, Unique or Once needs a call of its own", ErrInvalid)
		}
		if err != nil && len(tasks) > 1 {
			err = fmt.Errorf("task %d of %d: %w", i+1, len(tasks), err)
		}
		if err != nil {
			return nil, err
		}
		added[i] = store.Added{Card: t.card(), Payload: t.Payload}
	}
	if store.SpansAdded(added) {
		return nil, tooMany(len(tasks))
	}
	return added, nil
}

func tooMany(tasks int) error {
	return tooLarge("%d tasks were given; the limit is %d, and 1 MiB in total; split them across several calls", tasks, store.AddedLength)
}

// check fails if a field is out of its limits, or can't be combined with another.
func (t *TaskSpec) check(maxPayload int) error {
	if err := checkSize(t.Payload, maxPayload); err != nil {
		return err
	}
	size := 0
	for name, value := range t.Headers {
		if name == "" {
			return fmt.Errorf("%w: the name of a header is empty", ErrInvalid)
		}
		size += len(name) + len(value)
	}
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

// card returns what Redis stores of the properties; nil if there are none.
func (t *TaskSpec) card() []byte {
	c := store.Card{Expires: millis(t.Expires), MaxRetries: t.MaxRetries, Headers: t.Headers, Keep: t.KeepResult.Milliseconds()}
	if t.Timeout > 0 {
		c.Timeout = max(t.Timeout, time.Millisecond)
	}
	if c.Expires == 0 && c.Timeout == 0 && c.MaxRetries == 0 && c.Keep == 0 && len(c.Headers) == 0 {
		return nil
	}
	return c.Append(nil)
}

// once returns what makes the call safe to repeat.
func (t *TaskSpec) once() store.Once {
	if t.Once == "" {
		return store.Once{}
	}
	return store.Once{ID: t.Once, Window: cmp.Or(t.OnceFor, onceFor)}
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

func checkNonce(nonce string) error {
	switch {
	case nonce == "":
		return fmt.Errorf("%w: the nonce is empty", ErrInvalid)
	case len(nonce) > MaxKeySize:
		return tooLarge("the nonce has %d bytes; the limit is %d", len(nonce), MaxKeySize)
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKeySize:
		return tooLarge("the key has %d bytes; the limit is %d", len(key), MaxKeySize)
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
	done, n := q.changes("RemoveKey", key), 0
	removed, err := store.Remove(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	if removed {
		n = 1
	}
	return removed, done(n, q.wrap("remove", err))
}

// Scheduled yields the schedule, earliest first, except tasks whose key is running.
func (q *Queue) Scheduled(ctx context.Context) iter.Seq2[inspect.ScheduledTask, error] {
	return listed(store.Scheduled(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list scheduled tasks"), func(t store.ScheduledTask) inspect.ScheduledTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return inspect.ScheduledTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, DueAt: store.Moment(t.Due), EnqueuedAt: store.Moment(c.Since),
			Expires: store.Moment(c.Expires), Retries: t.Retries, Crashes: t.Crashes, LastError: t.Error}
	})
}

// Added yields the waiting tasks from Add without Key, At or Unique, front first. For the
// others, see Scheduled.
func (q *Queue) Added(ctx context.Context) iter.Seq2[inspect.AddedTask, error] {
	return listed(store.AddedTasks(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list added tasks"), func(t store.AddedTask) inspect.AddedTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return inspect.AddedTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, EnqueuedAt: store.Moment(c.Since), Expires: store.Moment(c.Expires)}
	})
}

func (t TaskSpec) Format(s fmt.State, _ rune) { logs.Show(s, "task spec", t) }

func (t TaskSpec) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("bytes", len(t.Payload)), slog.Int("headers", len(t.Headers)),
		slog.Duration("timeout", t.Timeout), slog.Int("max_retries", t.MaxRetries))
}
