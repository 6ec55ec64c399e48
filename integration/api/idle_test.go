package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Peers with nothing to do are silent but for their beats, with something
// planned and without.
func TestIdleIsSilent(t *testing.T) {
	is := parallel(t)
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
	since, before := time.Now(), redistest.Calls(t, c, "evalsha")
	time.Sleep(3 * beat) // what is measured
	calls, beats := redistest.Calls(t, c, "evalsha")-before, int(time.Since(since)/beat)+1
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
	before := redistest.Calls(t, c, "evalsha")
	time.Sleep(500 * time.Millisecond) // what is measured
	if calls := redistest.Calls(t, c, "evalsha") - before; calls > 5 {
		t.Errorf("%d scripts were called, and nothing could be done", calls)
	}
}
