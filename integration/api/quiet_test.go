package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// Calls of a closed peer fail. They log nothing about tasks: the caller has the error.
func TestClosedPeerLogsNothing(t *testing.T) {
	is := parallel(t)
	log := &journal{}
	p, q := openQueue(t, worqr.Options{Logger: log.Logger()})
	must(t, p.Close())
	is.True(is_(failure(q.Cancel(t.Context(), []byte("task"))), worqr.ErrShutdown))
	is.True(is_(q.Enqueue(t.Context(), []byte("task")), worqr.ErrShutdown))
	must(t, p.Close()) // waits for the log
	is.Equal(log.Lines(""), nil)
}

// Whoever writes Redis's keys can assign any number of tasks to a worker. It gives them back, and
// doesn't log a line for each.
func TestForgedTasksAreLoggedWithinLimits(t *testing.T) {
	is := parallel(t)
	log, prefix := &journal{}, redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Logger: log.Logger(), Lease: 900 * time.Millisecond})
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := run(t, p)
	eventually(t, "it is ready", func() bool { return p.Ready() == nil })
	c := redistest.Conn(t)
	working := keys.NewSpace(prefix).Queue("q").Working(p.WorkerID())
	forged := redis.Args{working}
	for i := range 1000 {
		id := fmt.Sprintf("%s.0.1.%d", p.WorkerID(), i)
		must(t, c.Send("LPUSH", prefix+":process:{q}:"+id, "forged"))
		forged = forged.Add(i+1, id)
	}
	must(t, q.Pause(t.Context()))
	redistest.Do(t, c, "ZADD", forged...)
	eventually(t, "all are given back", func() bool { return redistest.Do(t, c, "ZCARD", working) == int64(0) })
	stop()
	must(t, p.Close()) // waits for the log
	lines := len(log.Lines("doesn't hold"))
	is.True(lines > 0 && lines < 200)
}
