package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A pool that the application has, for all of it.
func TestExistingPoolForAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	url := redistest.Worker(t, redistest.URL(), prefix)
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) },
		MaxActive:   2, Wait: true,
	}
	defer func() { is.NoErr(pool.Close()) }()
	p := worqr.New(pool, &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	defer p.Close()
	q := p.Queue("q")
	got := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- fmt.Sprint(t.Key, t.Retries)
		if t.Retries == 0 {
			return errors.New("once more")
		}
		return worqr.Permanent(errors.New("no"))
	}, &worqr.HandleOptions{Backoff: func(int) time.Duration { return 20 * time.Millisecond }})
	stop := run(t, p)
	put(t, q, "key", "a", &worqr.PutOptions{At: time.Now().Add(50 * time.Millisecond)})
	is.Equal(receive(t, got, 2), []string{"key0", "key1"})
	eventually(t, "it has failed", func() bool { return len(failed(t, q)) == 1 })
	_, err := q.DeleteAllFailed(t.Context())
	is.NoErr(err)
	stop()
	nothingLeft(t, prefix, "q")
	c := pool.Get() // which is still the application's
	_, err = c.Do("PING")
	is.NoErr(err)
	is.NoErr(c.Close())
}
