package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A RunningTask is held by a worker.
type RunningTask struct {
	Attempt string // StartedAt says when it started
	Worker  string
	Token   int64
	Stops   bool   // it was canceled
	Name    string // "" for a raw task
	Record  Record // of a raw task only the payload
	Retries int
	Crashes int
	Error   string // of the attempt before; "" if there was none
}

// Running yields the tasks that workers hold, worker by worker, oldest first. Those that a worker holds
// during the whole listing come once.
func Running(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[RunningTask, error] {
	return rows(func(yield func([]RunningTask, error) bool) {
		for workers, err := range holders(ctx, r, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, worker := range workers {
				for page, err := range running(ctx, r, q, worker) {
					if !yield(page, err) || err != nil {
						return
					}
				}
			}
		}
	})
}

// holders reads the workers that may hold tasks: members, and then those whose tasks are being returned.
func holders(ctx context.Context, r Runner, q keys.Queue) pages[string] {
	found := sieve{}
	all := chain(members(ctx, r, "ZSCAN", q.Workers()), members(ctx, r, "ZSCAN", q.Leaving()))
	return filter(all, found.passes)
}

// running reads what a worker holds. Tasks that end meanwhile are left out.
func running(ctx context.Context, r Runner, q keys.Queue, worker string) pages[RunningTask] {
	var pace pacer
	tasks := each(attempts(ctx, r, q, worker, pace.next), func(some []RunningTask) ([]RunningTask, error) {
		return withLists(ctx, r, q, some, &pace)
	})
	size := func(t RunningTask) redisconn.Call {
		return redisconn.Command("HSTRLEN", q.Tasks(), t.Name) // 0 for a raw one
	}
	return each(sized(ctx, r, tasks, size), func(some []RunningTask) ([]RunningTask, error) {
		records, err := readNamed(ctx, r, q, some, func(t RunningTask) string { return t.Name })
		if err != nil {
			return nil, err
		}
		left := some[:0]
		for i, t := range some {
			if f := records[i]; t.Name != "" {
				t.Record, t.Retries, t.Crashes, t.Error = f.record, f.run.retries, f.run.crashes, f.run.failure
				if !f.there || f.run.attempt != t.Attempt {
					continue
				}
			}
			left = append(left, t)
		}
		return left, nil
	})
}

// attempts reads the attempts of a worker, oldest first, limit() at a time. A token that becomes negative
// meanwhile keeps its place: both ranges are read, and a page ends where the shorter one does.
func attempts(ctx context.Context, r Runner, q keys.Queue, worker string, limit func() int) pages[RunningTask] {
	return paged(func() func() ([]RunningTask, error) {
		after := 0.0
		return func() (page []RunningTask, _ error) {
			n := limit()
			replies := r.Do(ctx,
				redisconn.Command("ZRANGE", q.Working(worker), "("+strconv.FormatFloat(after, 'f', -1, 64), "+inf", "BYSCORE", "LIMIT", 0, n, "WITHSCORES"),
				redisconn.Command("ZRANGE", q.Working(worker), "("+strconv.FormatFloat(-after, 'f', -1, 64), "-inf", "BYSCORE", "REV", "LIMIT", 0, n, "WITHSCORES"))
			running, err := readRanked(replies[0], n)
			stopping, bad := readRanked(replies[1], n)
			if err = cmp.Or(err, bad); err != nil {
				return nil, err
			}
			upTo := math.Inf(1)
			for _, some := range [][]ranked{running, stopping} {
				if len(some) == n {
					upTo = min(upTo, math.Abs(some[n-1].score))
				}
			}
			found := map[string]bool{}
			for _, m := range slices.Concat(stopping, running) {
				if token := math.Abs(m.score); token <= upTo && !found[m.name] {
					found[m.name], after = true, max(after, token)
					page = append(page, RunningTask{Attempt: m.name, Worker: worker, Token: whole(token), Stops: m.score < 0})
				}
			}
			slices.SortFunc(page, func(a, b RunningTask) int { return cmp.Compare(a.Token, b.Token) })
			return page, nil
		}
	})
}

// withLists reads the lists of attempts: payloads, or names.
func withLists(ctx context.Context, r Runner, q keys.Queue, some []RunningTask, pace *pacer) (left []RunningTask, _ error) {
	list := func(t RunningTask) redisconn.Call { return redisconn.Command("LINDEX", q.Process(t.Attempt), 0) }
	for i, reply := range doEach(ctx, r, some, list) {
		item, err := redis.Bytes(reply.Value, reply.Err)
		if errors.Is(err, redis.ErrNil) {
			continue
		}
		if err != nil {
			return left, err
		}
		pace.saw(len(item))
		t := some[i]
		if IsNamed(t.Attempt) {
			t.Name = string(item)
		} else {
			t.Record.Payload = item
		}
		left = append(left, t)
	}
	return left, nil
}
