package main

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureStall stops Redis for longer than the lease of many memberships, and tells
// how many of them have outlasted that.
func measureStall(ctx context.Context, t testing.TB, j job) sample {
	s := startServer(t, j.Fsync)
	j.URL, j.Measure = s.URL(), "members"
	c := begun(ctx, t, j) // all have joined
	s.Pause(t)
	time.Sleep(j.Window)
	s.Resume(t)
	return c.next(t)
}

// keepMembers is workers that serve queues on which nothing happens. It tells when all
// have joined, and how many have never had to come back once the time for judging who
// was silent during the stall is over.
func keepMembers(t *trial) sample {
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
	until(t, "all have joined", func() bool { return members() == t.Peers*t.Queues })
	time.Sleep(t.Settle)
	t.ready()
	time.Sleep(t.Window / 2) // it has stopped by now, so this answers when it goes on
	t.ping()
	time.Sleep(t.Settle)
	evicted := 0
	for _, p := range peers.peers {
		evicted += int(p.Stats().TimesEvicted)
	}
	return sample{"kept": float64(members() - evicted)}
}
