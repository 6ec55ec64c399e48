package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A counted connection counts the commands sent.
type counted struct {
	redis.ConnWithTimeout
	sent *atomic.Int64
}

func (c counted) Send(name string, args ...any) error {
	c.sent.Add(1)
	return c.ConnWithTimeout.Send(name, args...)
}

// However many slots move one after the other, a worker checks its queues about once a second, and
// once more after the last move.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	place, err := store.Open(redistest.URL(), store.Access{})
	is.NoErr(err)
	var sent atomic.Int64
	f, _ := newFleetIn(t, store.Single(func(ctx context.Context) (redis.Conn, error) {
		c, err := place.Dial()(ctx)
		if err != nil {
			return nil, err
		}
		return counted{c.(redis.ConnWithTimeout), &sent}, nil
	}), redistest.Prefix(t), time.Hour, nil) // heartbeats are rare
	is.NoErr(f.Start(t.Context()))
	const queues = 20
	for i := range queues {
		is.NoErr(f.Join(t.Context(), queueOf(f, fmt.Sprint("q", i))))
	}
	w := f.present()
	began, before := time.Now(), sent.Load()
	for range 1000 {
		f.Changed()
		until(t, "it has its turn", func() bool { return len(w.turn) == 0 })
	}
	until(t, "the last change was looked at", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.moved && !w.outdated
	})
	calls, took := sent.Load()-before, time.Since(began)
	t.Log(calls, "calls in", took)
	each := 2*queues + 10 // in one check
	is.True(calls <= int64(float64(each)*(took.Seconds()+2)))
	is.NoErr(f.Stop(t.Context()))
}
