package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// ErrClosed is the error of calls after the connections were closed.
var ErrClosed = redisconn.ErrClosed

// DefaultTimeout is the timeout of calls where none is given.
const DefaultTimeout = redisconn.DefaultTimeout

// Servers are the Redis servers of a fleet, and Access says how to connect to them.
type (
	Servers = topology.Servers
	Access  = topology.Options
)

// Open returns the servers at a URL.
func Open(url string, access Access) (*Servers, error) { return topology.Open(url, access) }

// Single returns the one server that dial connects to.
func Single(dial redisconn.Dial) *Servers { return topology.Of(dial) }

// DialPool returns the server that the connections of a pool lead to. A peer keeps four of them.
func DialPool(pool redisconn.Pool) *Servers { return Single(redisconn.FromPool(pool)) }

// Lines are the connections of a peer: for each server one for Calls, one for Control and one for Rounds.
type Lines struct {
	Calls   *topology.Router // calls of producers, and reads
	Control *topology.Router // heartbeats, joins, leaves but the last tries of who stops: never behind payloads
	Rounds  *topology.Router
	Sub     *topology.Subscribers
}

// NewLines returns the connections, which are made when first used. Calls time out after timeout,
// on Control after beat, the interval of heartbeats. Calls repeats calls that the server has
// postponed; the callers of Control and the senders of rounds repeat and log theirs. NewLines also configures the
// log to recognize the errors that mean that Redis is down.
func NewLines(servers *Servers, log *logs.Log, timeout, beat time.Duration) *Lines {
	log.Away, log.Answered, log.Refused, log.Server = redisconn.Away, redisconn.Answered, redisconn.BadLogin, servers.Address
	line := func(within time.Duration) func(dial redisconn.Dial) *redisconn.Line {
		return func(dial redisconn.Dial) *redisconn.Line {
			return redisconn.NewLine(dial, within).Renewed(servers.Renew)
		}
	}
	verified := func(dial redisconn.Dial) *redisconn.Line { return line(timeout)(dial).Verified() }
	l := &Lines{
		Calls:   topology.NewRouter(servers, timeout, verified).Patient(),
		Control: topology.NewRouter(servers, beat, line(beat)),
		Rounds:  topology.NewRouter(servers, timeout, line(timeout)),
	}
	l.Sub = topology.NewSubscribers(servers, l.Calls, func(dial redisconn.Dial) *redisconn.Subscriber {
		return redisconn.NewSubscriber(dial, log)
	})
	return l
}

// InCluster reports whether queues may be on several nodes.
func (l *Lines) InCluster() bool { return l.Control.InCluster() }

// Abort ends rounds and calls on Control that are in flight, and returns.
func (l *Lines) Abort() {
	l.Control.Abort()
	l.Rounds.Abort()
}

// Close closes the connections. It waits until calls and rounds in flight have ended.
func (l *Lines) Close() {
	l.Sub.Close()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(l.Calls.Close)
	all.Go(l.Control.Close)
	all.Go(l.Rounds.Close)
}

// ErrCluster says that a cluster node was used as a single server. ErrPlain says
// the reverse.
var (
	ErrCluster = redisconn.ErrCluster
	ErrPlain   = redisconn.ErrPlain
)

// IsMisplaced reports whether an error is ErrCluster or ErrPlain.
func IsMisplaced(err error) bool { return errors.Is(err, ErrCluster) || errors.Is(err, ErrPlain) }

// A Node is a server: the only one, or one of a cluster. Its calls aren't redirected to other nodes.
type Node struct {
	Name    string // "" if it is the only one
	Replica bool
	Runner
}

// Nodes returns all servers, masters first.
func (l *Lines) Nodes(ctx context.Context) (all []Node, err error) {
	nodes, err := l.Calls.Nodes(ctx)
	for _, n := range nodes {
		all = append(all, Node{n.Name, n.Replica, Reads(n.Line, 0)})
	}
	return all, err
}

// Ping asks the server, or each master of a cluster, whether it answers.
func (l *Lines) Ping(ctx context.Context) error {
	nodes, err := l.Calls.Nodes(ctx)
	for _, n := range nodes {
		if err == nil && !n.Replica {
			_, err = Reads(n.Line, 0).One(ctx, redisconn.Command("PING"))
		}
	}
	return err
}

// TellCluster reads a node's CLUSTER INFO.
func (t Told) TellCluster(ctx context.Context, r Runner) error {
	return t.read(reply(r.One(ctx, redisconn.Command("CLUSTER", "INFO"))))
}

// IsNode reports whether a server is a cluster node, from the section cluster of INFO.
func (t Told) IsNode() bool { return t["cluster_enabled"] == "1" }

// IsPlain reports whether a server isn't a cluster node.
func (t Told) IsPlain() bool { return t["cluster_enabled"] == "0" }
