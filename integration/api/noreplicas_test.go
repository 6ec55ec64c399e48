package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// lonelyWrites returns how often a server has refused a write because it has too few replicas.
func lonelyWrites(t *testing.T, server *redistest.Server) int {
	t.Helper()
	n := 0
	_, _ = fmt.Sscanf(field(t, redistest.Dial(t, server.URL()), "errorstats", "errorstat_NOREPLICAS"), "count=%d", &n) // absent at first
	return n
}

// While a master has too few replicas, as for a moment after a failover, it refuses writes. Calls
// and rounds wait, and are carried out once it has enough replicas.
func TestNoReplicasForAWhile(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", CallTimeout: time.Minute, Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, "a")
	task := take(t, q)

	redistest.Do(t, c, "CONFIG", "SET", "min-replicas-to-write", 1)
	done := make(chan error, 4)
	go func() { done <- q.Enqueue(context.Background(), []byte("b")) }()
	go func() {
		_, err := q.EnqueueOnce(context.Background(), "nonce", []byte("c"))
		done <- err
	}()
	go func() {
		_, err := q.Add(context.Background(), worqr.TaskSpec{Payload: []byte("d"), At: time.Now().Add(time.Hour)})
		done <- err
	}()
	go func() { done <- task.Finish(context.Background()) }()
	eventually(t, "all were refused, and again", func() bool { return lonelyWrites(t, server) > 12 })
	is.Equal(len(done), 0)
	redistest.Do(t, c, "CONFIG", "SET", "min-replicas-to-write", 0)
	for _, err := range receive(t, done, cap(done)) {
		is.NoErr(err)
	}
	is.Equal(len(waiting(t, q)), 2)
	is.Equal(len(scheduled(t, q)), 1)
	is.Equal(sure(length(q.Running(t.Context())))(t), 0)
}

// If that takes longer than the call's timeout, the call returns the error of Redis, and nothing
// was done.
func TestNoReplicasForLong(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	q := openAt(t, server.URL(), worqr.Options{Prefix: "p", CallTimeout: 2 * time.Second}).Queue("q")
	patient := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	redistest.Do(t, redistest.Dial(t, server.URL()), "CONFIG", "SET", "min-replicas-to-write", 1)
	err := q.Enqueue(t.Context(), []byte("a"))
	is.True(err != nil && strings.Contains(err.Error(), "NOREPLICAS") && !errors.Is(err, worqr.ErrUnknownOutcome))

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err = patient.Enqueue(ctx, []byte("a"))
	sent := errors.Is(err, worqr.ErrUnknownOutcome) // the last try was in flight
	is.True(errors.Is(err, context.DeadlineExceeded) && (sent || strings.Contains(err.Error(), "NOREPLICAS")))
	is.Equal(len(waiting(t, q)), 0)
}
