package main

import (
	"strings"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// In JSON, names that aren't UTF-8 are escaped, so that they stay apart, and long texts are complete.
func TestJSONIsComplete(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	headers := map[string]string{"\xff": "1", "\xfe": "2", "?": "3", "\ufffd": "\xfd", `\xff`: "4", "\n": "5"}
	keys := []any{map[string]any{"base64": "/g=="}, map[string]any{"base64": "/w=="}}
	shown := map[string]any{"?": "3", "\ufffd": map[string]any{"base64": "/Q=="}, `\xfe`: "2", `\xff`: "1", `\\xff`: "4", `\n`: "5"}
	shows := func(list ...string) {
		t.Helper()
		row := s.rows(exitWell, list...)[0]
		s.is.Equal(row["headers"], shown)
	}

	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte("x"), Headers: headers}))(s.T)
	shows("tasks", "q")
	task := peertest.Take(t, q)
	shows("running", "q")
	s.is.NoErr(task.Finish(ctx))
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("x"), Headers: headers}))(t)
	shows("tasks", "q")
	text := s.run(exitWell, "tasks", "q")
	s.is.True(strings.Contains(text, `\n=5 ?=3 \xff=4 `+"\ufffd="+`\xfd \xfe=2 \xff=1`))
	s.is.NoErr(q.Delete(ctx))

	long := strings.Repeat("a", 300) + "\x1b"
	for _, reason := range []string{long + "b", long + "c", "\xff", "\xfe"} {
		s.fail(q, reason, "x", headers)
	}
	for f := range redistest.Each(t, q.Failed(ctx)) { // Fail would make it UTF-8
		s.forgeFailure(f.ID, func(failure []string) { failure[7] = string(f.Payload) })
	}
	shows("failed", "q")
	s.is.Equal(all(s.rows(exitWell, "failed", "q"), "error"), []any{keys[0], keys[1], long + "c", long + "b"})
	groups := s.rows(exitWell, "failed", "q", "--group")
	s.is.Equal(len(groups), 4)
	s.is.True(groups[0]["error"] == long+"b" && groups[0]["example"] == long+"b")
}
