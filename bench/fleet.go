package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// crews is how many processes have the workers that die at once.
const crews = 10

// measureMassDeath kills many workers at once, each of which holds a task, and tells
// after how long an idle one has started the first and the last of these tasks.
func measureMassDeath(ctx context.Context, j job) (sample, error) {
	return withServer(ctx, j, func(j job, _ *server) (sample, error) { return massDeath(ctx, j) })
}

func massDeath(ctx context.Context, j job) (sample, error) {
	queue, _, err := j.open()
	if err != nil {
		return sample{}, err
	}
	if err := preload(queue, j.N, j.Size); err != nil {
		return sample{}, err
	}
	children := make([]worker, crews+1)
	for i := range children {
		as := j
		as.Measure, as.Peers = "crew", j.Peers/crews
		if i == crews {
			as.Measure = "rescue"
		}
		if children[i], err = ready(ctx, as); err != nil {
			return sample{}, err
		}
		defer children[i].Kill()
	}
	time.Sleep(rand.N(time.Second)) // anywhere between two beats
	killed := seconds(time.Now())
	for _, c := range children[:crews] {
		_ = c.Signal(os.Kill) // all at once; their deaths are waited for later
	}
	found, err := children[crews].next()
	if err != nil {
		return sample{}, err
	}
	for moment := range found.Values {
		found.Values[moment] -= killed
	}
	return found, nil
}

// holdOneEach is workers that hold a task each.
func holdOneEach(j job, s system, m *meter, say func(sample)) error { return block(s, j.Peers, 1, say) }

// measureStall stops Redis for longer than the lease of many memberships, and tells
// how many of them have outlasted that.
func measureStall(ctx context.Context, j job) (sample, error) {
	return withServer(ctx, j, func(j job, s *server) (sample, error) {
		j.Measure = "members"
		c, err := ready(ctx, j) // all have joined
		if err != nil {
			return sample{}, err
		}
		defer c.Kill()
		if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return sample{}, fmt.Errorf("stop the server: %w", err)
		}
		time.Sleep(j.Window)
		if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return sample{}, fmt.Errorf("let the server go on: %w", err)
		}
		return c.next()
	})
}

// keepMembers is workers that serve queues on which nothing happens. It tells when all
// have joined, and how many have never had to come back once the time for judging who
// was silent during the stall is over.
func keepMembers(j job, s system, m *meter, say func(sample)) error {
	for range j.Peers {
		if err := s.work(1, func([]byte) {}); err != nil {
			return err
		}
	}
	peers := s.(*peerSystem)
	ctx := context.Background()
	members := func() (n int, err error) {
		for _, name := range peers.queues {
			at, err := peers.sender.Queue(name).Stats(ctx)
			if err != nil {
				return 0, err
			}
			n += at.Workers
		}
		return n, nil
	}
	err := until("all have joined", func() (bool, error) {
		n, err := members()
		return n == j.Peers*j.Queues, err
	})
	if err != nil {
		return err
	}
	time.Sleep(j.Settle)
	say(sample{})
	time.Sleep(j.Window / 2) // it has stopped by now, so this answers when it goes on
	if _, err := m.conn.Do("PING"); err != nil {
		return err
	}
	time.Sleep(j.Settle)
	evicted := 0
	for _, p := range peers.peers {
		evicted += int(p.Stats().TimesEvicted)
	}
	n, err := members()
	if err != nil {
		return err
	}
	say(sample{Values: map[string]float64{"kept": float64(n - evicted)}})
	return nil
}
