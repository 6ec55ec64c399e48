package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

const page = 100 // items read at a time

// A Task is one attempt at a task. Finish, Stop, Retry and Fail end it.
type Task struct {
	AttemptID string // of the attempt, a UUIDv7
	Queue     string
	Payload   []byte      // raw; yours to change
	Key       string      // "" for a task from the list
	Token     int64       // rises with every start on the queue; for fencing downstream
	Retries   int         // attempts that failed before this one
	Crashes   int         // workers that died holding it
	Failure   *FailedTask // what has happened to it; only for OnFailed
	Result    []byte      // set it before the end; the event "done" has it. Above Options.MaxResult, it has the length and digest

	*start
}

// Context ends when the task is no longer to be worked on. Its cause is then
// ErrCanceled, ErrEvicted, ErrLeaseExpired or ErrShutdown, or context.Canceled once
// the task has ended. A handler's context is derived from it.
func (t *Task) Context() context.Context { return t.ctx }

// StartTask takes the task at the front of the queue: what is due in the second
// lane, else what is first on the list. MaxCrashes and KeepFailed are those of
// the queue's handler, or their defaults. It fails with ErrNoTask when there is
// none or the queue is paused, and with ErrNotWorking unless
// StartWork was called. If ctx ends while the start is under way, a task that
// was nevertheless taken is put back.
func (q *Queue) StartTask(ctx context.Context) (*Task, error) {
	tasks, err := q.startTasks(ctx, 1)
	if err != nil {
		return nil, q.wrap("start task", err)
	}
	return tasks[0], nil
}

// StartTasks takes up to n tasks from the front of the queue, in their order, in
// one call, or in several if one would block Redis for too long. It returns at least one, or an error as StartTask does; and fails
// with ErrInvalid when n is not from 1 to 1,000.
func (q *Queue) StartTasks(ctx context.Context, n int) ([]*Task, error) {
	tasks, err := q.startTasks(ctx, n)
	return tasks, q.wrap("start tasks", err)
}

func (q *Queue) startTasks(ctx context.Context, n int) ([]*Task, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	if n < 1 || n > maxStarts {
		return nil, fmt.Errorf("%w: %d tasks at once; from 1 to %d", ErrInvalid, n, maxStarts)
	}
	r, err := q.rounds()
	if err != nil {
		return nil, err
	}
	return r.start(ctx, n)
}

// Finish ends the task for good, and publishes the event "done". It fails with
// ErrNotOwner if this worker no longer holds the task; then another one may be running
// it. After any other error, ErrUnknownOutcome included, you may repeat it: a finish that
// was carried out and is repeated succeeds.
func (t *Task) Finish(ctx context.Context) error {
	return t.wrap("finish task", t.settle(ctx, store.Outcome{Verb: store.Finish}))
}

// Stop ends this attempt and puts the task back to the front of the queue,
// unless it has been canceled meanwhile. Errors are those of Finish.
func (t *Task) Stop(ctx context.Context) error {
	return t.wrap("stop task", t.settle(ctx, store.Outcome{Verb: store.Stop}))
}

// Retry ends this attempt as failed and retries the task after delay, at once if
// that is 0, unless it was canceled in the meantime. Until then it waits in the
// second lane. Retry doesn't check MaxRetries; look at t.Retries.
// It fails with ErrInvalid when delay is negative or more than a century; other
// errors are those of Finish.
func (t *Task) Retry(ctx context.Context, delay time.Duration) error {
	if delay < 0 || delay > longest {
		return t.wrap("retry task", fmt.Errorf("%w: a delay of %v", ErrInvalid, delay))
	}
	return t.wrap("retry task", t.settle(ctx, store.Outcome{Verb: store.Retry, Delay: delay}))
}

// Fail ends the task as failed: it goes to the failed queue with the text of
// reason, and with kind broken if that is Broken, unless it has been canceled
// meanwhile. A task of OnFailed stays in the failed queue, and is not taken from
// there again. It fails with ErrInvalid when there is no reason; other errors
// are those of Finish.
func (t *Task) Fail(ctx context.Context, reason error) error {
	if reason == nil {
		return t.wrap("fail task", fmt.Errorf("%w: the reason is nil", ErrInvalid))
	}
	o := HandleOptions{MaxRetries: -1}
	return t.wrap("fail task", t.settle(ctx, o.outcome(reason, 0, nil)))
}

func (t *Task) wrap(verb string, err error) error { return t.rounds.queue.wrap(verb, err) }

// Len returns how many tasks wait, in both lanes, those included whose time is
// still to come: Waiting and Scheduled of Stats together.
func (q *Queue) Len(ctx context.Context) (int, error) {
	if q.bad != nil {
		return 0, q.wrap("count", q.bad)
	}
	replies := q.peer.calls.Do(ctx,
		redisconn.Command("ZCARD", q.keys.Contents()), redisconn.Command("LLEN", q.keys.Waiting()), store.UnmovedCall(q.keys))
	scheduled, err := redis.Int(replies[0].Value, replies[0].Err)
	if err != nil {
		return 0, q.wrap("count", err)
	}
	listed, err := q.onList(ctx, replies[1], replies[2])
	if err != nil {
		return 0, q.wrap("count", err)
	}
	return scheduled + listed, nil
}

// Peek returns the payload that is to start next, and leaves it there. It fails
// with ErrNoTask when nothing waits, or only tasks whose time is still to come.
func (q *Queue) Peek(ctx context.Context) ([]byte, error) {
	if q.bad != nil {
		return nil, q.wrap("peek", q.bad)
	}
	payload, err := q.first(ctx)
	if errors.Is(err, ErrNoTask) {
		payload, err = redis.Bytes(q.read(ctx, "LINDEX", q.keys.Waiting(), -1))
	}
	if errors.Is(err, redis.ErrNil) {
		err = ErrNoTask
		for p, e := range q.batched(ctx) {
			payload, err = p, e
			break
		}
	}
	return payload, q.wrap("peek", err)
}

// Tasks yields the waiting payloads, front first: what is due in the schedule, the list
// with the accepted batches behind it, then what is not yet due, without what is blocked
// because its key runs. It reads a page at a time, about a mebibyte while payloads are of
// similar size, so it is no snapshot: tasks that are taken, returned or moved to the list
// meanwhile may be left out or come twice. It ends after the first error.
func (q *Queue) Tasks(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		now, err := int64(0), q.bad
		if err == nil {
			now, err = store.Now(ctx, q.peer.calls)
		}
		if err != nil {
			yield(nil, q.wrap("list tasks", err))
			return
		}
		due := float64(now)
		for _, lane := range []iter.Seq2[[]byte, error]{
			payloadsOf(q.scheduled(ctx, math.Inf(-1), due)), q.elements(ctx, q.keys.Waiting()), q.batched(ctx),
			payloadsOf(q.scheduled(ctx, due, math.Inf(1))),
		} {
			for payload, err := range lane {
				if !yield(payload, q.wrap("list tasks", err)) || err != nil {
					return
				}
			}
		}
	}
}

func payloadsOf(tasks iter.Seq2[ScheduledTask, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for t, err := range tasks {
			if !yield(t.Payload, err) {
				return
			}
		}
	}
}

// elements yields what is in a list, front first.
func (q *Queue) elements(ctx context.Context, key string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var pace pacer
		for read, n := 0, 0; ; read += n {
			n = pace.next()
			payloads, err := redis.ByteSlices(q.read(ctx, "LRANGE", key, -read-n, -read-1))
			if err == nil && len(payloads) > n {
				err = errReply
			}
			if err != nil {
				yield(nil, err)
				return
			}
			largest := 0
			for _, p := range slices.Backward(payloads) {
				largest = max(largest, len(p))
				if !yield(p, nil) {
					return
				}
			}
			if len(payloads) < n {
				return
			}
			pace.had(largest)
		}
	}
}

// A RunningTask is a task that a worker holds.
type RunningTask struct {
	AttemptID string
	WorkerID  string
	Payload   []byte
	Key       string // "" for a task from the list
	Token     int64
	StartedAt time.Time // by the clock of the peer that took it
}

// Running yields the tasks that workers hold, begun or prefetched
// (HandleOptions.Prefetch), worker by worker, oldest first.
// It is no snapshot, and ends after the first error.
func (q *Queue) Running(ctx context.Context) iter.Seq2[RunningTask, error] {
	return func(yield func(RunningTask, error) bool) {
		for worker, err := range q.holders(ctx) {
			if err != nil {
				yield(RunningTask{}, q.wrap("list running tasks", err))
				return
			}
			for t, err := range q.held(ctx, worker) {
				if !yield(t, q.wrap("list running tasks", err)) || err != nil {
					return
				}
			}
		}
	}
}

// holders yields the workers that may hold tasks: members, and those whose
// tasks are being returned.
func (q *Queue) holders(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if q.bad != nil {
			yield("", q.bad)
			return
		}
		found := sieve{}
		for _, key := range []string{q.keys.Workers(), q.keys.Suspects()} {
			// Beats change their order all the time, so they are not read by rank.
			scan := func(cursor string) redisconn.Call { return redisconn.Command("ZSCAN", key, cursor, "COUNT", page) }
			for worker, err := range q.peer.walk(ctx, 2, scan) {
				if (err != nil || found.passes(worker)) && !yield(worker, err) || err != nil {
					return
				}
			}
		}
	}
}

// held yields what a worker holds; tasks that end meanwhile are left out.
func (q *Queue) held(ctx context.Context, worker string) iter.Seq2[RunningTask, error] {
	return func(yield func(RunningTask, error) bool) {
		var pace pacer
		r := ranking{peer: q.peer, key: q.keys.Working(worker)}
		for processes, err := range r.pages(ctx) {
			if err != nil {
				yield(RunningTask{}, err)
				return
			}
			for len(processes) > 0 {
				some := processes[:min(pace.next(), len(processes))]
				processes = processes[len(some):]
				largest := 0
				calls := make([]redisconn.Call, 0, 2*len(some))
				for _, p := range some {
					calls = append(calls, redisconn.Command("LINDEX", q.keys.Process(p.name), 0), redisconn.Command("HGET", q.keys.Entries(), p.name))
				}
				replies := q.peer.calls.Do(ctx, calls...)
				for i, p := range some {
					payload, err := redis.Bytes(replies[2*i].Value, replies[2*i].Err)
					if errors.Is(err, redis.ErrNil) {
						continue
					}
					entry, noEntry := redis.String(replies[2*i+1].Value, replies[2*i+1].Err)
					if err == nil && noEntry != nil && !errors.Is(noEntry, redis.ErrNil) {
						err = noEntry
					}
					if err != nil {
						yield(RunningTask{}, err)
						return
					}
					largest = max(largest, len(payload))
					t := RunningTask{AttemptID: p.name, WorkerID: worker, Payload: payload, Token: int64(p.score), StartedAt: begun(p.name)}
					if key, ok := strings.CutPrefix(entry, keyMark); ok {
						t.Key = key
					}
					if !yield(t, nil) {
						return
					}
				}
				pace.had(largest)
			}
		}
	}
}

// QueueStats are counts of one queue.
type QueueStats struct {
	Waiting     int // on the list, or in an accepted batch on the way there
	Scheduled   int // in the schedule: under a key, or waiting for a retry
	Running     int // held by workers, also those that no handler has begun yet
	Failed      int // in the failed queue, without those that OnFailed works on
	Workers     int // that serve the queue
	IdleWorkers int // of these, with free slots and nothing to do
	Paused      bool
}

// Stats reads counts of the queue. They are read together, but what workers
// hold is added up after the rest.
func (q *Queue) Stats(ctx context.Context) (QueueStats, error) {
	if q.bad != nil {
		return QueueStats{}, q.wrap("stats", q.bad)
	}
	var s QueueStats
	replies := q.peer.calls.Do(ctx, redisconn.Command("LLEN", q.keys.Waiting()), store.UnmovedCall(q.keys),
		redisconn.Command("ZCARD", q.keys.Contents()),
		redisconn.Command("ZCARD", q.keys.Failed().Contents()),
		redisconn.Command("ZCARD", q.keys.Workers()),
		redisconn.Command("ZCARD", q.keys.Idle()),
		redisconn.Command("EXISTS", q.keys.Paused()))
	paused, err := 0, error(nil)
	for i, count := range []*int{&s.Scheduled, &s.Failed, &s.Workers, &s.IdleWorkers, &paused} {
		r := replies[2+i]
		if *count, err = redis.Int(r.Value, r.Err); err != nil {
			return QueueStats{}, q.wrap("stats", err)
		}
	}
	if s.Waiting, err = q.onList(ctx, replies[0], replies[1]); err != nil {
		return QueueStats{}, q.wrap("stats", err)
	}
	s.Paused = paused == 1
	for worker, err := range q.holders(ctx) {
		if err != nil {
			return QueueStats{}, q.wrap("stats", err)
		}
		held, err := redis.Int(q.read(ctx, "ZCARD", q.keys.Working(worker)))
		if err != nil {
			return QueueStats{}, q.wrap("stats", err)
		}
		s.Running += held
	}
	return s, nil
}

// Pause keeps every worker from starting tasks of the queue until Resume. What
// runs goes on, and so does OnFailed.
func (q *Queue) Pause(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("pause", q.bad)
	}
	return q.wrap("pause", store.Pause(ctx, q.peer.calls, q.keys))
}

// Resume ends a pause and wakes idle workers.
func (q *Queue) Resume(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("resume", q.bad)
	}
	return q.wrap("resume", store.Resume(ctx, q.peer.calls, q.keys))
}

// Delete drops all that waits, in both lanes, with its locks and its counts of
// crashes, and publishes the event "delete". What runs is not touched: it
// finishes, or is put back. A pause stays, and so do failed tasks; DeleteFailed
// drops those.
//
// What others add meanwhile may be dropped, too. If they add so fast that Delete gets nowhere,
// it fails: stop them, and call it again.
//
// If nobody serves the queue, it isn't paused and no task of it has failed, Delete also takes
// its name off the list that Queues reads. Whoever serves or fills it again lists it.
func (q *Queue) Delete(ctx context.Context) error {
	if q.bad != nil {
		return q.wrap("delete", q.bad)
	}
	if err := store.Delete(ctx, q.peer.calls, q.keys); err != nil {
		return q.wrap("delete", err)
	}
	q.back().listed.Store(0)
	err := store.Unlist(ctx, q.peer.calls, q.peer.space, q.keys, q.name)
	if foreignType(err) || redisconn.Denied(err) {
		return nil // who can't list can't unlist
	}
	return q.wrap("delete", err)
}

// read makes one plain call.
func (q *Queue) read(ctx context.Context, name string, args ...any) (any, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	return q.peer.calls.One(ctx, redisconn.Command(name, args...))
}
