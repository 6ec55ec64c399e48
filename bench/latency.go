package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureLatency enqueues tasks one by one while ten handlers are idle, and measures how long after
// the call of Enqueue each one starts. Between two tasks it measures one command on a separate
// connection, to show what the machine can do at that moment.
func measureLatency(t *trial) sample {
	send := t.producer(t, "q0")
	n := warmup + t.N
	w := watch(t, n)
	time.Sleep(t.Settle)
	var trips []float64
	for i, p := range payloads(0, n, t.Size) {
		pause(t.Window)
		trips = append(trips, millis(t.ping()))
		pause(t.Window)
		w.called[i] = time.Now()
		redistest.Must(t, send([][]byte{p}))
	}
	delays := w.delays(t)
	trips = trips[warmup:]
	slices.Sort(trips)
	return sample{
		"p50 ms": percentile(delays, 50), "p99 ms": percentile(delays, 99), "max ms": percentile(delays, 100),
		"trip ms": percentile(trips, 50),
		"trips":   percentile(delays, 50) / percentile(trips, 50),
	}
}

const warmup = 10 // the first calls make connections and load scripts

// A watcher records when tasks are enqueued and when they start.
type watcher struct {
	called, started []time.Time // by task number
	handled         atomic.Int64
}

// watch starts ten handlers that record when each of n tasks starts.
func watch(t *trial, n int) *watcher {
	w := &watcher{called: make([]time.Time, n), started: make([]time.Time, n)}
	t.work(t, 10, func(payload []byte) {
		w.started[number(payload)] = time.Now()
		w.handled.Add(1)
	})
	return w
}

// delays waits until all tasks have started, and returns their delays, sorted, without the first
// ones.
func (w *watcher) delays(t testing.TB) (all []float64) {
	reaches(t, "all tasks have started", &w.handled, len(w.called))
	for i := warmup; i < len(w.called); i++ {
		all = append(all, millis(w.started[i].Sub(w.called[i])))
	}
	slices.Sort(all)
	return all
}

// pause waits for a random time between d/2 and 3*d/2.
func pause(d time.Duration) { time.Sleep(d/2 + rand.N(d)) }

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// percentile returns the smallest of the sorted values such that p percent don't exceed it.
func percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
