package main

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// measureIdle tells what a worker with ten handlers on each queue costs while
// there is nothing to do.
func measureIdle(t *trial) sample {
	t.work(t, 10, func([]byte) {})
	return t.idle().perSecond()
}

// idle measures what workers with nothing to do use within the window, once their start
// is over. That is what they have to do once: join, and two leases later look who else has
// left without a word. So it waits for at least that long, as Settle says, and then until
// no span has fewer commands than the one before, but for a twentieth of them.
func (t *trial) idle() usage {
	time.Sleep(t.Settle)
	span := func() usage { return t.during(func() { time.Sleep(t.Settle / 4) }) }
	last := span()
	until(t, "the workers have settled", func() bool {
		before := last
		last = span()
		return last.commands >= 0.95*before.commands-10 // some commands come every few spans
	})
	return t.during(func() { time.Sleep(t.Window) })
}

// pace is how far apart the tasks come that come one by one.
const pace = 3 * time.Millisecond

// measureBeside tells what a task costs that is done beside so many idle
// workers, all of which serve its queue. What they cost while there is nothing
// to do is measured first, and is not counted again.
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
		time.Sleep(100 * time.Millisecond) // until the last has ended; to ask would cost commands
	})
	share := used.seconds / idle.seconds
	used.commands -= idle.commands * share
	used.server -= idle.server * share
	values := idle.perSecond()
	maps.Copy(values, used.perTask(t.N))
	return values
}
