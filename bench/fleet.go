package main

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureStall measures what many idle memberships cost Redis, stops it for longer than their lease,
// and counts how many survive.
func measureStall(ctx context.Context, t testing.TB, j job) sample {
	s := startServer(t, j.Fsync)
	j.URL, j.Measure = s.URL(), "members"
	c := begun(ctx, t, j) // all have joined
	s.Pause(t)
	time.Sleep(j.Window)
	s.Resume(t)
	return c.next(t)
}

// keepMembers runs workers that serve idle queues. It reports when all have joined. Once the peers
// have had time to judge who was silent during the stall, it reports how many workers haven't been
// evicted.
func keepMembers(t *trial) sample {
	values, kept := joinIdle(t)
	t.ready()
	time.Sleep(t.Window / 2) // Redis is stopped by now, so this returns when it continues
	t.ping()
	time.Sleep(t.Settle)
	values["kept"] = kept()
	return values
}

// joinIdle runs workers that serve idle queues, and measures what they use once all have joined. kept
// returns how many of them haven't been evicted since.
func joinIdle(t *trial) (values sample, kept func() float64) {
	for range t.Peers {
		t.work(t, 1, func([]byte) {})
	}
	peers := t.system.(*peerSystem)
	members := func() (n int) {
		for _, name := range peers.queues {
			n += redistest.Sure(peers.sender.Queue(name).Stats(context.Background()))(t).Workers
		}
		return n
	}
	evictions := func() (n float64) {
		for _, p := range peers.peers {
			n += float64(p.Stats().TimesEvicted)
		}
		return n
	}
	until(t, "all have joined", func() bool { return members() == t.Peers*t.Queues })
	early := evictions()
	values = t.idle().perSecond()
	values["early"] = early
	return values, func() float64 { return float64(members()) - evictions() + early }
}
