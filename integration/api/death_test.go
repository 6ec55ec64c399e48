package api

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A thousand workers that die at once: all of their tasks start elsewhere, though only one
// peer is left, before that has made many beats.
func TestThousandDie(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const workers = 1000
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	starts := make(chan string, workers)
	p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 16})
	run(t, p)
	q := p.Queue("q")
	eventually(t, "it has joined", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Workers == 1
	})
	time.Sleep(4 * time.Second) // until it may judge
	dead(t, redistest.Dial(t, server.URL()), "p", "q", 3*time.Second, workers)
	beats := func() int { return redistest.Calls(t, redistest.Dial(t, server.URL()), "pexpire") }
	died, before := time.Now(), beats()
	is.Equal(len(receive(t, starts, workers)), workers)
	took := time.Since(died)
	n := beats() - before
	t.Logf("%d tasks ran elsewhere after %v and %d heartbeats", workers, took, n)
	is.True(n <= 20) // 14 are usual; with pages of a hundred workers 27
	is.Equal(p.Stats().WorkersEvicted, int64(workers))
}
