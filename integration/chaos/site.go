package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// A stand is what the harness of tests takes for a test. Whatever fails there panics with a
// failure, which guard returns.
type stand struct {
	testing.TB // nil: what the harness doesn't use isn't there
	dir        string
	cleanup    *[]func()
}

type failure struct{ error }

func (a *arena) stand() *stand { return &stand{dir: a.dir, cleanup: &a.cleanup} }

// guard returns what fails in do.
func guard(do func()) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = f.error
		default:
			panic(f)
		}
	}()
	do()
	return nil
}

// Helper and the following are those of a test.
func (s *stand) Helper() {}

func (s *stand) Fatal(args ...any) { panic(failure{fmt.Errorf("servers: %s", fmt.Sprint(args...))}) }

func (s *stand) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

func (s *stand) Error(args ...any) { s.Fatal(args...) }

func (s *stand) Skip(args ...any) { s.Fatal(args...) }

func (s *stand) Cleanup(f func()) { *s.cleanup = append([]func(){f}, *s.cleanup...) }

func (s *stand) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "servers-")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// newSite starts servers for some queues.
func newSite(t *stand, of engine, args, queues []string) site {
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
	t *stand
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
	t *stand
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
