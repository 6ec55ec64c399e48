package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

// watch writes down when the machine doesn't let this process run for a third of a lease: then a peer
// may be failed though nothing has been done to it. It ends with what it returns.
func watch(lease time.Duration, say func(event)) (end func()) {
	const between = 10 * time.Millisecond // two looks
	stop := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for last := mono(); ; {
			select {
			case <-stop:
				return
			case <-time.After(between):
			}
			now := mono()
			if waited := now - last - int64(between); waited > int64(lease/3) {
				say(event{Op: opLate, Waited: waited})
			}
			last = now
		}
	})
	return func() {
		close(stop)
		over.Wait()
	}
}

// late reports whether the peer of a worker, or the driver through which its link goes, had to wait
// for the machine around the time at which the worker was failed.
func (e *evidence) late(peer string, f fence) bool {
	from, to := e.since(f.commit)-3*int64(e.arena.lease), int64(math.MaxInt64)
	born := int64(0)
	for _, v := range e.events {
		switch {
		case v.Op != opUp || v.Peer != peer:
		case v.Worker == f.worker:
			born = v.Mono
		case v.Mono > max(from, born):
			to = min(to, v.Mono) // the peer has noticed, and goes on under another id
		}
	}
	return slices.ContainsFunc(e.events, func(v event) bool {
		return v.Op == opLate && (v.Peer == peer || v.Peer == "") && v.Mono >= from && v.Mono-v.Waited <= to
	})
}
