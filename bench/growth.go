package main

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureBacklog measures the cost of enqueueing and processing a task while many others wait: for
// each enqueued task a handler may end one, so that their number stays the same.
func measureBacklog(t *trial) sample {
	preload(t, t.Backlog)
	send := t.producer(t, "q0")
	const batch = 100
	allowed := make(chan bool, batch)
	var handled atomic.Int64
	t.work(t, 64, func([]byte) {
		<-allowed
		handled.Add(1)
	})
	time.Sleep(t.Settle)
	work := payloads(t.Backlog, t.N, t.Size)
	return t.during(func() {
		for some := range slices.Chunk(work, batch) {
			redistest.Must(t, send(some))
			for range some {
				allowed <- true
			}
		}
		reaches(t, "as many tasks are done as came", &handled, t.N)
	}).perTask(t.N)
}

// measureQueues measures a peer with many queues: how long it takes until it serves them all, what
// it uses while idle, and what a task costs when tasks are spread over the queues.
func measureQueues(t *trial) sample {
	peers := t.system.(*peerSystem)
	c := spreadOver(t, peers.queues)
	c.enqueue(t, payloads(0, t.Queues, t.Size), 1)
	began := time.Now()
	var handled atomic.Int64
	t.work(t, 10, func([]byte) { handled.Add(1) })
	reaches(t, "each queue is served", &handled, t.Queues)
	up := time.Since(began)
	values := t.idle().perSecond()
	work := payloads(t.Queues, t.N, t.Size)
	used := t.during(func() {
		c.enqueue(t, work, 1)
		until(t, "all tasks have ended", func() bool { return peers.finished() == int64(t.Queues+t.N) })
	})
	maps.Copy(values, used.perTask(t.N))
	values["start ms"] = millis(up)
	return values
}

// spreadOver returns callers that use another queue for each call.
func spreadOver(t *trial, queues []string) callers {
	sends := make([]func([][]byte) error, len(queues))
	for i, name := range queues {
		sends[i] = t.producer(t, name)
	}
	var calls atomic.Int64
	turn := func(payloads [][]byte) error { return sends[int(calls.Add(1))%len(sends)](payloads) }
	return slices.Repeat(callers{turn}, crowd)
}

// measurePayload measures the cost of tasks of one size, enqueued one by one and then processed by
// ten handlers.
func measurePayload(t *trial) sample {
	c := connect(t, 1)
	work := payloads(1, t.N-1, t.Size)
	in := t.during(func() { c.enqueue(t, work, 1) })
	out := t.during(func() { drain(t, 10, t.N) })
	values := sample{}
	for name, value := range in.perTask(t.N - 1) {
		values["enqueue "+name] = value
	}
	for name, value := range out.perTask(t.N) {
		values["process "+name] = value
	}
	return values
}
