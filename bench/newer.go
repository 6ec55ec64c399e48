package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// addedAtOnce returns as many tasks as one AddMany may add, or the largest ones.
func addedAtOnce(s *stage) []worqr.TaskSpec {
	const most = 1<<20 - store.AddedLength*20 // bytes, minus the overhead of the tasks
	size := min(s.payload, most)
	all := make([]worqr.TaskSpec, min(store.AddedLength, most/size))
	for i := range all {
		all[i].Payload = s.bytes()[:size]
	}
	return all
}

// recurring are the actions on schedules. They use their own queue, so that occurrences don't
// affect other actions.
var recurring = []action{
	{name: "Every, 50 of them", do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.asserts(ctx, "1:1a", 50, 20), s.asserts(ctx, "1:2b", 50, 20)) // new ones, and then others that replace them
	}},
	{name: "Every, 15 of the largest", do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.asserts(ctx, "1:3c", 15, worqr.MaxEveryPayload), s.asserts(ctx, "1:4d", 15, worqr.MaxEveryPayload))
	}},
	{name: "Recurring", readout: true, do: func(ctx context.Context, s *stage) error {
		return errors.Join(s.asserts(ctx, "1:1a", 50, 20), exhaust(s.worker.Queue("recurring").Recurring(ctx)))
	}},
	{name: "RunNow", readout: true, do: func(ctx context.Context, s *stage) error {
		q := s.worker.Queue("recurring")
		err := s.asserts(ctx, "1:3c", 15, worqr.MaxEveryPayload)
		found, failed := q.RunNow(ctx, "recurring1")
		if failed == nil && !found {
			failed = errors.New("nothing recurs")
		}
		return errors.Join(err, failed, q.Delete(ctx))
	}},
}

// asserts asserts n schedules, as many as one call of a peer may assert with payloads of this size,
// each with 64 times.
func (s *stage) asserts(ctx context.Context, print string, n, size int) error {
	line := redisconn.NewLine(redisconn.FromPool(s.pool()), 0)
	defer line.Close()
	var all []store.Schedule
	for i := range n {
		one := store.Schedule{Entry: store.EntryOf(fmt.Sprint("recurring", i)), Print: print, Renewed: print, Payload: make([]byte, size)}
		for n := range int64(64) {
			one.Times = append(one.Times, time.Now().Add(time.Hour).UnixMilli()+n*1000)
		}
		all = append(all, one)
	}
	_, _, _, err := store.Recur(ctx, line, keys.NewSpace("").Queue("recurring"), time.Minute.Milliseconds(), store.Whenever, all)
	return err
}

var outcomes = []action{
	{name: "Finish with a result, Result and Wait", readout: true, do: func(ctx context.Context, s *stage) error {
		q := s.worker.Queue("results")
		if err := q.StartWork(ctx); err != nil {
			return err
		}
		key, err := q.Add(ctx, []byte("x"), &worqr.Properties{KeepResult: time.Minute})
		if err != nil {
			return err
		}
		tasks, err := s.takeFrom(ctx, q, 1)
		if err != nil {
			return err
		}
		tasks[0].Result = s.bytes()[:min(s.payload, 1<<20)] // larger results aren't kept
		err = tasks[0].Finish(ctx)
		return errors.Join(err, failure(q.Result(ctx, key)), failure(q.Wait(ctx, key)), q.StopWork(ctx))
	}},
	{name: "start, Retry, start and Finish of tasks with 8,000 bytes of headers", readout: true, do: func(ctx context.Context, s *stage) error {
		q := s.worker.Queue("headers")
		if err := q.StartWork(ctx); err != nil {
			return err
		}
		task := worqr.TaskSpec{Payload: []byte("x"), Properties: worqr.Properties{Headers: map[string]string{"h": strings.Repeat("h", 8_000)}}}
		n := min(s.batch, 100) // a mebibyte in total
		for range 5 {
			if _, err := q.AddMany(ctx, slices.Repeat([]worqr.TaskSpec{task}, n)); err != nil {
				return err
			}
		}
		for _, end := range []func(context.Context, *worqr.Task) error{
			func(ctx context.Context, t *worqr.Task) error { return t.Retry(ctx, 0) },
			func(ctx context.Context, t *worqr.Task) error { return t.Finish(ctx) },
		} {
			tasks, err := s.takeFrom(ctx, q, 5*n)
			if err == nil {
				err = s.end(ctx, tasks, end)
			}
			if err != nil {
				return err
			}
		}
		return q.StopWork(ctx)
	}},
	{name: "Result of a task that hasn't ended", do: func(ctx context.Context, s *stage) error {
		line := redisconn.NewLine(redisconn.FromPool(s.pool()), 0)
		defer line.Close()
		return failure(store.Ends(ctx, line, keys.NewSpace("").Queue(s.queue.Name()), []string{store.EntryOf("key")}))
	}},
}

// behind are the actions on a queue with 100,000 added tasks.
func behind(scale scale) []action {
	tasks := scale.of(100_000, 6_000)
	fill := func(ctx context.Context, s *stage) (q *worqr.Queue, last string, err error) {
		q = s.worker.Queue("added")
		some := slices.Repeat([]worqr.TaskSpec{{Payload: []byte("x"), Properties: worqr.Properties{Headers: map[string]string{"trace": "many"}}}}, 1_000)
		for range tasks / len(some) {
			if _, err = q.AddMany(ctx, some); err != nil {
				return nil, "", err
			}
		}
		last, err = q.Add(ctx, []byte("last"), &worqr.Properties{Headers: map[string]string{"trace": "last"}})
		return q, last, err
	}
	on := func(name string, do func(ctx context.Context, q *worqr.Queue, last string) error) action {
		return action{name: name, readout: true, times: 1, do: func(ctx context.Context, s *stage) error {
			q, last, err := fill(ctx, s)
			if err != nil {
				return err
			}
			return errors.Join(do(ctx, q, last), q.Delete(ctx))
		}}
	}
	return []action{
		on("Added, of 100,000", func(ctx context.Context, q *worqr.Queue, _ string) error { return exhaust(q.Added(ctx)) }),
		on("ExplainKey behind 100,000 added", func(ctx context.Context, q *worqr.Queue, last string) error {
			return failure(q.ExplainKey(ctx, last))
		}),
		on("ExplainHeader behind 100,000 added", func(ctx context.Context, q *worqr.Queue, _ string) error {
			return failure(q.ExplainHeader(ctx, "trace", "last"))
		}),
	}
}
