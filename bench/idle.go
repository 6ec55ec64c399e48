package main

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// idle measures what idle workers use within the window, once they have started up. At startup they
// do some things only once: they join, and two leases later they look for workers that left without
// notice. It therefore waits for at least Settle, and then until the number of commands no longer
// falls by more than a twentieth.
func (t *trial) idle() usage {
	time.Sleep(t.Settle)
	span := func() usage { return t.during(func() { time.Sleep(t.Settle / 4) }) }
	last := span()
	until(t, "the workers have settled", func() bool {
		before := last
		last = span()
		return last.commands >= 0.95*before.commands-10 // some commands come only every few spans
	})
	return t.during(func() { time.Sleep(t.Window) })
}

// pace is the interval between tasks that come one by one.
const pace = 3 * time.Millisecond

// measureBeside measures the cost of a task when many workers serve its queue and are otherwise
// idle. What they use while idle is measured first, and subtracted.
func measureBeside(t *trial) sample {
	connect(t, 1)
	var handled atomic.Int64
	for range t.Peers {
		t.work(t, 10, func([]byte) { handled.Add(1) })
	}
	if peers, ok := t.system.(*peerSystem); ok { // thousands take a while to join
		until(t, "all peers serve the queue", func() bool { return peers.stats(t).Workers == t.Peers })
	}
	reaches(t, "the workers are up", &handled, 1)
	send := t.producer(t, "q0")
	idle := t.idle()
	used := t.during(func() {
		tick := time.Tick(pace)
		for _, p := range payloads(0, t.N, t.Size) {
			<-tick
			redistest.Must(t, send([][]byte{p}))
		}
		reaches(t, "all tasks are handled", &handled, 1+t.N)
		time.Sleep(100 * time.Millisecond) // until the last one has ended; asking would cost commands
	})
	share := used.seconds / idle.seconds
	used.commands -= idle.commands * share
	used.server -= idle.server * share
	values := idle.perSecond()
	maps.Copy(values, used.perTask(t.N))
	return values
}
