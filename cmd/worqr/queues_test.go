package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A shell calls the command on a fleet of its own.
type shell struct {
	*testing.T
	is   *is.I
	args []string
	peer *worqr.Peer
}

func newShell(t *testing.T) *shell {
	t.Helper()
	is := redistest.Parallel(t)
	prefix := redistest.Prefix(t)
	url := redistest.Worker(t, redistest.URL(), prefix)
	return shellAt(t, is, url, prefix)
}

func shellAt(t *testing.T, is *is.I, url, prefix string) *shell {
	t.Helper()
	p := redistest.Sure(worqr.Open(url, &worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}))(t)
	t.Cleanup(func() { is.NoErr(p.Close()) })
	return &shell{t, is, []string{"--redis", url, "--prefix", prefix, "--lease", "150ms"}, p}
}

// run calls the command, and returns what it printed.
func (s *shell) run(want int, args ...string) string {
	s.Helper()
	return s.input("", want, args...)
}

// input is run with standard input.
func (s *shell) input(in string, want int, args ...string) string {
	s.Helper()
	out, errs := s.apart(in, want, args...)
	return out + errs
}

// apart calls the command, and returns standard output and standard error separately.
func (s *shell) apart(in string, want int, args ...string) (printed, said string) {
	s.Helper()
	var out, errs bytes.Buffer
	own := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		own = i
	}
	all := slices.Concat(args[:own], s.args, args[own:])
	if status := run(all, strings.NewReader(in), &out, &errs); status != want {
		s.Fatalf("%q: exit status %d, want %d:\n%s%s", args, status, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// rows calls the command with --json, and returns the fields of each line.
func (s *shell) rows(want int, args ...string) (rows []map[string]any) {
	s.Helper()
	printed, _ := s.apart("", want, append(args, "--json")...)
	for line := range strings.Lines(printed) {
		var row map[string]any
		s.is.NoErr(json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

// all returns the values of a column.
func all(rows []map[string]any, name string) (values []any) {
	for _, row := range rows {
		values = append(values, row[name])
	}
	return values
}

func TestQueues(t *testing.T) {
	s := newShell(t)
	s.is.True(strings.Contains(s.run(exitWell, "queues"), "no queues under the prefix"))
	a, b := s.peer.Queue("a"), s.peer.Queue("b")
	s.is.NoErr(a.Enqueue(t.Context(), []byte("x"), []byte("y")))
	redistest.Sure(b.Add(t.Context(), worqr.TaskSpec{Key: "k", Payload: []byte("z"), At: time.Now().Add(time.Hour)}))(s.T)
	s.run(exitWell, "pause", "b", "a")
	s.run(exitWell, "resume", "a")
	rows := s.rows(exitWell, "queues")
	s.is.Equal(all(rows, "queue"), []any{"a", "b"})
	s.is.Equal(all(rows, "waiting"), []any{2., 0.})
	s.is.Equal(all(rows, "scheduled"), []any{0., 1.})
	s.is.Equal(all(rows, "paused"), []any{false, true})
	s.is.Equal(all(rows, "paused_by"), []any{nil, operator()})
	s.is.True(rows[1]["paused_since"] != nil)
	s.is.Equal(all(s.rows(exitWell, "queues", "b"), "queue"), []any{"b"})
	text := s.run(exitWell, "queues")
	s.is.True(strings.Contains(text, "no worker") && strings.Contains(text, "paused by "+operator()))
	s.is.True(strings.Contains(s.run(exitFailed, "pause", "b b"), "not a valid queue name"))
	s.is.Equal(s.run(exitWell, "pause", "a", "b"), "a is paused\nb is paused\n")
	s.is.Equal(s.rows(exitWell, "drain", "a"), []map[string]any{{"queue": "a", "running": 0., "drained": true}})
	s.is.True(strings.Contains(s.run(exitWell, "running", "a"), "no task is running"))
	s.is.True(strings.Contains(s.run(exitWell, "running", "a", "--older", "1h"), "no task has been running for longer than 1h"))
	s.is.True(strings.Contains(s.run(exitWell, "failed", "a"), "no failed task matches"))
	s.is.Equal(s.rows(exitWell, "resume", "b", "a"), []map[string]any{{"queue": "b", "paused": false}, {"queue": "a", "paused": false}})
}

// A missing queue or task is reported, and not created.
func TestNoSuchQueue(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "a", "x")
	for _, args := range [][]string{
		{"queues", "a", "typo"}, {"running", "typo"}, {"tasks", "typo"}, {"recurring", "typo"},
		{"failed", "typo"}, {"requeue", "typo", "x"}, {"remove", "typo", "k"}, {"cancel", "typo", "x"}, {"run-now", "typo", "k"},
		{"result", "typo", "k"}, {"wait", "typo", "k"}, {"delete", "typo", "--yes", "typo"}, {"pause", "typo"}, {"resume", "typo"}, {"drain", "typo"},
	} {
		s.is.True(strings.HasPrefix(s.run(exitUnwell, args...), `worqr: no queue "typo" exists under the prefix`))
	}
	s.run(exitUnwell, "pause", "typo", "a")
	s.is.Equal(all(s.rows(exitWell, "queues"), "queue"), []any{"a"})
	s.is.Equal(all(s.rows(exitWell, "queues"), "paused"), []any{true}) // the others are paused anyway
}

// A queue whose only worker was killed is shown as silent: no other worker can evict it.
func TestSilentWorker(t *testing.T) {
	s := newShell(t)
	c := s.program("work", "q", "--prefix", s.args[3], "--lease", "150ms", "--", "sh", "-c", "exit 1")
	s.is.NoErr(c.Start())
	seen := func(want bool) {
		peertest.Eventually(t, "the worker is seen", func() bool {
			served := peertest.Stats(t, s.peer.Queue("q")).Workers == 1
			return served && s.rows(exitWell, "queues", "q")[0]["silent"] == want
		})
	}
	seen(false)
	s.is.NoErr(c.Process.Kill())
	_ = c.Wait()
	seen(true)
	s.is.True(strings.Contains(s.run(exitWell, "queues"), "worker silent"))
}

// Each listing shows the tasks of the queue, once as a table and once byte for byte.
func TestTasks(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	peertest.Enqueue(t, q, "run\xff")
	peertest.Take(t, q)
	key := redistest.Sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("added"), Headers: map[string]string{"type": "a"}}))(t)[0]
	peertest.Enqueue(t, q, "plain")
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte("later"), At: time.Now().Add(time.Hour)}))(s.T)

	running := s.rows(exitWell, "running")
	s.is.Equal(all(running, "payload"), []any{map[string]any{"base64": "cnVu/w=="}})
	s.is.Equal(all(running, "worker_id"), []any{s.peer.WorkerID()})
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s:%d", host, os.Getpid())
	s.is.Equal(all(running, "worker_name"), []any{name})
	table := s.run(exitWell, "running", "q")
	s.is.True(strings.Contains(table, `run\xff`) && strings.Contains(table, "  "+name+"  "+running[0]["attempt_id"].(string)))
	s.is.Equal(len(s.rows(exitWell, "running", "--older", "1h")), 0)
	s.is.Equal(len(s.rows(exitUnwell, "running", "--older", "1ns")), 1)

	tasks := s.rows(exitWell, "tasks", "q")
	s.is.Equal(all(tasks, "payload"), []any{"plain", "added", "later"})
	s.is.Equal(all(tasks, "state"), []any{"listed", "ready", "scheduled"})
	s.is.Equal(all(tasks, "key"), []any{nil, key, "k"})
	s.is.True(strings.Contains(s.run(exitWell, "tasks", "q", "--state", "ready"), "type=a"))
	s.is.True(strings.Contains(s.run(exitWell, "tasks", "q", "--state", "scheduled"), "  k  "))
	for state, payload := range map[string]string{"listed": "plain", "ready": "added", "scheduled": "later"} {
		s.is.Equal(all(s.rows(exitWell, "tasks", "q", "--state", state), "payload"), []any{payload})
	}
	s.is.True(strings.Contains(s.run(exitWell, "tasks", "q", "--state", "risky"), "no such task is waiting"))
	s.is.Equal(len(s.rows(exitWell, "tasks", "q", "-n", "2")), 2)

	workers := s.rows(exitWell, "workers")
	s.is.Equal(all(workers, "id"), []any{s.peer.WorkerID()})
	s.is.Equal(workers[0]["lease_seconds"], 0.15)
	s.is.True(strings.Contains(s.run(exitWell, "workers"), s.peer.WorkerID()))

	e := s.rows(exitWell, "explain", "q", "--header", "type=a")[0]
	s.is.Equal(e["copies"].([]any)[0].(map[string]any)["key"], key)
	s.is.True(strings.HasPrefix(s.run(exitWell, "explain", "q", "--header", "type=a"), key+": Waiting"))
	s.run(exitUnwell, "explain", "q", "--header", "type=b")
	s.run(exitFailed, "explain", "q", "--header", "type")
	s.run(exitFailed, "explain", "q", "--header", "type=a", "--key", "k")
}

// A task behind the running one with its key is listed, too.
func TestBlockedTask(t *testing.T) {
	s := newShell(t)
	q := peertest.Working(t, s.peer, "q")
	for _, payload := range []string{"first", "second"} {
		peertest.Add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte(payload)})
		if payload == "first" {
			peertest.Take(t, q)
		}
	}
	rows := s.rows(exitWell, "tasks", "q")
	s.is.Equal([]any{len(rows), rows[0]["state"], rows[0]["payload"]}, []any{1, "blocked", "second"})
}

// An explanation includes the command that fixes the problem.
func TestExplainFixes(t *testing.T) {
	s := newShell(t)
	s.is.NoErr(s.peer.Queue("q").Enqueue(t.Context(), []byte("x")))
	s.run(exitWell, "pause", "q")
	text := s.run(exitWell, "explain", "q", "x")
	s.is.True(strings.Contains(text, "\n  try: worqr resume --prefix "))
	s.is.Equal(len(s.rows(exitWell, "explain", "q", "x")[0]["fixes"].([]any)), 1)
	s.run(exitWell, "resume", "q")
	s.is.True(strings.Contains(s.run(exitWell, "explain", "q", "x"), "\n  start the service that handles it (`worqr work --prefix "))
	s.is.Equal(s.rows(exitWell, "explain", "q", "x")[0]["fixes"], []any{})
}

// A task is found in whichever queues have it, the failed ones too.
func TestFind(t *testing.T) {
	s := newShell(t)
	request := map[string]string{"request": "7"}
	peertest.Add(t, s.peer.Queue("mails"), worqr.TaskSpec{Key: "ann", Payload: []byte("x"), Headers: request})
	bills := peertest.Working(t, s.peer, "bills")
	peertest.Add(t, bills, worqr.TaskSpec{Key: "bill", Payload: []byte("y"), Headers: request})
	peertest.Must(t, peertest.Take(t, bills).Fail(t.Context(), errors.New("no such account")))
	s.is.NoErr(s.peer.Queue("other").Enqueue(t.Context(), []byte("x")))

	rows := s.rows(exitWell, "find", "--header", "request=7")
	s.is.Equal(all(rows, "queue"), []any{"bills", "mails"})
	text := s.run(exitWell, "find", "--header", "request=7")
	s.is.True(strings.Contains(text, `Failed on "bills" at `) && strings.Contains(text, `ann: Waiting on "mails".`) && strings.Contains(text, "try: worqr failed"))
	s.is.Equal(all(s.rows(exitWell, "find", "--key", "ann"), "queue"), []any{"mails"})
	s.is.Equal(all(s.rows(exitWell, "find", "x"), "queue"), []any{"other"})
	s.is.True(strings.Contains(s.run(exitUnwell, "find", "z"), "no queue has the task"))
	s.run(exitFailed, "find", "--header", "request")
	s.is.True(!strings.Contains(s.run(exitFailed, "find", "--key", ""), "can't be read"))

	redistest.Do(t, redistest.Conn(t), "DEL", s.args[3]+":tasks:{mails}")
	redistest.Do(t, redistest.Conn(t), "SET", s.args[3]+":tasks:{mails}", "x")
	text = s.run(exitFailed, "find", "--key", "bill")
	s.is.True(strings.Contains(text, `queue "mails" can't be read: `) && strings.Contains(text, `Failed on "bills"`))
}

// watching watches queue q for three events.
func (s *shell) watching() (lines peertest.Said, ended <-chan int) {
	s.Helper()
	lines, status := make(peertest.Said, 1000), make(chan int, 1)
	go func() {
		status <- run(append([]string{"watch", "q", "-n", "3"}, s.args...), strings.NewReader(""), lines, lines)
	}()
	return lines, status
}

// next waits for a line that a command writes.
func (s *shell) next(lines peertest.Said) string {
	s.Helper()
	return peertest.Receive(s.T, lines, 1)[0]
}

// watch prints events as they happen.
func TestWatch(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	lines, ended := s.watching()
	s.is.True(strings.Contains(s.next(lines), `"kind":"sync"`))
	q := s.peer.Queue("q")
	peertest.Enqueue(t, q, "x\x1b")
	s.is.True(strings.Contains(s.next(lines), `"count":1,"kind":"work"`))
	redistest.Sure(q.Cancel(ctx, []byte("x\x1b")))(t)
	s.is.True(strings.Contains(s.next(lines), `"kind":"cancel","payload":"x\u001b"`))
	s.is.Equal(<-ended, exitWell)
}
