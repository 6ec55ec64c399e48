package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A scale is a connection that knows how much was asked and answered at a time.
type scale struct {
	redis.Conn
	words, elements, inner *atomic.Int64 // of a command, of a reply, of an array in one
}

func (s scale) Send(command string, args ...any) error {
	atLeast(s.words, len(args))
	return s.Conn.Send(command, args...)
}

func (s scale) ReceiveWithTimeout(d time.Duration) (any, error) {
	reply, err := redis.ReceiveWithTimeout(s.Conn, d)
	if all, ok := reply.([]any); ok {
		atLeast(s.elements, len(all))
		for _, one := range all {
			if some, ok := one.([]any); ok {
				atLeast(s.inner, len(some))
			}
		}
	}
	return reply, err
}

func (s scale) DoWithTimeout(d time.Duration, command string, args ...any) (any, error) {
	return redis.DoWithTimeout(s.Conn, d, command, args...)
}

func atLeast(most *atomic.Int64, n int) {
	for old := most.Load(); int64(n) > old && !most.CompareAndSwap(old, int64(n)); old = most.Load() {
	}
}

// However much there is, it is read and named by pages, so no call is long for Redis
// or for who waits behind it.
func TestPages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const (
		many  = 1000
		most  = 250  // words or elements: a page of 100, each with a number, or behind names of keys
		walks = 2000 // elements that SCAN brings: 1,000, and a few more
	)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}), "q")
	enqueue(t, q, numbers("failed", many)...)
	tasks, err := q.StartTasks(ctx, many)
	is.NoErr(err)
	for _, task := range tasks {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	enqueue(t, q, numbers("", 2*many)...)
	_, err = q.StartTasks(ctx, many)
	is.NoErr(err)
	conn := redistest.Conn(t)
	for i := range many {
		put(t, q, fmt.Sprint(i), "scheduled", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	}
	for i := range 2 * walks {
		is.NoErr(conn.Send("SADD", prefix+":registry", fmt.Sprintf("q%d", i)))
		is.NoErr(conn.Send("SADD", prefix+":workers", fmt.Sprintf("w%d", i)))
		is.NoErr(conn.Send("ZADD", prefix+":suspects:{q}", -1, fmt.Sprintf("w%d", i)))
	}
	_, err = conn.Do("")
	is.NoErr(err)

	url := redistest.Doctor(t, redistest.URL(), prefix)
	s := scale{words: new(atomic.Int64), elements: new(atomic.Int64), inner: new(atomic.Int64)}
	p := worqr.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		c, err := redis.DialURLContext(ctx, url)
		return scale{c, s.words, s.elements, s.inner}, err
	}}, &worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	defer p.Close()
	q = p.Queue("q")
	for _, look := range []struct {
		name string
		look func() (int, error)
		want int
	}{
		{"Tasks", func() (int, error) { return length(q.Tasks(ctx)) }, 2 * many},
		{"Scheduled", func() (int, error) { return length(q.Scheduled(ctx)) }, many},
		{"Running", func() (int, error) { return length(q.Running(ctx)) }, many},
		{"Failed", func() (int, error) { return length(q.Failed(ctx)) }, many},
		{"Queues", func() (int, error) { return length(p.Queues(ctx)) }, 2*walks + 1},
		{"Workers", func() (int, error) { return length(p.Workers(ctx)) }, 1},
		{"Stats", func() (int, error) { s, err := q.Stats(ctx); return s.Running, err }, many},
		{"Explain", func() (int, error) { e, err := q.Explain(ctx, []byte("0")); return len(e.Copies), err }, 1},
		{"Check", func() (int, error) { r, err := p.Check(ctx, nil); return r.Queues, err }, 1},
		{"RequeueFailed", func() (int, error) { return q.RequeueAllFailed(ctx) }, many},
	} {
		for _, n := range []*atomic.Int64{s.words, s.elements, s.inner} {
			n.Store(0)
		}
		n, err := look.look()
		is.NoErr(err)
		is.Equal(n, look.want)
		if s.words.Load() > most || s.elements.Load() > most || s.inner.Load() > walks {
			t.Errorf("%s: a command of %d words, a reply of %d elements, one of SCAN of %d", look.name, s.words.Load(), s.elements.Load(), s.inner.Load())
		}
	}
}
