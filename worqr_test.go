package worqr_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

func TestSmoke(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, err := worqr.Open(redistest.URL(), &worqr.Options{Prefix: redistest.Prefix(t)})
	is.NoErr(err)
	defer p.Close()
	q := p.Queue("q")
	var mu sync.Mutex
	var got []string
	all := make(chan struct{})
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(t.Payload))
		if len(got) == 100 {
			close(all)
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	for i := range 100 {
		is.NoErr(q.Enqueue(ctx, fmt.Appendf(nil, "%d", i)))
	}
	select {
	case <-all:
	case <-time.After(5 * time.Second):
		t.Fatal(p.Stats())
	}
	cancel()
	is.NoErr(<-ran)
	is.Equal(p.Stats().Finished, int64(100))
	c := redistest.Conn(t)
	for _, k := range redistest.Keys(t, c, "t") {
		t.Log(k)
	}
}
