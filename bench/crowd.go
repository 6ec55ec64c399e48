package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// quietQueue is the queue beside the hot one.
const quietQueue = "quiet"

// measureCrowd tells how a quiet queue fares while peers are busy with another. They are
// processes of their own, so that only Redis is what both share.
func measureCrowd(ctx context.Context, j job) (sample, error) {
	return withServer(ctx, j, func(j job, _ *server) (sample, error) {
		j.Measure = "hot"
		hot, err := ready(ctx, j) // all of them are busy
		if err != nil {
			return sample{}, err
		}
		defer hot.Kill()
		j.Measure = "quiet"
		return measureOn(ctx, j)
	})
}

// keepBusy is the peers of the hot queue.
func keepBusy(j job, s system, m *meter, say func(sample)) error {
	if err := preload(s, j.N, j.Size); err != nil {
		return err
	}
	busy := make([]atomic.Int64, j.Peers)
	for i := range busy {
		if err := s.work(j.Handlers, func([]byte) { busy[i].Add(1) }); err != nil {
			return err
		}
	}
	for i := range busy {
		if err := reaches("each peer works", &busy[i], 1); err != nil {
			return err
		}
	}
	time.Sleep(j.Settle)
	say(sample{})
	select {}
}

// measureQuiet enqueues lone tasks to the quiet queue, and tells how long after the call
// of enqueue each one starts, how long a PING takes meanwhile, and how many tasks are
// taken from the hot queue in a second. It does not wait for one task before it enqueues
// the next: those that come while Redis is slow count, too.
func measureQuiet(j job, s system, m *meter, say func(sample)) error {
	peers := s.(*peerSystem)
	peers.queues = []string{quietQueue}
	send, err := s.producer(quietQueue)
	if err != nil {
		return err
	}
	n := warmup + int(j.Window/quietPause)
	w, err := watch(s, n)
	if err != nil {
		return err
	}
	all := payloads(0, n, j.Size)
	if err := w.warm(all, send); err != nil {
		return err
	}

	began := time.Now()
	before, err := peers.sender.Queue("q0").Len(context.Background())
	if err != nil {
		return err
	}
	var pings []float64
	var sending *errgroup.Group
	used, err := m.during(func() (err error) {
		pings, err = m.pingWhile(func() { sending = w.lone(all, send) })
		return err
	})
	if err != nil {
		return err
	}
	after, err := peers.sender.Queue("q0").Len(context.Background())
	if err != nil {
		return err
	}
	took := time.Since(began)
	if after == 0 {
		return fmt.Errorf("the hot queue has run dry of its %d tasks within %v; it needs more of them", before, took)
	}
	if err := sending.Wait(); err != nil {
		return err
	}
	delays, err := w.delays()
	if err != nil {
		return err
	}
	say(sample{Values: map[string]float64{
		"p50 ms": percentile(delays, 50), "p99 ms": percentile(delays, 99),
		"ping p50 ms": percentile(pings, 50), "ping p99 ms": percentile(pings, 99),
		"hot tasks/s": float64(before-after) / took.Seconds(),
		"server µs":   used.server / float64(before-after),
	}})
	return nil
}

// warm sends the first tasks, and waits for each.
func (w *watcher) warm(tasks [][]byte, send func([][]byte) error) error {
	for i := range warmup {
		if err := send([][]byte{tasks[i]}); err != nil {
			return err
		}
		if err := reaches("the quiet queue is served", &w.handled, i+1); err != nil {
			return err
		}
	}
	return nil
}

// lone sends tasks one by one, whether those before have arrived or not.
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

// quietPause is how far apart the lone tasks come.
const quietPause = 10 * time.Millisecond

// pingWhile times single commands, some ms apart, until f returns, and returns their times
// sorted.
func (m *meter) pingWhile(f func()) (trips []float64, err error) {
	over := make(chan bool)
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for err == nil {
			select {
			case <-over:
				return
			default:
			}
			pause(quietPause)
			before := time.Now()
			_, err = m.conn.Do("PING")
			trips = append(trips, millis(time.Since(before)))
		}
	})
	f()
	close(over)
	pinging.Wait()
	slices.Sort(trips)
	return trips, err
}
