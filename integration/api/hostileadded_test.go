package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// An item with the last id that a stream can have is a task like others. Behind it, Redis refuses to
// read.
func TestHostileLastID(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	const last = "18446744073709551615-18446744073709551615"
	redistest.Do(t, c, "XADD", prefix+":added:{q}", last, "f", "a")
	var listed []string
	for task := range each(t, q.Added(t.Context())) {
		listed = append(listed, string(task.Payload))
	}
	is.Equal(listed, []string{"a"})
	is.NoErr(q.Delete(t.Context()))
	is.Equal(stats(t, q).Waiting, 0)

	redistest.Do(t, c, "XADD", prefix+":added:{q}", last, "f", "b")
	started := make(chan string, 10)
	q.Handle(func(_ context.Context, task *worqr.Task) error { started <- string(task.Payload); return nil }, &worqr.HandleOptions{Concurrency: 8})
	run(t, p)
	is.Equal(receive(t, started, 1), []string{"b"})
	added(t, q, "c")
	is.Equal(receive(t, started, 1), []string{"c"})
	eventually(t, "nothing is left", func() bool { return stats(t, q) == inspect.QueueStats{Workers: 1, IdleWorkers: 1} })
}

// A card that others have changed, by which a result is kept for a moment only, doesn't make those who
// wait for it ask on and on.
func TestHostileKeep(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	_, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	is.NoErr(q.Put(t.Context(), "k", []byte("a"), &worqr.PutOptions{At: time.Now().Add(time.Hour), Properties: worqr.Properties{KeepResult: time.Minute}}))
	redistest.Do(t, c, "HSET", "p:keyed:{q}:k:k", "card", "40000000001")
	ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
	defer end()
	before := redistest.Calls(t, c, "evalsha")
	_, err := q.Wait(ctx, "k")
	is.True(err != nil)
	if n := redistest.Calls(t, c, "evalsha") - before; n > 20 {
		t.Errorf("it asked %d times in two seconds", n)
	}
}

// Where the clock of Redis was set back, the ids of added tasks are ahead of it. A Put that leaves the time
// of such a task as it is doesn't delay it.
func TestAddedAheadOfTheClock(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	redistest.Do(t, c, "XADD", prefix+":added:{q}", fmt.Sprintf("%d-5", time.Now().Add(time.Hour).UnixMilli()), "0123456789abc0", "a")
	key := added(t, q, "b")[0]
	put(t, q, key, "c", &worqr.PutOptions{Reschedule: worqr.RescheduleNever})
	for task := range each(t, q.Scheduled(t.Context())) {
		is.Equal(task.Key, key)
		is.True(time.Until(task.DueAt) < time.Minute)
	}
}
