package api

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Redis dies and comes back empty: the peers notice, stop what they run, and serve again.
func TestRedisLosesEverything(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Lease: 300 * time.Millisecond, Prefix: "p"})
	starts, ends := make(chan string, 10), make(chan error, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		starts <- string(t.Payload)
		if string(t.Payload) == "after" {
			return nil
		}
		<-ctx.Done()
		ends <- context.Cause(ctx)
		return ctx.Err()
	}, nil)
	run(t, p)
	enqueue(t, q, "before")
	receive(t, starts, 1)
	server.Kill()
	is.True(q.Enqueue(t.Context(), []byte("while it is gone")) != nil) // fails at once
	server.Restart(t)
	is.Equal(receive(t, ends, 1), []error{worqr.ErrEvicted})
	eventually(t, "tasks can be enqueued", func() bool { return q.Enqueue(t.Context(), []byte("after")) == nil })
	is.Equal(receive(t, starts, 1), []string{"after"})
	is.Equal(slices.Collect(each(t, p.Queues(t.Context()))), []string{"q"})
}

// Redis restarts and keeps its data while everything runs: handlers go on, and nothing starts
// twice. The outage and its end are each traced once, with the server. Tasks that end in the
// meantime are traced when their end is stored.
func TestRedisRestart(t *testing.T) {
	is := parallel(t)
	r, server := &record{}, redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	p, q := openQueueAt(t, server.URL(), worqr.Options{Lease: 500 * time.Millisecond, Prefix: "p", Trace: r.trace()})
	starts := make(chan string, 10)
	finish := make(chan struct{})
	q.Handle(holding(starts, finish), nil)
	stop := run(t, p)
	enqueue(t, q, "a")
	receive(t, starts, 1)
	server.Kill()
	lost := r.await(t, "lost", 1)[0].connection
	is.Equal(lost.Server, server.Addr())
	is.True(lost.Error != "")
	close(finish) // its end has to wait for Redis
	eventually(t, "the handler has returned", func() bool { return p.Stats().RunningHandlers == 0 })
	is.Equal(len(r.of("ended")), 0)
	server.Restart(t)
	restored := r.await(t, "restored", 1)[0].connection
	is.Equal(restored.Server, server.Addr())
	is.True(restored.Away > 0)
	eventually(t, "it is finished", func() bool { return p.Stats().Finished == 1 })
	stop()
	is.Equal(len(starts), 0)
	is.Equal(p.Stats().TimesEvicted, int64(0))
	is.Equal(len(r.of("lost")), len(r.of("restored")))
	r.paired(t)
}

// While every connection is cut again and again, a dead peer's tasks still start elsewhere, and no
// live worker is evicted.
func TestRecoveryWhileConnectionsAreCut(t *testing.T) {
	is := parallel(t)
	const lease = 3 * time.Second // the default, to which the guarantee applies
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	starts := make(chan string, 100)
	var peers []*worqr.Peer
	for range 4 {
		p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: lease})
		p.Queue("q").Handle(tell(starts), nil)
		run(t, p)
		peers = append(peers, p)
	}
	q := peers[0].Queue("q")
	eventually(t, "all are there", func() bool { s := stats(t, q); return s.Workers == len(peers) })
	cuts := time.NewTicker(2 * time.Second)
	defer cuts.Stop()
	cut := func() { <-cuts.C; link.Cut() }
	for range 3 {
		cut()
	}
	dead(t, redistest.Dial(t, server.URL()), "p", "q", lease, 10)
	died, started := time.Now(), 0
	for started < 10 && time.Since(died) < 10*lease {
		cut()
		for ; len(starts) > 0; started++ {
			<-starts
		}
	}
	t.Logf("%d tasks started, %v after the death", started, time.Since(died))
	is.Equal(started, 10)
	for range 5 {
		cut()
	}
	last := time.Now()
	for _, p := range peers {
		eventually(t, "it's connected again", func() bool { return p.LastBeat().After(last) })
		is.Equal(p.Stats().TimesEvicted, int64(0))
	}
}
