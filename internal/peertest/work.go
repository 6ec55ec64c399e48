package peertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Held serves a queue with handlers that run until their context ends. It returns their payloads
// and the causes.
func Held(t testing.TB, p *worqr.Peer, queue string, o *worqr.HandleOptions) (starts chan string, causes chan error) {
	starts, causes = make(chan string, 1000), make(chan error, 1000)
	p.Queue(queue).Handle(func(ctx context.Context, t *worqr.Task) error {
		starts <- string(t.Payload)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, o)
	Run(t, p)
	return starts, causes
}

func Cancel(t testing.TB, q *worqr.Queue, payload string) *worqr.CancelReport {
	t.Helper()
	report, err := q.Cancel(t.Context(), []byte(payload))
	Must(t, err)
	return report
}

func Wait(t testing.TB, report *worqr.CancelReport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	Must(t, report.Wait(ctx))
}

// Dead adds n dead members to a queue. Their last heartbeat was just now, and each holds a task.
func Dead(t *testing.T, c redis.Conn, prefix, queue string, lease time.Duration, n int) {
	t.Helper()
	key := func(kind string) string { return prefix + ":" + kind + ":{" + queue + "}" }
	now := redistest.Sure(redis.Int64s(c.Do("TIME")))(t)
	deadline := now[0]*1000 + now[1]/1000 + 2*lease.Milliseconds()/3
	for i := range n {
		w := fmt.Sprintf("dead%05d", i)
		p := w + ".1.0.1"
		for _, err := range []error{
			c.Send("ZADD", key("workers"), deadline, w),
			c.Send("HSET", key("rounds"), w, 1),
			c.Send("ZADD", key("working")+":"+w, i+1, p),
			c.Send("LPUSH", key("process")+":"+p, i),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	Must(t, c.Send("HINCRBY", key("state"), "token", n))
	redistest.Do(t, c, "")
}

// Counting serves a queue and sends when each task started.
func Counting(t testing.TB, p *worqr.Peer, queue string, o *worqr.HandleOptions) (starts chan time.Time, stop func()) {
	starts = make(chan time.Time, 10000)
	p.Queue(queue).Handle(func(context.Context, *worqr.Task) error {
		starts <- time.Now()
		return nil
	}, o)
	return starts, Run(t, p)
}

// Tell returns a handler that sends the payloads it gets.
func Tell(started chan<- string) worqr.Handler {
	return func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		return nil
	}
}

// Holding returns a handler that sends the payloads it gets, and holds each task until released.
func Holding(started chan<- string, release <-chan struct{}) worqr.Handler {
	return func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		<-release
		return nil
	}
}

// Idle waits until n workers of the queue are idle.
func Idle(t testing.TB, q *worqr.Queue, n int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d workers are idle", n), func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Workers == n && s.IdleWorkers == n
	})
}

// Subscribed waits until a peer has subscribed to a queue's messages. Earlier messages are lost,
// whichever program sends them.
func Subscribed(t testing.TB, prefix, queue string) {
	t.Helper()
	c := redistest.Conn(t)
	of := "{" + queue + "}"
	Eventually(t, "a peer is subscribed", func() bool { // on the queue's node
		n, err := redis.Int(c.Do("EVAL", "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]", 1, prefix+":queues:"+of, prefix+"_"+of+"_cancel"))
		return err == nil && n > 0
	})
}

// Add adds a task and returns its key.
func Add(t testing.TB, q *worqr.Queue, task worqr.TaskSpec) string {
	t.Helper()
	return redistest.Sure(q.Add(t.Context(), task))(t)[0]
}

// Take starts the next task, which must exist.
func Take(t testing.TB, q *worqr.Queue) *worqr.Task {
	t.Helper()
	task, err := q.StartTask(t.Context())
	Must(t, err)
	return task
}

func FailWorker(t testing.TB, by *worqr.Peer, id string, returned int) {
	t.Helper()
	n, err := by.FailWorker(t.Context(), id)
	Must(t, err)
	if n != returned {
		t.Fatalf("FailWorker returned %d tasks, want %d", n, returned)
	}
}

// Accused fills the queue with tasks whose workers have died twice: one more death fails them. The
// first half of them have keys.
func Accused(t testing.TB, url, prefix, queue string, n int) {
	t.Helper()
	q := OpenAt(t, url, worqr.Options{Prefix: prefix}).Queue(queue)
	for i := range n {
		if i < (n+1)/2 {
			Add(t, q, worqr.TaskSpec{Key: fmt.Sprint("accused", i), Payload: fmt.Append(nil, "accused", i)})
		} else {
			Enqueue(t, q, fmt.Sprint("accused", i))
		}
	}
	for range 2 {
		victim := OpenAt(t, url, worqr.Options{Prefix: prefix})
		tasks, err := Working(t, victim, queue).StartTasks(t.Context(), n)
		Must(t, err)
		if len(tasks) != n {
			t.Fatalf("%d tasks of %d", len(tasks), n)
		}
		FailWorker(t, victim, victim.WorkerID(), n)
		Must(t, victim.Close())
	}
}

func Enqueue(t testing.TB, q *worqr.Queue, payloads ...string) {
	t.Helper()
	for some := range slices.Chunk(payloads, worqr.MaxBatchSize) {
		bs := make([][]byte, len(some))
		for i, p := range some {
			bs[i] = []byte(p)
		}
		Must(t, q.Enqueue(t.Context(), bs...))
	}
}

func Numbers(prefix string, n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return s
}
