package store

import (
	"context"

	"github.com/worqr/worqr/internal/redisconn"
)

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
