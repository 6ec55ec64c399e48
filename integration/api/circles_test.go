package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// partial starts a cluster whose nodes keep serving while others are down.
func partial(t *testing.T, masters, replicas int) *redistest.Cluster {
	t.Helper()
	return redistest.StartCluster(t, masters, replicas, "--cluster-require-full-coverage", "no")
}

// A fleetAt is a fleet of peers on a cluster, with queues on three nodes.
type fleetAt struct {
	*testing.T
	c     *redistest.Cluster
	lease time.Duration
	names []string
	ran   map[string]*tally
	log   journal
	peers []*worqr.Peer
	conns map[string]redis.Conn // by queue
	round int
}

// newFleetAt starts two peers, and returns when both serve all queues.
func newFleetAt(t *testing.T, c *redistest.Cluster, lease time.Duration, names ...string) *fleetAt {
	t.Helper()
	f := &fleetAt{T: t, c: c, lease: lease, names: names, ran: map[string]*tally{}, conns: map[string]redis.Conn{}}
	for _, name := range names {
		f.ran[name] = &tally{}
	}
	f.serve()
	f.serve()
	f.serving(names...)
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

// serve starts another peer that serves the queues.
func (f *fleetAt) serve() {
	f.Helper()
	p := openAt(f.T, f.c.URL(), worqr.Options{Prefix: "p", Lease: f.lease, Logger: f.log.Logger()})
	for _, name := range f.names {
		p.Queue(name).Handle(f.ran[name].handle, nil)
	}
	run(f.T, p)
	f.peers = append(f.peers, p)
}

func (f *fleetAt) ids() (all []string) {
	for _, p := range f.peers {
		all = append(all, p.WorkerID())
	}
	return all
}

// node returns a connection to the node that had the queue at the first call.
func (f *fleetAt) node(name string) redis.Conn {
	f.Helper()
	if f.conns[name] == nil {
		f.conns[name] = at(f.T, f.c, name)
	}
	return f.conns[name]
}

func (f *fleetAt) members(name string) int {
	f.Helper()
	return sure(redis.Int(f.node(name).Do("ZCARD", "p:workers:{"+name+"}")))(f)
}

// serving waits until all peers serve the named queues.
func (f *fleetAt) serving(names ...string) {
	f.Helper()
	for _, name := range names {
		eventually(f, "all serve "+name, func() bool { return f.members(name) == len(f.peers) })
	}
}

// works waits until a new task has run on each of the named queues.
func (f *fleetAt) works(names ...string) {
	f.Helper()
	f.round++
	task := fmt.Sprint("round ", f.round)
	for _, name := range names {
		must(f, f.peers[0].Queue(name).Enqueue(f.Context(), []byte(task)))
	}
	for _, name := range names {
		eventually(f, "a task runs at "+name, func() bool { return f.ran[name].of(task) > 0 })
	}
}

// dead adds a dead worker to each of the named queues.
func (f *fleetAt) dead(names ...string) {
	f.Helper()
	for _, name := range names {
		dead(f.T, f.node(name), "p", name, f.lease, 1)
	}
}

// evicts adds a dead worker to each of the named queues, and waits until it's evicted from them.
func (f *fleetAt) evicts(names ...string) {
	f.Helper()
	before := time.Now()
	f.dead(names...)
	f.serving(names...)
	took := time.Since(before)
	f.Log("the dead worker is evicted after", took)
	if took > 4*f.lease { // it takes a lease and a half, and more on a busy machine
		f.Errorf("the dead worker was evicted after %v", took)
	}
}

// stay checks that peers still have these ids, and that no live worker was evicted.
func (f *fleetAt) stay(ids []string) {
	f.Helper()
	is.New(f.T).Equal(f.ids(), ids)
	for _, line := range f.log.Lines("evicted") {
		if !strings.Contains(line, "dead0") {
			f.Error(line)
		}
	}
}

// Each node of a cluster has its own leases. While one is frozen, heartbeats continue on the
// others, dead workers are evicted there, and tasks run. When it's back, no live worker is evicted
// on any node, and dead workers are evicted there, too. Peers that start in the meantime serve the
// other nodes.
func TestClusterFrozenNode(t *testing.T) {
	is := parallel(t)
	c := partial(t, 3, 0)
	names := []string{"a", "b", "c"} // on three nodes
	owner := func() *redistest.Server { return ownerOf(t, c, "{"+names[0]+"}") }
	// Peers can't start unless they can read the fleet's protocol version and the list of peers.
	for owner() == ownerOf(t, c, "p:protocol") || owner() == ownerOf(t, c, "p:workers") {
		names = append(names[1:], names[0])
	}
	f, others := newFleetAt(t, c, 2*time.Second, names...), names[1:]
	f.works(names...)
	f.evicts(names...)
	ids := f.ids()

	frozen := owner()
	frozen.Pause(t)
	since := time.Now()
	f.works(others...)
	f.evicts(others...)
	for range 4 { // a peer whose registration would be on the frozen node tries another id
		f.serve()
	}
	f.serving(others...)
	is.Equal(f.ids()[:2], ids)
	ids = f.ids()
	for time.Since(since) < 10*time.Second {
		f.works(others...)
		f.serving(others...)
	}
	frozen.Resume(t)
	f.works(names...)
	f.serving(names...)
	f.evicts(names...)
	f.stay(ids)
}

// A replica replaces a node that dies. No live worker is evicted on any node because of that. Dead
// workers are evicted; on the other nodes that takes no longer than usual.
func TestClusterPromotion(t *testing.T) {
	t.Parallel()
	c := partial(t, 3, 3)
	names := []string{"a", "b", "c"} // on three nodes
	f := newFleetAt(t, c, 2*time.Second, names...)
	f.evicts(names...)
	ids := f.ids()
	owner := ownerOf(t, c, "{a}")
	owner.Kill()
	f.evicts("b", "c")
	eventually(t, "a replica is promoted", func() bool { return ownerOf(t, c, "{a}") != owner })
	delete(f.conns, "a")
	f.works(names...)
	f.serving(names...)
	f.evicts(names...)
	f.stay(ids)
}

// Slots that keep moving don't delay heartbeats. Dead workers are still evicted: in time from queues
// that don't move, and after the moves from those that do.
func TestClusterSlotsToAndFro(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	names := []string{"a", "b", "c", "d", "e", "f"}
	f := newFleetAt(t, c, 2*time.Second, names...)
	f.works(names...)
	ids := f.ids()
	before := time.Now()
	f.dead("b", "c")
	moving := []string{"a", "d", "e"}
	for f.members("b") > 2 || f.members("c") > 2 {
		for _, name := range moving {
			away(t, c, name)
		}
		c.Heard(t)
		f.works(moving...)
		is.True(time.Since(before) < 15*f.lease) // each loop takes seconds on a busy machine
	}
	for _, name := range moving {
		delete(f.conns, name)
	}
	f.evicts(names...)
	f.works(names...)
	f.stay(ids)
}
