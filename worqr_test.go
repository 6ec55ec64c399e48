package worqr_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(peertest.Main(m)) }

func TestEnqueueAndHandleInOrder(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	got := make(chan string, 300)
	q.Handle(tell(got), &worqr.HandleOptions{Concurrency: 1})
	stop := run(t, p)
	var want []string
	for i := range 100 { // one, and many
		s := numbers(fmt.Sprint(i, "/"), 1+i%3)
		enqueue(t, q, s...)
		want = append(want, s...)
	}
	is.Equal(receive(t, got, len(want)), want)
	stop()
	is.Equal(p.Stats().Finished, int64(len(want)))
	is.Equal(p.Stats().RunningHandlers, int64(0))
	nothingLeft(t, prefix, "q")
}

// The zero options, as most people use them, including the namespace.
func TestDefaults(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p := sure(worqr.Open(server.URL(), nil))(t)
	defer p.Close()
	q := p.Queue("q")
	got := make(chan string, 1)
	q.Handle(tell(got), nil)
	stop := run(t, p)
	must(t, q.Enqueue(t.Context(), []byte("hello")))
	is.Equal(receive(t, got, 1), []string{"hello"})
	stop()
	is.Equal(redistest.Keys(t, redistest.Dial(t, server.URL()), "worqr"), []string{"worqr:registry", "worqr:token:{q}"})
}

// A pool that the application has already.
func TestExistingPool(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]func(url string) worqr.Pool{
		"redigo": func(url string) worqr.Pool {
			return &redis.Pool{
				DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) },
				MaxActive:   1, // the peer's long-lived connections must not use it up
				Wait:        true,
			}
		},
		"another": func(url string) worqr.Pool {
			return otherPool{&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p := worqr.New(pool(redistest.Worker(t, redistest.URL(), prefix)), &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
			defer p.Close()
			got := make(chan string, 1)
			p.Queue("q").Handle(tell(got), nil)
			stop := run(t, p)
			for i := range 10 {
				enqueue(t, p.Queue("q"), fmt.Sprint(i))
				is.Equal(receive(t, got, 1), []string{fmt.Sprint(i)})
			}
			stop()
			nothingLeft(t, prefix, "q")
		})
	}
}

type otherPool struct{ pool *redis.Pool }

func (o otherPool) GetContext(ctx context.Context) (redis.Conn, error) { return o.pool.GetContext(ctx) }
