// Package spread serves several queues as one, so that the nodes of a Redis Cluster share its work.
//
// All keys of a queue have one slot, so one node does all its work. If that node is the limit, use
// several queues:
//
//	emails := spread.Over(peer, "emails", 6) // emails-1 to emails-6
//	emails.Handle(send, nil)
//	err := emails.Enqueue(ctx, payload)
//
// They are ordinary queues. Each has its own order, fencing tokens, failed tasks and pause. For whatever this package
// doesn't have, For returns the queue of a key, and Queues returns all:
//
//	report, err := emails.For(key).CancelKey(ctx, key)
//	for _, q := range emails.Queues() {
//		for t, err := range q.Running(ctx) {
//
// All programs must use the same n for tasks with keys, since a key's queue depends on n. See
// docs/operations.md for how to choose n, and how to change it.
package spread

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A Queue is several queues that are used as one. Its methods may be called concurrently.
//
// Methods that use all queues try each, even if some fail, and return the errors of those that do.
type Queue struct {
	name   string
	queues []*worqr.Queue
	turn   atomic.Uint32
}

// Over returns the queues name-1 to name-n as one. It panics if n isn't positive.
func Over(p *worqr.Peer, name string, n int) *Queue {
	if n < 1 {
		panic(fmt.Sprintf("worqr: spread.Over needs at least one queue, not %d", n))
	}
	s := &Queue{name: name}
	s.turn.Store(rand.Uint32())
	for i := range n {
		s.queues = append(s.queues, p.Queue(fmt.Sprintf("%s-%d", name, i+1)))
	}
	return s
}

// Name returns the name that Over was given.
func (s *Queue) Name() string { return s.name }

// Queues returns the queues, in order.
func (s *Queue) Queues() []*worqr.Queue { return slices.Clone(s.queues) }

// Next returns the queues in turn, for tasks without a key.
func (s *Queue) Next() *worqr.Queue { return s.queues[s.turn.Add(1)%uint32(len(s.queues))] }

// For returns the queue for a key, a nonce, or the payload of a unique task: the one whose index is
// its CRC-32 (IEEE) modulo n.
func (s *Queue) For(key string) *worqr.Queue { return s.queues[s.index(key)] }

func (s *Queue) index(key string) int {
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(len(s.queues)))
}

// Enqueue adds the payloads to the back of the next queue. Tasks start in order only within one
// call. If it fails, a repeated call uses another queue.
func (s *Queue) Enqueue(ctx context.Context, payloads ...[]byte) error {
	return s.Next().Enqueue(ctx, payloads...)
}

// Add is worqr.Queue.Add for one task, on the queue of its key: "" is a new one. A unique task is on
// the queue of its payload, and can't have Once (ErrInvalid), since that queue alone would know the nonce. With Once, all
// calls must have the same Key or none. To add several tasks all or none, use Add of Next.
func (s *Queue) Add(ctx context.Context, task worqr.TaskSpec) (key string, err error) {
	if task.Unique && task.Once != "" {
		return "", fmt.Errorf("worqr: add task to %s: %w: a unique task of a spread queue can't have Once: put what makes it unique into the payload", s.name, worqr.ErrInvalid)
	}
	if task.Unique {
		_, err := s.For(string(task.Payload)).Add(ctx, task)
		return "", err
	}
	given := task.Key != ""
	for at := s.index(task.Once); !given && (task.Key == "" || task.Once != "" && s.index(task.Key) != at); {
		task.Key = uuid.Must(uuid.NewV7()).String() // every call with this Once must reach the same queue
	}
	_, err = s.For(task.Key).Add(ctx, task)
	if once, ok := errors.AsType[*worqr.OnceError](err); ok && !given {
		return once.Key, nil
	}
	if err != nil {
		return "", err
	}
	return task.Key, nil
}

// Handle makes h the handler of all queues. Each gets an equal share of Concurrency, rounded up, so
// at least 1. The other options, including OnFailedOptions, apply to each queue by itself. It panics
// if worqr.Queue.Handle does.
func (s *Queue) Handle(h worqr.Handler, opts *worqr.HandleOptions) {
	for _, q := range s.queues {
		q.Handle(h, s.share(opts))
	}
}

// SetOptions is worqr.Queue.SetOptions for all queues, with the same shares as Handle.
func (s *Queue) SetOptions(opts *worqr.HandleOptions) error {
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.SetOptions(s.share(opts)))
	}
	return errors.Join(errs...)
}

// share returns the options for one queue.
func (s *Queue) share(opts *worqr.HandleOptions) *worqr.HandleOptions {
	var o worqr.HandleOptions
	if opts != nil {
		o = *opts
	}
	if o.Concurrency == 0 {
		o.Concurrency = runtime.GOMAXPROCS(0)
	}
	if n := len(s.queues); o.Concurrency > 0 { // otherwise worqr rejects it
		o.Concurrency = (o.Concurrency-1)/n + 1
	}
	return &o
}

// Unhandle is worqr.Queue.Unhandle for all queues.
func (s *Queue) Unhandle(ctx context.Context) error {
	return s.each(func(_ int, q *worqr.Queue) error { return q.Unhandle(ctx) })
}

// each calls f for all queues at the same time, with their index.
func (s *Queue) each(f func(i int, q *worqr.Queue) error) error { return each(s.queues, f) }

func each[T any](all []T, f func(i int, v T) error) error {
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, v := range all {
		calls.Go(func() { errs[i] = f(i, v) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// sum calls f for all queues, with their index, and adds up what it returns.
func (s *Queue) sum(f func(i int, q *worqr.Queue) (int, error)) (int, error) {
	var total atomic.Int64
	err := s.each(func(i int, q *worqr.Queue) error {
		n, err := f(i, q)
		total.Add(int64(n))
		return err
	})
	return int(total.Load()), err
}

// sumOf calls f for the queues that have some of these ids of failed tasks, and adds up what it returns.
func (s *Queue) sumOf(ids []string, f func(q *worqr.Queue, its []string) (int, error)) (int, error) {
	on := map[string][]string{} // by the queue's number
	for _, id := range ids {
		number, its, _ := strings.Cut(id, ":")
		on[number] = append(on[number], its)
	}
	return s.sum(func(i int, q *worqr.Queue) (int, error) {
		if its := on[fmt.Sprint(i+1)]; len(its) > 0 {
			return f(q, its)
		}
		return 0, nil
	})
}

// Stats adds up the counts of the queues. Workers, IdleWorkers and Oldest are the highest of any
// queue; Paused and Silent say that at least one is, and PausedBy and PausedSince are those of the first.
func (s *Queue) Stats(ctx context.Context) (inspect.QueueStats, error) {
	all := make([]inspect.QueueStats, len(s.queues))
	err := s.each(func(i int, q *worqr.Queue) (err error) {
		all[i], err = q.Stats(ctx)
		return err
	})
	var t inspect.QueueStats
	for _, c := range all {
		t.Waiting += c.Waiting
		t.Named += c.Named
		t.Scheduled += c.Scheduled
		t.Running += c.Running
		t.Retrying += c.Retrying
		t.Failed += c.Failed
		t.Tokens += c.Tokens
		t.Workers, t.IdleWorkers, t.Oldest = max(t.Workers, c.Workers), max(t.IdleWorkers, c.IdleWorkers), max(t.Oldest, c.Oldest)
		if c.Paused && !t.Paused {
			t.Paused, t.PausedBy, t.PausedSince = true, c.PausedBy, c.PausedSince
		}
		t.Silent = t.Silent || c.Silent
	}
	return t, err
}

// Pause pauses all queues.
func (s *Queue) Pause(ctx context.Context) error {
	return s.each(func(_ int, q *worqr.Queue) error { return q.Pause(ctx) })
}

// Resume ends the pause of all queues.
func (s *Queue) Resume(ctx context.Context) error {
	return s.each(func(_ int, q *worqr.Queue) error { return q.Resume(ctx) })
}

// Delete is worqr.Queue.Delete for all queues.
func (s *Queue) Delete(ctx context.Context) error {
	return s.each(func(_ int, q *worqr.Queue) error { return q.Delete(ctx) })
}

// Cancel is worqr.Queue.Cancel on all queues. If some fail, the report is about the others.
func (s *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	c := &CancelReport{reports: make([]*worqr.CancelReport, len(s.queues))}
	err := s.each(func(i int, q *worqr.Queue) (err error) {
		c.reports[i], err = q.Cancel(ctx, payload)
		return err
	})
	for _, r := range c.reports {
		if r != nil {
			c.Removed += r.Removed
			c.Running += r.Running
		}
	}
	return c, err
}

// A CancelReport says what a cancel did on all queues. It isn't safe for concurrent use.
type CancelReport struct {
	Removed int // waiting copies
	Running int // attempts that it found running or prefetched; one that stopped at once may be missing

	reports []*worqr.CancelReport // nil where the cancel failed
}

// Wait is worqr.CancelReport.Wait on all queues.
func (c *CancelReport) Wait(ctx context.Context) error {
	return each(c.reports, func(_ int, r *worqr.CancelReport) error {
		if r == nil {
			return nil
		}
		return r.Wait(ctx)
	})
}

// Failed yields the failed tasks of each queue, newest first, one queue after the other. Their ids have the number
// of the queue and a colon in front, since several queues may use the same id.
func (s *Queue) Failed(ctx context.Context) iter.Seq2[inspect.FailedTask, error] {
	return func(yield func(inspect.FailedTask, error) bool) {
		for i, q := range s.queues {
			for t, err := range q.Failed(ctx) {
				if err == nil {
					t.ID = fmt.Sprintf("%d:%s", i+1, t.ID)
				}
				if !yield(t, err) {
					return
				}
			}
		}
	}
}

// RequeueFailed requeues the failed tasks with these ids, as Failed yields them, each on its queue, and returns how many.
func (s *Queue) RequeueFailed(ctx context.Context, ids ...string) (int, error) {
	return s.sumOf(ids, func(q *worqr.Queue, its []string) (int, error) { return q.RequeueFailed(ctx, its...) })
}

// RequeueAllFailed is RequeueFailed for all failed tasks.
func (s *Queue) RequeueAllFailed(ctx context.Context) (int, error) {
	return s.sum(func(_ int, q *worqr.Queue) (int, error) { return q.RequeueAllFailed(ctx) })
}

// DeleteFailed drops the failed tasks with these ids, as Failed yields them, and returns how many.
func (s *Queue) DeleteFailed(ctx context.Context, ids ...string) (int, error) {
	return s.sumOf(ids, func(q *worqr.Queue, its []string) (int, error) { return q.DeleteFailed(ctx, its...) })
}

// DeleteAllFailed is DeleteFailed for all failed tasks.
func (s *Queue) DeleteAllFailed(ctx context.Context) (int, error) {
	return s.sum(func(_ int, q *worqr.Queue) (int, error) { return q.DeleteAllFailed(ctx) })
}
