package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/worqr/worqr/integration/load"
)

// evidence is what a run recorded: the events of driver and peers and, if available, the server's
// history.
type evidence struct {
	arena     *arena
	events    []event
	order     *replay     // nil if the server has no history
	lossTimes []time.Time // when peers reported that Redis lost writes

	tasks  load.Accounts
	faults map[string][]event // kills, stops and cuts, by peer
	peers  map[string]string  // worker → peer, as the peers reported
}

// judge checks the evidence against all guarantees.
func (e *evidence) judge(r *report) {
	e.tasks = load.Accounts{}
	e.faults, e.peers = map[string][]event{}, map[string]string{}
	for _, v := range e.events {
		e.tasks.Take(&v)
		if v.Worker != "" {
			e.peers[v.Worker] = v.Peer
		}
		switch v.Op {
		case opKill:
			r.Kills++
			e.faults[v.Peer] = append(e.faults[v.Peer], v)
		case opStop, opCont:
			e.faults[v.Peer] = append(e.faults[v.Peer], v)
		case opCut:
			e.faults[v.Peer] = append(e.faults[v.Peer], v)
			r.cut(v.Note, 1)
		}
	}
	if e.order != nil {
		r.Violations = append(r.Violations, e.order.violations...)
		e.fencing(r)
		e.deaths(r)
		e.recovery(r)
	}
	e.conservation(r)
	e.singleness(r)
	e.zombies(r)
	e.waiting(r)
	e.canceling(r)
	e.answers(r)
	if e.arena.forgets {
		e.lossReports(r, e.lossTimes)
	}
}

// conservation: every acknowledged task has ended, is in the failed queue, or was canceled. No
// refused task is anywhere.
func (e *evidence) conservation(r *report) {
	lose := func(t *load.Account, how string) {
		if e.arena.forgets {
			r.Forgotten++
			t.Forgotten = true
			r.Notes = append(r.Notes, "lost with Redis: "+t.Name+": "+how)
			return
		}
		r.Lost++
		r.violate("lost: %s: %s", t.Name, how)
	}
	for _, t := range e.tasks {
		switch t.Enqueue {
		case load.Okay:
			r.Enqueued++
		case load.Refused:
			r.Refused++
		default:
			r.Doubtful++
		}
		if t.Cancel == load.Okay {
			r.Canceled++
		}
		if e.order == nil {
			e.seen(t, lose)
			continue
		}
		s := e.order.stories[t.Name]
		switch {
		case s == nil && t.Enqueue == load.Okay:
			lose(t, "its enqueue was acknowledged, but isn't in the server's history")
		case s == nil:
		case t.Enqueue == load.Refused:
			r.violate("%s was enqueued, though its producer got a refusal", t.Name)
		case s.dropped && t.Cancel == "":
			lose(t, "it no longer waits, and nobody canceled it")
		case s.failed && s.ends == 0:
			r.Failed++
		case s.places > 0:
			lose(t, "it is still there")
		case s.ends == 1 && t.Cancel == "":
			r.Finished++
		case s.ends > 1:
			r.Twice++
			r.violate("%s has ended %d times", t.Name, s.ends)
		}
	}
	if e.order != nil {
		for name, s := range e.order.stories {
			if t := e.tasks[name]; t == nil && s.places > 0 || t != nil && t.Invoked == 0 {
				r.violate("%s is in Redis, but nobody enqueued it", name)
			}
		}
	}
}

// seen checks conservation by the peers' reports alone: every acknowledged task has been run to its
// end.
func (e *evidence) seen(t *load.Account, lose func(*load.Account, string)) {
	ended := slices.ContainsFunc(t.Runs, func(n *load.Run) bool {
		return n.Over > 0 && n.Note != load.NoteRetry || n.Finishing > 0 && n.Over == 0 // the peer was killed in between
	})
	if t.Enqueue == load.Okay && t.Cancel == "" && !ended {
		lose(t, "no handler has run it to its end")
	}
}

// singleness: a task is finished at most once, as the handlers see it.
func (e *evidence) singleness(r *report) {
	for _, t := range e.tasks {
		r.Starts += len(t.Runs)
		n := 0
		for _, u := range t.Runs {
			if u.Finish == load.Okay {
				n++
			}
		}
		if n > 1 && !e.arena.forgets {
			r.Twice++
			r.violate("%d handlers were told that they had finished %s", n, t.Name)
		}
	}
}

// fencing: the result of a handler's Finish is what really happened, and no stale Finish was
// accepted.
func (e *evidence) fencing(r *report) {
	for _, t := range e.tasks {
		for _, u := range t.Runs {
			s := e.order.runs[u.Process]
			if s == nil {
				if !e.arena.forgets {
					r.violate("a handler ran process %s of %s, which the server had not started", u.Process, t.Name)
				}
				continue
			}
			i := slices.IndexFunc(s.starts, func(st start) bool { return st.process == u.Process })
			end := s.starts[i].end
			if u.Finish == "" {
				continue
			}
			if end == returned && u.Finishing > 0 && u.Finish == load.Refused {
				r.Stale++
			}
			if u.Finish == load.Okay && end != finished && !e.arena.forgets {
				if end == returned {
					r.Stale++
					r.Accepted++
				}
				r.violate("a handler was told that it has finished %s (process %s), which was %q", t.Name, u.Process, end)
			}
		}
	}
}

// peerOf returns the peer of a worker. Registrations don't always have it: a peer that comes back
// under another id joins its queues even if its registration is lost on the link.
func (e *evidence) peerOf(worker string) string {
	return cmp.Or(e.order.names[worker], e.peers[worker])
}

// deaths: a worker is evicted only if its peer was killed, stopped or cut off, and a task starts
// again only if the worker that held it was evicted.
func (e *evidence) deaths(r *report) {
	for _, f := range e.order.fences {
		if !f.failed {
			continue
		}
		peer := e.peerOf(f.worker)
		excused := len(e.faults[peer]) > 0 || len(e.faults[""]) > 0 && e.arena.cut
		if !excused || e.arena.alive {
			if !e.arena.strict && e.late(peer, f) {
				r.Late++
				r.InFlight += len(f.held)
				continue
			}
			r.FalseDeaths++
			r.violate("worker %s of peer %s was evicted, but nothing was wrong with it", f.worker, peer)
			continue
		}
		r.InFlight += len(f.held)
	}
	for _, s := range e.order.stories {
		for i := 1; i < len(s.starts); i++ {
			if s.starts[i-1].end == returned {
				r.Extra++
			}
		}
	}
	if r.Extra > r.InFlight {
		r.violate("%d extra starts, but only %d tasks were in flight at the deaths", r.Extra, r.InFlight)
	}
}

// recovery measures how long after a kill each held task started again. The guarantee requires live
// peers that may evict the dead one, so it doesn't apply around a kill of all peers.
func (e *evidence) recovery(r *report) {
	var all []int64
	for _, v := range e.events {
		if v.Op == opKill && v.Note == noteAll {
			all = append(all, v.Mono)
		}
	}
	alone := func(at int64) bool {
		return slices.ContainsFunc(all, func(a int64) bool { return max(at-a, a-at) < 3*int64(e.arena.lease) })
	}
	began := map[string]int64{} // process → when its handler began
	for _, t := range e.tasks {
		for _, u := range t.Runs {
			began[u.Process] = u.Began
		}
	}
	for _, f := range e.order.fences {
		peer := e.peerOf(f.worker)
		i := slices.IndexFunc(e.faults[peer], func(v event) bool { return v.Op == opKill && v.Note != noteAll })
		if !f.failed || i < 0 || len(e.faults[peer]) > 1 || alone(e.faults[peer][i].Mono) {
			continue
		}
		for _, id := range f.held {
			s := e.order.runs[id]
			at := slices.IndexFunc(s.starts, func(st start) bool { return st.process == id })
			if at < 0 || at+1 >= len(s.starts) || s.starts[at].end != returned {
				continue
			}
			if b := began[s.starts[at+1].process]; b > 0 { // otherwise its next worker died before it began, too
				r.Recoveries = append(r.Recoveries, time.Duration(b-e.faults[peer][i].Mono))
			}
		}
	}
}

// waiting measures how long tasks wait for their first start.
func (e *evidence) waiting(r *report) {
	for _, t := range e.tasks {
		if t.Enqueue == load.Okay && len(t.Runs) > 0 {
			r.Waits = append(r.Waits, time.Duration(max(t.Runs[0].Began-t.Answered, 0)))
		}
	}
}

// canceling: a canceled task doesn't start again, and the context of a running one ends soon.
func (e *evidence) canceling(r *report) {
	for _, t := range e.tasks {
		if t.Cancel != load.Okay {
			continue
		}
		for _, u := range t.Runs {
			switch {
			case u.Began > t.Canceled:
				if e.order != nil {
					e.afterCancel(r, t, u)
				}
			case u.Told > t.Canceled && u.Cause == load.NoteCanceled:
				r.Stops = append(r.Stops, time.Duration(u.Told-t.Canceled))
			}
		}
	}
}

// afterCancel: if a handler begins after its task's cancel was acknowledged, the task was started
// before, and its context ends at once.
func (e *evidence) afterCancel(r *report, t *load.Account, u *load.Run) {
	if u.Told == 0 && u.Over > 0 && time.Duration(u.Over-u.Began) > time.Second {
		r.violate("%s ran for %v after it had been canceled", t.Name, time.Duration(u.Over-u.Began))
	}
}
