package worqr

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// When says whether a Put changes the time of what waits under its key.
type Reschedule int

// The rules.
const (
	RescheduleAlways    Reschedule = iota // whatever the time is
	RescheduleNever                       // not at all; with KeepPayload, put only if nothing waits
	RescheduleIfLater                     // only to a later time
	RescheduleIfEarlier                   // only to an earlier time
)

var rules = map[Reschedule]store.When{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

// PutOptions configure a Put. Nil means the defaults, and so does a zero field. All
// but At is about a task that already waits under the key.
type PutOptions struct {
	At          time.Time  // when to start; zero is now
	KeepPayload bool       // leave its payload, and its counts, as they are
	Reschedule  Reschedule // whether its time changes
	// KeepCounts leaves its retries and crashes as they are. By default they are
	// zero again with a new payload, so a task that is put again each time before
	// it has failed MaxRetries times never fails for good.
	KeepCounts bool
}

// MaxKeySize is the length of the longest key, in bytes.
const MaxKeySize = 1024

// year10000 is beyond every time that can be asked for.
var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Put schedules payload under key. At most one task with a given key waits, and at
// most one runs. A key has 1 to MaxKeySize bytes, of any value.
//
//   - When nothing waits, the task waits until its time.
//   - When one waits, the options decide what happens to its payload, its time and
//     its counts. The default replaces all three.
//   - When one runs, the new task waits until that run has ended, however it
//     ends, and until its own time. If the run returns to wait, because it is
//     retried or was stopped, or its worker died, the options decide what happens
//     to it. By default, the new task replaces the retry.
//
// To recur, a handler puts its own key before it does its work, with When Never and
// KeepPayload: then a run that fails or is killed keeps its retry, its time and its
// counts. With the default it would wait for the next run instead, and its failures
// would not be counted.
//
// A handler may still run beside the key's next run if it was disowned, since it
// ignored its context for longer than Grace, or if its peer was evicted (ErrEvicted).
// Task.Token tells the runs apart.
//
// A task starts as soon as its time has come, before what waits on the list. A
// time in the past is now, and so is the zero time. It blocks until Redis has
// answered or ctx ends; after ErrUnknownOutcome it may be repeated. It fails with
// ErrInvalid when the key or an option makes no sense, or the time is after the
// year 9999, with ErrTooLarge when the key or the payload is, and with Redis's
// error when that is full.
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
		return fmt.Errorf("%w: unknown When %d", ErrInvalid, o.Reschedule)
	}
	at, err := millis(o.At)
	if err != nil {
		return err
	}
	return q.produce(ctx, [][]byte{payload}, func() (alone bool, err error) {
		return store.Put(ctx, q.peer.calls, q.keys, store.EntryOf(key),
			store.Change{Payload: slices.Clone(payload), At: at, When: when, KeepPayload: o.KeepPayload, KeepCounts: o.KeepCounts})
	})
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

// EnqueueAt schedules payload for at under a new key, which it returns for Remove
// and CancelKey. Otherwise it's like Put, with the same limits of the time; but if
// you repeat it, the task is there twice.
func (q *Queue) EnqueueAt(ctx context.Context, at time.Time, payload []byte) (key string, err error) {
	key = store.NewID()
	if err := q.put(ctx, key, payload, PutOptions{At: at}); err != nil {
		return "", q.wrap("enqueue at a time", err)
	}
	return key, nil
}

// Remove drops the task that waits under key, and reports whether one was waiting.
// It doesn't touch a running task; CancelKey stops that as well.
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

// A ScheduledTask waits in the schedule: under a key, or waiting for a retry.
type ScheduledTask struct {
	Key     string // "" if it waits for a retry and has none
	Payload []byte
	DueAt   time.Time // when it starts, by the clock of Redis; the time of the listing if it went back to the front
	Retries int
	Crashes int // of a key; those of other tasks are counted by content
}

// Scheduled yields what waits in the schedule, earliest first, without what is blocked
// because its key runs. It reads a page at a time, about a mebibyte of payloads, so it is
// no snapshot: a task whose time changes meanwhile may come twice or not at all, every
// other comes once. It ends after the first error.
func (q *Queue) Scheduled(ctx context.Context) iter.Seq2[ScheduledTask, error] {
	return listed(store.Scheduled(ctx, q.peer.calls, q.keys), q.bad, q.wrapper("list scheduled tasks"), func(t store.ScheduledTask) ScheduledTask {
		return ScheduledTask{Key: t.Key, Payload: t.Payload, DueAt: time.UnixMilli(t.Due), Retries: t.Retries, Crashes: t.Crashes}
	})
}
