package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/spread"
)

// measureApart runs the job in a child, with a number of masters of a cluster, or with one server
// if that is 0. The servers run on the first core, and the child on the others.
func measureApart(masters int) func(context.Context, testing.TB, job) sample {
	return func(ctx context.Context, t testing.TB, j job) sample {
		j.Aside = true
		onFirst := []string{"--server_cpulist", "0"}
		if masters == 0 {
			j.URL = startServer(t, "", onFirst...).URL()
			j.Nodes = []string{j.URL}
			return measureOn(ctx, t, j)
		}
		c := redistest.StartCluster(t, masters, 0, append(onFirst, "--maxclients", "10000", "--cluster-node-timeout", "15000")...)
		j.URL = c.URL()
		for _, n := range c.Nodes {
			j.Nodes = append(j.Nodes, n.URL())
		}
		return measureOn(ctx, t, j)
	}
}

// beyondFirst returns the beginning of a command line that runs a command on all cores except the
// first, where the servers run. It returns nothing if that isn't possible.
func beyondFirst() []string {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.NumCPU() < 2 {
		return nil
	}
	return []string{"taskset", "-c", fmt.Sprintf("1-%d", runtime.NumCPU()-1)}
}

// meters read the usage of each server of a job.
type meters []*meter

func newMeters(t *trial) (all meters) {
	for _, url := range t.Nodes {
		all = append(all, newMeter(t, url))
	}
	return all
}

// during measures what f uses on each server.
func (all meters) during(f func()) (each []usage) {
	for _, m := range all {
		each = append(each, m.read())
	}
	f()
	for i, m := range all {
		each[i] = m.read().since(each[i])
	}
	return each
}

// sum returns the usage of all servers. The time and this process's own usage are in each of them,
// so they count once.
func sum(each []usage) usage {
	all := each[0]
	for _, u := range each[1:] {
		all.server += u.server
		all.commands += u.commands
		all.reads += u.reads
	}
	return all
}

// waiting returns how many tasks wait on each server.
func (all meters) waiting(s *peerSystem) []int {
	each, queues := make([]int, len(all)), []*worqr.Queue{s.sender.Queue(s.queues[0])}
	if s.spread > 0 {
		queues = spread.Over(s.sender, s.queues[0], s.spread).Queues()
	}
	for i, m := range all {
		for _, q := range queues {
			n, err := redis.Int(m.conn.Do("LLEN", keys.NewSpace("worqr").Queue(q.Name()).Waiting()))
			if err != nil && strings.HasPrefix(err.Error(), "MOVED ") {
				continue // another node has it
			}
			redistest.Must(m.t, err)
			each[i] += n
		}
	}
	return each
}

// measureSpread makes workers process the waiting tasks, as measureProcess does, and measures what
// each server uses per task of its own.
func measureSpread(t *trial) sample {
	all := newMeters(t)
	preload(t, t.N)
	peers := t.system.(*peerSystem)
	of := all.waiting(peers)
	var handled atomic.Int64
	each := all.during(func() {
		t.work(t, t.Handlers, func([]byte) { handled.Add(1) })
		reaches(t, "all tasks are handled", &handled, t.N)
		until(t, "all tasks have ended", func() bool { return int(peers.finished()) == t.N })
	})
	values := sum(each).perTask(t.N)
	for i, u := range each {
		if of[i] == 0 {
			continue
		}
		node := u.server / float64(of[i])
		if least, ok := values["least µs"]; !ok || node < least {
			values["least µs"] = node
		}
		values["most µs"] = max(values["most µs"], node)
	}
	return values
}
