package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// away moves the slot of a queue to another master, while it is in use.
func away(t *testing.T, c *redistest.Cluster, queue string) {
	t.Helper()
	slot := c.Slot(t, "{"+queue+"}")
	to := c.Nodes[0]
	if c.Owner(t, slot) == to {
		to = c.Nodes[1]
	}
	c.Move(t, slot, to)
}

// ownerOf is the master that has a key.
func ownerOf(t *testing.T, c *redistest.Cluster, key string) *redistest.Server {
	t.Helper()
	return c.Owner(t, c.Slot(t, key))
}

// at returns a connection to the owner of a queue.
func at(t *testing.T, c *redistest.Cluster, queue string) redis.Conn {
	t.Helper()
	return redistest.Dial(t, ownerOf(t, c, "{"+queue+"}").URL())
}

// onEach has each node of a cluster carry out a command.
func onEach(t *testing.T, c *redistest.Cluster, command string, args ...any) {
	t.Helper()
	for _, n := range c.Nodes {
		redistest.Do(t, redistest.Dial(t, n.URL()), command, args...)
	}
}

// clusterUser makes a user with a rule on all nodes, and returns the URL as which it connects.
func clusterUser(t *testing.T, c *redistest.Cluster, name string, rule ...string) string {
	t.Helper()
	onEach(t, c, "ACL", redis.Args{"SETUSER", name}.AddFlat(rule)...)
	return strings.Replace(c.URL(), "://", "://"+name+":SECRET@", 1)
}

// Peers work in a cluster by its URL alone. Slots of their queues move under load: nothing is
// lost, nothing runs twice, and nobody is evicted.
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
	is.Equal(f.ids(), ids) // nobody was evicted
	is.Equal(f.log.Lines("level=WARN"), nil)
	is.Equal(f.log.Lines("level=ERROR"), nil)
}

// The worker of docs/security.md works in a cluster, with what that adds to its rule and without:
// then a call finds a slot that has moved by going astray once.
func TestClusterUsers(t *testing.T) {
	t.Parallel()
	for user, more := range map[string][]string{
		"bare-p": nil, "worker-p": redistest.ClusterRule(t, "worker"), // nothing may be denied to that one
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
