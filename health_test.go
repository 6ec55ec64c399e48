package worqr_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Each queue has counters of its own: with what OnFailed does, of all parts, and whether a handler
// or the caller works on it. Their sum is that of the peer.
func TestStatsOf(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	plain, spread := p.Queue("plain"), p.Queue("spread").Spread(3)
	plain.Handle(func(_ context.Context, t *worqr.Task) error {
		if string(t.Payload) == "bad" {
			return worqr.Permanent(errors.New("bad"))
		}
		return nil
	}, &worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }})
	spread.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	enqueue(t, plain, "good", "bad", "good")
	for range 9 { // three for each part
		enqueue(t, spread, "good")
	}
	stop := run(t, p)
	eventually(t, "all are done", func() bool { return p.Stats().Finished == 12 })
	stop()
	is.Equal(p.StatsOf("plain"), worqr.PeerStats{Started: 4, Finished: 3, Failed: 1, HandlerErrors: 1})
	is.Equal(p.StatsOf("spread"), worqr.PeerStats{Started: 9, Finished: 9})
	is.Equal(p.StatsOf("unknown"), worqr.PeerStats{})
	is.Equal(p.Stats(), worqr.PeerStats{Started: 13, Finished: 12, Failed: 1, HandlerErrors: 1})
}

// A queue that is served by hand keeps its counters when it is served again.
func TestStatsOfByHand(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	must(t, p.StartWorker(t.Context()))
	q := p.Queue("q")
	for range 2 {
		must(t, q.StartWork(t.Context()))
		enqueue(t, q, "a")
		task := sure(q.StartTask(t.Context()))(t)
		must(t, task.Finish(t.Context()))
		must(t, q.StopWork(t.Context()))
	}
	is.Equal(p.StatsOf("q"), worqr.PeerStats{Started: 2, Finished: 2})
}

// probed returns the status and the text that a probe gets.
func probed(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

// A peer is ready from when it has joined its queues until it begins to drain, except while Redis
// is silent for as long as its lease. It's alive all the time.
func TestReady(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, Drain: patience})
	unready := func(why error, text string) {
		t.Helper()
		status, said := probed(p.Readyz())
		if err := p.Ready(); !errors.Is(err, why) || status != http.StatusServiceUnavailable || said != "worqr: not ready: "+text+"\n" {
			t.Errorf("%d %q, want %q", status, said, text)
		}
	}
	unready(worqr.ErrNotStarted, "the worker is not started; call Run or StartWorker")
	is.True(p.LastBeat().IsZero())
	starts, release := make(chan string, 1), make(chan struct{})
	q.Handle(holding(starts, release), nil)
	must(t, p.StartWorker(t.Context()))
	is.True(errors.Is(p.Ready(), worqr.ErrNotWorking))
	end, ran := start(t, p)
	eventually(t, "it is ready", func() bool { return p.Ready() == nil })
	status, said := probed(p.Readyz())
	is.Equal(status, http.StatusOK)
	is.Equal(said, "ok\n")
	before := p.LastBeat()
	eventually(t, "it beats", func() bool { return p.LastBeat().After(before) })
	must(t, p.Ping(t.Context()))

	server.Kill()
	eventually(t, "its lease has expired", func() bool { return errors.Is(p.Ready(), worqr.ErrLeaseExpired) })
	is.True(errors.Is(p.Ping(t.Context()), worqr.ErrUnreachable))
	server.Restart(t)
	eventually(t, "it is ready again", func() bool { return p.Ready() == nil })

	enqueue(t, q, "task")
	receive(t, starts, 1)
	end()
	eventually(t, "it isn't ready while it drains", func() bool { return errors.Is(p.Ready(), worqr.ErrShutdown) })
	unready(worqr.ErrShutdown, "the peer is shutting down")
	status, _ = probed(p.Livez())
	is.Equal(status, http.StatusOK)
	close(release)
	must(t, <-ran)
	must(t, p.Close())
	unready(worqr.ErrShutdown, "the peer is shutting down")
	is.True(errors.Is(p.Ping(t.Context()), worqr.ErrShutdown))
}

// A peer without handlers is ready while it is a member of the queues that it works on, also of
// none.
func TestReadyByHand(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	must(t, p.StartWorker(t.Context()))
	must(t, p.Ready())
	must(t, q.StartWork(t.Context()))
	must(t, p.Ready())
	must(t, q.StopWork(t.Context()))
	must(t, p.Ready())
	must(t, p.StopWorker(t.Context()))
	is.True(errors.Is(p.Ready(), worqr.ErrNotStarted))
}
