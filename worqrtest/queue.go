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
	pause, before := time.Millisecond, int64(-1)
	for {
		busy, starts := "", int64(0)
		for _, q := range queues {
			is, started := isBusy(t, q)
			if starts += started; is {
				busy = q.Name()
			}
		}
		switch {
		case busy == "" && starts == before:
			return
		case time.Since(began) > patience:
			t.Fatalf("%q isn't idle after %v", busy, patience)
		case busy == "": // a task may have moved to where it had been looked for; without a start, it's found there now
			before = starts
			continue
		}
		time.Sleep(pause)
		pause, before = min(2*pause, 20*time.Millisecond), -1
	}
}

// isBusy reports whether tasks wait, run or are due, and how many have started so far.
func isBusy(t testing.TB, q *worqr.Queue) (busy bool, started int64) {
	t.Helper()
	ctx := context.Background()
	s, err := q.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Running > 0 || s.Waiting > 0 && !s.Paused {
		return true, s.Tokens
	}
	if s.Scheduled == 0 || s.Paused {
		return false, s.Tokens
	}
	for next, err := range q.Named(ctx, inspect.NamedScheduled, inspect.NamedBlocked) {
		if err != nil {
			t.Fatal(err)
		}
		return next.State == inspect.NamedBlocked || !next.DueAt.After(time.Now()), s.Tokens
	}
	return false, s.Tokens
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
