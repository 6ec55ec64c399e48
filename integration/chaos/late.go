package main

import (
	"math"
	"slices"

	"github.com/worqr/worqr/integration/load"
)

// late reports whether the peer of a worker, or the driver that runs its link, had to wait for the
// CPU around the time when the worker was evicted.
func (e *evidence) late(peer string, f fence) bool {
	from, to := e.since(f.commit)-3*int64(e.arena.lease), int64(math.MaxInt64)
	born := int64(0)
	for _, v := range e.events {
		switch {
		case v.Op != load.OpUp || v.Peer != peer:
		case v.Worker == f.worker:
			born = v.Mono
		case v.Mono > max(from, born):
			to = min(to, v.Mono) // the peer has noticed, and continues under another id
		}
	}
	return slices.ContainsFunc(e.events, func(v event) bool {
		return v.Op == load.OpLate && (v.Peer == peer || v.Peer == "") && v.Mono >= from && v.Mono-v.Waited <= to
	})
}
