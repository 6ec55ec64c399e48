package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A task is explained at each station of its way.
func TestExplain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	looker := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	payload := []byte(canary)
	explain := func(want ...string) *worqr.Explanation {
		t.Helper()
		e, err := looker.Explain(t.Context(), payload)
		is.NoErr(err)
		is.Equal(told(e), want)
		if s := e.String(); s == "" || strings.Contains(s, canary) {
			t.Errorf("it says %q", s)
		}
		return e
	}
	e := explain()
	is.True(e.NoSuchQueue)
	is.True(strings.Contains(e.String(), fmt.Sprintf("No queue \"q\" exists under the prefix %q", prefix)))
	at := &worqr.PutOptions{At: time.Now().Add(time.Hour)}
	is.NoErr(looker.Put(t.Context(), "key", payload, at))
	e = explain("scheduled not-due no-worker")
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))
	is.NoErr(looker.Pause(t.Context()))
	explain("scheduled not-due paused")
	is.NoErr(looker.Resume(t.Context()))
	_, err := looker.RemoveKey(t.Context(), "key")
	is.NoErr(err)
	e = explain() // there is no key of it any more, but its name
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No copy"))
	enqueue(t, looker, "first", canary)
	e = explain("waiting no-worker behind")
	is.Equal(e.Copies[0].Before, 1)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))
	is.NoErr(looker.Pause(t.Context()))
	explain("waiting paused behind")
	is.NoErr(looker.Resume(t.Context()))

	peer := open(t, worqr.Options{Prefix: prefix, Lease: 500 * time.Millisecond, Name: "the worker"})
	q := working(t, peer, "q")
	explain("waiting busy behind")
	tasks, err := q.StartTasks(t.Context(), 2)
	is.NoErr(err)
	c := explain("running").Copies[0]
	host, _ := os.Hostname()
	is.Equal(c.AttemptID, tasks[1].AttemptID)
	is.Equal(c.Token, tasks[1].Token)
	is.Equal(c.WorkerID, peer.WorkerID())
	is.Equal(c.WorkerName, "the worker")
	is.Equal(c.Host, host)
	is.Equal(c.PID, os.Getpid())
	is.True(time.Since(c.StartedAt) < patience)
	says := explain("running").String() // "process" is both a run of a task and what has a pid, so it is neither
	is.True(strings.Contains(says, fmt.Sprintf("(the worker, pid %d on %s)", os.Getpid(), host)))
	is.True(strings.Contains(says, fmt.Sprintf("as run %s with token %d.", c.AttemptID, c.Token)))
	is.True(!strings.Contains(says, "process"))
	is.NoErr(tasks[1].Retry(t.Context(), time.Hour))
	c = explain("scheduled not-due").Copies[0]
	is.Equal(c.Retries, 1)
	is.True(c.DueAt.After(time.Now().Add(50 * time.Minute)))
	enqueue(t, looker, canary)
	task, err := q.StartTask(t.Context())
	is.NoErr(err)
	explain("scheduled not-due", "running")
	is.NoErr(task.Fail(t.Context(), errors.New("a reason")))
	e = explain("scheduled not-due", "failed failed")
	is.Equal(e.Copies[1].Error, "a reason")
	is.Equal(e.Copies[1].WorkerID, peer.WorkerID())
	is.True(strings.Contains(e.String(), `"a reason"`))
	is.NoErr(tasks[0].Finish(t.Context()))
}

// A task that one more crash would fail is not started while another such task runs on
// the peer, and that is what it's told to wait for.
func TestExplainSuspect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	other := open(t, worqr.Options{Prefix: prefix})
	first := open(t, worqr.Options{Prefix: prefix})
	q := working(t, first, "q")
	enqueue(t, q, "a", "b")
	tasks, err := q.StartTasks(t.Context(), 2)
	is.NoErr(err)
	is.Equal(len(tasks), 2)
	_, err = other.FailWorker(t.Context(), first.WorkerID())
	is.NoErr(err)
	is.NoErr(first.StopWorker(t.Context()))

	p := open(t, worqr.Options{Prefix: prefix})
	starts, finish := make(chan string, 2), make(chan struct{})
	p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- string(t.Payload)
		<-finish
		return nil
	}, &worqr.HandleOptions{Concurrency: 2, MaxCrashes: 2})
	run(t, p)
	is.Equal(receive(t, starts, 1), []string{"a"})
	var e *worqr.Explanation
	eventually(t, "the other one is passed over", func() bool {
		e, err = other.Queue("q").Explain(t.Context(), []byte("b"))
		is.NoErr(err)
		return slices.Equal(told(e), []string{"scheduled suspect"})
	})
	is.Equal(e.Copies[0].Crashes, 1)
	is.True(strings.Contains(e.String(), "1 worker died holding it"))
	is.True(!strings.Contains(e.String(), "about to start"))
	close(finish)
	is.Equal(receive(t, starts, 1), []string{"b"})
}

// What is under a key is explained by it.
func TestExplainKey(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	peer := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, peer, "q")
	explain := func(want ...string) *worqr.Explanation {
		t.Helper()
		e, err := q.ExplainKey(t.Context(), canary)
		is.NoErr(err)
		is.Equal(told(e), want)
		is.True(!strings.Contains(e.String(), canary))
		return e
	}
	explain()
	is.NoErr(q.Put(t.Context(), "other", []byte("x"), &worqr.PutOptions{At: time.Now().Add(-time.Minute)}))
	is.NoErr(q.Put(t.Context(), canary, []byte(canary), nil))
	is.Equal(explain("scheduled busy behind").Copies[0].Before, 1)
	tasks, err := q.StartTasks(t.Context(), 2)
	is.NoErr(err)
	is.Equal(explain("running").Copies[0].AttemptID, tasks[1].AttemptID)
	is.NoErr(q.Put(t.Context(), canary, []byte(canary), nil))
	explain("blocked blocked", "running")
	e, err := q.Explain(t.Context(), []byte(canary))
	is.NoErr(err)
	is.Equal(told(e), []string{"blocked blocked", "running"})
	is.NoErr(tasks[1].Fail(t.Context(), errors.New("a reason")))
	explain("scheduled busy", "failed failed")
	_, err = q.ExplainKey(t.Context(), "")
	is.True(errors.Is(err, worqr.ErrInvalid))
	_, err = peer.Queue("").Explain(t.Context(), nil)
	is.True(errors.Is(err, worqr.ErrBadName))
}

// Ten copies are enough, and so is the front of a long list.
func TestExplainMany(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, worqr.Options{}).Queue("q")
	enqueue(t, q, "first")
	for range 2 {
		is.NoErr(q.Enqueue(t.Context(), slices.Repeat([][]byte{[]byte("a")}, 60_000)...))
	}
	enqueue(t, q, "last")
	e, err := q.Explain(t.Context(), []byte("a"))
	is.NoErr(err)
	is.Equal(len(e.Copies), 10)
	is.Equal(e.Copies[9].Before, 10)
	e, err = q.Explain(t.Context(), []byte("last"))
	is.NoErr(err)
	is.Equal(len(e.Copies), 0) // too far behind, and it says so
	is.Equal(e.NotSearched, 20_002)
	is.True(strings.Contains(e.String(), "20002"))
	for i := range 30 {
		is.NoErr(q.Put(t.Context(), fmt.Sprint(i), []byte("b"), nil))
	}
	e, err = q.Explain(context.Background(), []byte("b"))
	is.NoErr(err)
	is.Equal(len(e.Copies), 10)
}
