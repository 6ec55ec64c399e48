package search

import (
	"slices"

	"github.com/worqr/worqr/integration/spec"
)

// The behavior of a peer: internal/engine and internal/fleet.

// compose yields each round that a worker may send now: ending any of its tasks,
// in any way that the scope has, and with or without asking for another one.
func (m *model) compose(s state, w int, give func(state, request)) {
	p := &s.peers[w]
	lane := 0
	for p.flight[lane].kind != nothing {
		if lane++; lane == m.scope.lanes {
			return
		}
	}
	m.choose(s, w, 0, [maxEnds]end{}, 0, func(s state, ends [maxEnds]end, n int) {
		p := &s.peers[w]
		e := exchange{request: request{kind: toStep, worker: uint8(w), ends: m.sorted(ends, n), seen: p.seen}, sent: true}
		e.runs, e.said = m.stopping(p)
		send := func(s state, start uint8) {
			p := &s.peers[w]
			p.number++
			e.number, e.start = p.number, start
			p.flight[lane] = e
			if start != 0 {
				s.past.ended[start-1] = none
			}
			give(s, e.request)
		}
		if n > 0 || p.acknowledges() || m.news(&s, w) {
			send(s, 0)
		}
		if id := m.freeID(&s, w); id != 0 && s.busy(w) < m.scope.capacity && s.waits() {
			send(s, id)
		}
	})
}

// choose yields each choice of what to end from a slot on.
func (m *model) choose(s state, w, slot int, ends [maxEnds]end, n int, give func(state, [maxEnds]end, int)) {
	if slot == maxSlots || n == maxEnds {
		give(s, ends, n)
		return
	}
	m.choose(s, w, slot+1, ends, n, give)
	h := &s.peers[w].held[slot]
	if h.token == 0 || h.said {
		return
	}
	ways := m.scope.verbs
	if h.canceled {
		ways = []verb{drop, finish}
	}
	h.said = true
	for _, v := range ways {
		ends[n] = end{processOf(w, slot), h.token, v}
		m.choose(s, w, slot+1, ends, n+1, give)
	}
}

// sorted puts returned tasks after the rest, newest first.
func (m *model) sorted(ends [maxEnds]end, n int) [maxEnds]end {
	if n < 2 {
		return ends
	}
	a, b := ends[0], ends[1]
	if a.verb == stop && (b.verb != stop || (a.token < b.token) == m.has(spec.StopsNewestFirst)) {
		ends[0], ends[1] = b, a
	}
	return ends
}

// busy returns how many tasks a worker has, or has asked for.
func (s *state) busy(w int) (n int) {
	for _, h := range s.peers[w].held {
		if h.token != 0 && !h.said {
			n++
		}
	}
	for _, e := range s.peers[w].flight {
		if e.start != 0 {
			n++
		}
	}
	return n
}

// waits reports whether it makes sense to ask for a task.
func (s *state) waits() bool {
	return s.redis.waiting[0] != 0 || s.redis.added[0] != 0 ||
		slices.ContainsFunc(s.redis.entry[:], func(e entry) bool { return e.planned && !e.later })
}

// acknowledges reports whether there is a cancel to acknowledge.
func (p *peer) acknowledges() bool {
	return p.said < p.seen && p.held != [maxSlots]held{}
}

// stopping models the engine's stopping: it returns the held processes that a cancel covers and
// that haven't been named yet, and the last cancel for which that list is complete.
func (m *model) stopping(p *peer) (runs [maxSlots][2]bool, said uint8) {
	said = p.seen
	n := 0
	for i := range p.held {
		for name, token := range p.held[i].covered {
			switch {
			case token == 0 || !m.has(spec.NamedFirst):
			case n < mentions:
				runs[i][name] = true
				n++
			case m.has(spec.AllNamed):
				said = min(said, p.held[i].token) // no cancel up to that one covers it
			}
		}
	}
	return runs, said
}

// news reports whether a beat, or a message with the same effect, would make the worker read the log.
func (m *model) news(s *state, w int) bool {
	h := s.redis.holder[w]
	return s.holds(w) && (h.said < s.redis.cancel[0] || h.said < s.redis.cancel[1])
}

// freeID returns an id that has left no trace: it's as good as a new one.
func (m *model) freeID(s *state, w int) uint8 {
	used := s.ids()
	for slot := range maxSlots {
		if id := processOf(w, slot); !used[id] {
			return id
		}
	}
	return 0
}

// ids returns which ids of processes are in use.
func (s *state) ids() (used [maxWorkers*maxSlots + 1]bool) {
	for i, p := range s.redis.process {
		used[i+1] = p.token != 0 || s.redis.stopping[i] != [2]uint8{}
	}
	for _, e := range s.redis.entry {
		used[e.process] = true
	}
	for w := range s.peers {
		for slot, h := range s.peers[w].held {
			used[processOf(w, slot)] = used[processOf(w, slot)] || h.token != 0
		}
	}
	s.requests(func(r *request) {
		used[r.start] = true
		for _, e := range r.ends {
			used[e.process] = true
		}
	})
	return used
}

// requests visits every round that a worker waits for, and every copy.
func (s *state) requests(visit func(*request)) {
	for w := range s.peers {
		for i := range s.peers[w].flight {
			visit(&s.peers[w].flight[i].request)
		}
	}
	for i := range s.late {
		visit(&s.late[i])
	}
}

// arrive makes a round arrive, and the worker process the answer once it has
// those to the rounds before.
func (m *model) arrive(s *state, w, lane int) {
	p := &s.peers[w]
	e := &p.flight[lane]
	e.answer, e.sent = m.call(s, query{request: e.request}).answer, false
	m.takeAll(s, w)
}

// takeAll makes a worker process the answers that have arrived, in the order of
// its rounds.
func (m *model) takeAll(s *state, w int) {
	p := &s.peers[w]
	for p.flight[0].kind != nothing && !p.flight[0].sent {
		m.take(s, w)
	}
}

// take models apply: a worker processes the answer to its oldest round.
func (m *model) take(s *state, w int) {
	p := &s.peers[w]
	e := p.flight[0]
	if e.refused {
		if s.redis.member[w] != noMember {
			s.blame(falseRefusal)
		}
		m.oust(s, w)
		return
	}
	for i, said := range e.ends {
		if said.verb == none {
			continue
		}
		what, h := e.settled[i], &p.held[slotOf(said.process)]
		if what == gone && e.repeated {
			what = ok // the first copy of the round did it
		}
		switch how := s.past.ended[said.process-1]; {
		case what == ok && how != said.verb && how != canceled:
			s.blame(toldDone)
		case what == gone && how == said.verb:
			s.blame(toldGone)
		}
		*h = held{}
	}
	if e.token != 0 {
		p.held[slotOf(e.start)] = held{task: e.task, token: e.answer.token, entry: e.entry}
	}
	for i := range p.held {
		for name, named := range e.runs[i] {
			if named {
				p.held[i].covered[name] = 0
			}
		}
	}
	p.said = max(p.said, e.said)
	for i := range p.held {
		for name, token := range e.cancels {
			if h := &p.held[i]; h.token != 0 && h.token < token && m.covers(name, h.task, h.entry) {
				h.canceled = true
				h.covered[name] = token
			}
		}
	}
	p.seen = max(p.seen, e.answer.seen)
	p.shift()
}

// restore undoes a round that certainly wasn't carried out.
func (m *model) restore(s *state, w int) {
	p := &s.peers[w]
	e := p.flight[0]
	for _, said := range e.ends {
		if said.verb != none {
			p.held[slotOf(said.process)].said = false
		}
	}
	p.shift()
	m.takeAll(s, w)
}

// shift drops the oldest round.
func (p *peer) shift() {
	copy(p.flight[:], p.flight[1:])
	p.flight[maxLanes-1] = exchange{}
}

// oust models evicted: the worker drops everything and comes back under a new id.
func (m *model) oust(s *state, w int) {
	s.scatter(w)
	s.peers[w] = peer{phase: ousted}
	if !m.has(spec.NewID) {
		s.peers[w] = peer{}
	}
}

// crash ends a peer. Its requests in flight may still arrive.
func (s *state) crash(w int) {
	s.scatter(w)
	s.peers[w] = peer{phase: dead}
}

// scatter makes copies of the requests in flight that no worker waits for anymore.
func (s *state) scatter(w int) {
	for _, e := range s.peers[w].flight {
		if e.kind != nothing && e.sent {
			s.copied(e.request)
		}
	}
}

// copied leaves a copy of a request in flight. If there are too many, it never
// arrives.
func (s *state) copied(r request) {
	if i := slices.IndexFunc(s.late[:], func(l request) bool { return l.kind == nothing }); i >= 0 {
		s.late[i] = r
	}
}
