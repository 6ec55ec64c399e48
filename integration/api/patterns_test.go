package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// As in recipes_test.go, the functions below contain lines shown in docs/, which TestReadmeCode
// looks for. The tests run them on several peers.

type event struct {
	Customer string
	Number   int
}

func recipeOrder(customers *worqr.Queue, oldest func(ctx context.Context, customer string) (*event, error), apply, remove func(context.Context, *event) error) {
	customers.Handle(func(ctx context.Context, t *worqr.Task) error {
		for range 100 {
			e, err := oldest(ctx, t.Key) // of the customer's events that aren't removed
			if err != nil || e == nil {
				return err
			}
			if err := apply(ctx, e); err != nil {
				return err // retried later; the customer's next events wait for this one
			}
			if err := remove(ctx, e); err != nil {
				return err
			}
		}
		return worqr.Snooze(0) // other customers first
	}, &worqr.HandleOptions{Concurrency: 50, Timeout: time.Minute, Exclusive: true})
}

func recipeOrderAdd(ctx context.Context, customers *worqr.Queue, insert func(context.Context, event) error, e event) error {
	if err := insert(ctx, e); err != nil { // first into your table
		return err
	}
	_, err := customers.Add(ctx, worqr.TaskSpec{Key: e.Customer, KeepPayload: true, Reschedule: worqr.RescheduleNever})
	return err
}

var turn = redis.NewScript(1, `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
redis.call('SET', KEYS[1], string.format('%.0f', at + ARGV[1]), 'EX', 3600)
return at - now`)

func recipeRate(calls *worqr.Queue, pool *redis.Pool, call func(context.Context, []byte) error) {
	calls.Handle(func(ctx context.Context, t *worqr.Task) error {
		conn := pool.Get()
		wait, err := redis.Int64(turn.DoContext(ctx, conn, "turn:provider", time.Second.Microseconds()/5))
		conn.Close()
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(wait) * time.Microsecond):
			return call(ctx, t.Payload)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, &worqr.HandleOptions{Concurrency: 4, Timeout: time.Minute})
}

type row struct {
	Import string
	Number int
}

func recipeImport(ctx context.Context, rows *worqr.Queue, id string, payloads [][]byte) error {
	n := 0
	for chunk := range slices.Chunk(payloads, 1000) {
		n++
		nonce := fmt.Sprintf("%s/%d", id, n)
		_, err := rows.EnqueueOnce(ctx, nonce, chunk...)
		for errors.Is(err, worqr.ErrUnknownOutcome) && ctx.Err() == nil {
			_, err = rows.EnqueueOnce(ctx, nonce, chunk...) // a chunk that's known is skipped
		}
		if err != nil {
			return err // repeat the import within ten minutes: what's enqueued isn't enqueued again
		}
	}
	return nil
}

func recipeRows(rows, imported *worqr.Queue, store func(context.Context, row) error, mark func(ctx context.Context, r row) error, unmarked func(ctx context.Context, id string) (int, error)) {
	ended := func(ctx context.Context, r row) error {
		if err := mark(ctx, r); err != nil { // marking it twice changes nothing
			return err
		}
		left, err := unmarked(ctx, r.Import) // after the mark has been committed
		if err != nil || left > 0 {
			return err
		}
		_, err = imported.Add(ctx, worqr.TaskSpec{Payload: []byte(r.Import), Once: r.Import, OnceFor: worqr.MaxOnceFor})
		return err
	}
	rows.Handle(worqr.JSON(func(ctx context.Context, r row, t *worqr.Task) error {
		if err := store(ctx, r); err != nil {
			return err
		}
		return ended(ctx, r)
	}), &worqr.HandleOptions{
		Concurrency: 32, Timeout: time.Minute,
		OnFailed: worqr.JSON(func(ctx context.Context, r row, t *worqr.Task) error {
			if err := ended(ctx, r); err != nil {
				return err
			}
			return worqr.Permanent(errors.New("the row is marked")) // keeps the failed task
		}),
	})
}

func recipeKeep(charges *worqr.Queue, handle worqr.Handler, page func(ctx context.Context, text string) error) {
	charges.Handle(handle, &worqr.HandleOptions{
		OnFailed: func(ctx context.Context, t *worqr.Task) error {
			if err := page(ctx, t.Queue+" failed: "+t.Failure.Error); err != nil {
				return err // called again later
			}
			return worqr.Permanent(errors.New("someone was paged")) // keeps it; nil would delete it
		},
	})
}

type logKey struct{}

func recipeLog(p *worqr.Peer) {
	p.Use(func(next worqr.Handler) worqr.Handler {
		return func(ctx context.Context, t *worqr.Task) error {
			log := slog.With("queue", t.Queue, "attempt_id", t.AttemptID, "key", t.Key, "request_id", t.Headers["request-id"])
			err := next(context.WithValue(ctx, logKey{}, log), t)
			if err != nil && !worqr.IsSnooze(err) {
				log.WarnContext(ctx, "attempt failed", "retries", t.Retries, "err", err)
			}
			return err
		}
	})
}

func recipeRequest(ctx context.Context, orders *worqr.Queue, requestID string, order []byte) error {
	_, err := orders.Add(ctx, worqr.TaskSpec{Payload: order, Once: requestID, Headers: map[string]string{"request-id": requestID}})
	return err
}

// replicas runs n peers of a fleet.
func replicas(t *testing.T, url string, n int, serve func(*worqr.Peer)) (all []*worqr.Peer) {
	prefix := redistest.Prefix(t)
	for range n {
		p := openAt(t, url, worqr.Options{Prefix: prefix})
		serve(p)
		run(t, p)
		all = append(all, p)
	}
	return all
}

// A customer's events are applied in order, one at a time, through errors and on several peers.
func TestDocsOrder(t *testing.T) {
	is := parallel(t)
	const customers, each = 20, 130
	var mu sync.Mutex
	table, applied, busy, tries, overlaps := map[string][]event{}, map[string][]int{}, map[string]bool{}, 0, 0
	oldest := func(_ context.Context, customer string) (*event, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(table[customer]) == 0 {
			return nil, nil
		}
		e := table[customer][0]
		return &e, nil
	}
	apply := func(_ context.Context, e *event) error {
		mu.Lock()
		if busy[e.Customer] {
			overlaps++
		}
		busy[e.Customer] = true
		mu.Unlock()
		runtime.Gosched() // others could overlap
		mu.Lock()
		defer mu.Unlock()
		busy[e.Customer] = false
		if tries++; tries%200 == 0 {
			return worqr.RetryAfter(errBusy, 10*time.Millisecond)
		}
		applied[e.Customer] = append(applied[e.Customer], e.Number)
		return nil
	}
	remove := func(_ context.Context, e *event) error {
		mu.Lock()
		defer mu.Unlock()
		table[e.Customer] = table[e.Customer][1:]
		return nil
	}
	all := replicas(t, redistest.URL(), 3, func(p *worqr.Peer) { recipeOrder(p.Queue("customers"), oldest, apply, remove) })
	insert := func(_ context.Context, e event) error {
		mu.Lock()
		defer mu.Unlock()
		table[e.Customer] = append(table[e.Customer], e)
		return nil
	}
	for n := range each {
		for c := range customers {
			is.NoErr(recipeOrderAdd(t.Context(), all[n%3].Queue("customers"), insert, event{fmt.Sprint("customer-", c), n}))
		}
	}
	eventually(t, "all events are removed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(table)), func(left []event) bool { return len(left) > 0 })
	})
	allDone(t, all[0].Queue("customers"))
	want := make([]int, each)
	for n := range want {
		want[n] = n
	}
	for _, got := range applied {
		is.Equal(got, want)
	}
	is.Equal(len(applied), customers)
	is.Equal(overlaps, 0)
	is.Equal(failed(t, all[0].Queue("customers")), []inspect.FailedTask(nil))
}

// Calls of three peers are planned 200 ms apart.
func TestDocsRate(t *testing.T) {
	is := parallel(t)
	called, server := make(chan time.Time, 100), redistest.Start(t)
	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, server.URL()) }}
	defer pool.Close()
	all := replicas(t, server.URL(), 3, func(p *worqr.Peer) {
		recipeRate(p.Queue("calls"), pool, func(context.Context, []byte) error {
			called <- time.Now()
			return nil
		})
	})
	calls, began := all[0].Queue("calls"), time.Now()
	const tasks = 16
	is.NoErr(calls.Enqueue(t.Context(), make([][]byte, tasks)...))
	last := receive(t, called, tasks)[tasks-1]
	is.True(last.Sub(began) >= (tasks-1)*200*time.Millisecond)
	allDone(t, calls)
}

// An import is stored completely, and its end is reported once, whatever happens to its rows and to
// replies.
func TestDocsImport(t *testing.T) {
	is := parallel(t)
	var mu sync.Mutex
	const count = 10_000
	marks, stored, tries := map[int]bool{}, map[int]int{}, 0
	store := func(_ context.Context, r row) error {
		mu.Lock()
		defer mu.Unlock()
		tries++
		switch {
		case r.Number%1000 == 0:
			return worqr.Permanent(errDeclined)
		case tries%500 == 0:
			return worqr.RetryAfter(errBusy, time.Millisecond)
		}
		stored[r.Number]++
		return nil
	}
	mark := func(_ context.Context, r row) error {
		mu.Lock()
		defer mu.Unlock()
		marks[r.Number] = true
		return nil
	}
	unmarked := func(context.Context, string) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return count - len(marks), nil
	}
	callbacks := make(chan string, 10)
	all := replicas(t, redistest.URL(), 3, func(p *worqr.Peer) {
		recipeRows(p.Queue("rows"), p.Queue("imported"), store, mark, unmarked)
		p.Queue("imported").Handle(tell(callbacks), nil)
	})
	payloads := make([][]byte, count)
	for n := range payloads {
		payloads[n] = sure(json.Marshal(row{"import 7", n}))(t)
	}
	for range 2 { // as after a crash of the producer
		is.NoErr(recipeImport(t.Context(), all[0].Queue("rows"), "import 7", payloads))
	}
	is.Equal(receive(t, callbacks, 1), []string{"import 7"})
	allDone(t, all[0].Queue("rows"))
	allDone(t, all[0].Queue("imported"))
	is.Equal(len(callbacks), 0)
	is.Equal(len(stored), count-count/1000)
	for _, times := range stored {
		is.Equal(times, 1)
	}
	is.Equal(len(failed(t, all[0].Queue("rows"))), count/1000) // kept
}

// A failed task is kept after someone was told, can be requeued, and is found by its request.
func TestDocsKeep(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	recipeLog(p)
	orders, paged := p.Queue("orders"), make(chan string, 10)
	recipeKeep(orders, func(context.Context, *worqr.Task) error { return worqr.Permanent(errDeclined) }, func(_ context.Context, text string) error {
		paged <- text
		return nil
	})
	run(t, p)
	is.NoErr(recipeRequest(ctx, orders, "req-7", []byte("a hat")))
	is.NoErr(recipeRequest(ctx, orders, "req-7", []byte("a hat")))
	kept := func() inspect.FailedTask {
		is.Equal(receive(t, paged, 1), []string{"orders failed: declined"})
		eventually(t, "it is kept", func() bool { return len(failed(t, orders)) == 1 && stats(t, orders).Running == 0 })
		return failed(t, orders)[0]
	}
	task := kept()
	is.Equal(task.Error, "declined")
	is.Equal(task.Headers, map[string]string{"request-id": "req-7"})
	found := sure(orders.Explain(ctx, worqr.Query{Header: "request-id", Value: "req-7"}))(t)
	is.True(strings.Contains(found.String(), `"declined". It was last on worker `+p.WorkerID()+" ("+found.Copies[0].WorkerName+", pid "))
	is.True(found.Copies[0].WorkerName != "")
	is.Equal(sure(orders.RequeueAllFailed(ctx))(t), 1)
	kept()
	is.Equal(len(paged), 0)
	is.Equal(peertest.Named(t, orders), []inspect.NamedTask(nil))
}
