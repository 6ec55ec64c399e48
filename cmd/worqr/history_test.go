package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The history of a queue is shown once a worker has stopped, which writes what it has counted.
func TestHistory(t *testing.T) {
	s := newShell(t)
	q := s.peer.Queue("q")
	s.run(exitUnwell, "history", "q")
	done := make(chan bool, 3)
	q.Handle(func(context.Context, *worqr.Task) error { done <- true; return nil }, nil)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.peer.Run(ctx) }()
	s.is.NoErr(q.Enqueue(t.Context(), []byte("a"), []byte("b"), []byte("c")))
	for range 3 {
		<-done
	}
	stop()
	s.is.NoErr(<-ran)
	conn := redistest.Conn(t) // what came before the first row isn't shown
	redistest.Do(t, conn, "ZADD", s.args[3]+":versions", fmt.Sprint(time.Now().UnixMilli()), "shop v7")
	for _, args := range [][]string{nil, {"--hours", "24"}, {"--days", "60"}, {"--weeks", "1"}} {
		args = append([]string{"history", "q"}, args...)
		printed := s.run(exitWell, args...)
		s.is.True(strings.HasPrefix(printed, "UTC "))
		s.is.True(strings.Contains(printed, "  ← shop v7"))
		var started, finished float64
		for _, row := range s.rows(exitWell, args...) {
			started, finished = started+row["started"].(float64), finished+row["finished"].(float64)
		}
		s.is.Equal([]float64{started, finished}, []float64{3, 3})
	}
	s.is.True(strings.Contains(s.run(exitFailed, "history", "q", "--days", "61"), "60 --days"))
	s.run(exitFailed, "history", "q", "--days", "1", "--weeks", "1")
}
