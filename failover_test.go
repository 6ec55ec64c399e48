package worqr_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// With two peers on one queue, failing one leaves the other's tasks alone.
func TestFailWorkerTouchesNobodyElse(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	qa, qb := working(t, a, "q"), working(t, b, "q")
	enqueue(t, qa, numbers("", 6)...)
	ta := sure(qa.StartTasks(t.Context(), 2))(t)
	tb := sure(qb.StartTasks(t.Context(), 2))(t)
	old := a.WorkerID()

	n := sure(b.FailWorker(t.Context(), old))(t)
	is.Equal(n, 2)
	is.Equal(waiting(t, qb), []string{"0", "1", "4", "5"})
	err := ta[0].Finish(t.Context())
	is.True(is_(err, worqr.ErrNotOwner))
	is.Equal(waiting(t, qb), []string{"0", "1", "4", "5"}) // nothing has changed
	is.NoErr(tb[0].Finish(t.Context()))
	is.NoErr(tb[1].Finish(t.Context()))

	// The failed one comes back on its own, under a new id.
	eventually(t, "the failed worker is back", func() bool {
		task, err := qa.StartTask(t.Context())
		return err == nil && string(task.Payload) == "0"
	})
	is.True(a.WorkerID() != old)
	is.Equal(context.Cause(ta[1].Context()), worqr.ErrEvicted)
	is.Equal(a.Stats().TimesEvicted, int64(1))

	n = sure(b.FailWorker(t.Context(), "nobody"))(t)
	is.Equal(n, 0)
}

// With invalid options, a peer evicts nobody.
func TestFailWorkerChecksOptions(t *testing.T) {
	is := parallel(t)
	p := worqr.New(&redis.Pool{}, &worqr.Options{Prefix: "a {b}"})
	_, err := p.FailWorker(t.Context(), "w")
	is.True(is_(err, worqr.ErrBadName))
	_, err = p.Sweep(t.Context())
	is.True(is_(err, worqr.ErrBadName))
}

// More tasks than one call returns keep their order.
func TestReturnInChunks(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q := working(t, a, "q")
	want := numbers("", 1000)
	enqueue(t, q, append(want, "last")...)
	for range 2 {
		is.Equal(len(sure(q.StartTasks(t.Context(), 500))(t)), 500)
	}
	n := sure(b.FailWorker(t.Context(), a.WorkerID()))(t)
	is.True(n > 0 && n <= 1000) // a heartbeat of a peer may return some, too
	is.Equal(waiting(t, b.Queue("q")), append(want, "last"))
}

// A worker that comes back leaves everything under its old id, including tasks that a round brings
// in the meantime.
func TestComesBackWhileRoundsFlow(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	g := newGate(func(line string) bool { return strings.Contains(line, "coming back under a new id") })
	p := open(t, worqr.Options{Prefix: prefix, Lease: -1})
	p.BeforeLog(g.Before)
	starts, causes := held(t, p, "b", nil)
	before := p.WorkerID()
	working(t, p, "a")
	idle(t, p.Queue("b"), 1)
	c := redistest.Conn(t)
	redistest.Do(t, c, "ZREM", prefix+":workers:{a}", before) // evicts the worker from that queue
	redistest.Do(t, c, "HDEL", prefix+":rounds:{a}", before)
	go func() { _, _ = p.Queue("a").StartTask(t.Context()) }() // notices the eviction
	receiveClosed(t, g.Halted)
	enqueue(t, p.Queue("b"), "x")
	receive(t, starts, 1) // under the old id
	close(g.Open)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrEvicted})
	receive(t, starts, 1) // under the new one
	is.Equal(sure(redis.Strings(c.Do("ZRANGE", prefix+":workers:{b}", 0, -1)))(t), []string{p.WorkerID()})
	is.True(p.WorkerID() != before)
}
