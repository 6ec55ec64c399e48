package api

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Capacity, Concurrency and other options can be changed while the peer runs.
func TestOptionsAtRunTime(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Capacity: 1})
	var running atomic.Int64
	started, release := make(chan string, 1000), make(chan error, 1000)
	options := worqr.HandleOptions{Concurrency: 100, Backoff: atOnce}
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		running.Add(1)
		defer running.Add(-1)
		started <- string(t.Payload)
		select {
		case err := <-release:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, &options)
	end := func(n int, with error) {
		for range n {
			release <- with
		}
	}
	stop := run(t, p)
	enqueue(t, q, numbers("", 30)...)
	receive(t, started, 1)
	is.NoErr(p.SetCapacity(3))
	receive(t, started, 2)
	is.Equal(running.Load(), int64(3))
	is.NoErr(p.SetCapacity(1))
	end(2, nil)
	eventually(t, "the excess has ended", func() bool { return running.Load() == 1 })
	is.Equal(len(started), 0) // none is started above the lower limit
	end(1, nil)
	receive(t, started, 1)
	eventually(t, "the other has ended", func() bool { return running.Load() == 1 })
	is.NoErr(p.SetCapacity(0)) // no limit
	receive(t, started, 26)
	is.Equal(running.Load(), int64(27))
	end(27, nil)
	eventually(t, "all have ended", func() bool { return running.Load() == 0 })

	options.Concurrency = 1
	is.NoErr(q.SetOptions(&options))
	eventually(t, "all is stored", func() bool { return p.Stats().Finished == 30 })
	enqueue(t, q, numbers("", 5)...)
	receive(t, started, 1)
	options.Concurrency = 3
	is.NoErr(q.SetOptions(&options))
	receive(t, started, 2)
	is.Equal(running.Load(), int64(3))
	end(3, nil)
	receive(t, started, 2)
	options.MaxRetries = 2 // applies when a task ends
	is.NoErr(q.SetOptions(&options))
	for range 3 {
		end(1, nil)
		end(1, errors.New("no"))
	}
	eventually(t, "all is done", func() bool { return running.Load() == 0 && stats(t, q).Waiting+stats(t, q).Scheduled == 0 })
	for range len(started) {
		<-started
	}
	options.MaxRetries, options.Timeout = -1, 50*time.Millisecond
	is.NoErr(q.SetOptions(&options))
	for range len(release) {
		<-release
	}
	enqueue(t, q, "too long")
	receive(t, started, 1)
	eventually(t, "it has failed", func() bool { return slices.Contains(failedPayloads(t, q), "too long") })
	stop()
}

// A lease is bounded by what heartbeats and Redis can handle, or is endless.
func TestLeaseBounds(t *testing.T) {
	t.Parallel()
	const most = 365 * 24 * time.Hour
	for lease, good := range map[time.Duration]bool{
		150*time.Millisecond - 1: false, 150 * time.Millisecond: true, most: true, most + 1: false, 1<<63 - 1: false, -1: true,
	} {
		if good {
			must(t, open(t, worqr.Options{Lease: lease}).StartWorker(t.Context()))
		} else if _, err := worqr.Open(redistest.URL(), &worqr.Options{Lease: lease}); !is_(err, worqr.ErrInvalid) {
			t.Errorf("%v: %v", lease, err)
		}
	}
}
