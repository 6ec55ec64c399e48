package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// spoil replaces a key of the queue with one of the wrong type.
func spoil(t *testing.T, prefix, kind, queue string) {
	t.Helper()
	key := prefix + ":" + kind + ":{" + queue + "}"
	redistest.DoAll(t, redistest.Conn(t), [][]any{{"DEL", key}, {"SET", key, "of another type"}})
}

// A damaged queue doesn't affect the others in any call that goes through all queues, and the
// error names it.
func TestDamagedQueueIsAlone(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"suspects", "leaving", "rounds", "workers", "state"} {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p := open(t, worqr.Options{Prefix: prefix, Lease: -1}) // evicted only by FailWorker below
			names := []string{"a", "b", "bad1", "bad2", "c", "d"}
			for _, name := range names {
				q := working(t, p, name)
				enqueue(t, q, "task")
				sure(q.StartTask(t.Context()))(t)
			}
			spoil(t, prefix, kind, "bad1")
			spoil(t, prefix, kind, "bad2")
			named := func(err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), `"bad1"`) || !strings.Contains(err.Error(), `"bad2"`) {
					t.Errorf("the error is %v", err)
				}
			}
			// The registration of one of the two peers is damaged, too.
			other := open(t, worqr.Options{Prefix: prefix})
			is.NoErr(other.StartWorker(t.Context()))
			c := redistest.Conn(t)
			redistest.Do(t, c, "SET", prefix+":worker:"+p.WorkerID(), "of another type")
			var ids []string
			for w := range each(t, other.Workers(t.Context())) {
				ids = append(ids, w.ID)
			}
			is.Equal(ids, []string{other.WorkerID()})

			_, err := other.Sweep(t.Context())
			named(err)
			n, err := other.FailWorker(t.Context(), p.WorkerID())
			named(err)
			is.True(n <= 4) // the worker itself returns the rest when it notices
			for _, name := range []string{"a", "b", "c", "d"} {
				eventually(t, "the task of "+name+" waits", func() bool { return stats(t, other.Queue(name)).Waiting == 1 })
			}
			is.True(!intact(sure(openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond}).Check(t.Context(), nil))(t)))
		})
	}
}

// A peer with a damaged queue joins, serves and leaves its other queues, even one that it can't join
// at first, and even if the damaged one uses up the time for leaving.
func TestDamagedQueueDelaysNoOther(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	spoil(t, prefix, "state", "a") // can't be joined
	spoil(t, prefix, "workers", "d")
	var j journal
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond, Drain: -1, Logger: j.Logger()})
	starts := make(chan string, 10)
	for _, name := range []string{"a", "b", "c", "d"} {
		p.Queue(name).Handle(func(ctx context.Context, t *worqr.Task) error {
			starts <- t.Queue
			<-ctx.Done()
			return ctx.Err()
		}, nil)
	}
	_, ended := start(t, p)
	enqueue(t, p.Queue("b"), "task")
	enqueue(t, p.Queue("c"), "task")
	is.Equal(sorted(receive(t, starts, 2)), []string{"b", "c"})
	eventually(t, "a and d are tried, and fail", func() bool { return len(j.Lines("can't join queues")) > 0 })
	redistest.Do(t, conn, "DEL", prefix+":workers:{d}")
	enqueue(t, p.Queue("d"), "task")
	is.Equal(receive(t, starts, 1), []string{"d"})
	spoil(t, prefix, "workers", "b") // now its task can't end, and it can't be left
	is.NoErr(p.Shutdown(t.Context()))
	is.True(receive(t, ended, 1)[0] != nil)
	is.Equal(waiting(t, p.Queue("c")), []string{"task"})
	is.True(!sure(redis.Bool(conn.Do("EXISTS", prefix+":worker:"+p.WorkerID())))(t))
}

// A peer that is evicted from all its queues logs it once, with its old and its new id.
func TestEvictionIsLoggedOnce(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	var j journal
	p := open(t, worqr.Options{Prefix: prefix, Lease: 3 * time.Second, Name: "api-7", Logger: j.Logger()})
	starts := make(chan string, 100)
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprint("q", i))
		p.Queue(names[i]).Handle(func(ctx context.Context, t *worqr.Task) error {
			starts <- t.Queue
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		enqueue(t, p.Queue(names[i]), "task")
	}
	run(t, p)
	receive(t, starts, 6)
	before := p.WorkerID()
	returned := sure(open(t, worqr.Options{Prefix: prefix}).FailWorker(t.Context(), before))(t)
	is.True(returned >= 1 && returned <= 6) // once it notices, it returns tasks of other queues itself
	receive(t, starts, 6)                   // it's back under a new id
	time.Sleep(2 * time.Second)
	lines := j.Lines("level=WARN")
	for _, want := range []string{"worker=" + before, "new=" + p.WorkerID(), "name=api-7", fmt.Sprintf("queues=%q", fmt.Sprint(names))} {
		if len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("%q isn't one line, or lacks %q", lines, want)
		}
	}
}
