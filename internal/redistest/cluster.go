package redistest

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Cluster has masters, and replicas of some of them.
type Cluster struct {
	Nodes []*Server // the masters first, in their initial order
	conns map[*Server]redis.Conn
}

const (
	slots       = 16384
	nodeTimeout = 2 * time.Second // after this silence, a node is considered to be down
)

// StartCluster starts a cluster in which each master has an equal range of slots. It returns when
// all nodes serve and all replicas follow. A master that is silent for two seconds is considered to
// be down.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	Several(t)
	c := &Cluster{conns: map[*Server]redis.Conn{}}
	for range masters + replicas {
		c.Nodes = append(c.Nodes, startNode(t, args))
	}
	for i, n := range c.Nodes[:masters] {
		span := []any{"ADDSLOTS"}
		for s := i * slots / masters; s < (i+1)*slots/masters; s++ {
			span = append(span, s)
		}
		Do(t, c.conn(t, n), "CLUSTER", span...)
		Do(t, c.conn(t, n), "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	c.meet(t)
	for i, n := range c.Nodes[masters:] {
		of := c.ID(t, c.Nodes[i%masters])
		eventually(t, func() error { _, err := c.conn(t, n).Do("CLUSTER", "REPLICATE", of); return err })
	}
	c.each(t, func(n *Server) error { return c.says(t, n, "cluster_state:ok") })
	for _, n := range c.Nodes[masters:] {
		eventually(t, func() error { return c.follows(t, n) })
	}
	c.each(t, func(n *Server) error { // a client may ask any of them
		ranges, err := redis.Values(c.conn(t, n).Do("CLUSTER", "SLOTS"))
		if err == nil && len(ranges) != masters {
			err = fmt.Errorf("%s knows %d masters", n.Addr(), len(ranges))
		}
		return err
	})
	c.each(t, func(n *Server) error { return c.linked(t, n) }) // a client may publish on any of them
	return c
}

// meet introduces all nodes to each other. A node forgets one whose handshake takes longer than the
// node timeout, as it may on a busy machine. So nodes that don't know all others are introduced
// again.
func (c *Cluster) meet(t testing.TB) {
	t.Helper()
	met := func(n *Server) {
		for _, other := range c.Nodes {
			if other != n {
				Do(t, c.conn(t, n), "CLUSTER", "MEET", "127.0.0.1", other.port, other.bus)
			}
		}
	}
	met(c.Nodes[0])
	last := time.Now()
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))
	c.each(t, func(n *Server) error {
		err := c.says(t, n, known)
		if err != nil && time.Since(last) > 2*nodeTimeout {
			met(n)
			last = time.Now()
		}
		return err
	})
}

// each waits until wrong returns nil for all running nodes.
func (c *Cluster) each(t testing.TB, wrong func(n *Server) error) {
	t.Helper()
	for n := range c.running() {
		every(t, time.Millisecond, func() error { return wrong(n) })
	}
}

// running yields the nodes that weren't killed.
func (c *Cluster) running() iter.Seq[*Server] {
	return func(yield func(*Server) bool) {
		for _, n := range c.Nodes {
			if n.cmd.ProcessState == nil && !yield(n) {
				return
			}
		}
	}
}

// says reports why a node's CLUSTER INFO doesn't contain a text.
func (c *Cluster) says(t testing.TB, n *Server, what string) error {
	t.Helper()
	told, err := redis.String(c.conn(t, n).Do("CLUSTER", "INFO"))
	if err == nil && !strings.Contains(told, what) {
		err = fmt.Errorf("%s doesn't say %s, but %s", n.Addr(), what, told)
	}
	return err
}

// linked reports whether a node has connections to and from each other node, and has identified
// them. Otherwise published messages may be lost: Valkey closes a connection on which it receives a
// message before it has identified the sender. Redis 6.2 doesn't report it.
func (c *Cluster) linked(t testing.TB, n *Server) error {
	links, err := redis.Values(c.conn(t, n).Do("CLUSTER", "LINKS"))
	if refused, ok := errors.AsType[redis.Error](err); ok && strings.Contains(strings.ToLower(string(refused)), "unknown subcommand") {
		return nil
	}
	if want := 2 * (len(c.Nodes) - 1); err == nil && len(links) != want {
		err = fmt.Errorf("%s has %d of %d links", n.Addr(), len(links), want)
	}
	return err
}

// busPort returns a port for a node's bus. The default, 10,000 above the node's port, is often used
// by the system for outgoing connections. If the port is taken, the node doesn't start, and another
// port is tried.
func busPort() int { return 20_000 + rand.IntN(10_000) }

// startNode starts a server in cluster mode.
func startNode(t testing.TB, args []string) *Server {
	t.Helper()
	return Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", busOfServer, "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds())}, args...)...)
}

// follows reports why a node doesn't follow its master.
func (c *Cluster) follows(t testing.TB, n *Server) error {
	role, err := redis.Values(c.conn(t, n).Do("ROLE"))
	if err != nil {
		return err
	}
	if len(role) < 4 {
		return fmt.Errorf("%s is no replica yet", n.Addr())
	}
	if state, err := redis.String(role[3], nil); state != "connected" {
		return fmt.Errorf("the replica %s is in state %q: %w", n.Addr(), state, err)
	}
	return nil
}

// conn returns the harness's connection to a node. A broken one is replaced.
func (c *Cluster) conn(t testing.TB, n *Server) redis.Conn {
	t.Helper()
	if c.conns[n] == nil || c.conns[n].Err() != nil {
		c.conns[n] = Dial(t, n.URL())
	}
	return c.conns[n]
}

// Kill kills a node. If it's started again, it is a replica of the node that was promoted.
func (c *Cluster) Kill(n *Server) {
	n.Kill()
	delete(c.conns, n)
}

// ID returns the cluster's id of a node.
func (c *Cluster) ID(t testing.TB, n *Server) string {
	t.Helper()
	return Sure(redis.String(c.conn(t, n).Do("CLUSTER", "MYID")))(t)
}

// URL returns the URL of the cluster.
func (c *Cluster) URL() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Addr())
	}
	return "redis+cluster://" + strings.Join(all, ",")
}

// Dial returns a connection that sends each command to the node that has its key.
func (c *Cluster) Dial(t testing.TB) redis.Conn {
	t.Helper()
	conn := Sure(c.dial(redis.DialReadTimeout(time.Minute)))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c *Cluster) dial(options ...redis.DialOption) (redis.Conn, error) {
	return newRouted(c.Nodes[0].Addr(), options)
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	return Sure(redis.Int(c.conn(t, c.Nodes[0]).Do("CLUSTER", "KEYSLOT", key)))(t)
}

// Known waits until all running nodes know that a master has a slot, and the epoch of its claim.
// Until then, the master's replica doesn't know what to take over. And a master to which the slot
// moves might take an epoch that isn't higher: then an old message, still in flight, would take the
// slot away from it, and each of the two would consider the other one the owner.
func (c *Cluster) Known(t testing.TB, slot int, owner *Server) {
	t.Helper()
	c.each(t, func(n *Server) error {
		port, err := n.ownerOf(slot)
		if err == nil && port != owner.port {
			err = fmt.Errorf("%s holds %d for the owner of slot %d", n.Addr(), port, slot)
		}
		is, failed := owner.epochOf(owner.port)
		has, failed2 := n.epochOf(owner.port)
		if err = errors.Join(err, failed, failed2); err == nil && has != is {
			err = fmt.Errorf("%s has epoch %q of %s, which is %q", n.Addr(), has, owner.Addr(), is)
		}
		return err
	})
	c.Settled(t)
}

// Settled waits until all running nodes report the same last epoch, and the same masters, each with
// its own epoch. A promoted replica, and a master that gets a slot, take the epoch after the last
// one they know. If two took the same, one would lose what it got, with everything written there.
func (c *Cluster) Settled(t testing.TB) {
	t.Helper()
	eventually(t, func() error {
		first := ""
		for n := range c.running() {
			is, err := n.epochs()
			switch {
			case err != nil:
				return err
			case first == "":
				first = is
			case is != first:
				return fmt.Errorf("%s says %s, and another %s", n.Addr(), is, first)
			}
		}
		return nil
	})
}

// nodes returns the server's view of the cluster's nodes: for each its id, address, flags, master,
// ping, pong, epoch, state and slots.
func (s *Server) nodes() (all [][]string, err error) {
	text, err := redis.String(s.Call("CLUSTER", "NODES"))
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 7 {
			all = append(all, words)
		}
	}
	return all, err
}

// epochs returns the last epoch and the masters' epochs, as a node reports them.
func (s *Server) epochs() (string, error) {
	about, err := redis.String(s.Call("CLUSTER", "INFO"))
	if err != nil {
		return "", err
	}
	_, last, _ := strings.Cut(about, "cluster_current_epoch:")
	nodes, err := s.nodes()
	var masters, epochs []string
	for _, words := range nodes {
		if strings.Contains(words[2], "master") {
			masters, epochs = append(masters, words[0]+" "+words[6]), append(epochs, words[6])
		}
	}
	slices.Sort(masters)
	slices.Sort(epochs)
	if err == nil && len(slices.Compact(epochs)) < len(masters) {
		err = fmt.Errorf("for %s two masters have one epoch: %q", s.Addr(), masters)
	}
	return fmt.Sprint(strings.Fields(last)[0], masters), err
}

// epochOf returns the epoch of the master on a port, as a node reports it.
func (s *Server) epochOf(port int) (string, error) {
	nodes, err := s.nodes()
	for _, words := range nodes {
		if strings.Contains(words[1], fmt.Sprintf(":%d@", port)) {
			return words[6], nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("%s doesn't know the node at %d", s.Addr(), port))
}

// ownerOf returns the port of the master that has a slot, as a node reports it; 0 if no node has
// it.
func (s *Server) ownerOf(slot int) (port int, err error) {
	ranges, err := redis.Values(s.Call("CLUSTER", "SLOTS"))
	for _, r := range ranges {
		of := r.([]any)
		if of[0].(int64) <= int64(slot) && int64(slot) <= of[1].(int64) {
			return int(of[2].([]any)[1].(int64)), nil
		}
	}
	return 0, err
}

// Owner returns the master that has a slot, as the first running node reports it.
func (c *Cluster) Owner(t testing.TB, slot int) *Server {
	t.Helper()
	for n := range c.running() {
		port := Sure(n.ownerOf(slot))(t)
		if at := slices.IndexFunc(c.Nodes, func(n *Server) bool { return n.port == port }); at >= 0 {
			return c.Nodes[at]
		}
		break
	}
	t.Fatal("no node has slot ", slot)
	return nil
}

// BeginMove starts to move a slot from its owner, once all nodes know the owner, to another master.
// No keys are moved yet.
func (c *Cluster) BeginMove(t testing.TB, slot int, to *Server) (from *Server) {
	t.Helper()
	from = c.Owner(t, slot)
	c.Known(t, slot, from)
	Do(t, c.conn(t, to), "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ID(t, from))
	Do(t, c.conn(t, from), "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ID(t, to))
	return from
}

// MoveKeys moves up to n keys of a slot, and returns how many it has moved.
func (c *Cluster) MoveKeys(t testing.TB, slot, n int, from, to *Server) int {
	t.Helper()
	keys := Sure(redis.Strings(c.conn(t, from).Do("CLUSTER", "GETKEYSINSLOT", slot, n)))(t)
	if len(keys) > 0 {
		Do(t, c.conn(t, from), "MIGRATE", redis.Args{"127.0.0.1", to.port, "", 0, 10_000, "KEYS"}.AddFlat(keys)...)
	}
	return len(keys)
}

// EndMove gives the slot to the node that it moves to, and returns when all nodes know.
func (c *Cluster) EndMove(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	id := c.ID(t, to)
	Do(t, c.conn(t, to), "CLUSTER", "SETSLOT", slot, "NODE", id)
	Do(t, c.conn(t, from), "CLUSTER", "SETSLOT", slot, "NODE", id)
	c.Known(t, slot, to)
}

// Move moves a slot that is in use to another master. Keys written to the slot in the meantime may
// be left behind.
func (c *Cluster) Move(t testing.TB, slot int, to *Server) {
	t.Helper()
	from := c.BeginMove(t, slot, to)
	for c.MoveKeys(t, slot, 100, from, to) > 0 {
	}
	c.EndMove(t, slot, from, to)
}
