package main

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// measureBacklog tells what it costs to enqueue and do a task while so many
// others wait: for each task that is enqueued a handler may end one, so that as
// many go on waiting.
func measureBacklog(j job, s system, m *meter, say func(sample)) error {
	if err := preload(s, j.Backlog, j.Size); err != nil {
		return err
	}
	send, err := s.producer("q0")
	if err != nil {
		return err
	}
	const batch = 100
	allowed := make(chan bool, batch)
	var handled atomic.Int64
	err = s.work(64, func([]byte) {
		<-allowed
		handled.Add(1)
	})
	if err != nil {
		return err
	}
	time.Sleep(j.Settle)
	work := payloads(j.Backlog, j.N, j.Size)
	used, err := m.during(func() error {
		for some := range slices.Chunk(work, batch) {
			if err := send(some); err != nil {
				return err
			}
			for range some {
				allowed <- true
			}
		}
		return reaches("as many tasks are done as came", &handled, j.N)
	})
	if err != nil {
		return err
	}
	say(sample{Values: used.perTask(j.N)})
	return nil
}

// measureQueues tells what a peer with so many queues costs: how long until it
// serves them all, what it does while there is nothing to do, and what a task
// costs when tasks are spread over them.
func measureQueues(j job, s system, m *meter, say func(sample)) error {
	peers := s.(*peerSystem)
	c, err := spreadOver(s, peers.queues)
	if err != nil {
		return err
	}
	if err := c.enqueue(payloads(0, j.Queues, j.Size), 1); err != nil {
		return err
	}
	began := time.Now()
	var handled atomic.Int64
	if err := s.work(10, func([]byte) { handled.Add(1) }); err != nil {
		return err
	}
	if err := reaches("each queue is served", &handled, j.Queues); err != nil {
		return err
	}
	up := time.Since(began)
	idle, err := m.idle(j)
	if err != nil {
		return err
	}
	work := payloads(j.Queues, j.N, j.Size)
	used, err := m.during(func() error {
		if err := c.enqueue(work, 1); err != nil {
			return err
		}
		return until("all tasks have ended", func() (bool, error) {
			return peers.finished() == int64(j.Queues+j.N), nil
		})
	})
	if err != nil {
		return err
	}
	values := idle.perSecond()
	maps.Copy(values, used.perTask(j.N))
	values["start ms"] = millis(up)
	say(sample{Values: values})
	return nil
}

// spreadOver returns callers that go from queue to queue with each call.
func spreadOver(s system, queues []string) (callers, error) {
	sends := make([]func([][]byte) error, len(queues))
	for i, name := range queues {
		send, err := s.producer(name)
		if err != nil {
			return nil, err
		}
		sends[i] = send
	}
	var calls atomic.Int64
	turn := func(payloads [][]byte) error { return sends[int(calls.Add(1))%len(sends)](payloads) }
	return slices.Repeat(callers{turn}, crowd), nil
}

// measurePayload tells what tasks of one size cost, enqueued one by one and then
// done by ten handlers.
func measurePayload(j job, s system, m *meter, say func(sample)) error {
	c, err := connect(s, 1)
	if err != nil {
		return err
	}
	work := payloads(1, j.N-1, j.Size)
	in, err := m.during(func() error { return c.enqueue(work, 1) })
	if err != nil {
		return err
	}
	out, err := m.during(func() error { return drain(s, 10, j.N) })
	if err != nil {
		return err
	}
	values := map[string]float64{}
	for name, value := range in.perTask(j.N - 1) {
		values["enqueue "+name] = value
	}
	for name, value := range out.perTask(j.N) {
		values["process "+name] = value
	}
	say(sample{Values: values})
	return nil
}
