package main

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/worqr/worqr/internal/redistest"
)

// quietQueue is the queue next to the hot one.
const quietQueue = "quiet"

// measureCrowd measures a quiet queue while peers are busy with another one. The peers are separate
// processes, so that the two share only Redis.
func measureCrowd(ctx context.Context, t testing.TB, j job) sample {
	j.URL, j.Measure = startServer(t, j.Fsync).URL(), "hot"
	begun(ctx, t, j) // all of them are busy
	j.Measure = "quiet"
	return measureOn(ctx, t, j)
}

// keepBusy runs the peers of the hot queue.
func keepBusy(t *trial) sample {
	preload(t, t.N)
	busy := make([]atomic.Int64, t.Peers)
	for i := range busy {
		t.work(t, t.Handlers, func([]byte) { busy[i].Add(1) })
	}
	for i := range busy {
		reaches(t, "each peer works", &busy[i], 1)
	}
	time.Sleep(t.Settle)
	t.ready()
	select {}
}

// measureQuiet enqueues single tasks to the quiet queue. It measures how long after the call of
// Enqueue each one starts, how long a PING takes in the meantime, and how many tasks per second are
// taken from the hot queue. It doesn't wait for one task before it enqueues the next: tasks that
// come while Redis is slow count, too.
func measureQuiet(t *trial) sample {
	peers := t.system.(*peerSystem)
	hot := func() int { return redistest.Sure(peers.sender.Queue("q0").Len(context.Background()))(t) }
	peers.queues = []string{quietQueue}
	send := t.producer(t, quietQueue)
	n := warmup + int(t.Window/quietPause)
	w := watch(t, n)
	all := payloads(0, n, t.Size)
	for i, first := range all[:warmup] {
		redistest.Must(t, send([][]byte{first}))
		reaches(t, "the quiet queue is served", &w.handled, i+1)
	}

	began := time.Now()
	before := hot()
	var pings []float64
	var sending *errgroup.Group
	used := t.during(func() { pings = t.pingWhile(func() { sending = w.lone(all, send) }) })
	after := hot()
	took := time.Since(began)
	if after == 0 {
		t.Fatalf("the hot queue ran out of its %d tasks within %v; it needs more", before, took)
	}
	redistest.Must(t, sending.Wait())
	delays := w.delays(t)
	return sample{
		"p50 ms": percentile(delays, 50), "p99 ms": percentile(delays, 99),
		"ping p50 ms": percentile(pings, 50), "ping p99 ms": percentile(pings, 99),
		"hot tasks/s": float64(before-after) / took.Seconds(),
		"server µs":   used.server / float64(before-after),
	}
}

// lone sends tasks one by one, whether or not the previous ones have arrived.
func (w *watcher) lone(tasks [][]byte, send func([][]byte) error) *errgroup.Group {
	var sending errgroup.Group
	tick := time.Tick(quietPause)
	for i := warmup; i < len(tasks); i++ {
		<-tick
		w.called[i] = time.Now()
		sending.Go(func() error { return send([][]byte{tasks[i]}) })
	}
	return &sending
}

// quietPause is the interval between the single tasks.
const quietPause = 10 * time.Millisecond

// pingWhile measures single commands, some ms apart, until f returns, and returns their durations,
// sorted.
func (m *meter) pingWhile(f func()) (trips []float64) {
	over := make(chan bool)
	go func() {
		defer close(over)
		f()
	}()
	for {
		select {
		case <-over:
			slices.Sort(trips)
			return trips
		default:
			pause(quietPause)
			trips = append(trips, millis(m.ping()))
		}
	}
}
