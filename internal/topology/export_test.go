package topology

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// OneTry returns a function that makes one try of a dial through a sentinel, without a time limit.
func OneTry(master, sentinel string) func(context.Context) (redis.Conn, error) {
	server := redisconn.Server{Network: "tcp", Timeout: time.Hour}
	return newSentinels(master, []string{sentinel}, server, server, new(atomic.Pointer[func()])).try
}

// SweepAfter makes the router forget nodes without slots after a time that suits a test. Call it
// before the router is used.
func (r *Router) SweepAfter(d time.Duration) { r.unused = d }

// ReachWithin makes the router wait longer for a connection, for busy machines. Call it before the
// router is used.
func (r *Router) ReachWithin(d time.Duration) { r.within = d }

// Lines returns the number of nodes that the router has a line to.
func (r *Router) Lines() int { return len(r.lines()) }

// Nodes returns the number of nodes with listeners.
func (s *Subscribers) Nodes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes)
}

// Fail records that a node couldn't be reached.
func (r *Router) Fail(at string) { r.reached(at, false) }

// Over returns a router to the single server of a line.
func Over(l *redisconn.Line) *Router { return &Router{one: l, end: func() {}} }

// InCluster returns the servers of a cluster.
func InCluster(c *Cluster) *Servers { return &Servers{cluster: c} }

// Moved records the owner of a slot.
func (c *Cluster) Moved(slot int, address string) { c.moved(slot, address) }

// Consider does what the watch does with a master, after its last user has left.
func Consider(master string) {
	server := redisconn.Server{Network: "tcp"}
	s := newSentinels("m", nil, server, server, new(atomic.Pointer[func()]))
	s.consider(context.Background(), answer{address: master, epoch: 1})
}
