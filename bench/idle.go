package main

import (
	"maps"
	"sync/atomic"
	"time"
)

// measureIdle tells what a worker with ten handlers on each queue costs while
// there is nothing to do.
func measureIdle(j job, s system, m *meter, say func(sample)) error {
	if err := s.work(10, func([]byte) {}); err != nil {
		return err
	}
	used, err := m.idle(j)
	if err != nil {
		return err
	}
	say(sample{Values: used.perSecond()})
	return nil
}

// idle measures what workers with nothing to do use within the window, once their start
// is over. That is what they have to do once: join, and two leases later look who else has
// left without a word. So it waits for at least that long, as Settle says, and then until
// no span has fewer commands than the one before, but for a twentieth of them.
func (m *meter) idle(j job) (usage, error) {
	time.Sleep(j.Settle)
	span := j.Settle / 4
	last, err := m.during(func() error { time.Sleep(span); return nil })
	if err != nil {
		return usage{}, err
	}
	err = until("the workers have settled", func() (bool, error) {
		next, err := m.during(func() error { time.Sleep(span); return nil })
		settled := next.commands >= 0.95*last.commands-10 // some commands come every few spans
		last = next
		return settled, err
	})
	if err != nil {
		return usage{}, err
	}
	return m.during(func() error { time.Sleep(j.Window); return nil })
}

// pace is how far apart the tasks come that come one by one.
const pace = 3 * time.Millisecond

// measureBeside tells what a task costs that is done beside so many idle
// workers, all of which serve its queue. What they cost while there is nothing
// to do is measured first, and is not counted again.
func measureBeside(j job, s system, m *meter, say func(sample)) error {
	if _, err := connect(s, 1); err != nil {
		return err
	}
	var handled atomic.Int64
	for range j.Peers {
		if err := s.work(10, func([]byte) { handled.Add(1) }); err != nil {
			return err
		}
	}
	if peers, ok := s.(*peerSystem); ok { // thousands take a while to join
		err := until("all peers serve the queue", func() (bool, error) {
			stats, err := peers.stats()
			return stats.Workers == j.Peers, err
		})
		if err != nil {
			return err
		}
	}
	if err := reaches("the workers are up", &handled, 1); err != nil {
		return err
	}
	send, err := s.producer("q0")
	if err != nil {
		return err
	}
	idle, err := m.idle(j)
	if err != nil {
		return err
	}
	used, err := m.during(func() error {
		tick := time.Tick(pace)
		for _, p := range payloads(0, j.N, j.Size) {
			<-tick
			if err := send([][]byte{p}); err != nil {
				return err
			}
		}
		if err := reaches("all tasks are handled", &handled, 1+j.N); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // until the last has ended; to ask would cost commands
		return nil
	})
	if err != nil {
		return err
	}
	share := used.seconds / idle.seconds
	used.commands -= idle.commands * share
	used.server -= idle.server * share
	values := idle.perSecond()
	maps.Copy(values, used.perTask(j.N))
	say(sample{Values: values})
	return nil
}
