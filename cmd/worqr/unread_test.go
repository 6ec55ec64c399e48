package main

import (
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// A damaged queue is a row with its error, and doesn't affect the others.
func TestDamagedQueue(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "a", "x")
	s.run(exitWell, "enqueue", "b", "x", "y")
	s.run(exitWell, "enqueue", "c", "x")
	redistest.Do(t, redistest.Conn(t), "SET", s.args[3]+":workers:{a}", "x")
	redistest.Do(t, redistest.Conn(t), "SET", s.args[3]+":recurring:{b}", "x")

	rows := s.rows(exitFailed, "queues")
	s.is.Equal(all(rows, "queue"), []any{"a", "b", "c"})
	s.is.Equal(all(rows[1:], "waiting"), []any{2., 1.})
	s.is.True(strings.Contains(rows[0]["error"].(string), "WRONGTYPE"))
	s.is.Equal(rows[0]["waiting"], nil)
	text := s.run(exitFailed, "queues", "a", "b")
	s.is.True(strings.Contains(text, "QUEUE") && strings.Contains(text, "a  can't be read: ") && strings.Contains(text, "worqr: 1 queue can't be read"))
	s.is.True(strings.Contains(s.run(exitFailed, "running"), "a  can't be read: "))
	s.is.True(strings.Contains(s.run(exitFailed, "recurring", "b", "c"), "b  can't be read: "))
	s.run(exitWell, "recurring", "c")
	text = s.run(exitFailed, "drain", "a", "b", "c")
	s.is.True(strings.Contains(text, "b is paused, and none") && strings.Contains(text, "c is paused, and none"))
	v := s.terminal("top", "--every", "100ms")
	v.awaits("3 waiting")
	v.awaits("can't be read: ")
	v.press("q")
}
