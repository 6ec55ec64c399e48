package main

import (
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/load"
)

// A nap is a time in which a peer was stopped.
type nap struct {
	peer, worker string // the id under which it worked before
	woke         int64
}

// naps returns the naps of all peers.
func (e *evidence) naps() (all []nap) {
	worked := map[string]string{} // peer → its last id
	asleep := map[string]nap{}
	for _, v := range e.events {
		switch n, sleeps := asleep[v.Peer]; {
		case v.Op == opStop:
			asleep[v.Peer] = nap{peer: v.Peer, worker: worked[v.Peer]}
		case v.Op == opCont && sleeps:
			n.woke = v.Mono
			all = append(all, n)
			delete(asleep, v.Peer)
		case v.Worker != "":
			worked[v.Peer] = v.Worker
		}
	}
	return all
}

// zombies: a peer that was evicted while it was stopped works again under another id, if it had
// time to.
func (e *evidence) zombies(r *report) {
	if e.order == nil {
		return
	}
	for _, n := range e.naps() {
		if !e.failedIn(n) {
			continue // the nap was short, or no peer was able to evict it
		}
		r.Zombies++
		if e.free(n) >= e.arena.tail && !e.works(n) {
			r.violate("peer %s, worker %s, has done no work since it was woken", n.peer, n.worker)
		}
	}
}

// failedIn reports whether a worker was evicted for its nap: before it woke up, or less than a
// lease later, when no other fault can have caused it yet. If the server's history leaves that
// open, it returns true: then little happened in between, so another fault came soon, and the peer
// had no time.
func (e *evidence) failedIn(n nap) bool {
	return slices.ContainsFunc(e.order.fences, func(f fence) bool {
		return f.failed && f.worker == n.worker && e.since(f.commit) <= n.woke+int64(e.arena.lease)
	})
}

// since returns a time before which the server can't have made a commit, since the tasks of earlier
// commits had not been enqueued yet.
func (e *evidence) since(commit int) (at int64) {
	for name, s := range e.order.stories {
		if t := e.tasks[name]; t != nil && s.commit <= commit {
			at = max(at, t.Invoked)
		}
	}
	return at
}

// free returns how long a peer could have resumed work: from when it woke up until it was stopped
// again or ended, without the times at which its link was cut or the server was down.
func (e *evidence) free(n nap) (free time.Duration) {
	place, _, _ := strings.Cut(n.peer, ".") // its link exists before and after it
	cut := map[string]bool{}                // links; "" is all of them
	last := n.woke
	for _, v := range e.events {
		now := max(v.Mono, n.woke)
		if !cut[place] && !cut[""] {
			free += time.Duration(now - last)
		}
		last = now
		at, _, _ := strings.Cut(v.Peer, ".")
		switch v.Op {
		case opCut:
			cut[at] = true
		case opHeal:
			delete(cut, at)
		case opServer:
			cut[""] = v.Note == noteKill || v.Note == noteStop
		case opKill, opStop, opTerm:
			if v.Peer == n.peer && v.Mono > n.woke {
				return free
			}
		}
	}
	return free
}

// works reports whether a handler of a peer began after its nap, under another id.
func (e *evidence) works(n nap) bool {
	return slices.ContainsFunc(e.events, func(v event) bool {
		return v.Mono > n.woke && v.Peer == n.peer && v.Op == load.OpRun && v.Phase == load.Invoke && v.Worker != n.worker
	})
}
