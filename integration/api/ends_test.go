package api

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// However many tasks end at once, one call of Redis ends only as many as it has the time
// for: one of a mebibyte that is copied, and of small ones that fail some fifty.
func TestEndsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, verb  string
		tasks, size int
		err         error
		most        int // ends in one call
	}{
		{"large ones are retried", "retry", 20, 1 << 20, errors.New("again"), 1},
		{"large ones fail", "fail", 20, 1 << 20, worqr.Permanent(errors.New("no")), 1},
		{"small ones fail", "fail", 1000, 10, worqr.Permanent(errors.New("no")), 1000 / 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := parallel(t)
			server := redistest.Start(t)
			var mu sync.Mutex
			var ends []int // in each call that ends any
			var ending atomic.Bool
			gathered := make(chan struct{})
			link := &tamper{Url: server.URL(), Before: func(verb string, args []any) error {
				if verb == "step" && ending.Load() {
					hold(t, gathered)
				}
				n := 0
				for _, a := range args {
					if a == c.verb {
						n++
					}
				}
				if n > 0 {
					mu.Lock()
					defer mu.Unlock()
					ends = append(ends, n)
				}
				return nil
			}}
			p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour, CallTimeout: patience, Capacity: c.tasks})
			q := p.Queue("q")
			begun, release := make(chan struct{}, c.tasks), make(chan struct{})
			q.Handle(func(context.Context, *worqr.Task) error {
				begun <- struct{}{}
				<-release
				return c.err
			}, &worqr.HandleOptions{Concurrency: c.tasks, Backoff: func(int) time.Duration { return time.Hour }})
			for range c.tasks {
				is.NoErr(q.Enqueue(t.Context(), bytes.Repeat([]byte("x"), c.size)))
			}
			run(t, p)
			receive(t, begun, c.tasks)
			ending.Store(true)
			close(release)
			eventually(t, "all handlers have returned", func() bool { return p.Stats().HandlerErrors == int64(c.tasks) })
			close(gathered)
			eventually(t, "all ends are stored", func() bool { s := p.Stats(); return s.Retried+s.Failed == int64(c.tasks) })
			mu.Lock()
			defer mu.Unlock()
			all := 0
			for _, n := range ends {
				all += n
				if n > c.most {
					t.Errorf("%d ends in one call, there may be %d", n, c.most)
				}
			}
			is.Equal(all, c.tasks)
		})
	}
}
