package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// canary is in every payload, key and password, and must not be printed.
const canary = "canary"

// command runs the command as main does, and returns what it printed and its exit
// status.
func command(t *testing.T, in string, args ...string) (out string, status int) {
	t.Helper()
	var said bytes.Buffer
	status = run(args, strings.NewReader(in), &said, &said)
	if strings.Contains(said.String(), canary) {
		t.Errorf("%q prints a secret:\n%s", args, said.String())
	}
	return said.String(), status
}

// The server's settings cause no findings, so only the planted ones are reported.
func TestCheck(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	conn := redistest.Dial(t, server.URL())
	check := func(want int, says string, more ...string) {
		t.Helper()
		args := []string{"check", "--redis", redistest.Doctor(t, server.URL(), "p"), "--prefix", "p", "--lease", "150ms"}
		out, status := command(t, "", append(args, more...)...)
		if status != want || !strings.Contains(out, says) {
			t.Errorf("exit status %d, want %d and %q:\n%s", status, want, says, out)
		}
	}
	const nothing = "no worqr keys found under the prefix \"p\""
	check(exitFailed, "0 queues: 2 notices")
	check(exitFailed, nothing)
	check(exitFailed, "nothing was checked", "--repair")
	redistest.Do(t, conn, "SET", "p:somebody", "else's")
	check(exitFailed, nothing)
	redistest.Do(t, conn, "CONFIG", "SET", "appendonly", "no")
	check(exitFailed, "risk (persistence)") // not what this test is about
	redistest.Do(t, conn, "CONFIG", "SET", "appendonly", "yes")
	redistest.Do(t, conn, "DEL", "p:somebody")
	redistest.Do(t, conn, "SADD", "p:registry", "q") // a fleet that has drained its queues
	check(exitWell, "no queues found under the prefix \"p\"")
	for _, key := range []string{"p:process:{q}:w.1.1.1", "p:process:{q}:w.1.1.2"} {
		redistest.Do(t, conn, "LPUSH", key, canary)
	}
	redistest.Do(t, conn, "HSET", "p:state:{q}", "token", 5)
	check(exitUnwell, "stuck (orphan) on q: 2 tasks were started")
	check(exitUnwell, "stuck (orphan, repaired) on q: ", "--repair") // the tasks are back, and no worker serves the queue
	check(exitUnwell, "stopped (no-worker) on q: ")
	is.Equal(redistest.Sure(redis.Int(conn.Do("LLEN", "p:queues:{q}")))(t), 2)
	redistest.Do(t, conn, "DEL", "p:queues:{q}")
	check(exitWell, "1 queue: 2 notices")

	// --quiet, as in an alert.
	redistest.Do(t, conn, "LPUSH", "p:queues:{q}", canary, canary, canary)
	redistest.Do(t, conn, "ZADD", "p:workers:{q}", int64(9007199254740991), "w1")
	redistest.Do(t, conn, "HSET", "p:rounds:{q}", "w1", 1)
	check(exitWell, "1 queue: 2 notices")
	check(exitWell, "1 queue: 2 notices", "--max-waiting", "3")
	check(exitUnwell, "stuck (backlog) on q: 3 tasks are waiting. The limit is 2.", "--max-waiting", "2")
	check(exitUnwell, "3 tasks are waiting. The limit is 0.", "--max-waiting", "0")
	check(exitWell, "1 queue: 1 notice", "--max-waiting", "2", "--ignore", "persistence,backlog")
	redistest.Do(t, conn, "CONFIG", "SET", "appendonly", "no")
	check(exitUnwell, "risk (persistence)")
	check(exitWell, "1 queue: 1 notice", "--ignore", "persistence")
	check(exitFailed, "the kinds are", "--ignore", "perisstence")
	check(exitFailed, "--max-failed", "--max-failed", "x")
}

// A limit of 0 means none here, and the default in the library.
func TestCheckFlags(t *testing.T) {
	is := redistest.Parallel(t)
	parse := func(args ...string) *checkCommand {
		t.Helper()
		var c checkCommand
		redistest.Sure(kong.Must(&c).Parse(args))(t)
		return &c
	}
	is.Equal(parse().options(), &inspect.CheckOptions{})
	is.Equal(parse("--max-waiting", "0").options(), &inspect.CheckOptions{MaxBacklog: -1})
	is.Equal(parse("--max-retrying", "0").options(), &inspect.CheckOptions{MaxRetrying: -1})
	is.Equal(parse("--max-failed", "0").options(), &inspect.CheckOptions{MaxFailed: -1})
}

// The payload is an argument or standard input, byte for byte.
func TestExplain(t *testing.T) {
	s := newShell(t)
	q := s.peer.Queue("q")
	peertest.Enqueue(t, q, canary, "")
	peertest.Add(t, q, worqr.TaskSpec{Key: canary, Payload: []byte("other"), At: time.Now().Add(time.Hour)})
	failing := peertest.Working(t, s.peer, "failing")
	peertest.Enqueue(t, failing, "a")
	peertest.Must(t, peertest.Take(t, failing).Fail(t.Context(), errors.New("no ink")))
	for _, c := range []struct {
		name, in string
		args     []string
		status   int
		says     string
	}{
		{"attempts", "", []string{"failing", "a"}, exitWell, "\n  FAILED  TOOK  "},
		{"attempts in JSON", "", []string{"failing", "a", "--json"}, exitWell, `"attempts":[{"ended_at":"`},
		{"argument", "", []string{"q", canary}, exitWell, "Waiting on \"q\"."},
		{"input", canary, []string{"q"}, exitWell, "Waiting on \"q\"."},
		{"input with a newline", canary + "\n", []string{"q"}, exitUnwell, "No copy"},
		{"empty argument", canary + "\n", []string{"q", ""}, exitWell, "Waiting on \"q\"."},
		{"key", "", []string{"q", "--key", canary}, exitWell, "Scheduled on"},
		{"no such key", "", []string{"q", "--key", "x"}, exitUnwell, "No copy"},
		{"other queue", "", []string{"other", canary}, exitUnwell, "No queue \"other\" exists under the prefix"},
		{"empty key", "", []string{"q", "--key", ""}, exitFailed, "explain on \"q\""},
		{"bad name", "", []string{"q q", canary}, exitFailed, "not a valid queue name"},
		{"both", "", []string{"q", canary, "--key", canary}, exitFailed, "not both"},
		{"neither", "", nil, exitFailed, "<queue>"},
		{"empty input", "", []string{"q"}, exitFailed, "for an empty payload, pass \"\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := command(t, c.in, slices.Concat([]string{"explain"}, s.args, c.args)...)
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("exit status %d, want %d and %q:\n%s", status, c.status, c.says, out)
			}
		})
	}
}

// A typist is a terminal at which someone types.
type typist struct {
	io.Reader
	terminal *os.File
}

func (t typist) Fd() uintptr { return t.terminal.Fd() }

// A prompt on standard error asks for the payload, but only at a terminal.
func TestExplainWaits(t *testing.T) {
	s := newShell(t)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs a terminal of its own:", err)
	}
	defer terminal.Close() //nolint:errcheck // nothing was written to it
	null := redistest.Sure(os.Open(os.DevNull))(t)
	defer null.Close() //nolint:errcheck // it was only read
	for name, c := range map[string]struct {
		in     io.Reader
		args   []string
		status int
		waits  bool
	}{
		"typed":         {typist{strings.NewReader(canary), terminal}, nil, exitUnwell, true},
		"nothing":       {typist{strings.NewReader(""), terminal}, nil, exitFailed, true},
		"not asked":     {typist{strings.NewReader(canary), terminal}, []string{canary}, exitUnwell, false},
		"key":           {typist{strings.NewReader(canary), terminal}, []string{"--key", canary}, exitUnwell, false},
		"the null file": {null, nil, exitFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			status := run(slices.Concat([]string{"explain", "q"}, s.args, c.args), c.in, &out, &errs)
			if status != c.status || strings.Contains(errs.String(), "reading the payload") != c.waits || strings.Contains(out.String(), "reading the payload") {
				t.Errorf("exit status %d, want %d:\n%s\n%s", status, c.status, out.String(), errs.String())
			}
		})
	}
}

// No error contains a URL or its password.
func TestCommandsUnreachable(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://:" + canary + "@127.0.0.1:1", "http://:" + canary + "@host", "redis://:" + canary + "@%zz"} {
		for _, args := range [][]string{{"check"}, {"check", "--repair", "--lease", "3s"}, {"explain", "q", "a"}} {
			if out, status := command(t, "", append(args, "--redis", url)...); status != exitFailed || !strings.HasPrefix(out, "worqr: ") {
				t.Errorf("%s: exit status %d:\n%s", args, status, out)
			}
		}
	}
}

// What is silenced doesn't count, and is listed with its reason and end.
func TestSilence(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "q", "a")
	s.is.True(strings.Contains(s.run(exitWell, "silence"), "nothing is silenced"))
	s.is.Equal(s.run(exitWell, "silence", "no-worker", "--queue", "q", "--for", "2h", "--reason", "a move"), "no-worker on q is silenced for 2h\n")
	s.is.True(strings.Contains(s.run(exitWell, "silence"), "a move"))
	s.is.Equal(s.rows(exitWell, "silence")[0]["queue"], "q")
	s.is.Equal(s.run(exitWell, "silence", "no-worker", "--queue", "q", "--end"), "no-worker on q is no longer silenced\n")
	s.run(exitUnwell, "silence", "no-worker", "--queue", "q", "--end")
	for _, args := range [][]string{{"no-worker"}, {"no-worker", "--for", "2h"}, {"no-worker", "--end", "--for", "2h"}, {"--for", "2h"}, {"nope", "--for", "2h", "--reason", "x"}, {"paused", "--for", "-2h", "--reason", "x"}} {
		s.run(exitFailed, append([]string{"silence"}, args...)...)
	}
}
