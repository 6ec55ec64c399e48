package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureFar runs the job in a child, with a server that is a round trip away.
func measureFar(ctx context.Context, t testing.TB, j job) sample {
	j.URL = redistest.Far(t, startServer(t, j.Fsync).Addr(), j.Trip).URL()
	return measureOn(ctx, t, j)
}

// measureThrough measures how many tasks end per second, from the start of the worker until the
// window has ended and at least one task has, or no task is left. PING shows how far away the
// server is.
func measureThrough(t *trial) sample {
	trips := make([]float64, 50)
	for i := range trips {
		trips[i] = millis(t.ping())
	}
	slices.Sort(trips)
	preload(t, t.N)
	peers := t.system.(*peerSystem)
	ended := 0
	used := t.during(func() {
		over := time.Now().Add(t.Window)
		t.work(t, t.Handlers, func([]byte) { time.Sleep(t.Work) })
		until(t, "the window is over", func() bool {
			ended = int(peers.finished())
			return ended == t.N || ended > 0 && !time.Now().Before(over)
		})
	})
	values := used.perTask(ended)
	values["trip ms"] = percentile(trips, 50)
	return values
}
