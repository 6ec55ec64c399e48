package main

import (
	"math/rand/v2"
	"strings"

	"github.com/worqr/worqr/internal/redistest"
)

// newSite starts servers for some queues.
func newSite(t *redistest.Stand, of engine, args, queues []string) site {
	admit := func(all []*redistest.Server) {
		for _, s := range all {
			redistest.Sure(s.Call("ACL", "SETUSER", mixUser, "on", ">"+mixSecret, "~*", "&*", "+@all"))(t)
		}
	}
	if of == onCluster {
		c := redistest.StartCluster(t, 3, 3, append(args, "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no", "--cluster-node-timeout", "3000")...) // campaigns share the disk
		admit(c.Nodes)
		nodes := &nodes{t: t, Cluster: c}
		for _, q := range queues {
			nodes.slots = append(nodes.slots, c.Slot(t, "{"+q+"}"))
		}
		return nodes
	}
	args = append(args, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "3")
	w := &watched{t, redistest.StartSentinels(t, redistest.SentinelSetup{Args: args})}
	admit(w.Servers)
	w.Ready(t)
	return w
}

// A watched is servers at sentinels.
type watched struct {
	t *redistest.Stand
	*redistest.Sentinels
}

func (w *watched) url() string { return asMixed(w.URL()) }

func (n *nodes) url() string { return asMixed(n.URL()) }

func asMixed(url string) string {
	return strings.Replace(url, "://", "://"+mixUser+":"+mixSecret+"@", 1)
}

func (w *watched) all() []*redistest.Server { return []*redistest.Server{w.Master(w.t)} }

func (w *watched) trouble(d *rand.Rand) string {
	w.Replace(w.t, w.Ready(w.t), w.Watch[d.IntN(len(w.Watch))], mixUser, func() {})
	return "failover"
}

// Nodes are those of a cluster.
type nodes struct {
	t *redistest.Stand
	*redistest.Cluster
	slots []int // of the queues
}

func (n *nodes) all() []*redistest.Server { return n.Masters() }

func (n *nodes) trouble(d *rand.Rand) string {
	slot := n.slots[d.IntN(len(n.slots))]
	owner, next := n.OwnerAndReplica(n.t, slot)
	switch d.IntN(4) {
	case 0:
		n.TakeOver(n.t, next)
		n.OwnerAndReplica(n.t, slot) // on a busy machine, the others may have promoted the old one again
		return "takeover"
	case 1:
		redistest.Agreed(n.t, owner, next)
		n.Kill(owner)
		n.Promoted(n.t, next)
		owner.Restart(n.t)
		redistest.Sure(owner.Call("ACL", "SETUSER", mixUser, "on", ">"+mixSecret, "~*", "&*", "+@all"))(n.t)
		n.OwnerAndReplica(n.t, slot)
		return "death of a master"
	}
	to := owner
	for all := n.Masters(); to == owner; {
		to = all[d.IntN(len(all))]
	}
	n.Move(n.t, slot, to)
	return "slot move"
}
