package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// measureLatency enqueues tasks one by one while ten handlers are idle, and
// tells how long after the call of enqueue each one starts. Between any two
// tasks it times one command on a connection of its own, as a measure of what
// the machine can do at that moment.
func measureLatency(j job, s system, m *meter, say func(sample)) error {
	send, err := s.producer("q0")
	if err != nil {
		return err
	}
	n := warmup + j.N
	w, err := watch(s, n)
	if err != nil {
		return err
	}
	time.Sleep(j.Settle)
	var trips []float64
	for i, p := range payloads(0, n, j.Size) {
		pause(j.Window)
		before := time.Now()
		if _, err := m.conn.Do("PING"); err != nil {
			return err
		}
		trips = append(trips, millis(time.Since(before)))
		pause(j.Window)
		w.called[i] = time.Now()
		if err := send([][]byte{p}); err != nil {
			return err
		}
	}
	delays, err := w.delays()
	if err != nil {
		return err
	}
	trips = trips[warmup:]
	slices.Sort(trips)
	say(sample{Values: map[string]float64{
		"p50 ms": percentile(delays, 50), "p99 ms": percentile(delays, 99), "max ms": percentile(delays, 100),
		"trip ms": percentile(trips, 50), "trip p99 ms": percentile(trips, 99),
		"trips": percentile(delays, 50) / percentile(trips, 50),
	}})
	return nil
}

const warmup = 10 // the first calls make connections and load scripts

// A watcher notes when tasks are enqueued and when they start.
type watcher struct {
	called, started []time.Time // by their numbers
	handled         atomic.Int64
}

// watch has ten handlers note when each of n tasks starts.
func watch(s system, n int) (*watcher, error) {
	w := &watcher{called: make([]time.Time, n), started: make([]time.Time, n)}
	return w, s.work(10, func(payload []byte) {
		w.started[number(payload)] = time.Now()
		w.handled.Add(1)
	})
}

// delays waits until all have started, and returns how long it took each, sorted, without
// the first ones.
func (w *watcher) delays() ([]float64, error) {
	if err := reaches("all tasks have started", &w.handled, len(w.called)); err != nil {
		return nil, err
	}
	var all []float64
	for i := warmup; i < len(w.called); i++ {
		all = append(all, millis(w.started[i].Sub(w.called[i])))
	}
	slices.Sort(all)
	return all, nil
}

// pause waits from half of d to one and a half.
func pause(d time.Duration) { time.Sleep(d/2 + rand.N(d)) }

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// percentile returns the least of the sorted values that p percent of them do
// not exceed.
func percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
