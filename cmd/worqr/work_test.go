package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// program is the command as a process of its own.
func (s *shell) program(args ...string) *exec.Cmd {
	s.Helper()
	c := exec.Command(redistest.Sure(os.Executable())(s.T), args...)
	c.Env = append(os.Environ(), asCommand+"=1", "REDIS_URL="+s.args[1])
	return c
}

// Any program is a worker: it gets the payload, and its output is the result. SIGTERM makes it drain.
func TestWork(t *testing.T) {
	s := newShell(t)
	var said bytes.Buffer
	c := s.program("work", "q", "--env", "MARK=1,2", "--max-retries", "0", "--", "sh", "-c", `read -r p; echo "$p $MARK $WORQR_QUEUE${REDIS_URL}${WORQR_PREFIX}"; [ "$p" != bad ]`)
	c.Env, c.Stderr = append(c.Env, "WORQR_PREFIX="+s.args[3]), &said
	synced, done := make(chan bool, 1), make(chan inspect.Event, 1)
	go func() {
		for e, err := range s.peer.Events(t.Context(), "q") {
			switch {
			case err != nil:
			case e.Kind == inspect.EventSync:
				synced <- true
			case e.Kind == inspect.EventDone:
				done <- e
				return
			}
		}
	}()
	<-synced
	s.run(exitWell, "enqueue", "q", "bad", "good")
	s.is.NoErr(c.Start())
	select {
	case e := <-done:
		s.is.Equal(string(e.Result), "good 1,2 q\n")
	case <-time.After(time.Minute):
		t.Error("no task is done")
	}
	s.is.NoErr(c.Process.Signal(syscall.SIGTERM))
	if err := c.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, said.String())
	}
	s.is.True(strings.Contains(said.String(), "1 task finished, 0 retried, 1 failed"))
	s.is.Equal(all(s.rows(exitWell, "failed", "q"), "payload"), []any{"bad"})
}

// Each flag sets its own option of the library, and no other.
func TestWorkFlags(t *testing.T) {
	s := newShell(t)
	retries := uint(0)
	o := (&workCommand{Concurrency: 3, Timeout: time.Second, MaxRetries: &retries, KeepFailed: 7, Exclusive: true, Backoff: time.Minute}).options()
	s.is.Equal(o.Backoff(nil, nil), time.Minute)
	o.Backoff = nil
	s.is.Equal(o, &worqr.HandleOptions{Concurrency: 3, Timeout: time.Second, MaxRetries: -1, KeepFailed: 7, Exclusive: true})
	retries = 5
	s.is.Equal((&workCommand{MaxRetries: &retries}).options(), &worqr.HandleOptions{MaxRetries: 5})
	for _, args := range [][]string{{"q"}, {"q", "-c", "0", "--", "true"}, {"q", "--timeout", "-1s", "--", "true"}, {"q", "--drain", "-1s", "--", "true"}} {
		s.run(exitFailed, append([]string{"work"}, args...)...)
	}
}

// With --json, a program can parse the log, and the number of tasks.
func TestWorkJSON(t *testing.T) {
	s := newShell(t)
	var out, errs bytes.Buffer
	c := s.program("work", "q", "--prefix", s.args[3], "--json", "-v", "--log-keys", "--log-header", "request-id", "--", "true")
	c.Stdout, c.Stderr = &out, &errs
	s.is.NoErr(c.Start())
	key := all(s.rows(exitWell, "enqueue", "q", "x", "--keep-result", "1h", "--header", "request-id=req-7", "--header", "type=charge"), "key")[0].(string)
	s.run(exitWell, "wait", "q", key)
	s.is.NoErr(c.Process.Signal(syscall.SIGTERM))
	s.is.NoErr(c.Wait())
	s.is.Equal(out.String(), `{"failed":0,"finished":1,"retried":0}`+"\n")
	ended := map[string]any{}
	for line := range strings.Lines(errs.String()) {
		var row map[string]any
		s.is.NoErr(json.Unmarshal([]byte(line), &row))
		if row["msg"] == "worqr: task ended" {
			ended = row
		}
	}
	s.is.Equal([]any{ended["queue"], ended["attempt"], ended["outcome"], ended["err"]}, []any{"q", 1., "finished", nil})
	s.is.Equal([]any{ended["key"], ended["type"], ended["headers"]}, []any{key, "charge", map[string]any{"request-id": "req-7"}})
	s.is.True(strings.Count(ended["attempt_id"].(string), ".") == 3)
}

// A program that can't be started doesn't get tasks.
func TestWorkNoProgram(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "q", "a")
	file := filepath.Join(t.TempDir(), canary)
	s.is.NoErr(os.WriteFile(file, nil, 0o600))
	for program, says := range map[string]string{"/" + canary: "no such file", canary: "not found in $PATH", file: "permission denied"} {
		out := s.run(exitFailed, "work", "q", "--", program)
		s.is.True(strings.Contains(out, says) && !strings.Contains(out, canary))
	}
	s.is.Equal(s.rows(exitWell, "queues", "q")[0]["waiting"], 1.)
}

func TestVersion(t *testing.T) {
	s := newShell(t)
	want := "worqr v" + worqr.Version + "\n"
	s.is.Equal(s.bare("version"), want)
	s.is.Equal(string(redistest.Sure(s.program("--version").Output())(t)), want)
}

// bare calls the command without the flags of the fleet.
func (s *shell) bare(args ...string) string {
	s.Helper()
	var out bytes.Buffer
	s.is.Equal(run(args, strings.NewReader(""), &out, &out), exitWell)
	return out.String()
}

// A supervisor that signals both the program and its process group, as timeout does, sends SIGTERM twice. It still drains.
func TestWorkSignaledTwice(t *testing.T) {
	s := newShell(t)
	for {
		file, begun := filepath.Join(t.TempDir(), "go on"), filepath.Join(t.TempDir(), "begun")
		c := s.program("work", "q", "--prefix", s.args[3], "--", "sh", "-c", `: > "$2"; until [ -e "$1" ]; do sleep 0.05; done`, "sh", file, begun)
		log := redistest.Sure(c.StderrPipe())(t)
		s.is.NoErr(c.Start())
		s.run(exitWell, "enqueue", "q", "x")
		peertest.Eventually(t, "it runs", func() bool { _, err := os.Stat(begun); return err == nil }) // in Redis, it runs a little earlier
		began := time.Now()
		s.is.NoErr(c.Process.Signal(syscall.SIGTERM))
		lines := bufio.NewScanner(log)
		for lines.Scan() && !strings.Contains(lines.Text(), "draining") {
		}
		_ = c.Process.Signal(syscall.SIGTERM) // fails if it has ended
		took := time.Since(began)
		s.is.NoErr(os.WriteFile(file, nil, 0o600))
		rest := redistest.Sure(io.ReadAll(log))(t)
		err := c.Wait()
		if took > graceOfSignals/2 {
			continue // the machine was busy, and the second signal may have counted
		}
		if err != nil || !strings.Contains(string(rest), "1 task finished") {
			t.Errorf("%v:\n%s", err, rest)
		}
		return
	}
}
