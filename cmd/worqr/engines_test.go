package main

import (
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// The commands are the same in a cluster, whose nodes share the queues.
func TestCluster(t *testing.T) {
	is := redistest.Parallel(t)
	s := shellAt(t, is, redistest.StartCluster(t, 3, 0).URL(), "p")
	for _, queue := range []string{"a", "b", "c", "d"} {
		s.run(exitWell, "enqueue", queue, "x", "y")
	}
	s.is.Equal(all(s.rows(exitWell, "queues"), "waiting"), []any{2., 2., 2., 2.})
	s.is.Equal(s.rows(exitWell, "stats")[0]["waiting"], 8.)
	s.run(exitWell, "pause", "a", "b")
	s.run(exitWell, "explain", "a", "x")
	s.run(exitWell, "cancel", "b", "x")
	s.run(exitWell, "delete", "c", "--yes", "c")
	s.is.Equal(all(s.rows(exitWell, "queues"), "waiting"), []any{2., 1., 2.}) // a deleted queue is no longer listed
	s.is.Equal(len(s.rows(exitWell, "failed", "d")), 0)
}
