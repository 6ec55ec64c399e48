package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/worqr/worqr/integration/load"
)

// evidence is what a run has left behind: what everybody has written down and, if
// it is there, the order of the server.
type evidence struct {
	arena     *arena
	events    []event
	order     *replay     // nil if the server keeps none
	confessed []time.Time // when peers have said that Redis has lost something

	tasks  load.Accounts
	faults map[string][]event // kills, stops and cuts, by peer
	peers  map[string]string  // worker → peer, as the peers say
}

// judge holds it against everything that is promised.
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
		e.confession(r, e.confessed)
	}
}

// conservation: what was acknowledged has ended, or is in the failed queue, or was
// canceled; what was refused is nowhere.
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
			lose(t, "its enqueue was acknowledged, and is not in the server's history")
		case s == nil:
		case t.Enqueue == load.Refused:
			r.violate("%s was enqueued, though its producer was told that it was not", t.Name)
		case s.dropped && t.Cancel == "":
			lose(t, "it went from where it waited, and nobody canceled it")
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
				r.violate("%s is in Redis, and nobody has enqueued it", name)
			}
		}
	}
}

// seen is conservation by what the peers alone have seen: whatever was
// acknowledged has been run to an end.
func (e *evidence) seen(t *load.Account, lose func(*load.Account, string)) {
	ended := slices.ContainsFunc(t.Runs, func(n *load.Run) bool {
		return n.Over > 0 && n.Note != load.NoteRetry || n.Finishing > 0 && n.Over == 0 // its peer was killed meanwhile
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
			r.violate("%d handlers were told that they have finished %s", n, t.Name)
		}
	}
}

// fencing: what a handler was told of its finish is what happened, and nothing
// stale was accepted.
func (e *evidence) fencing(r *report) {
	for _, t := range e.tasks {
		for _, u := range t.Runs {
			s := e.order.runs[u.Process]
			if s == nil {
				if !e.arena.forgets {
					r.violate("a handler ran process %s of %s, which the server has not started", u.Process, t.Name)
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

// peerOf is the peer that a worker is, or was. Its registration doesn't always tell: a peer that
// comes back under another id joins its queues even if its link takes the registration away.
func (e *evidence) peerOf(worker string) string {
	return cmp.Or(e.order.names[worker], e.peers[worker])
}

// deaths: a worker is failed only if its peer was killed, stopped or cut off, and
// a task starts once more only if its worker was failed holding it.
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
			r.violate("worker %s of peer %s was failed, and nothing was wrong with it", f.worker, peer)
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
		r.violate("%d extra starts, and %d tasks were in flight at the deaths", r.Extra, r.InFlight)
	}
}

// recovery measures how long after a kill each task that was held has started
// anew. That is promised where others live on who may judge: so not around a kill of
// all.
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
	began := map[string]int64{} // process → when its handler did
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
			if b := began[s.starts[at+1].process]; b > 0 { // or its next worker died, too, before it began
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

// canceling: what was canceled starts no more, and the context of what ran has
// ended, soon.
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

// afterCancel: a handler that begins after a cancel was answered was started
// before it, so that it was told at once.
func (e *evidence) afterCancel(r *report, t *load.Account, u *load.Run) {
	if u.Told == 0 && u.Over > 0 && time.Duration(u.Over-u.Began) > time.Second {
		r.violate("%s ran for %v after it had been canceled", t.Name, time.Duration(u.Over-u.Began))
	}
}
