package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// ErrClosed is the error of calls after the connections were closed.
var ErrClosed = redisconn.ErrClosed

const DefaultTimeout = redisconn.DefaultTimeout

// MaxName is the longest allowed name of a queue, or prefix, in bytes.
const MaxName = keys.MaxName

// CheckName returns why name can't be the name of a queue, or nil.
func CheckName(name string) error { return keys.CheckName(name) }

// CheckPrefix returns why prefix can't be a prefix, or nil.
func CheckPrefix(prefix string) error { return keys.CheckPrefix(prefix) }

// A Dial makes a connection.
type Dial = redisconn.Dial

// Servers are the Redis servers of a fleet, and Access says how to connect to them.
type (
	Servers = topology.Servers
	Access  = topology.Options
)

// Open returns the servers at a URL.
func Open(url string, access Access) (*Servers, error) { return topology.Open(url, access) }

// Single returns the one server that dial connects to.
func Single(dial Dial) *Servers { return topology.Of(dial) }

// DialPool returns the server that the connections of a pool lead to, and how many of them rounds
// may use.
func DialPool(pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}) (servers *Servers, lanes int) {
	servers = Single(redisconn.FromPool(pool))
	if _, dials := pool.(*redis.Pool); dials {
		return servers, Lanes
	}
	return servers, pooledLanes
}

// How many rounds of a queue may be in flight at the same time if Redis is far away, each on a
// connection of its own. A Pool may have few connections, and other callers wait for them.
const (
	Lanes       = 4
	pooledLanes = 2
)

// Lines are the connections of a peer.
type Lines struct {
	Calls   *topology.Router        // calls of producers, and reads
	Work    [Lanes]*topology.Router // rounds; the others are used while a round is in flight on the first
	Control *topology.Router        // beats, joins, leaves: never behind payloads
	Sub     *topology.Subscribers
	Lanes   int // how many of Work may be used
}

// Lane returns the connection for a round if no other round of the queue is in flight: one on which
// it doesn't have to wait for rounds of other queues.
func (s *View) Lane() int {
	if !s.Work[0].Line(s.Keys).Free() {
		if second := s.Work[1].Line(s.Keys); second.Ready() && second.Free() {
			return 1
		}
	}
	return 0
}

// Ready reports whether the connection for rounds exists. If not, Ready makes it in the background.
func (s *View) Ready(lane int) bool { return s.Work[lane].Line(s.Keys).Ready() }

// Silent reports whether no connection for rounds has received anything from the queue's server for
// its timeout.
func (s *View) Silent() bool {
	return !slices.ContainsFunc(s.Work[:], func(w *topology.Router) bool { return !w.Line(s.Keys).Silent() })
}

// NewLines returns the connections, which are made when first used. Calls time out after timeout,
// on Control after beat, the interval of heartbeats. Calls repeats calls that the server has
// postponed; on Work and Control, the caller repeats and logs them. NewLines also configures the
// log to recognize the errors that mean that Redis is down.
func NewLines(servers *Servers, lanes int, log *logs.Log, timeout, beat time.Duration) *Lines {
	log.Away, log.Answered, log.Refused, log.Server = redisconn.Away, redisconn.Answered, redisconn.BadLogin, servers.Address()
	router := func(timeout time.Duration, verified bool) *topology.Router {
		return topology.NewRouter(servers, timeout, func(dial redisconn.Dial) *redisconn.Line {
			line := redisconn.NewLine(dial, timeout).Renewed(servers.Renew())
			if verified {
				line.Verified()
			}
			return line
		})
	}
	l := &Lines{Calls: router(timeout, true).Patient(), Control: router(beat, false), Lanes: lanes}
	for lane := range l.Work {
		l.Work[lane] = router(timeout, false)
	}
	l.Sub = topology.NewSubscribers(servers, l.Calls, func(dial redisconn.Dial) *redisconn.Subscriber {
		return redisconn.NewSubscriber(dial, log)
	})
	return l
}

// Somewhere is the home of a queue if there is only one server, or if it isn't known.
const Somewhere = ""

// InCluster reports whether queues may be on several nodes.
func (l *Lines) InCluster() bool { return l.Control.InCluster() }

// Abort ends calls in flight on Work and Control.
func (l *Lines) Abort() {
	var all sync.WaitGroup
	defer all.Wait()
	for _, w := range l.Work {
		all.Go(w.Abort)
	}
	all.Go(l.Control.Abort)
}

// Close closes the connections. It waits until calls in flight have ended.
func (l *Lines) Close() {
	l.Sub.Close()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(l.Calls.Close)
	for _, w := range l.Work {
		all.Go(w.Close)
	}
	all.Go(l.Control.Close)
}
