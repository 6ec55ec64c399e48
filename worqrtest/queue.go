package worqrtest

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// patience limits every wait, by the clock that applies: a real one, or a bubble's.
const patience = time.Minute

// WaitIdle waits until no task of the queues waits, runs or is due. Tasks scheduled for later or
// waiting for a retry don't count, nor do those waiting on a paused queue, nor failed ones, even if
// OnFailed hasn't been called for them yet. The test fails after a minute. The Stats of a peer may
// lag by the time of a reply: read them after the peer has stopped.
func WaitIdle(t testing.TB, queues ...*worqr.Queue) {
	t.Helper()
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		busy := ""
		for _, q := range queues {
			if isBusy(t, q) {
				busy = q.Name()
			}
		}
		if busy == "" {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%q isn't idle after %v", busy, patience)
		}
		time.Sleep(pause)
	}
}

func isBusy(t testing.TB, q *worqr.Queue) bool {
	t.Helper()
	ctx := context.Background()
	s, err := q.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Running > 0 || s.Waiting > 0 && !s.Paused {
		return true
	}
	if s.Scheduled == 0 || s.Paused {
		return false
	}
	for next, err := range q.Named(ctx, inspect.NamedScheduled, inspect.NamedBlocked) {
		if err != nil {
			t.Fatal(err)
		}
		return next.State == inspect.NamedBlocked || !next.DueAt.After(time.Now())
	}
	return false
}

// A Task is a task that waits in a queue.
type Task struct {
	Payload string
	Key     string            // "" for those of Enqueue, and for unique ones
	Headers map[string]string // nil if it has none
	DueAt   time.Time         // zero is now
}

// Enqueued returns the tasks that wait in the queue: those of Enqueue, then those of Add that may start,
// and then those with a time; each in the order in which they start. No peer should be serving the queue.
func Enqueued(t testing.TB, q *worqr.Queue) (all []Task) {
	t.Helper()
	ctx := context.Background()
	for payload, err := range q.Tasks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Task{Payload: string(payload)})
	}
	for n, err := range q.Named(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Task{Payload: string(n.Payload), Key: n.Key, Headers: n.Headers, DueAt: n.DueAt})
	}
	return all
}

// Payloads returns the payloads of Enqueued.
func Payloads(t testing.TB, q *worqr.Queue) (all []string) {
	t.Helper()
	for _, task := range Enqueued(t, q) {
		all = append(all, task.Payload)
	}
	return all
}
