package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A cutShell calls the command on a link of its own, while its peer uses Redis directly.
type cutShell struct {
	*shell
	direct string // the URL of its Redis
	link   *redistest.Link
}

func newCutShell(t *testing.T) *cutShell {
	t.Helper()
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	s := shellAt(t, is, server.URL(), "p")
	link := redistest.NewLink(t, server.Addr())
	s.args[1] = link.URL()
	return &cutShell{s, server.URL(), link}
}

// interrupted calls the command, interrupts it at a moment, and returns the row that it printed and
// what it said.
func (s *cutShell) interrupted(at <-chan struct{}, args ...string) (row map[string]any, said string) {
	s.Helper()
	defer s.link.Deafen(false)
	ctx, interrupt := context.WithCancel(s.Context())
	defer interrupt()
	go func() {
		select {
		case <-at:
		case <-s.Context().Done():
		}
		interrupt()
	}()
	var out, errs bytes.Buffer
	status := runUntil(ctx, append(args, s.args...), strings.NewReader(""), &out, &errs)
	s.is.Equal(status, exitFailed)
	for line := range strings.Lines(out.String()) {
		row = nil
		if json.Unmarshal([]byte(line), &row) != nil {
			row = map[string]any{"text": line}
		}
	}
	return row, errs.String()
}

// both interrupts the command in both forms, each time at the nth request with some bytes.
func (s *cutShell) both(request string, nth int, args ...string) (row map[string]any, said string) {
	s.Helper()
	_, said = s.interrupted(s.link.DeafenAt(request, nth), args...)
	row, _ = s.interrupted(s.link.DeafenAt(request, nth), append(args, "--json")...)
	return row, said
}

const unknownOutcome = "; Redis hadn't answered the last call, which may have taken effect\n"

// Ctrl-C while a command enqueues the lines of standard input.
func TestInterruptBySignal(t *testing.T) {
	s := newShell(t)
	for i, form := range [][]string{{}, {"--json"}} {
		c := s.program(append([]string{"enqueue", "q", "--prefix", s.args[3]}, form...)...)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		in := redistest.Sure(c.StdinPipe())(t)
		s.is.NoErr(c.Start())
		redistest.Sure(io.WriteString(in, "a\nb\nc\n"))(t)
		peertest.Eventually(t, "three tasks wait", func() bool { return peertest.Stats(t, s.peer.Queue("q")).Waiting == 3*(i+1) })
		s.is.NoErr(c.Process.Signal(syscall.SIGINT))
		s.is.True(c.Wait() != nil)
		s.is.Equal(c.ProcessState.ExitCode(), exitFailed)
		s.is.Equal(errs.String(), "worqr: interrupted: 3 tasks enqueued\n")
		s.is.Equal(out.String(), []string{"", `{"enqueued":3,"error":"interrupted","left_out":0,"uncertain":false}` + "\n"}[i])
	}
}

// What an interrupted command reports while Redis hasn't answered the last call.
func TestInterruptEnqueue(t *testing.T) {
	s := newCutShell(t)
	row, said := s.both("lost1", 1, "enqueue", "q", "lost1", "lost2")
	s.is.Equal(said, "worqr: interrupted: 0 tasks enqueued"+unknownOutcome)
	s.is.Equal(row, map[string]any{"enqueued": 0., "left_out": 0., "error": "interrupted", "uncertain": true})
	row, said = s.both("lost3", 1, "enqueue", "q", "lost3", "a", "b", "--at", "2100-01-01T00:00:00Z")
	s.is.Equal(said, "worqr: interrupted: 0 tasks enqueued"+unknownOutcome)
	s.is.Equal(row["enqueued"], 0.)
	s.run(exitWell, "enqueue", "q", "twice", "--unique")
	row, said = s.both("lost4", 1, "enqueue", "q", "twice", "lost4", "--unique")
	s.is.Equal(said, "worqr: interrupted: 0 tasks enqueued, 1 left out"+unknownOutcome)
	s.is.Equal([]any{row["left_out"], row["uncertain"]}, []any{1., true})
	row, said = s.both("lost5", 1, "enqueue", "q", "x", "--header", "h=lost5")
	s.is.Equal(said, "worqr: interrupted: 0 tasks enqueued"+unknownOutcome)
	s.is.Equal(row["uncertain"], true)
}

// failMany makes 300 tasks fail, which is more than one page, and returns the ids, newest first.
func (s *cutShell) failMany() (ids []string) {
	s.Helper()
	q := peertest.Working(s.T, s.peer, "q")
	for i := range 300 {
		s.fail(q, fmt.Sprint("task", i), "x", nil)
	}
	for f := range redistest.Each(s.T, q.Failed(s.Context())) {
		ids = append(ids, f.ID)
	}
	return ids
}

func TestInterruptRequeue(t *testing.T) {
	s := newCutShell(t)
	ids := s.failMany()
	oldest := ids[299]
	row, _ := s.interrupted(s.link.DeafenAt("x"+oldest, 1), append([]string{"requeue", "q", "--json"}, append(ids, "x"+oldest)...)...)
	s.is.Equal(row, map[string]any{"requeued": 250., "error": "interrupted", "uncertain": true})
}

func TestInterruptDelete(t *testing.T) {
	s := newCutShell(t)
	ids := s.failMany()
	row, said := s.both(digestOf("delete"), 1, "delete", "q", "--yes", "q")
	s.is.Equal(said, "worqr: interrupted: up to 0 waiting tasks may be deleted"+unknownOutcome)
	s.is.Equal(row, map[string]any{"deleted": nil, "error": "interrupted", "uncertain": true})
	// It reads the oldest task twice, first to count, before it deletes it.
	row, _ = s.interrupted(s.link.DeafenAt(ids[299], 5), "failed", "q", "--delete", "--yes", "q", "--json")
	s.is.Equal(row, map[string]any{"matched": 300., "deleted": 250., "error": "interrupted", "uncertain": true})
}

// digestOf returns what a call of a script begins with.
func digestOf(script string) string {
	i := slices.IndexFunc(store.Verbs(), func(v *store.Verb) bool { return v.Name == script })
	digest, _ := store.Verbs()[i].Digests()
	return digest
}

func TestInterruptCancel(t *testing.T) {
	s := newCutShell(t)
	q := peertest.Working(t, s.peer, "q")
	peertest.Enqueue(t, q, "a", "a")
	task := peertest.Take(t, q)
	row, said := s.interrupted(s.link.DeafenAt(task.AttemptID, 1), "cancel", "q", "a", "--json") // it waits
	s.is.Equal(said, "worqr: interrupted: 1 removed, 1 running and told to stop\n")
	s.is.Equal(row, map[string]any{"removed": 1., "running": 1., "still_running": true, "error": "interrupted", "uncertain": false})
	s.is.NoErr(task.Finish(s.Context()))
	row, said = s.both("unheard", 1, "cancel", "q", "unheard")
	s.is.Equal(said, "worqr: interrupted: nothing is known to be canceled"+unknownOutcome)
	s.is.Equal(row["uncertain"], true)
}

func TestInterruptKeys(t *testing.T) {
	s := newCutShell(t)
	for _, c := range commands() {
		of, ok := c.run.(*keysCommand)
		if !ok {
			continue
		}
		for _, key := range []string{"k1", "k2"} {
			redistest.Sure(s.peer.Queue("q").Add(s.Context(), worqr.TaskSpec{Key: key, Payload: []byte("x")}))(s.T)
		}
		_, said := s.interrupted(s.link.DeafenAt("k2", 1), c.name, "q", "k1", "k2", "k3")
		s.is.Equal(said, "worqr: interrupted: 1 task "+of.done+unknownOutcome)
		row, _ := s.interrupted(s.link.DeafenAt("k3", 1), c.name, "q", "k4", "k3", "--json")
		s.is.Equal(row, map[string]any{of.done: 0., "error": "interrupted", "uncertain": true})
	}
}

func TestInterruptRunNow(t *testing.T) {
	s := newCutShell(t)
	q := s.peer.Queue("q")
	s.is.NoErr(q.Every("nightly", worqr.Interval(24*time.Hour), []byte("back up"), nil))
	peertest.Run(t, s.peer)
	peertest.Eventually(t, "it's listed", func() bool { return len(slices.Collect(redistest.Each(t, q.Recurring(t.Context())))) > 0 })
	row, said := s.both(digestOf("add"), 1, "run-now", "q", "nightly")
	s.is.Equal(said, "worqr: interrupted: no further run is known to be due"+unknownOutcome)
	s.is.Equal(row, map[string]any{"queue": "q", "key": "nightly", "error": "interrupted", "uncertain": true})
}

// Commands about several queues report which of them are done.
func TestInterruptQueues(t *testing.T) {
	s := newCutShell(t)
	a := peertest.Working(t, s.peer, "a")
	peertest.Enqueue(t, a, "x")
	peertest.Enqueue(t, s.peer.Queue("b"), "x")
	task := peertest.Take(t, a)
	row, said := s.interrupted(s.link.DeafenAt("{b}", 1), "pause", "a", "b", "--json")
	s.is.Equal(said, "worqr: interrupted: 1 of 2 queues changed\n")
	s.is.Equal(row, map[string]any{"queue": "b", "error": "interrupted", "uncertain": false})
	paused := func(q *worqr.Queue) <-chan struct{} {
		seen := make(chan struct{})
		go func() {
			defer close(seen)
			peertest.Eventually(t, "the queue is paused", func() bool { return peertest.Stats(t, q).Paused })
		}()
		return seen
	}
	s.is.NoErr(a.Resume(s.Context()))
	row, said = s.interrupted(s.link.DeafenAt("{b}", 1), "drain", "a", "b", "--json")
	s.is.True(strings.HasSuffix(said, "worqr: interrupted: 1 of 2 queues changed\n"))
	s.is.Equal(row, map[string]any{"queue": "a", "drained": false, "error": "interrupted"})
	s.is.NoErr(a.Resume(s.Context()))
	s.link.DeafenAt("LLEN", 2) // of the look after the pause
	row, _ = s.interrupted(nil, "drain", "a", "--json", "--timeout", "500ms")
	s.is.Equal([]any{row["queue"], row["drained"]}, []any{"a", false})
	s.is.NoErr(a.Resume(s.Context()))
	row, said = s.interrupted(paused(a), "drain", "a", "--json")
	s.is.True(strings.HasSuffix(said, "worqr: the queues stay paused; to start their tasks again, use: worqr resume --prefix "+s.args[3]+" a\nworqr: interrupted\n"))
	s.is.Equal(row, map[string]any{"queue": "a", "drained": false, "error": "interrupted"})
	s.is.NoErr(task.Finish(s.Context()))
}

// Evicting a worker goes through all queues.
func TestInterruptEvict(t *testing.T) {
	s := newCutShell(t)
	for _, name := range []string{"a", "b"} {
		peertest.Enqueue(t, peertest.Working(t, s.peer, name), "x")
		peertest.Take(t, s.peer.Queue(name))
	}
	id := s.peer.WorkerID()
	// It reads the registration with two calls, and then evicts the worker from a queue and its failed
	// tasks before it comes to the other queue.
	row, said := s.interrupted(s.link.DeafenAt(id, 5), "fail-worker", id, "--yes", id, "--json")
	s.is.Equal(said, "worqr: interrupted: 1 task returned"+unknownOutcome)
	s.is.Equal(row, map[string]any{"worker": id, "returned": 1., "error": "interrupted", "uncertain": true})
}

// A repair that is interrupted reports what it has repaired.
func TestInterruptRepair(t *testing.T) {
	s := newCutShell(t)
	conn := redistest.Dial(t, s.direct)
	redistest.Do(t, conn, "HSET", "p:recurrence:{q}", "prints:k:a", "1:a:1", "passed:k:a", 1, "k:a", "2|0:0:0:0:0:0:") // is asserted for too long
	redistest.Do(t, conn, "ZADD", "p:recurring:{q}", "9e15", "k:a")
	redistest.Do(t, conn, "LPUSH", "p:queues:{r}", "x")
	row, _ := s.interrupted(s.link.DeafenAt("{r}", 2), "check", "--repair", "--json")
	s.is.Equal([]any{row["ok"], row["error"]}, []any{false, "interrupted"})
	s.is.True(slices.ContainsFunc(row["findings"].([]any), func(f any) bool {
		return f.(map[string]any)["kind"] == "recurring" && f.(map[string]any)["repaired"] == true
	}))
}
