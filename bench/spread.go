package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
)

// measureApart has a child do the job with so many masters of a cluster, or one server if there
// are to be none. The servers have the first core, and the child the others.
func measureApart(masters int) func(context.Context, job) (sample, error) {
	return func(ctx context.Context, j job) (sample, error) {
		j.Aside = true
		if masters == 0 {
			s, err := startServer(ctx, "", onFirst...)
			if err != nil {
				return sample{}, err
			}
			defer s.stop()
			j.URL, j.Nodes = s.url, []string{s.url}
			return measureOn(ctx, j)
		}
		c, err := startCluster(ctx, masters)
		if err != nil {
			return sample{}, err
		}
		defer c.stop()
		j.URL = c.url()
		for _, n := range c {
			j.Nodes = append(j.Nodes, n.url)
		}
		return measureOn(ctx, j)
	}
}

// meters read what each server of a job uses.
type meters []*meter

func newMeters(urls []string) (all meters, err error) {
	for _, url := range urls {
		m, err := newMeter(url)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// during measures what f uses, at each server.
func (all meters) during(f func() error) ([]usage, error) {
	read := func() (each []usage, err error) {
		for _, m := range all {
			u, err := m.read()
			if err != nil {
				return nil, err
			}
			each = append(each, u)
		}
		return each, nil
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := read()
	for i := range after {
		after[i] = after[i].since(before[i])
	}
	return after, err
}

// sum is what all servers used. The time, and what this process used, is that of any.
func sum(each []usage) usage {
	all := each[0]
	for _, u := range each[1:] {
		all.server += u.server
		all.commands += u.commands
		all.reads += u.reads
	}
	return all
}

// waiting tells how many tasks of the first queue wait at each server.
func (all meters) waiting(s *peerSystem) ([]int, error) {
	each, lists := make([]int, len(all)), []string{s.queues[0]} // the plain name is a part, too
	for i := range s.parts {
		lists = append(lists, keys.Part(s.queues[0], i, s.parts))
	}
	for i, m := range all {
		for _, name := range lists {
			n, err := redis.Int(m.conn.Do("LLEN", keys.NewSpace("worqr").Queue(name).Waiting()))
			if err != nil && strings.HasPrefix(err.Error(), "MOVED ") {
				continue // another node has it
			}
			if err != nil {
				return nil, err
			}
			each[i] += n
		}
	}
	return each, nil
}

// measureSpread has workers do what waits, as measureProcess does, and tells what each server
// has used for each of its tasks.
func measureSpread(j job, s system, _ *meter, say func(sample)) error {
	all, err := newMeters(j.Nodes)
	if err != nil {
		return err
	}
	peers := s.(*peerSystem)
	if j.Parts = peers.parts; j.Uneven {
		peers.parts = 0 // all of them are in one part
	}
	err = preload(s, j.N, j.Size)
	peers.parts = j.Parts
	if err != nil {
		return err
	}
	of, err := all.waiting(peers)
	if err != nil {
		return err
	}
	var handled atomic.Int64
	each, err := all.during(func() error {
		for range max(j.Peers, 1) {
			if err := s.work(j.Handlers, func([]byte) { handled.Add(1); time.Sleep(j.Work) }); err != nil {
				return err
			}
		}
		if err := reaches("all tasks are handled", &handled, j.N); err != nil {
			return err
		}
		return until("all tasks have ended", func() (bool, error) {
			return int(peers.finished()) == j.N, nil
		})
	})
	if err != nil {
		return err
	}
	values := sum(each).perTask(j.N)
	for i, u := range each {
		if of[i] == 0 {
			continue
		}
		node := u.server / float64(of[i])
		values[nodeTime(i+1)] = node
		if least, ok := values["least µs"]; !ok || node < least {
			values["least µs"] = node
		}
		values["most µs"] = max(values["most µs"], node)
	}
	values["server/s"] = values["server µs"] * values["tasks/s"]
	say(sample{Values: values})
	return nil
}

// nodeTime names the value that is a server's time for each of its tasks.
func nodeTime(node int) string { return fmt.Sprintf("node %d µs", node) }

// measureParts tells what workers of a spread queue use while there is nothing to do, beyond
// what the servers use anyway.
func measureParts(j job, s system, _ *meter, say func(sample)) error {
	all, err := newMeters(j.Nodes)
	if err != nil {
		return err
	}
	look := func() error {
		time.Sleep(j.Window)
		return nil
	}
	bare, err := all.during(look)
	if err != nil {
		return err
	}
	for range max(j.Peers, 1) {
		if err := s.work(j.Handlers, func([]byte) {}); err != nil {
			return err
		}
	}
	time.Sleep(j.Settle)
	idle, err := all.during(look)
	if err != nil {
		return err
	}
	values := sum(idle).perSecond()
	values["server/s"] = max(1e4*(values["server %"]-sum(bare).perSecond()["server %"]), 1)
	values["each µs"] = values["server/s"] / float64(j.Parts*max(j.Peers, 1))
	say(sample{Values: values})
	return nil
}
