package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Call carries out one command on a new connection.
func (s *Server) Call(command string, args ...any) (any, error) {
	const within = 5 * time.Second
	c, err := redis.DialURL(s.scheme+s.Addr(), redis.DialConnectTimeout(within), redis.DialReadTimeout(within),
		redis.DialPassword(s.password), redis.DialTLSSkipVerify(true))
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // it has nothing to lose
	return c.Do(command, args...)
}

// replication returns a server's INFO about its master and its replicas.
func (s *Server) replication() (map[string]string, error) {
	text, err := redis.String(s.Call("INFO", "replication"))
	said := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		said[k] = v
	}
	return said, err
}

// Agreed makes a master refuse writes for a minute, and returns when its replicas have caught up.
// After that, nothing is lost even if the master dies.
func Agreed(t testing.TB, master *Server, replicas ...*Server) {
	t.Helper()
	Sure(master.Call("CLIENT", "PAUSE", 60_000, "WRITE"))(t)
	every(t, time.Millisecond, func() error {
		is, err := master.replication()
		for _, r := range replicas {
			has, failed := r.replication()
			if err = errors.Join(err, failed); err == nil && has["slave_repl_offset"] != is["master_repl_offset"] {
				err = fmt.Errorf("a replica has %s of %s", has["slave_repl_offset"], is["master_repl_offset"])
			}
		}
		return err
	})
}

// Apart lets a master continue for a while without its replicas, and then kills it: the writes of
// that time are lost.
func Apart(t testing.TB, master *Server, kill func(), replicas ...*Server) {
	t.Helper()
	login := func(password string) {
		for _, r := range replicas {
			Sure(r.Call("CONFIG", "SET", "masterauth", password))(t)
		}
	}
	login("wrong") // so that they don't reconnect
	Sure(master.Call("CLIENT", "KILL", "TYPE", "replica"))(t)
	time.Sleep(300 * time.Millisecond) // of load
	kill()
	login("")
}

// Others returns all servers except one.
func (s *Sentinels) Others(than *Server) []*Server {
	return slices.DeleteFunc(slices.Clone(s.Servers), func(server *Server) bool { return server == than })
}

// Ready waits until both replicas follow the master and all sentinels know it, and returns it.
func (s *Sentinels) Ready(t testing.TB) (master *Server) {
	t.Helper()
	every(t, 50*time.Millisecond, func() error {
		master = s.Master(t)
		said, err := master.replication()
		if err != nil || said["role"] != "master" || strings.Count(said["slave0"]+said["slave1"], "state=online") != 2 {
			return fmt.Errorf("%s says %v: %w", master.Addr(), said, err)
		}
		for _, w := range s.Watch {
			if err := w.watches(master); err != nil {
				return err
			}
		}
		return nil
	})
	return master
}

// watches reports why a sentinel doesn't consider the master healthy, with two replicas.
func (s *Server) watches(master *Server) error {
	is, err := redis.StringMap(s.Call("SENTINEL", "MASTER", MasterName))
	if err != nil || is["flags"] != "master" || is["port"] != fmt.Sprint(master.port) {
		return fmt.Errorf("a sentinel says %v: %w", is, err)
	}
	replicas, err := redis.Values(s.Call("SENTINEL", "REPLICAS", MasterName))
	if err != nil || len(replicas) != 2 {
		return fmt.Errorf("a sentinel knows %d replicas: %w", len(replicas), err)
	}
	for _, r := range replicas {
		if is, err := redis.StringMap(r, nil); err != nil || is["flags"] != "slave" || is["master-link-status"] != "ok" {
			return fmt.Errorf("a sentinel says %v: %w", is, err)
		}
	}
	return nil
}

// Replace makes a sentinel promote a replica, without losing anything: first, the replicas get all
// writes of the master. The master accepts no more until it's a replica itself, since a client may
// still connect to it. promoted is called as soon as there is a new master.
func (s *Sentinels) Replace(t testing.TB, old, by *Server, promoted func()) {
	t.Helper()
	Agreed(t, old, s.Others(old)...)
	master := s.Follow(t, old, func() {
		_, _ = by.Call("SENTINEL", "FAILOVER", MasterName) // it refuses while another failover is in progress
	})
	promoted()
	Sure(old.Call("REPLICAOF", "127.0.0.1", master.port))(t) // the sentinels' own is among the paused commands
	Sure(old.Call("CLIENT", "UNPAUSE"))(t)
	s.Demoted(t, old)
}

// Follow waits until another server is a master, and returns it. Once a second it calls ask, which
// requests that.
func (s *Sentinels) Follow(t testing.TB, old *Server, ask func()) (master *Server) {
	t.Helper()
	asked := time.Time{}
	every(t, 5*time.Millisecond, func() error {
		others := s.Others(old)
		if at := slices.IndexFunc(others, func(server *Server) bool { return server.is("master") == nil }); at >= 0 {
			master = others[at]
			return nil
		}
		if time.Since(asked) > time.Second {
			ask()
			asked = time.Now()
		}
		return errors.New("no replica was promoted")
	})
	return master
}

// Masters returns the nodes that report that they are masters.
func (c *Cluster) Masters() []*Server {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Server) bool { return n.is("master") != nil })
}

// replica returns a node that follows a master.
func (c *Cluster) replica(of *Server) (*Server, error) {
	for _, n := range c.Nodes {
		if said, err := n.replication(); err == nil && n != of && said["master_port"] == fmt.Sprint(of.port) && said["master_link_status"] == "up" {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node follows %s", of.Addr())
}

// OwnerAndReplica waits until the owner of a slot has a replica. The node that it asks for the
// owner may not know about the last promotion yet.
func (c *Cluster) OwnerAndReplica(t testing.TB, slot int) (owner, replica *Server) {
	t.Helper()
	c.Settled(t)
	eventually(t, func() (err error) {
		owner = c.Owner(t, slot)
		replica, err = c.replica(owner)
		return err
	})
	return owner, replica
}

// TakeOver makes a replica take its master's place. It asks once a second: on a busy machine, the
// two may not agree within the five seconds that they have.
func (c *Cluster) TakeOver(t testing.TB, replica *Server) {
	t.Helper()
	asked := time.Time{}
	every(t, 5*time.Millisecond, func() error {
		err := replica.is("master")
		if err != nil && time.Since(asked) > time.Second {
			_, _ = replica.Call("CLUSTER", "FAILOVER") // it refuses while another failover is in progress
			asked = time.Now()
		}
		return err
	})
}

// Failed waits until a replica of a cluster knows that its master has failed, and so stands for
// election.
func (c *Cluster) Failed(t testing.TB, replica *Server) {
	t.Helper()
	every(t, 5*time.Millisecond, func() error {
		nodes, err := replica.nodes()
		if err != nil {
			return err
		}
		flags, master := map[string][]string{}, ""
		for _, words := range nodes { // for a master, the master is "-"
			flags[words[0]] = strings.Split(words[2], ",")
			if slices.Contains(flags[words[0]], "myself") {
				master = words[3]
			}
		}
		if master != "-" && !slices.Contains(flags[master], "fail") {
			return fmt.Errorf("%s considers its master %v", replica.Addr(), flags[master])
		}
		return nil
	})
}

// Promoted waits until a replica is a master.
func (c *Cluster) Promoted(t testing.TB, replica *Server) {
	t.Helper()
	every(t, 5*time.Millisecond, func() error { return replica.is("master") })
}
