package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A payload that the connection cannot carry fails, and is not asked for for ever: what
// is behind it runs.
func TestPayloadThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"list": "", "key": "k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			c := redistest.Dial(t, server.URL())
			p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
			q := p.Queue("q")
			long := strings.Repeat("x", 3<<20)
			if key == "" {
				_, err := c.Do("LPUSH", "p:queues:{q}", long)
				is.NoErr(err)
			} else {
				put(t, q, key, long, nil)
			}
			enqueue(t, q, numbers("t", 20)...)
			_, err := c.Do("CONFIG", "SET", "client-output-buffer-limit", "normal 1048576 0 0")
			is.NoErr(err)
			done := make(chan string, 100)
			q.Handle(func(_ context.Context, t *worqr.Task) error { done <- string(t.Payload); return nil }, &worqr.HandleOptions{Concurrency: 4})
			run(t, p)
			receive(t, done, 20)
			eventually(t, "all others are finished", func() bool { return p.Stats().Finished == 20 })
			eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
			_, err = c.Do("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
			is.NoErr(err)
			for f, err := range q.Failed(t.Context()) {
				is.NoErr(err)
				is.Equal(f.Kind, worqr.FailureMalformed)
				is.Equal(f.Key, key)
				is.Equal(string(f.Payload), long)
				is.True(strings.Contains(f.Error, "3145728 bytes"))
			}
			is.Equal(p.Stats().TimesEvicted, int64(0))
		})
	}
}

// Where Redis takes no argument of more than a megabyte, larger results and larger
// payloads of others hold up nothing.
func TestSmallBulks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	c := redistest.Dial(t, server.URL())
	long := strings.Repeat("x", 2<<20)
	_, err := c.Do("LPUSH", "p:queues:{q}", long) // while it may
	is.NoErr(err)
	_, err = c.Do("CONFIG", "SET", "proto-max-bulk-len", 1<<20)
	is.NoErr(err)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", MaxResult: 8 << 20}) // more than the server takes
	q := p.Queue("q")
	enqueue(t, q, numbers("t", 20)...)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		t.Result = make([]byte, 2<<20)
		switch {
		case len(t.Payload) > 1<<20 && t.Retries == 0:
			return worqr.RetryAfter(errors.New("later"), time.Millisecond)
		case len(t.Payload) > 1<<20:
			return worqr.Permanent(errors.New("no"))
		}
		return nil
	}, nil)
	run(t, p)
	eventually(t, "all have ended", func() bool { s := p.Stats(); return s.Finished == 20 && s.Failed == 1 })
	is.Equal(p.Stats().Retried, int64(1))
	s := stats(t, q)
	is.Equal(s.Failed, 1)
	is.Equal(s.Waiting+s.Scheduled+s.Running, 0)
}
