package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/words"
)

func TestEnqueue(t *testing.T) {
	s := newShell(t)
	q := s.peer.Queue("q")
	payloads := func() (all []string) {
		all = peertest.Waiting(t, q)
		for _, n := range peertest.Named(t, q) {
			all = append(all, string(n.Payload))
		}
		s.is.NoErr(q.Delete(t.Context()))
		return all
	}
	s.is.Equal(s.run(exitWell, "enqueue", "q", "a", "b c"), "worqr: 2 tasks enqueued\n")
	s.is.Equal(payloads(), []string{"a", "b c"})
	s.input("one\r\ntwo\n\n three", exitWell, "enqueue", "q")
	s.is.Equal(payloads(), []string{"one", "two", " three"})
	s.input("one\ntwo\n", exitWell, "enqueue", "q", "--whole")
	s.is.Equal(payloads(), []string{"one\ntwo\n"})

	s.run(exitWell, "enqueue", "q", "u", "--unique")
	s.is.True(strings.Contains(s.run(exitUnwell, "enqueue", "q", "u", "v", "--unique"), "1 task skipped"))
	s.is.Equal(payloads(), []string{"u", "v"})

	var many strings.Builder
	for i := range 2500 {
		fmt.Fprintln(&many, i)
	}
	s.is.True(strings.HasSuffix(s.input(many.String(), exitWell, "enqueue", "q"), "worqr: 2,500 tasks enqueued\n"))
	all := payloads()
	s.is.Equal([]any{len(all), all[0], all[2499]}, []any{2500, "0", "2499"})

	long := "fits\n" + strings.Repeat("x", worqr.DefaultMaxPayload+1) + "\n"
	s.is.True(strings.Contains(s.input(long, exitFailed, "enqueue", "q"), "a line has more than 1,048,576 bytes, the limit of a payload"))
	s.is.Equal(payloads(), []string{"fits"})
}

// A property, a key or a time reaches the task, and its key is printed.
func TestEnqueueProperties(t *testing.T) {
	s := newShell(t)
	rows := s.rows(exitWell, "enqueue", "q", "a", "b", "--header", "type=x;y", "--header", "n=1", "--expires", "1h")
	s.is.Equal(len(rows), 3)
	s.is.Equal(rows[2], map[string]any{"enqueued": 2., "left_out": 0.})
	added := s.rows(exitWell, "tasks", "q", "--state", "ready")
	s.is.Equal([]any{rows[0]["key"], rows[1]["key"]}, all(added, "key"))
	s.is.Equal(added[0]["headers"], map[string]any{"type": "x;y", "n": "1"})
	s.is.True(added[0]["expires"] != nil)

	first := s.run(exitWell, "enqueue", "q", "c", "--once", "id")
	s.is.Equal(s.run(exitWell, "enqueue", "q", "d", "--once", "id"), first)
	s.run(exitWell, "enqueue", "q", "e", "--key", "k", "--in", "1h")
	s.run(exitWell, "enqueue", "q", "f", "--at", "2100-01-01T00:00:00Z")
	s.run(exitWell, "enqueue", "q", "g", "--unique", "--at", "2100-01-01T00:00:01Z", "--header", "n=1")
	s.run(exitUnwell, "enqueue", "q", "g", "--unique", "--header", "n=2") // it's skipped
	scheduled := s.rows(exitWell, "tasks", "q", "--state", "scheduled")
	s.is.Equal(all(scheduled, "payload"), []any{"e", "f", "g"})
	s.is.Equal(scheduled[2]["headers"], map[string]any{"n": "1"})
	s.is.Equal(scheduled[0]["key"], "k")
	s.is.Equal(scheduled[1]["due_at"], "2100-01-01T00:00:00Z")

	for _, args := range [][]string{{"a", "b", "--key", "k"}, {"--once", "x"}, {"a", "--unique", "--key", "k"}, {"a", "--unique", "--keep-result", "1h"}, {"a", "--whole"}, {"a", "--in", "1s", "--at", "2100-01-01T00:00:00Z"}, {"a", "--once-for", "1h"}} {
		s.run(exitFailed, append([]string{"enqueue", "q"}, args...)...)
	}
}

// Tasks with properties are added in as many calls as their size needs: a batch may hold large
// headers, or end in a large payload.
func TestEnqueueLargeProperties(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct {
		lines  []string
		header string
	}{
		{slices.Repeat([]string{"x"}, 3000), strings.Repeat("h", 4<<10)},
		{slices.Repeat([]string{strings.Repeat("x", 400<<10), strings.Repeat("y", 900<<10)}, 4), "h"},
	} {
		said := s.input(strings.Join(c.lines, "\n"), exitWell, "enqueue", "q", "--header", "h="+c.header)
		s.is.True(strings.HasSuffix(said, fmt.Sprintf("worqr: %s tasks enqueued\n", words.Grouped(len(c.lines)))))
		var got []string
		for _, task := range peertest.Named(t, s.peer.Queue("q")) {
			got = append(got, string(task.Payload))
		}
		s.is.True(slices.Equal(got, c.lines)) // in order
		s.is.NoErr(s.peer.Queue("q").Delete(t.Context()))
	}
}

// Repeating a call whose reply was lost adds no second task.
func TestEnqueueSurely(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	s := shellAt(t, is, link.URL(), "p")
	lost := link.LoseReplyTo("surely")
	s.run(exitWell, "enqueue", "q", "surely")
	<-lost
	s.is.Equal(len(s.rows(exitWell, "tasks", "q")), 1)
}

func TestCancelAndRemove(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := s.peer.Queue("q")
	s.is.NoErr(q.Enqueue(ctx, []byte("a"), []byte("a"), []byte("b")))
	s.is.Equal(s.run(exitWell, "cancel", "q", "a"), "2 removed, 0 running\n")
	s.is.True(strings.Contains(s.run(exitWell, "cancel", "q", "a"), "by key, use: worqr cancel --key KEY --prefix "+s.args[3]+" q\n"))
	s.is.Equal(s.run(exitWell, "cancel", "q", "--key", "k"), "nothing found\n")
	s.input("b", exitWell, "cancel", "q")
	s.run(exitWell, "enqueue", "q", "c", "--key", "k", "--in", "1h")
	s.is.Equal(s.rows(exitWell, "cancel", "q", "--key", "k")[0]["removed"], 1.)
	s.run(exitFailed, "cancel", "q", "a", "--key", "k")
}

// Each command that changes the waiting tasks of keys counts them, and fails if one of the keys has none.
func TestKeysCommands(t *testing.T) {
	s := newShell(t)
	for _, c := range commands() {
		of, ok := c.run.(*keysCommand)
		if !ok {
			continue
		}
		s.run(exitWell, "enqueue", "q", "c", "--key", "k", "--in", "1h")
		before := s.rows(exitWell, "tasks", "q")
		s.is.Equal(s.run(exitUnwell, c.name, "q", "l", "k"), "1 task "+of.done+"\n")
		s.is.True(!reflect.DeepEqual(s.rows(exitWell, "tasks", "q"), before))
		s.run(exitWell, "enqueue", "q", "c", "--key", "k", "--in", "1h")
		s.is.Equal(s.rows(exitWell, c.name, "q", "k"), []map[string]any{{of.done: 1.}})
	}
}

// cancel stops a running task, and reports one that doesn't stop.
func TestCancelRunning(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	peertest.Enqueue(t, q, "a")
	task := peertest.Take(t, q)
	s.is.Equal(s.rows(exitWell, "cancel", "q", "a", "--wait", "0s")[0], map[string]any{"removed": 0., "running": 1., "still_running": true})
	said := s.run(exitUnwell, "cancel", "q", "a", "--wait", "500ms")
	s.is.True(strings.Contains(said, "0 removed, 1 running\n") && strings.Contains(said, "still running after 500ms") && !strings.Contains(said, "--key"))
	s.is.True(strings.Contains(s.run(exitUnwell, "drain", "q", "--timeout", "500ms"), "1 task still running"))
	s.is.NoErr(task.Finish(ctx))
	s.run(exitWell, "drain", "q")
	s.is.True(peertest.Stats(t, q).Paused)
}

// cancel says that it has stopped what ran.
func TestCancelStops(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := s.peer.Queue("q")
	q.Handle(func(stopped context.Context, task *worqr.Task) error {
		<-stopped.Done()
		for task.Key == "" { // until the cancel has found it
			e, err := q.Explain(ctx, worqr.Query{Payload: task.Payload})
			if err != nil || len(e.Copies) > 0 && slices.Contains(e.Copies[0].Reasons, inspect.ReasonStopping) {
				break
			}
		}
		return context.Cause(stopped)
	}, &worqr.HandleOptions{Concurrency: 3})
	peertest.Run(t, s.peer)
	peertest.Enqueue(t, q, "a", "a")
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "k"}))(t)
	peertest.Eventually(t, "all run", func() bool { return peertest.Stats(t, q).Running == 3 })
	s.is.Equal(s.run(exitWell, "cancel", "q", "a"), "0 removed, 2 running: they have ended\n")
	s.is.Equal(s.run(exitWell, "cancel", "q", "--key", "k"), "0 removed, 1 running: it has ended\n")
}

// Nothing is deleted without its name.
func TestDelete(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "q", "a", "b")
	s.is.Equal(s.run(exitFailed, "delete", "q"), "worqr: this would delete 2 waiting tasks of the queue \"q\"\nworqr: nothing was changed: to continue, add --yes=q\n")
	s.run(exitFailed, "delete", "q", "--yes", "p")
	s.is.Equal(len(s.rows(exitWell, "tasks", "q")), 2)
	s.is.Equal(s.run(exitWell, "delete", "q", "--yes", "q"), "2 waiting tasks deleted\n")
	s.run(exitUnwell, "delete", "q", "--yes", "q") // the whole queue is deleted
	s.is.NoErr(s.peer.Queue("q").Pause(t.Context()))
	s.is.Equal(s.run(exitUnwell, "delete", "q", "--yes", "q"), "0 waiting tasks deleted\n")
}

func TestFailWorker(t *testing.T) {
	s := newShell(t)
	q := peertest.Working(t, s.peer, "q")
	peertest.Enqueue(t, q, "a")
	peertest.Take(t, q)
	id := s.peer.WorkerID()
	for range 2 { // names that look like the id don't protect it
		o := redistest.Sure(worqr.Open(s.args[1], &worqr.Options{Prefix: s.args[3], Lease: 150 * time.Millisecond, Name: id}))(t)
		defer func() { s.is.NoErr(o.Close()) }()
		peertest.Working(t, o, "q")
	}
	s.is.True(strings.Contains(s.run(exitFailed, "fail-worker", id), "nothing was changed"))
	s.is.Equal(s.rows(exitWell, "fail-worker", id, "--yes", id)[0], map[string]any{"worker": id, "returned": 1.})
	s.run(exitFailed, "fail-worker", "redis://x")
	s.is.True(strings.Contains(s.run(exitUnwell, "fail-worker", "nope", "--yes", "nope"), "no such worker exists"))
	for _, answer := range []string{"", "yes\n"} {
		text := s.input(answer, exitFailed, "fail-worker", "nope") // it may be a secret
		s.is.True(strings.Contains(text, "no such worker is registered; this would evict that id anyway") && !strings.Contains(text, "nope"))
	}
}

// A call that adds nothing doesn't report that it did.
func TestNothingEnqueued(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{{"--key", strings.Repeat("k", worqr.MaxKeySize+1)}, {"--once", strings.Repeat("k", worqr.MaxKeySize+1)}} {
		text := s.run(exitFailed, append([]string{"enqueue", "q", "x"}, args...)...)
		s.is.True(!strings.Contains(text, "after "))
		s.is.Equal(strings.Count(text, "\n"), 1) // nor does it print a key
	}
	s.is.True(strings.Contains(s.run(exitUnwell, "tasks", "q"), "no queue"))
}
