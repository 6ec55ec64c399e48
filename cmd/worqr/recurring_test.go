package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Recurring tasks are listed, and run on request just as on schedule.
func TestRecurring(t *testing.T) {
	s := newShell(t)
	ctx, stop := context.WithCancel(t.Context())
	q := s.peer.Queue("q")
	s.is.NoErr(q.Every("nightly", worqr.Interval(24*time.Hour), []byte("back up"), &worqr.EveryOptions{Headers: map[string]string{"a": "b"}, Expression: "0 3 * * *\n"}))
	starts, end := make(chan *worqr.Task, 9), make(chan bool)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- t
		<-end
		return nil
	}, nil)
	ran := make(chan error, 1)
	go func() { ran <- s.peer.Run(ctx) }()
	defer func() {
		stop()
		s.is.NoErr(<-ran)
	}()
	listed := func(ready func(row map[string]any) bool) (row map[string]any) {
		peertest.Eventually(t, "it's listed", func() bool {
			if len(slices.Collect(redistest.Each(t, s.peer.Queues(ctx)))) == 0 {
				return false
			}
			rows := s.rows(exitWell, "recurring", "q")
			if len(rows) != 1 {
				return false
			}
			row = rows[0]
			return ready(row)
		})
		return row
	}
	row := listed(func(row map[string]any) bool { return row["next"] != nil })
	s.is.Equal([]any{row["queue"], row["key"], row["asserted"]}, []any{"q", "nightly", true})
	s.is.True(strings.Contains(s.run(exitWell, "recurring"), "  nightly  0 3 * * *\\n  in "))
	s.is.True(strings.Contains(s.run(exitWell, "explain", "q", "--key", "nightly"), `("0 3 * * *\n")`))
	s.is.Equal(row["expression"], "0 3 * * *\n")
	s.is.True(strings.HasPrefix(s.run(exitWell, "run-now", "q", "nightly"), "it runs once more, as soon as a worker of the queue is free"))
	task := <-starts
	s.is.Equal([]string{string(task.Payload), task.Headers["a"]}, []string{"back up", "b"})
	held := s.rows(exitWell, "running", "q")[0]
	s.is.Equal([]any{held["attempt"], held["retries"], held["crashes"], held["due_at"]}, []any{1.0, 0.0, 0.0, nil})
	end <- true

	s.is.NoErr(q.Every("nightly", worqr.Interval(time.Second), []byte("back up"), nil)) // not only at night
	task = <-starts
	listed(func(row map[string]any) bool { return row["current"] != nil })
	s.is.True(strings.Contains(s.run(exitWell, "recurring", "q"), "  every 1s  "))
	s.is.True(strings.Contains(s.run(exitWell, "recurring", "q"), "running"))
	recurs, ok := s.rows(exitWell, "explain", "q", "--key", "nightly")[0]["recurs"].(map[string]any)
	s.is.True(ok && recurs["asserted"] == true && recurs["current"] != nil)
	s.is.Equal(s.rows(exitWell, "running", "q")[0]["due_at"], task.DueAt.UTC().Format(time.RFC3339))
	s.is.NoErr(q.Every("nightly", worqr.Interval(24*time.Hour), nil, nil))
	close(end)
	listed(func(row map[string]any) bool {
		return row["ends"] != nil && row["ends"].([]any)[0].(map[string]any)["outcome"] == "finished" && row["current"] == nil
	})
	s.is.Equal(s.rows(exitWell, "run-now", "q", "nightly")[0]["due"], true)
	<-starts
	s.is.True(strings.Contains(s.run(exitUnwell, "run-now", "q", "weekly"), "worqr recurring --prefix"))
}
