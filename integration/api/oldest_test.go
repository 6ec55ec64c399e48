package api

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Oldest is the age of the front task once a heartbeat has seen it, even if another program pushed
// it; and the age of an added or an overdue task.
func TestOldest(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	conn := redistest.Conn(t)
	push := func(payload string) time.Time {
		redistest.Do(t, conn, "LPUSH", prefix+":queues:{q}", payload)
		return time.Now()
	}
	q := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Second}), "q")
	oldest := func() time.Duration { return stats(t, q).Oldest }
	first := push("a")
	eventually(t, "a heartbeat has seen it", func() bool { return oldest() > 0 })
	second := push("b")
	behind := time.Since(second)
	is.True(oldest() >= behind)
	is.True(oldest() <= time.Since(first)+time.Second) // both clocks are the same machine's

	is.NoErr(take(t, q).Finish(ctx)) // the second one is in front now
	eventually(t, "a heartbeat has seen that", func() bool { return oldest() > 0 })
	is.True(oldest() <= time.Since(second)+time.Second)
	is.NoErr(q.Delete(ctx))
	is.Equal(oldest(), time.Duration(0))

	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("c"), At: time.Now().Add(time.Hour)})
	is.Equal(oldest(), time.Duration(0)) // it isn't due
	sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("d")}))(t)
	eventually(t, "it has waited", func() bool { return oldest() > 0 })
	is.True(oldest() < time.Minute)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("c"), At: time.Now().Add(-time.Hour)})
	is.True(oldest() < time.Minute) // it has waited since it was added
}
