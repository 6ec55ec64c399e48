package worqr

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/recur"
	"github.com/worqr/worqr/internal/store"
)

// A Schedule says when a task recurs. Next returns the first time after t, or the zero time if
// there is none. It must be safe for concurrent use, fast, and pure, so that all peers get the same
// times. Schedules of github.com/robfig/cron/v3 work.
type Schedule interface {
	Next(t time.Time) time.Time
}

type interval time.Duration

// Interval returns a Schedule whose times are the multiples of d since year 1 in UTC: hourly ones
// are on the hour, daily ones at midnight, weekly ones on Monday. Queue.Every requires at least a
// second.
func Interval(d time.Duration) Schedule { return interval(d) }

func (d interval) Next(t time.Time) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// EveryOptions configure Every.
type EveryOptions struct {
	// SkipLate is how late an occurrence may start, at least 1 ms; later ones are skipped. 0 starts
	// it however late; if several are late, only the first runs.
	SkipLate time.Duration
	// Expression describes the schedule to people, at most 200 bytes, such as the text from which a cron
	// parser made it. worqr recurring, Explain and the dashboard show it; nothing parses it. It's part of the
	// schedule: another text makes a new version.
	Expression string
	// The rest is as in TaskSpec, for each occurrence.
	Headers    map[string]string
	Timeout    time.Duration
	MaxRetries int
	KeepResult time.Duration
}

func (o EveryOptions) Format(s fmt.State, _ rune) { logs.Show(s, "every options", o) }

func (o EveryOptions) LogValue() slog.Value {
	return slog.GroupValue(slog.Duration("skip_late", o.SkipLate), slog.Int("headers", len(o.Headers)),
		slog.Duration("timeout", o.Timeout), slog.Int("max_retries", o.MaxRetries), slog.String("expression", o.Expression))
}

// MaxEveryPayload is the largest payload of a recurring task, in bytes.
const MaxEveryPayload = 64 << 10

// maxExpression is part of the contract of EveryOptions.Expression.
const maxExpression = 200

// longestRecurring leaves room for the timestamp in the key of a failed occurrence.
const longestRecurring = MaxKeySize - 24

// Every enqueues payload under key, 1 to 1,000 bytes, at each time of schedule: once across the
// fleet, as long as a running peer has called Every. Call it in each process, before or during Run.
// It does no I/O; Run registers the schedule in Redis.
//
// The next occurrence is planned when one has finished or failed for good, so runs don't overlap unless a
// worker is evicted while its handler keeps running. Retries and crashes are counted per occurrence. CancelKey and RemoveKey drop one,
// Add under key runs one more, and so does RunNow; with KeepPayload, Add moves the next one.
//
// If peers disagree on a key, the last schedule, payload and options win until their peers are
// gone. A peer that calls Every again replaces its own; a nil schedule withdraws it. When the last
// peer with a schedule withdraws it or stops, the job stops recurring within 10 s, or
// Options.Lease if that's longer, and a peer logs it. See docs/scheduling.md.
//
// It fails with ErrInvalid if the schedule has no next time, or times less than a second apart, and
// with ErrTooLarge beyond MaxEveryPayload.
func (q *Queue) Every(key string, schedule Schedule, payload []byte, opts *EveryOptions) error {
	return q.wrap("every", q.every(key, schedule, payload, opts))
}

func (q *Queue) every(key string, schedule Schedule, payload []byte, opts *EveryOptions) error {
	var o EveryOptions
	if opts != nil {
		o = *opts
	}
	if err := checkKey(key); err != nil {
		return err
	}
	switch {
	case q.bad != nil:
		return q.bad
	case q.peer.isClosed():
		return ErrShutdown
	case q.keys.IsFailed():
		return fmt.Errorf("%w: a failed queue can't have recurring tasks", ErrInvalid)
	case len(key) > longestRecurring:
		return tooLarge("the key has %d bytes; the limit for a recurring task is %d", len(key), longestRecurring)
	case len(payload) > MaxEveryPayload:
		return tooLarge("the payload has %d bytes; the limit for a recurring task is %d", len(payload), MaxEveryPayload)
	case len(o.Expression) > maxExpression:
		return tooLarge("the expression has %d bytes; the limit is %d", len(o.Expression), maxExpression)
	case o.SkipLate != 0 && o.SkipLate < time.Millisecond:
		return fmt.Errorf("%w: SkipLate %v is below a millisecond", ErrInvalid, o.SkipLate)
	}
	task := TaskSpec{Payload: payload, Headers: o.Headers, Timeout: o.Timeout, MaxRetries: o.MaxRetries, KeepResult: o.KeepResult}
	if err := task.check(q.peer.opts.MaxPayload); err != nil {
		return err
	}
	if schedule == nil {
		q.peer.recurring.Unset(q.id, store.NameOf(key))
		return nil
	}
	record := task.record()
	record.Expires, record.Metadata.Expression = o.SkipLate.Milliseconds(), o.Expression
	if err := q.peer.recurring.Set(q.target(), store.NameOf(key), recur.Spec{Schedule: schedule, Record: record.Append(nil)}); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// RunNow runs the recurring task under key once, now, with its payload and properties. Its schedule
// doesn't change. While an occurrence runs, the new run waits for it; if one waits for its retry, the new
// run replaces that, and keeps its counts. RunNow reports whether something recurs under key.
func (q *Queue) RunNow(ctx context.Context, key string) (bool, error) {
	if err := q.checkKey(key); err != nil {
		return false, q.wrap("run now", err)
	}
	return q.changeOne("RunNow", "run now", key, func() (bool, error) { return q.runNow(ctx, key) })
}

func (q *Queue) runNow(ctx context.Context, key string) (bool, error) {
	record, found, err := store.Occurrence(ctx, q.peer.reads, q.keys, store.NameOf(key))
	if err != nil || !found {
		return false, err
	}
	run := store.Task{Name: store.NameOf(key), Rule: store.Always, KeepCounts: true, Record: record}
	_, _, err = q.peer.producer.Add(ctx, q.target(), []store.Task{run})
	return err == nil, err
}

// recur registers this peer's schedules in Redis until ctx ends. It first does so before tasks
// start, so that occurrences that came due while no peer was running are recognized; serving waits
// at most a second for that. The returned function waits until recur has ended.
func (p *Peer) recur(ctx context.Context) (wait func()) {
	p.recurring.Begin(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.recurring.Run(ctx) })
	return running.Wait
}

// Recurring yields the queue's recurring tasks, in no order. If the keys of some are damaged, it
// yields an error last.
func (q *Queue) Recurring(ctx context.Context) iter.Seq2[inspect.RecurringTask, error] {
	return listed(store.Recurring(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list recurring tasks"), func(t inspect.RecurringTask) inspect.RecurringTask { return t })
}
