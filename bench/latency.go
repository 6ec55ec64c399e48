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
func measureLatency(j job, say func(sample)) error {
	s, m, err := j.open()
	if err != nil {
		return err
	}
	send, err := s.producer("q0")
	if err != nil {
		return err
	}
	const warmup = 10 // the first calls make connections and load scripts
	n := warmup + j.N
	called, started := make([]time.Time, n), make([]time.Time, n)
	var handled atomic.Int64
	err = s.work(10, func(payload []byte) {
		started[number(payload)] = time.Now()
		handled.Add(1)
	})
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
		called[i] = time.Now()
		if err := send([][]byte{p}); err != nil {
			return err
		}
	}
	if err := reaches("all tasks have started", &handled, n); err != nil {
		return err
	}
	delays := make([]float64, n)
	for i := range delays {
		delays[i] = millis(started[i].Sub(called[i]))
	}
	delays, trips = delays[warmup:], trips[warmup:]
	slices.Sort(delays)
	slices.Sort(trips)
	say(sample{
		Values: map[string]float64{
			"p50 ms": percentile(delays, 50), "p99 ms": percentile(delays, 99), "max ms": percentile(delays, 100),
			"trip ms": percentile(trips, 50), "trip p99 ms": percentile(trips, 99),
			"trips": percentile(delays, 50) / percentile(trips, 50),
		},
		Curves: map[string][]float64{"start": percentiles(delays), "trip": percentiles(trips)},
	})
	return nil
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

// percentiles returns those from 0 to 100.
func percentiles(sorted []float64) []float64 {
	all := make([]float64, 101)
	for p := range all {
		all[p] = percentile(sorted, float64(p))
	}
	return all
}
