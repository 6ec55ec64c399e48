package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/peertest"
)

// A task's result is shown as long as it's kept, and a script can wait for it.
func TestResult(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	key := all(s.rows(exitWell, "enqueue", "q", "a", "--keep-result", "1h"), "key")[0].(string)
	s.is.True(strings.Contains(s.run(exitUnwell, "result", "q", key), "worqr wait --prefix"))
	s.is.True(strings.Contains(s.run(exitUnwell, "wait", "q", key, "--timeout", "20ms"), "hasn't ended after 20ms"))

	waited := make(chan string, 1)
	go func() { waited <- s.run(exitWell, "wait", "q", key, "--raw") }()
	task := peertest.Take(t, q)
	task.Result = []byte("done\n" + raw)
	s.is.NoErr(task.Finish(ctx))
	s.is.Equal(<-waited, "done\n"+raw)
	s.is.Equal(s.run(exitWell, "result", "q", key, "--raw"), "done\n"+raw)
	row := s.rows(exitWell, "result", "q", key)[0]
	s.is.Equal([]any{row["outcome"], row["value"]}, []any{"finished", map[string]any{"base64": "ZG9uZQr+/++/vQ=="}})
	text := s.run(exitWell, "wait", "q", key)
	s.is.True(strings.HasPrefix(text, "finished ") && strings.HasSuffix(text, `: done\n\xfe\xff`+"\ufffd\n"))

	s.run(exitWell, "enqueue", "q", "b", "--key", "k", "--keep-result", "1h")
	s.is.NoErr(peertest.Take(t, q).Fail(ctx, errors.New("no such customer")))
	s.is.True(strings.HasSuffix(s.run(exitUnwell, "wait", "q", "k"), "ago: no such customer\n"))
	s.is.Equal(s.rows(exitUnwell, "result", "q", "k")[0]["error"], "no such customer")
	s.is.True(strings.HasPrefix(s.run(exitUnwell, "result", "q", "x"), "worqr: "))
	s.run(exitFailed, "result", "q", "k", "--raw", "--json")
	s.run(exitFailed, "enqueue", "q", "b", "--keep-result", "1ms")
}
