package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Whoever asks an empty queue changes nothing: no phantom comes of it.
func TestEmptyPolls(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q, qb := working(t, a, "q"), working(t, b, "q")
	before := left(t, prefix)
	for range 100 {
		noTask(t, q)
		_, err := q.Peek(ctx)
		is.True(is_(err, worqr.ErrNoTask))
		noTask(t, qb)
	}
	is.Equal(left(t, prefix), before)
	failWorker(t, b, a.WorkerID(), 0)
	noTask(t, qb)
	_, err := b.Sweep(ctx)
	is.NoErr(err)
	noTask(t, qb)
	is.Equal(waiting(t, qb), nil)
	is.Equal(failed(t, qb), nil)
	s := stats(t, qb)
	is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)

	// The same with Run, whose workers ask when they are woken.
	p := open(t, worqr.Options{Prefix: prefix})
	started := make(chan string, 10)
	qp := p.Queue("q")
	qp.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		return worqr.Permanent(errors.New("no"))
	}, nil)
	stop := run(t, p)
	eventually(t, "it is idle", func() bool { return stats(t, qp).IdleWorkers >= 1 })
	for range 20 {
		put(t, qp, "key", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)}) // wakes, for nothing
		_, err := qp.RemoveKey(ctx, "key")
		is.NoErr(err)
	}
	eventually(t, "it is idle", func() bool { return stats(t, qp).IdleWorkers >= 1 })
	stop()
	is.Equal(len(started), 0)
	is.Equal(failed(t, qb), nil)
	is.NoErr(b.StopWorker(ctx))
	is.NoErr(a.Close())
	nothingLeft(t, prefix, "q")
}

// Peers with nothing to do are silent but for their beats, with something
// planned and without.
func TestIdleIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	const peers, queues, beat = 3, 2, time.Second
	h := func(context.Context, *worqr.Task) error { return nil }
	var q *worqr.Queue
	for range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 3 * beat})
		for i := range queues {
			q = p.Queue(fmt.Sprint("q", i))
			q.Handle(h, &worqr.HandleOptions{OnFailed: h})
		}
		run(t, p)
	}
	put(t, q, "key", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	c := redistest.Dial(t, server.URL())
	since, before := time.Now(), scriptCalls(t, c)
	time.Sleep(3 * beat) // what is measured
	calls, beats := scriptCalls(t, c)-before, int(time.Since(since)/beat)+1
	t.Logf("%d scripts in %d beats of %d peers on %d queues", calls, beats, peers, queues)
	// A beat a peer and queue, a failed queue is one; a little more for whoever
	// keeps the registrations.
	if most := beats*peers*queues*2 + beats*peers*2; calls > most {
		t.Errorf("%d scripts were called, at most %d are beats", calls, most)
	}
	is.Equal(stats(t, q).Scheduled, 1)
}

// silent checks that the peers on a server of the test's own say nothing more.
func silent(t testing.TB, server *redistest.Server) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	before := scriptCalls(t, c)
	time.Sleep(500 * time.Millisecond) // what is measured
	if calls := scriptCalls(t, c) - before; calls > 5 {
		t.Errorf("%d scripts were called, and nothing could be done", calls)
	}
}
