package main

import (
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/load"
)

// A nap is a time for which a peer stood still.
type nap struct {
	peer, worker string // the id under which it worked before
	woke         int64
}

// naps returns those of all peers.
func (e *evidence) naps() (all []nap) {
	worked := map[string]string{} // peer → the id it had last
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

// zombies: a peer that stood still for so long that it was failed is back at work,
// under another id, once it goes on and has had the time.
func (e *evidence) zombies(r *report) {
	if e.order == nil {
		return
	}
	for _, n := range e.naps() {
		if !e.failedIn(n) {
			continue // it was not long, or nobody was able to judge
		}
		r.Zombies++
		if e.free(n) >= e.arena.tail && !e.works(n) {
			r.violate("peer %s, worker %s, has done no work since it was woken", n.peer, n.worker)
		}
	}
}

// failedIn reports whether a worker was failed for its nap: before it woke, or less
// than a lease later, which no other fault can have done by then. Where the order of
// the server leaves that open, it was: then little has happened in between, so that
// the other fault came soon, and the peer has not had the time.
func (e *evidence) failedIn(n nap) bool {
	return slices.ContainsFunc(e.order.fences, func(f fence) bool {
		return f.failed && f.worker == n.worker && e.since(f.commit) <= n.woke+int64(e.arena.lease)
	})
}

// since is a time before which the server has not made a commit: what is there by
// then had not been enqueued before.
func (e *evidence) since(commit int) (at int64) {
	for name, s := range e.order.stories {
		if t := e.tasks[name]; t != nil && s.commit <= commit {
			at = max(at, t.Invoked)
		}
	}
	return at
}

// free is how long a peer was able to come back to work: from when it woke until it
// stood still again or was to end, without the times at which its link was cut or the
// server away.
func (e *evidence) free(n nap) (free time.Duration) {
	place, _, _ := strings.Cut(n.peer, ".") // its link is there before and after it
	cut := map[string]bool{}                // links, and "" for all
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

// works reports whether a handler of a peer begins after its nap, under another id.
func (e *evidence) works(n nap) bool {
	return slices.ContainsFunc(e.events, func(v event) bool {
		return v.Mono > n.woke && v.Peer == n.peer && v.Op == load.OpRun && v.Phase == load.Invoke && v.Worker != n.worker
	})
}
