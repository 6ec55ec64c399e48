package worqr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Reschedule says whether a Put changes the time of the task that waits under its key.
type Reschedule int

const (
	RescheduleAlways    Reschedule = iota // to At
	RescheduleNever                       // not at all
	RescheduleIfLater                     // only to a later time
	RescheduleIfEarlier                   // only to an earlier time
)

var rules = map[Reschedule]store.When{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

// PutOptions configure a Put. The three below At apply to the task waiting under the key.
type PutOptions struct {
	At          time.Time  // when to start; zero is now
	KeepPayload bool       // keeps the waiting task's payload, properties and counts
	Reschedule  Reschedule // whether its time changes
	// KeepCounts keeps its retries and crashes. Otherwise a new payload resets them.
	KeepCounts bool
	Properties
}

// MaxKeySize is the maximum size of a key or nonce, in bytes.
const MaxKeySize = 1024

// year10000 is later than every allowed time.
var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Put schedules payload under key, 1 to MaxKeySize bytes. At most one task with a given key
// waits, and at most one runs. A waiting one is replaced; opts can keep its payload, time or
// counts. If one runs, the new task waits until that attempt has ended, and replaces its retry.
// In a spread queue, Once finds only calls of Put with the same key.
func (q *Queue) Put(ctx context.Context, key string, payload []byte, opts *PutOptions) error {
	var o PutOptions
	if opts != nil {
		o = *opts
	}
	began := q.peer.trace.enqueues()
	fresh, err := q.put(ctx, key, payload, o)
	if err = q.wrap("put", err); fresh || err != nil {
		err = q.enqueued(began, TraceQueue{Key: key, DueAt: o.At, Headers: o.Headers}, err, payload)
	}
	return err
}

// put puts a task. If a call with the same Once has done so, it's not fresh.
func (q *Queue) put(ctx context.Context, key string, payload []byte, o PutOptions) (fresh bool, err error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	when, ok := rules[o.Reschedule]
	if !ok {
		return false, fmt.Errorf("%w: unknown Reschedule %d", ErrInvalid, o.Reschedule)
	}
	card, once, at, err := q.prepared(payload, &o.Properties, o.At)
	if err != nil {
		return false, err
	}
	part, err := q.ofKey(ctx, key)
	if err != nil {
		return false, err
	}
	first, fresh, err := q.peer.producer.Put(ctx, part.target(), store.EntryOf(key),
		store.Change{Payload: payload, At: at, When: when, KeepPayload: o.KeepPayload, KeepCounts: o.KeepCounts, Card: card}, once)
	if err == nil && first != key {
		err = &OnceError{first}
	}
	return fresh, err
}

// An OnceError says that Put did nothing, since a call with the same Once has put or added the task
// under Key.
type OnceError struct{ Key string }

func (e *OnceError) Error() string {
	return "worqr: a call with the same Once has added the task under another key; the OnceError has it"
}

// GoString keeps the key out of logs.
func (e *OnceError) GoString() string { return e.Error() }

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKeySize:
		return tooLarge("a key of %d bytes; at most %d", len(key), MaxKeySize)
	}
	return nil
}

// millis converts a time for Redis; 0 is now. It compares seconds, since for extreme times of
// time.Unix neither milliseconds nor Before make sense.
func millis(t time.Time) (int64, error) {
	switch {
	case t.IsZero():
		return 0, nil
	case t.Unix() < 0:
		return 1, nil
	case t.Unix() >= year10000.Unix():
		return 0, fmt.Errorf("%w: the time %v is after the year 9999", ErrInvalid, t)
	}
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) > 0 {
		ms++ // never too early
	}
	return max(ms, 1), nil
}

// EnqueueAt is Put under a new key, which it returns. Repeating it schedules the task twice.
func (q *Queue) EnqueueAt(ctx context.Context, at time.Time, payload []byte) (key string, err error) {
	key = store.NewID()
	began := q.peer.trace.enqueues()
	_, err = q.put(ctx, key, payload, PutOptions{At: at})
	if err = q.enqueued(began, TraceQueue{Key: key, DueAt: at}, q.wrap("enqueue at a time", err), payload); err != nil {
		return "", err
	}
	return key, nil
}

// RemoveKey drops the task that waits under key, not one that runs, and reports whether there
// was one.
func (q *Queue) RemoveKey(ctx context.Context, key string) (bool, error) {
	if q.bad != nil {
		return false, q.wrap("remove", q.bad)
	}
	if err := checkKey(key); err != nil {
		return false, q.wrap("remove", err)
	}
	part, err := q.ofKey(ctx, key)
	if err != nil {
		return false, q.wrap("remove", err)
	}
	done, n := q.changes("RemoveKey", key), 0
	removed, err := store.Remove(ctx, q.peer.calls, part.keys, store.EntryOf(key))
	if removed {
		n = 1
	}
	return removed, done(n, q.wrap("remove", err))
}

// A ScheduledTask waits in the schedule: under a key, or for a retry.
type ScheduledTask struct {
	Key        string // "" if it has none
	Payload    []byte
	Headers    map[string]string
	DueAt      time.Time // by Redis's clock
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	Expires    time.Time // zero: never
	Retries    int
	Crashes    int    // of a task with a key
	LastError  string // of the last attempt, at most 1,024 bytes; "" if there was none
}

// Scheduled yields the schedule, earliest first, except tasks whose key is running.
func (q *Queue) Scheduled(ctx context.Context) iter.Seq2[ScheduledTask, error] {
	rows := rowsOf(ctx, q, store.Scheduled, store.Sorted(func(a, b store.ScheduledTask) int { return cmp.Compare(a.Due, b.Due) }))
	return listed(rows, q.bad, q.wrapper("list scheduled tasks"), func(t store.ScheduledTask) ScheduledTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return ScheduledTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, DueAt: time.UnixMilli(t.Due), EnqueuedAt: moment(c.Since),
			Expires: moment(c.Expires), Retries: t.Retries, Crashes: t.Crashes, LastError: t.Error}
	})
}

func (t ScheduledTask) Format(s fmt.State, _ rune) { show(s, "scheduled task", t) }

func (t ScheduledTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("at", t.DueAt.Format(time.RFC3339Nano)), slog.Int("bytes", len(t.Payload)),
		slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}
