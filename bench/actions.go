package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// An action is an operation on a queue.
type action struct {
	name    string
	readout bool // its plain commands count, as a separate row
	times   int  // 0 means as many as usual
	do      doing
}

type doing = func(ctx context.Context, s *stage) error

func exhaust[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// failure returns the error of a call whose value doesn't matter.
func failure[T any](_ T, err error) error { return err }

// actions returns all operations on a queue; those that empty it come last.
func actions(scale scale) []action {
	return slices.Concat(producing(scale), recurring, ending, outcomes, canceling, serving, reading, behind(scale), emptying)
}

var inAnHour = func() *worqr.PutOptions { return &worqr.PutOptions{At: time.Now().Add(time.Hour)} }

func producing(scale scale) []action {
	return []action{
		{name: "Enqueue", do: func(ctx context.Context, s *stage) error { return s.queue.Enqueue(ctx, s.bytes()) }},
		{name: "Enqueue of many", do: func(ctx context.Context, s *stage) error {
			n := scale.of(worqr.MaxBatchSize, worqr.MaxBatchSize)
			if s.payload > 1<<10 {
				n = s.batch
			}
			return s.queue.Enqueue(ctx, s.payloads(n)...)
		}},
		{name: "EnqueueOnce", do: func(ctx context.Context, s *stage) error {
			return failure(s.queue.EnqueueOnce(ctx, string(s.bytes()[:20]), s.payloads(s.batch)...))
		}},
		{name: "Add", do: func(ctx context.Context, s *stage) error {
			line := redisconn.NewLine(redisconn.FromPool(s.pool()), 0)
			defer line.Close()
			_, _, _, err := store.Add(ctx, line, keys.NewSpace("").Queue(s.queue.Name()), keys.NewSalt(), "", 0, []store.Added{{Payload: s.bytes()}})
			return err
		}},
		{name: "AddMany", do: func(ctx context.Context, s *stage) error { return failure(s.queue.AddMany(ctx, addedAtOnce(s))) }},
		{name: "EnqueueUnique", do: func(ctx context.Context, s *stage) error { return s.queue.EnqueueUnique(ctx, s.bytes()) }},
		{name: "Put", do: func(ctx context.Context, s *stage) error {
			return errors.Join(s.queue.Put(ctx, "key", s.bytes(), inAnHour()), s.queue.Put(ctx, "key", s.bytes(), inAnHour()))
		}},
		{name: "Remove", do: func(ctx context.Context, s *stage) error { return failure(s.queue.RemoveKey(ctx, "key")) }},
	}
}

var canceling = []action{
	{name: "CancelKey", do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.queue.Put(ctx, "key", s.bytes(), inAnHour()), failure(s.queue.CancelKey(ctx, "key")))
	}},
	{name: "Cancel", do: func(ctx context.Context, s *stage) error { return s.cancel(ctx, 1) }},
	{name: "Cancel of many equal tasks", do: func(ctx context.Context, s *stage) error { return s.cancel(ctx, s.batch) }},
}

// cancel enqueues equal tasks and cancels them.
func (s *stage) cancel(ctx context.Context, n int) error {
	p := s.bytes()
	err := s.queue.Enqueue(ctx, slices.Repeat([][]byte{p}, n)...)
	return errors.Join(err, failure(s.queue.Cancel(ctx, p)))
}

var (
	errNo  = errors.New("no")
	finish = func(ctx context.Context, t *worqr.Task) error { return t.Finish(ctx) }
	fail   = func(ctx context.Context, t *worqr.Task) error { return t.Fail(ctx, errNo) }
)

// ended returns an action whose tasks end in a given way.
func ended(name string, how func(context.Context, *worqr.Task) error) action {
	return action{name: name, do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.enqueue(ctx, s.batch), s.settle(ctx, how))
	}}
}

var ending = []action{
	ended("start and Finish", finish),
	ended("start and Stop", func(ctx context.Context, t *worqr.Task) error { return t.Stop(ctx) }),
	ended("start and Retry", func(ctx context.Context, t *worqr.Task) error { return t.Retry(ctx, time.Hour) }),
	ended("start and Fail", fail),
	{name: "start and end under keys", do: func(ctx context.Context, s *stage) error {
		err := s.parallel(ctx, s.batch, func(i int) error { return s.queue.Put(ctx, fmt.Sprintf("due-%d", i), s.bytes(), nil) })
		return errors.Join(err, s.settle(ctx, finish))
	}},
}

var serving = []action{
	{name: "Pause and Resume", do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.queue.Pause(ctx), s.queue.Resume(ctx))
	}},
	{name: "a worker that joins, sends a heartbeat and leaves", do: func(ctx context.Context, s *stage) error {
		return s.guest(ctx, (*worqr.Peer).StopWorker)
	}},
	{name: "FailWorker", do: func(ctx context.Context, s *stage) error {
		return s.guest(ctx, func(p *worqr.Peer, ctx context.Context) error { return failure(s.worker.FailWorker(ctx, p.WorkerID())) })
	}},
	{name: "a beat", do: func(ctx context.Context, s *stage) error {
		q := keys.NewSpace("").Queue(s.queue.Name())
		line := redisconn.NewLine(redisconn.FromPool(s.pool()), 0)
		defer line.Close()
		judge, err := store.Now(ctx, line)
		if err != nil {
			return err
		}
		return failure(store.ReadBeat(line.Do(ctx, store.BeatCall(q, s.worker.WorkerID(), time.Minute, time.Second, judge+500))[0]))
	}},
	{name: "Sweep", do: func(ctx context.Context, s *stage) error { return failure(s.worker.Sweep(ctx)) }},
	{name: "the first worker of a fleet", do: func(ctx context.Context, s *stage) error {
		first := keys.NewSpace("first")
		line := redisconn.NewLine(redisconn.FromPool(s.pool()), 0)
		defer line.Close()
		_, err := line.One(ctx, redisconn.Command("DEL", first.Protocol()))
		return errors.Join(err, store.Agree(ctx, line, first, store.Ours))
	}},
}

var reading = []action{
	{name: "Explain", readout: true, do: func(ctx context.Context, s *stage) error {
		return errors.Join(failure(s.queue.Explain(ctx, s.bytes())), failure(s.queue.ExplainKey(ctx, "key")))
	}},
	{name: "Len", readout: true, do: func(ctx context.Context, s *stage) error { return failure(s.queue.Len(ctx)) }},
	{name: "Peek", readout: true, do: func(ctx context.Context, s *stage) error { return failure(s.queue.Peek(ctx)) }},
	{name: "Stats", readout: true, do: func(ctx context.Context, s *stage) error { return failure(s.queue.Stats(ctx)) }},
	{name: "Tasks", readout: true, times: 1, do: func(ctx context.Context, s *stage) error { return exhaust(s.queue.Tasks(ctx)) }},
	{name: "Scheduled", readout: true, times: 1, do: func(ctx context.Context, s *stage) error { return exhaust(s.queue.Scheduled(ctx)) }},
	{name: "Failed", readout: true, times: 1, do: func(ctx context.Context, s *stage) error { return exhaust(s.queue.Failed(ctx)) }},
	{name: "Running", readout: true, do: func(ctx context.Context, s *stage) error {
		if err := s.enqueue(ctx, s.batch); err != nil {
			return err
		}
		tasks, err := s.take(ctx)
		if err != nil {
			return err
		}
		return errors.Join(exhaust(s.queue.Running(ctx)), s.end(ctx, tasks, finish))
	}},
	{name: "Workers", readout: true, do: func(ctx context.Context, s *stage) error { return exhaust(s.worker.Workers(ctx)) }},
	{name: "Queues", readout: true, do: func(ctx context.Context, s *stage) error { return exhaust(s.worker.Queues(ctx)) }},
	{name: "Check", readout: true, times: 1, do: func(ctx context.Context, s *stage) error {
		_, err := s.conn.Do("HSET", "worqr:entries:{"+s.queue.Name()+"}", "nobody", "k:nothing") // Repair must check this twice
		doctor := s.leased(time.Second)                                                          // it checks twice, a lease apart
		return errors.Join(err, failure(doctor.Repair(ctx, nil)))                                // Repair includes Check
	}},
}

var emptying = []action{
	{name: "RequeueAllFailed", times: 1, do: func(ctx context.Context, s *stage) error { return failure(s.queue.RequeueAllFailed(ctx)) }},
	ended("start and Fail again", fail),
	{name: "DeleteAllFailed", times: 1, do: func(ctx context.Context, s *stage) error { return failure(s.queue.DeleteAllFailed(ctx)) }},
	{name: "Delete", times: 1, do: func(ctx context.Context, s *stage) error { return s.queue.Delete(ctx) }},
}
