package store

import (
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

// IsNode reports whether a server is a cluster node, from the section cluster of INFO.
func (t Told) IsNode() bool { return t["cluster_enabled"] == "1" }

// IsPlain reports whether a server isn't a cluster node.
func (t Told) IsPlain() bool { return t["cluster_enabled"] == "0" }
