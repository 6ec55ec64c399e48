package worqr

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Reschedule says whether a Put changes the time of the task that waits under its key.
type Reschedule int

// The rules.
const (
	RescheduleAlways    Reschedule = iota // to At, in every case
	RescheduleNever                       // not at all; with KeepPayload, Put has an effect only if nothing waits
	RescheduleIfLater                     // only to a later time
	RescheduleIfEarlier                   // only to an earlier time
)

var rules = map[Reschedule]store.When{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

// PutOptions configure a Put. All fields but At affect only a task that already waits under
// the key.
type PutOptions struct {
	At          time.Time  // when to start; zero is now
	KeepPayload bool       // keeps the waiting task's payload and counts
	Reschedule  Reschedule // whether its time changes
	// KeepCounts leaves its retries and crashes. By default a new payload sets them to zero.
	KeepCounts bool
}

// MaxKeySize is the maximum size of a key or nonce, in bytes.
const MaxKeySize = 1024

// year10000 is beyond every time that can be asked for.
var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Put schedules payload under key, 1 to MaxKeySize bytes. At most one task with a given key
// waits, and at most one runs. If one waits, the new task replaces it; opts can keep its
// payload, time or counts. If one runs, the new task waits until that attempt has ended, and
// replaces its retry. It may be repeated.
func (q *Queue) Put(ctx context.Context, key string, payload []byte, opts *PutOptions) error {
	var o PutOptions
	if opts != nil {
		o = *opts
	}
	return q.wrap("put", q.put(ctx, key, payload, o))
}

func (q *Queue) put(ctx context.Context, key string, payload []byte, o PutOptions) error {
	if err := checkKey(key); err != nil {
		return err
	}
	when, ok := rules[o.Reschedule]
	if !ok {
		return fmt.Errorf("%w: unknown Reschedule %d", ErrInvalid, o.Reschedule)
	}
	at, err := millis(o.At)
	if err != nil {
		return err
	}
	if err := q.checkPayloads([][]byte{payload}); err != nil {
		return err
	}
	return q.peer.producer.Put(ctx, q.target(), store.EntryOf(key),
		store.Change{Payload: payload, At: at, When: when, KeepPayload: o.KeepPayload, KeepCounts: o.KeepCounts})
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKeySize:
		return tooLarge("a key of %d bytes; at most %d", len(key), MaxKeySize)
	}
	return nil
}

// millis is a time as Redis is told it; 0 is now. It goes by the seconds, since those
// of time.Unix may be such that neither their milliseconds nor Before make sense.
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

// EnqueueAt schedules payload for the given time under a new key, and returns the key.
// Otherwise it's like Put, but repeating it schedules the task twice.
func (q *Queue) EnqueueAt(ctx context.Context, at time.Time, payload []byte) (key string, err error) {
	key = store.NewID()
	if err := q.put(ctx, key, payload, PutOptions{At: at}); err != nil {
		return "", q.wrap("enqueue at a time", err)
	}
	return key, nil
}

// RemoveKey drops the task that waits under key, and reports whether one was waiting. It
// doesn't touch a running task.
func (q *Queue) RemoveKey(ctx context.Context, key string) (bool, error) {
	if q.bad != nil {
		return false, q.wrap("remove", q.bad)
	}
	if err := checkKey(key); err != nil {
		return false, q.wrap("remove", err)
	}
	removed, err := store.Remove(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	return removed, q.wrap("remove", err)
}

// A ScheduledTask waits in the schedule: under a key, or for a retry.
type ScheduledTask struct {
	Key     string // "" if it has none
	Payload []byte
	DueAt   time.Time // by the clock of Redis
	Retries int
	Crashes int // of a task with a key
}

// Scheduled yields the schedule, earliest first, except tasks whose key is running.
func (q *Queue) Scheduled(ctx context.Context) iter.Seq2[ScheduledTask, error] {
	return listed(store.Scheduled(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list scheduled tasks"), func(t store.ScheduledTask) ScheduledTask {
		return ScheduledTask{Key: t.Key, Payload: t.Payload, DueAt: time.UnixMilli(t.Due), Retries: t.Retries, Crashes: t.Crashes}
	})
}

// Format implements fmt.Formatter.
func (t ScheduledTask) Format(s fmt.State, _ rune) { show(s, "scheduled task", t) }

// LogValue implements slog.LogValuer.
func (t ScheduledTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("at", t.DueAt.Format(time.RFC3339Nano)), slog.Int("bytes", len(t.Payload)),
		slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}
