package store

import (
	"context"
	"errors"

	"github.com/worqr/worqr/internal/redisconn"
)

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
