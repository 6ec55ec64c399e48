package api

import (
	"errors"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// Add replaces the task that waits under its key, or keeps what it is told to.
func TestPut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour).Truncate(time.Millisecond) }
	for name, c := range map[string]struct {
		opts    worqr.TaskSpec
		payload string
		hour    int // when it's due, from now
		retries int
	}{
		"no options":               {worqr.TaskSpec{}, "new", 0, 0},
		"a time":                   {worqr.TaskSpec{At: at(9)}, "new", 9, 0},
		"keep the payload":         {worqr.TaskSpec{At: at(9), KeepPayload: true}, "old", 9, 1},
		"keep the counts":          {worqr.TaskSpec{At: at(9), KeepCounts: true}, "new", 9, 1},
		"keep the time":            {worqr.TaskSpec{At: at(9), Reschedule: worqr.RescheduleNever}, "new", 5, 0},
		"if earlier, and it is":    {worqr.TaskSpec{At: at(2), Reschedule: worqr.RescheduleIfEarlier}, "new", 2, 0},
		"if earlier, and it isn't": {worqr.TaskSpec{At: at(9), Reschedule: worqr.RescheduleIfEarlier}, "new", 5, 0},
		"if later, and it is":      {worqr.TaskSpec{At: at(9), Reschedule: worqr.RescheduleIfLater}, "new", 9, 0},
		"if later, and it isn't":   {worqr.TaskSpec{At: at(2), Reschedule: worqr.RescheduleIfLater}, "new", 5, 0},
		"keep all":                 {worqr.TaskSpec{At: at(9), KeepPayload: true, Reschedule: worqr.RescheduleNever}, "old", 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			q := working(t, open(t, worqr.Options{}), "q")
			add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("old")})
			is.NoErr(take(t, q).Retry(t.Context(), time.Until(at(5))))
			add(t, q, named("k", "new", c.opts))

			all := peertest.Named(t, q)
			is.Equal(len(all), 1)
			is.Equal(string(all[0].Payload), c.payload)
			is.Equal(all[0].Retries, c.retries)
			is.True(near(all[0].DueAt, at(c.hour)) || c.hour == 0 && all[0].DueAt.IsZero())
		})
	}
}

// While a task runs, one more may wait under its key. It starts once the first has ended, whose
// retry it replaces.
func TestPutWhileRunning(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*worqr.Task) error{
		"finished":   func(a *worqr.Task) error { return a.Finish(t.Context()) },
		"retried":    func(a *worqr.Task) error { return a.Retry(t.Context(), time.Hour) },
		"snoozed":    func(a *worqr.Task) error { return a.Snooze(t.Context(), time.Hour) },
		"has failed": func(a *worqr.Task) error { return a.Fail(t.Context(), errors.New("no")) },
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			q := working(t, open(t, worqr.Options{}), "q")
			add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("first")})
			first := take(t, q)
			add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("second")})
			add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("third")})
			noTask(t, q)

			is.NoErr(end(first))
			task := take(t, q)
			is.Equal(string(task.Payload), "third")
			is.Equal(task.Retries, 0)
			is.NoErr(task.Finish(t.Context()))
			is.Equal(len(scheduled(t, q)), 0)
		})
	}
}
