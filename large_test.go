package worqr_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A task begins, once, also when its payload takes longer to come than a connection may be
// silent. What is behind it on that connection comes then, and the lease is renewed
// meanwhile: a peer that looks at it gives nobody up.
func TestLargePayloadOnNarrowLink(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const silence, lease, size, rate = 400 * time.Millisecond, 900 * time.Millisecond, 3 << 20, 2 << 20
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p, err := worqr.OpenImpatient(link.URL(), &worqr.Options{Prefix: "p", Lease: lease, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}, silence)
	is.NoErr(err)
	t.Cleanup(func() { _ = p.Close() })
	lengths, starts := make(chan int, 100), make(chan time.Time, 100)
	p.Queue("large").Handle(func(_ context.Context, task *worqr.Task) error {
		lengths <- len(task.Payload)
		return nil
	}, nil)
	p.Queue("small").Handle(func(context.Context, *worqr.Task) error {
		starts <- time.Now()
		return nil
	}, nil)
	run(t, p)
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
	large, small := working(t, other, "large"), other.Queue("small")
	idle(t, small, 1)
	eventually(t, "the other looks as well", func() bool {
		s, err := large.Stats(t.Context())
		return err == nil && s.Workers == 2 && s.Idle == 1
	})
	link.Narrow(rate)
	put := time.Now()
	is.NoErr(large.Enqueue(t.Context(), make([]byte, size)))
	time.Sleep(silence)
	enqueue(t, small, "x", "y")
	is.Equal(receive(t, lengths, 1), []int{size})
	is.True(time.Since(put) > lease) // else this shows nothing
	receive(t, starts, 2)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 3 })
	is.Equal(p.Stats().Started, int64(3))
	is.Equal(p.Stats().Evicted, int64(0))
}
