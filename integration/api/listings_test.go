package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// weight returns how many bytes of strings a reply has.
func weight(v any) (n int) {
	switch v := v.(type) {
	case []byte:
		return len(v)
	case []any:
		for _, one := range v {
			n += weight(one)
		}
	}
	return n
}

// readOuts returns the calls that read a queue or the fleet. Each returns how much it has read.
func readOuts(ctx context.Context, p *worqr.Peer, q *worqr.Queue) map[string]func() (int, error) {
	return map[string]func() (int, error){
		"Stats":   func() (int, error) { s, err := q.Stats(ctx); return s.Running, err },
		"Tasks":   func() (int, error) { return length(q.Tasks(ctx)) },
		"Named":   func() (int, error) { return length(q.Named(ctx)) },
		"Running": func() (int, error) { return length(q.Running(ctx)) },
		"Failed":  func() (int, error) { return length(q.Failed(ctx)) },
		"Workers": func() (int, error) { return length(p.Workers(ctx)) },
		"Queues":  func() (int, error) { return length(p.Queues(ctx)) },
		"Explain": func() (int, error) {
			e, err := q.Explain(ctx, worqr.Query{Payload: []byte("0")})
			if err != nil {
				return 0, err
			}
			return len(e.Copies), nil
		},
		"Check": func() (int, error) {
			r, err := p.Check(ctx, nil)
			if err != nil {
				return 0, err
			}
			return r.Queues, nil
		},
	}
}

// The size of each reply is bounded, in bytes.
func TestListingsOfLargePayloads(t *testing.T) {
	is := parallel(t)
	const size, most = 300 << 10, 1<<20 + 300<<10
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	payload := strings.Repeat("x", size)
	for i := range 20 {
		name, attempt := fmt.Sprint("k:", i), fmt.Sprint("w.1.1.", i)
		must(t, c.Send("HSET", prefix+":tasks:{q}", name, recordOf(4e12, payload)))
		must(t, c.Send("ZADD", prefix+":schedule:{q}", 4e12, name))
		must(t, c.Send("HSET", prefix+":failed:tasks:{q}", name+"#1", failedRecord(name, payload)))
		must(t, c.Send("ZADD", prefix+":failed:ready:{q}", i, name+"#1"))
		must(t, c.Send("LPUSH", prefix+":queues:{q}", payload))
		must(t, c.Send("LPUSH", prefix+":process:{q}:"+attempt, payload))
		must(t, c.Send("ZADD", prefix+":working:{q}:w", i+1, attempt))
	}
	redistest.Do(t, c, "ZADD", prefix+":workers:{q}", 4e12, "w")
	bytes, largest := 0, 0
	p := openThrough(t, redistest.URL(), worqr.Options{Prefix: prefix}, func(c *through) redis.Conn {
		c.OnFlush = func() { bytes = 0 }
		c.OnReply = func(_ string, _ []any, reply any, err error) (any, error) {
			bytes += weight(reply)
			largest = max(largest, bytes)
			return reply, err
		}
		return c
	})
	for name, n := range map[string]int{"Named": 20, "Failed": 20, "Running": 20, "Tasks": 20} {
		largest = 0
		is.Equal(sure(readOuts(t.Context(), p, p.Queue("q"))[name]())(t), n)
		if largest > most {
			t.Errorf("%s: %d bytes at once", name, largest)
		}
	}
}

// A task that was stopped is due when it was, or at no time, if it had none.
func TestStoppedIsDueWhenItWas(t *testing.T) {
	is := parallel(t)
	q := working(t, open(t, worqr.Options{Prefix: redistest.Prefix(t)}), "q")
	for _, at := range []time.Time{{}, time.Now().Add(-time.Hour).Truncate(time.Millisecond)} {
		add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("x"), At: at})
		is.NoErr(take(t, q).Stop(t.Context()))
		for s := range each(t, q.Named(t.Context())) {
			is.True(s.DueAt.Equal(at) && s.State == inspect.NamedReady)
		}
		e := sure(q.Explain(t.Context(), worqr.Query{Key: "key"}))(t)
		is.Equal(len(e.Copies), 1)
		is.True(e.Copies[0].DueAt.Equal(at))
		is.NoErr(take(t, q).Finish(t.Context()))
	}
}

func atLeast(most *atomic.Int64, n int) {
	for old := most.Load(); int64(n) > old && !most.CompareAndSwap(old, int64(n)); old = most.Load() {
	}
}

// Listings and calls about many tasks work in pages, so no call blocks Redis or other clients for
// long.
func TestPages(t *testing.T) {
	is := parallel(t)
	const (
		many  = 400
		most  = 600  // strings or elements: a page of 250, each with a number, or after key names
		walks = 1500 // elements that SCAN returns: 1,000, and a few more
		names = 1700
	)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}), "q")
	enqueue(t, q, numbers("failed", many)...)
	for _, task := range sure(q.StartTasks(ctx, many))(t) {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	enqueue(t, q, numbers("", 2*many)...)
	sure(q.StartTasks(ctx, many))(t)
	conn := redistest.Conn(t)
	for i := range many {
		add(t, q, worqr.TaskSpec{Key: fmt.Sprint(i), Payload: []byte("scheduled"), At: time.Now().Add(time.Hour)})
	}
	for i := range names {
		is.NoErr(conn.Send("SADD", prefix+":registry", fmt.Sprintf("q%d", i)))
		is.NoErr(conn.Send("SADD", prefix+":workers", fmt.Sprintf("w%d", i)))
		is.NoErr(conn.Send("ZADD", prefix+":leaving:{q}", 0, fmt.Sprintf("w%d", i)))
	}
	redistest.Do(t, conn, "")

	url := redistest.Doctor(t, redistest.URL(), prefix)
	var words, elements, inner atomic.Int64 // strings of a command, elements of a reply, elements of an array in a reply
	p := openThrough(t, url, worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}, func(c *through) redis.Conn {
		c.OnSend = func(_ string, args []any) { atLeast(&words, len(args)) }
		c.OnReply = func(_ string, _ []any, reply any, err error) (any, error) {
			all, _ := reply.([]any)
			atLeast(&elements, len(all))
			for _, one := range all {
				some, _ := one.([]any)
				atLeast(&inner, len(some))
			}
			return reply, err
		}
		return c
	})
	q = p.Queue("q")
	look := func(name string, look func() (int, error), want int) {
		t.Helper()
		for _, n := range []*atomic.Int64{&words, &elements, &inner} {
			n.Store(0)
		}
		is.Equal(sure(look())(t), want)
		if words.Load() > most || elements.Load() > most || inner.Load() > walks {
			t.Errorf("%s: a command of %d words, a reply of %d elements, one of SCAN of %d", name, words.Load(), elements.Load(), inner.Load())
		}
	}
	wants := map[string]int{"Tasks": many, "Named": many, "Running": many, "Failed": many,
		"Queues": names + 1, "Workers": 1, "Stats": many, "Explain": 1, "Check": 1}
	for name, read := range readOuts(ctx, p, q) {
		look(name, read, wants[name])
	}
	look("RequeueFailed", func() (int, error) { return q.RequeueAllFailed(ctx) }, many)
}

// A read whose reply is lost is repeated once. After that its error says that the reply was lost,
// but not that the outcome is unknown: a read has no outcome.
func TestReadOutsThatLoseReplies(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openDoctor(t, link.URL(), worqr.Options{Prefix: "p"})
	q := p.Queue("q")
	enqueue(t, q, "a")
	for name, read := range readOuts(t.Context(), p, q) {
		lost := link.LoseReplyTo("p:")
		if err := failure(read()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-lost
		lost = link.LoseRepliesTo("p:", 2)
		err := failure(read())
		<-lost
		is.True(err != nil && !is_(err, worqr.ErrUnknownOutcome))
		if !strings.Contains(err.Error(), "reply was lost") || strings.Contains(err.Error(), "outcome") {
			t.Errorf("%s: %v", name, err)
		}
	}
	link.LoseReplyTo("p:")
	is.True(is_(q.Enqueue(t.Context(), []byte("b")), worqr.ErrUnknownOutcome)) // this one has an outcome
}
