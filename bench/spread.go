package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
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

// waiting returns how many tasks of the first queue wait on each server.
func (all meters) waiting(s *peerSystem) []int {
	each, lists := make([]int, len(all)), []string{s.queues[0]} // the plain queue is a part, too
	for i := range s.parts {
		lists = append(lists, keys.Part(s.queues[0], i, s.parts))
	}
	for i, m := range all {
		for _, name := range lists {
			n, err := redis.Int(m.conn.Do("LLEN", keys.NewSpace("worqr").Queue(name).Waiting()))
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
	peers := t.system.(*peerSystem)
	if t.Uneven {
		peers.parts = 0 // all tasks are in one part
	}
	preload(t, t.N)
	peers.parts = t.Parts
	of := all.waiting(peers)
	var handled atomic.Int64
	each := all.during(func() {
		for range max(t.Peers, 1) {
			t.work(t, t.Handlers, func([]byte) { handled.Add(1); time.Sleep(t.Work) })
		}
		reaches(t, "all tasks are handled", &handled, t.N)
		until(t, "all tasks have ended", func() bool { return int(peers.finished()) == t.N })
	})
	values := sum(each).perTask(t.N)
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
	return values
}

// nodeTime returns the name of the value for a server's time per task.
func nodeTime(node int) string { return fmt.Sprintf("node %d µs", node) }

// measureParts measures what workers of a spread queue use while idle, beyond what the servers use
// anyway.
func measureParts(t *trial) sample {
	all := newMeters(t)
	look := func() { time.Sleep(t.Window) }
	bare := all.during(look)
	for range max(t.Peers, 1) {
		t.work(t, t.Handlers, func([]byte) {})
	}
	time.Sleep(t.Settle)
	idle := all.during(look)
	values := sum(idle).perSecond()
	values["server/s"] = max(1e4*(values["server %"]-sum(bare).perSecond()["server %"]), 1)
	values["each µs"] = values["server/s"] / float64(t.Parts*max(t.Peers, 1))
	return values
}
