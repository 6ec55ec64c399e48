package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisserver"
)

// A cluster is masters, each with an equal range of slots.
type cluster []*node

// A node is a master, and the port of its bus: the default, 10,000 above the port, is often
// one that the system gives to connections.
type node struct {
	*server
	bus int
}

// startCluster starts so many masters, all on the first core, and returns when each serves.
func startCluster(ctx context.Context, masters int) (c cluster, err error) {
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for range masters {
		n := &node{}
		err := redisserver.OnFreePort(func(port int) (err error) {
			n.bus = port
			n.server, err = startServer(ctx, "", "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(port), onFirst[0], onFirst[1])
			return err
		})
		if err != nil {
			return c, err
		}
		c = append(c, n)
	}
	for i, s := range c {
		span := redis.Args{"ADDSLOTS"}
		for slot := i * keys.Slots / masters; slot < (i+1)*keys.Slots/masters; slot++ {
			span = append(span, slot)
		}
		host, port, _ := strings.Cut(c[0].address, ":")
		for _, args := range []redis.Args{span, {"SET-CONFIG-EPOCH", i + 1}, {"MEET", host, port, c[0].bus}} {
			if _, err := s.ask("CLUSTER", args...); err != nil {
				return c, fmt.Errorf("make a cluster: %w", err)
			}
		}
	}
	return c, until("the cluster serves", func() (bool, error) {
		for _, s := range c {
			info, err := redis.String(s.ask("CLUSTER", "INFO"))
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", masters)) {
				return false, err
			}
			ranges, err := redis.Values(s.ask("CLUSTER", "SLOTS"))
			if err != nil || len(ranges) != masters {
				return false, err
			}
		}
		return true, nil
	})
}

// ask asks a server something, on a connection of its own.
func (s *server) ask(command string, args ...any) (any, error) {
	c, err := redis.DialURL(s.url)
	if err != nil {
		return nil, fmt.Errorf("ask a server: %w", err)
	}
	defer func() { _ = c.Close() }() // it has answered
	return c.Do(command, args...)
}

func (c cluster) stop() {
	for _, s := range c {
		s.stop()
	}
}

// url leads to the cluster.
func (c cluster) url() string {
	var all []string
	for _, s := range c {
		all = append(all, s.address)
	}
	return "redis+cluster://" + strings.Join(all, ",")
}

// onFirst has a server run on the first core.
var onFirst = []string{"--server_cpulist", "0"}

// beyondFirst is the start of a command that is to run on all cores but the first, where the
// servers are: nothing where that can't be had.
func beyondFirst() []string {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.NumCPU() < 2 {
		return nil
	}
	return []string{"taskset", "-c", fmt.Sprintf("1-%d", runtime.NumCPU()-1)}
}
