package browser

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A fleet is what a dashboard shows: tasks of each kind.
type fleet struct {
	t      testing.TB
	prefix string
	peer   *worqr.Peer // of the dashboard; it has the permissions for Check
	emails *worqr.Queue
	runs   atomic.Int64 // of the recurring task "cleanup" on the queue jobs
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{t: t, prefix: redistest.Prefix(t)}
	f.peer = peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: f.prefix, Name: "dashboard"})
	return f
}

// worker starts a worker on a queue. It returns the queue, on which the test starts and ends tasks by hand.
func (f *fleet) worker(name, queue string) *worqr.Queue {
	f.t.Helper()
	return peertest.Working(f.t, peertest.Open(f.t, worqr.Options{Prefix: f.prefix, Name: name}), queue)
}

// stage fills a fleet with tasks that wait, run, are scheduled, recur and have failed.
func stage(t testing.TB) *fleet {
	t.Helper()
	f := newFleet(t)
	q := f.worker("replica-1", "emails")
	f.emails = q
	fail(t, q, "bad mail", "no such mailbox: 17", "no such mailbox: 18", "disk full")
	peertest.Add(t, q, worqr.TaskSpec{Key: "invoice-7", Payload: []byte("later"), At: time.Now().Add(time.Hour)})
	peertest.Enqueue(t, q, `{"to":"ann"}`, "second", "third\nline")
	peertest.Take(t, q)
	redistest.Sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("added"), Headers: map[string]string{"trace": "abc"}}))(t)

	cron := peertest.Open(t, worqr.Options{Prefix: f.prefix, Name: "cron"})
	jobs := cron.Queue("jobs")
	jobs.Handle(func(context.Context, *worqr.Task) error { f.runs.Add(1); return nil }, nil)
	peertest.Must(t, jobs.Every("cleanup", worqr.Interval(24*time.Hour), []byte("all"), &worqr.EveryOptions{Expression: "0 0 * * *"}))
	peertest.Run(t, cron)
	peertest.Eventually(t, "cleanup is planned", func() bool { return has(t, jobs, "cleanup") })
	return f
}

// fail puts tasks into the failed queue, with these reasons.
func fail(t testing.TB, q *worqr.Queue, payload string, reasons ...string) {
	t.Helper()
	for _, reason := range reasons {
		peertest.Enqueue(t, q, payload)
		peertest.Must(t, peertest.Take(t, q).Fail(t.Context(), errors.New(reason)))
	}
}

// has reports whether something is scheduled under a key.
func has(t testing.TB, q *worqr.Queue, key string) bool {
	t.Helper()
	for _, s := range peertest.Scheduled(t, q) {
		if s.Key == key {
			return true
		}
	}
	return false
}
