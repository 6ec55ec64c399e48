package worqr_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Exclusive handlers are stopped before anybody else may start their task,
// whether Redis can be reached or not; others go on.
func TestExclusive(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	told := &journal{}
	p := openAt(t, link.URL(), worqr.Options{Lease: time.Second, Prefix: "p", Logger: told.Logger()})
	type end struct {
		queue string
		cause error
		at    time.Time
	}
	started, ends := make(chan string, 10), make(chan end, 10)
	handler := func(ctx context.Context, t *worqr.Task) error {
		started <- t.Queue
		<-ctx.Done()
		ends <- end{t.Queue, context.Cause(ctx), time.Now()}
		return ctx.Err()
	}
	p.Queue("exclusive").Handle(handler, &worqr.HandleOptions{Exclusive: true})
	p.Queue("other").Handle(handler, nil)
	stop := run(t, p)
	enqueue(t, p.Queue("exclusive"), "a")
	enqueue(t, p.Queue("other"), "a")
	receive(t, started, 2)

	other := openAt(t, server.URL(), worqr.Options{Lease: time.Second, Prefix: "p"})
	taken := make(chan time.Time, 1)
	other.Queue("exclusive").Handle(func(context.Context, *worqr.Task) error {
		taken <- time.Now()
		return nil
	}, nil)
	run(t, other)
	link.Deafen(true) // the first one hears nothing any more
	e := receive(t, ends, 1)[0]
	is.Equal(e.queue, "exclusive")
	is.Equal(e.cause, worqr.ErrLeaseExpired)
	is.True(e.at.Before(receive(t, taken, 1)[0]))
	is.Equal(len(ends), 0)
	link.Deafen(false)
	link.Cut()
	is.Equal(receive(t, ends, 1)[0].queue, "other") // told once eviction is known
	eventually(t, "that the lease expired, and that Redis is back, is logged", func() bool {
		return len(told.Lines("worqr: lease expired: Redis did not answer in time")) == 1 && len(told.Lines("worqr: Redis answers again")) > 0
	})
	id := p.WorkerID()
	stop()
	is.Equal(len(told.Lines(`msg="worqr: stopped" worker=`+id)), 1)
	is.True(strings.Contains(told.Lines("worqr: lease expired")[0], "queue=exclusive tasks=1"))
}

// A worker that never lapses is failed by hand only.
func TestNegativeLease(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: -1})
	q := working(t, p, "q")
	enqueue(t, q, "a")
	sure(q.StartTask(t.Context()))(t)
	c := redistest.Conn(t)
	is.True(sure(redis.Float64(c.Do("ZSCORE", prefix+":workers:{q}", p.WorkerID())))(t) > float64(time.Now().AddDate(1000, 0, 0).UnixMilli()))
	is.Equal(len(sure(open(t, worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}).Sweep(t.Context()))(t)), 0)
	is.Equal(sure(open(t, worqr.Options{Prefix: prefix}).FailWorker(t.Context(), p.WorkerID()))(t), 1)
}

// Two peers on one queue: failing one leaves the other's tasks alone.
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
	is.Equal(waiting(t, qb), []string{"0", "1", "4", "5"}) // nothing happened
	is.NoErr(tb[0].Finish(t.Context()))
	is.NoErr(tb[1].Finish(t.Context()))

	// The failed one comes back by itself, under a new id.
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

// More tasks than one call returns at a time keep their order.
func TestReturnInChunks(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q := working(t, a, "q")
	want := numbers("", 1000)
	enqueue(t, q, append(want, "last")...)
	sure(q.StartTasks(t.Context(), 1000))(t)
	is.Equal(sure(b.FailWorker(t.Context(), a.WorkerID()))(t), 1000)
	is.Equal(waiting(t, b.Queue("q")), append(want, "last"))
}
