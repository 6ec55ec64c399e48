package topology

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// OneTry returns what makes one try of a dial by a sentinel, which may take as long as it likes.
func OneTry(master, sentinel string) func(context.Context) (redis.Conn, error) {
	server := redisconn.Server{Network: "tcp", Timeout: time.Hour}
	return newSentinels(master, []string{sentinel}, server, server, new(atomic.Pointer[func()])).try
}

// SweepAfter has the router forget nodes without slots after a time that a test can wait for. It is called
// before the router is used.
func (r *Router) SweepAfter(d time.Duration) { r.unused = d }

// ReachWithin has the router wait longer for a connection than it would, on a busy machine. It is called
// before the router is used.
func (r *Router) ReachWithin(d time.Duration) { r.within = d }

// Lines is how many nodes the router has a line to.
func (r *Router) Lines() int { return len(r.lines()) }

// Nodes is at how many nodes somebody listens.
func (s *Subscribers) Nodes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes)
}

// Fail notes that a node could not be reached.
func (r *Router) Fail(at string) { r.reached(at, false) }

// Watch has the router take its server for one that sentinels may replace. It is called before the router
// is used.
func (r *Router) Watch() { r.watched = true }
