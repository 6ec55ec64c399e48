package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// away moves the slot of a queue to another master while it's in use.
func away(t *testing.T, c *redistest.Cluster, queue string) {
	t.Helper()
	slot := c.Slot(t, "{"+queue+"}")
	to := c.Nodes[0]
	if c.Owner(t, slot) == to {
		to = c.Nodes[1]
	}
	c.Move(t, slot, to)
}

// ownerOf returns the master that has a key.
func ownerOf(t *testing.T, c *redistest.Cluster, key string) *redistest.Server {
	t.Helper()
	return c.Owner(t, c.Slot(t, key))
}

// at returns a connection to the owner of a queue.
func at(t *testing.T, c *redistest.Cluster, queue string) redis.Conn {
	t.Helper()
	return redistest.Dial(t, ownerOf(t, c, "{"+queue+"}").URL())
}

// onEach runs a command on each node of a cluster.
func onEach(t *testing.T, c *redistest.Cluster, command string, args ...any) {
	t.Helper()
	for _, n := range c.Nodes {
		redistest.Do(t, redistest.Dial(t, n.URL()), command, args...)
	}
}

// clusterUser creates a user with a rule on all nodes, and returns its URL.
func clusterUser(t *testing.T, c *redistest.Cluster, name string, rule ...string) string {
	t.Helper()
	onEach(t, c, "ACL", redis.Args{"SETUSER", name}.AddFlat(rule)...)
	return strings.Replace(c.URL(), "://", "://"+name+":SECRET@", 1)
}

// partial starts a cluster of three masters that keep serving while others are down.
func partial(t *testing.T) *redistest.Cluster {
	t.Helper()
	return redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
}

// A fleetAt is a fleet of two peers on a cluster, with queues on three nodes.
type fleetAt struct {
	*testing.T
	c     *redistest.Cluster
	names []string
	ran   map[string]*tally
	log   journal
	peers []*worqr.Peer
}

// newFleetAt starts the peers, and returns when both serve all queues.
func newFleetAt(t *testing.T, c *redistest.Cluster, lease time.Duration, names ...string) *fleetAt {
	t.Helper()
	f := &fleetAt{T: t, c: c, names: names, ran: map[string]*tally{}}
	for _, name := range names {
		f.ran[name] = &tally{}
	}
	for range 2 {
		p := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: lease, Logger: f.log.Logger()})
		for _, name := range names {
			p.Queue(name).Handle(f.ran[name].handle, nil)
		}
		run(t, p)
		f.peers = append(f.peers, p)
	}
	for _, name := range names {
		eventually(t, "both serve "+name, func() bool {
			return sure(redis.Int(at(t, c, name).Do("ZCARD", "p:workers:{"+name+"}")))(t) == len(f.peers)
		})
	}
	return f
}

// streams makes another peer enqueue tasks, until the stream of a queue is closed.
func (f *fleetAt) streams() map[string]*stream {
	f.Helper()
	producer, all := openAt(f.T, f.c.URL(), worqr.Options{Prefix: "p"}), map[string]*stream{}
	for _, name := range f.names {
		all[name] = newStream(f.T, producer.Queue(name))
	}
	return all
}

func (f *fleetAt) ids() (all []string) {
	for _, p := range f.peers {
		all = append(all, p.WorkerID())
	}
	return all
}

// Peers need only the URL of a cluster. While slots of their queues move under load, no task is
// lost or runs twice, and no worker is evicted.
func TestClusterSlotMoves(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	f := newFleetAt(t, c, 0, "a", "b", "c") // on three nodes
	ids := f.ids()
	streams := f.streams()
	for i := range 6 {
		name := f.names[i%len(f.names)]
		before := f.ran[name].len()
		eventually(t, "tasks run", func() bool { return f.ran[name].len() > before+50 })
		away(t, c, name)
	}
	for name, s := range streams {
		of, taken := f.ran[name], s.close()
		is.True(len(taken) > 100)
		for _, task := range taken {
			eventually(t, "a task runs", func() bool { return of.of(task) > 0 })
			is.Equal(of.of(task), 1)
		}
		is.Equal(of.len(), len(taken))
	}
	is.Equal(f.ids(), ids) // no worker was evicted
	is.Equal(f.log.Lines("level=WARN"), nil)
	is.Equal(f.log.Lines("level=ERROR"), nil)
}

// The worker of docs/security.md works in a cluster, with or without the cluster's additions to its
// rule. Without them, a call finds a moved slot by following one MOVED reply.
func TestClusterUsers(t *testing.T) {
	t.Parallel()
	for user, more := range map[string][]string{
		"bare-p": nil, "worker-p": redistest.ClusterRule(t, "worker"), // worker-p must not be denied anything
	} {
		t.Run(user, func(t *testing.T) {
			is := parallel(t)
			c := redistest.StartCluster(t, 2, 0)
			url := clusterUser(t, c, user, append(redistest.Rule(t, "worker", "p"), more...)...)
			var log journal
			ran := &tally{}
			p := openAt(t, url, worqr.Options{Prefix: "p", Logger: log.Logger()})
			p.Queue("q").Handle(ran.handle, nil)
			run(t, p)
			for i := range 4 {
				task := fmt.Sprint(i)
				is.NoErr(p.Queue("q").Enqueue(t.Context(), []byte(task)))
				eventually(t, "the task runs", func() bool { return ran.of(task) == 1 })
				away(t, c, "q")
			}
			is.Equal(log.Lines("level=WARN"), nil)
			is.Equal(log.Lines("level=ERROR"), nil)
		})
	}
}
