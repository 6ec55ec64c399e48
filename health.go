package worqr

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/store"
)

// PeerStats counts what a peer has done since it was created, on all queues or on one.
type PeerStats struct {
	Started         int64 // passed to a handler, or returned by StartTask
	Finished        int64
	Stopped         int64 // returned to the front
	Canceled        int64
	Retried         int64 // attempts, not tasks
	Snoozed         int64 // by Snooze
	Failed          int64 // moved to the failed queue
	Expired         int64 // of these, whose time was over before they started
	Dropped         int64 // from a full failed queue
	TakenOver       int64 // taken over by another worker, or ended too late
	HandlerErrors   int64 // panics included
	WorkersEvicted  int64 // by this peer
	TasksReturned   int64 // of evicted workers
	TimesEvicted    int64
	RunningHandlers int64
	StuckHandlers   int64 // abandoned and still running
	LostWrites      int64 // times that Redis had lost writes
}

// Stats returns the peer's counters, over all queues. It doesn't ask Redis.
func (p *Peer) Stats() PeerStats {
	s, f := statsOf(p.engine.Counts()), p.fleet.Counts()
	s.WorkersEvicted, s.TasksReturned, s.TimesEvicted = f.Swept.Load(), f.Returned.Load(), f.Evicted.Load()
	return s
}

// StatsOf returns the counters of a queue, with OnFailed and all parts. WorkersEvicted,
// TasksReturned and TimesEvicted are zero here. It doesn't ask Redis.
func (p *Peer) StatsOf(queue string) PeerStats { return statsOf(p.engine.CountsOf(queue)) }

func statsOf(c *engine.Counts) PeerStats {
	return PeerStats{
		Started: c.Started.Load(), Finished: c.Finished.Load(), Stopped: c.Stopped.Load(), Canceled: c.Canceled.Load(),
		Retried: c.Retried.Load(), Snoozed: c.Snoozed.Load(), Failed: c.Failed.Load(), Expired: c.Expired.Load(), Dropped: c.Dropped.Load(),
		TakenOver: c.Lost.Load(), HandlerErrors: c.Failures.Load(), RunningHandlers: c.Running.Load(), StuckHandlers: c.Stuck.Load(),
		LostWrites: c.LostWrites.Load(),
	}
}

// Ping asks Redis, or each master of a cluster, whether it answers. It fails with ErrUnreachable
// if it doesn't, or ctx ends first.
func (p *Peer) Ping(ctx context.Context) error {
	if p.bad != nil {
		return wrap("ping", p.bad)
	}
	err := p.lines.Ping(ctx)
	if store.IsAway(err) || err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return wrap("ping", err)
}

// LastBeat returns when the last heartbeat that Redis answered was sent, or the worker was started,
// by this peer's clock. In a cluster, it's that of the node silent for longest. It's zero while the
// worker isn't started.
func (p *Peer) LastBeat() time.Time { return p.fleet.LastBeat() }

// Ready returns nil while the worker is a member of all its queues and its lease stands. It doesn't
// ask Redis. Otherwise it fails with ErrNotStarted, ErrNotWorking (a queue isn't joined yet),
// ErrEvicted, ErrLeaseExpired (Redis was silent for nine tenths of the lease) or ErrShutdown (Run
// drains).
func (p *Peer) Ready() error { return wrap("not ready", p.unready()) }

func (p *Peer) unready() error {
	p.mu.Lock()
	over := p.draining || p.closed || p.shutdown.Err() != nil
	serving, handles := p.serving, len(p.services) > 0
	p.mu.Unlock()
	switch {
	case p.bad != nil:
		return p.bad
	case over:
		return ErrShutdown
	case !p.fleet.IsStarted():
	case handles && !serving:
		return errUnserved
	}
	for _, s := range p.current() {
		if s.isMissing() {
			return fleet.NotJoined(s.queue.name)
		}
	}
	return p.fleet.Unfit()
}

var errUnserved = fmt.Errorf("%w: Run hasn't begun to serve", ErrNotWorking)

// isMissing reports whether a queue that is to be served has no part yet. The fleet knows those
// that it has still to join.
func (s *service) isMissing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopped && !s.removed && len(s.parts) == 0
}

// Livez returns a handler for a liveness probe: 200, or 503 if the heartbeat goroutine is stuck and
// only a restart helps. It never asks Redis, so an outage doesn't matter.
func (p *Peer) Livez() http.Handler {
	return probe(func() error { return wrap("not alive", p.fleet.Stuck()) })
}

// Readyz returns a handler for a readiness probe: 200 while Ready returns nil, otherwise 503 with
// its error.
func (p *Peer) Readyz() http.Handler { return probe(p.Ready) }

func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}
