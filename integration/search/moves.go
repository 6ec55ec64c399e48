package search

import "github.com/worqr/worqr/integration/spec"

// A model is the protocol within a scope, with at most one of its guards removed.
type model struct {
	scope    scope
	without  spec.Guard
	codec    *codec
	outcomes map[asked]outcome
}

func newModel(sc scope, without spec.Guard) *model {
	return &model{sc, without, newCodec(&sc, without), map[asked]outcome{}}
}

func (m *model) has(g spec.Guard) bool { return g != m.without }

func (m *model) start() state {
	s := state{left: m.scope.faults}
	for range m.scope.waiting {
		m.produce(&s)
	}
	return s.canonical()
}

// next yields everything that can happen: to each worker, to each copy of a
// request, and to Redis.
func (m *model) next(s state, give func(move[state])) {
	try := func(format string, args [3]int, n int, fault bool, change func(*state) bool) {
		t := s
		if change(&t) {
			give(move[state]{label{format, args, n, nil}, t.canonical(), fault})
		}
	}
	for w := range m.scope.workers {
		m.own(s, w, give, func(format string, fault bool, change func(*state, *peer) bool) {
			try(format, [3]int{w + 1}, 1, fault, func(t *state) bool { return change(t, &t.peers[w]) })
		})
	}
	for i := range s.late {
		try("copy %d arrives", [3]int{i + 1}, 1, false, func(t *state) bool {
			r := t.late[i]
			t.late[i] = request{}
			if r.kind == nothing {
				return false
			}
			m.call(t, query{request: r})
			return true
		})
	}
	if int(s.left.produced) < len(m.scope.tasks) {
		try("task %d is produced", [3]int{int(s.left.produced) + 1}, 1, false, func(t *state) bool {
			m.produce(t)
			return true
		})
	}
	if first := !s.call.begun; !first || s.left.cancels > 0 {
		format := map[bool]string{true: "a cancel of the payload", false: "the next page of the cancel"}[first]
		try(format, [3]int{}, 0, first, func(t *state) bool {
			t.left.cancels -= uint8(bit(first))
			m.cancel(t)
			return true
		})
	}
	if s.left.keyCancels > 0 {
		try("a cancel of the key", [3]int{}, 0, true, func(t *state) bool {
			t.left.keyCancels--
			m.cancelKey(t)
			return true
		})
	}
	try("a sweep looks for dead workers", [3]int{}, 0, false, func(t *state) bool {
		m.call(t, query{request: request{kind: toSweep}})
		return true
	})
	for i := range s.redis.entry {
		try("entry %d falls due", [3]int{i}, 1, false, func(t *state) bool {
			later := t.redis.entry[i].later
			t.redis.entry[i].later = false
			return later
		})
	}
}

// survivor is the last worker: it neither dies nor loses its lease, so that the
// work can be completed.
func (m *model) survivor() int { return m.scope.workers - 1 }

// trying yields a move of one worker, if the change is possible.
type trying func(format string, fault bool, change func(*state, *peer) bool)

// own yields what can happen to one worker.
func (m *model) own(s state, w int, give func(move[state]), try trying) {
	p := &s.peers[w]
	mortal := w != m.survivor()
	if p.phase == working {
		m.compose(s, w, func(t state, r request) {
			if !mortal { // its intermediate states don't matter: it happens at once
				m.arrive(&t, w, 0)
			}
			give(move[state]{label{"W%d sends %v", [3]int{w + 1}, 1, r}, t.canonical(), false})
		})
	}
	m.rounds(s, w, try)
	m.memberships(s, w, try)
	if m.scope.lapses && mortal && (p.phase == working || p.phase == leaving) {
		try("W%d beats", false, func(t *state, p *peer) bool {
			if m.call(t, query{request: request{kind: toBeat, worker: uint8(w)}}).answered == refused && p.phase == working {
				m.oust(t, w)
			}
			return true
		})
	}
	if p.phase != dead && p.phase != away && p.phase != ousted && mortal && s.left.crashes > 0 {
		try("W%d dies", true, func(t *state, _ *peer) bool {
			t.left.crashes--
			t.crash(w)
			return true
		})
	}
	if m.scope.lapses && mortal {
		try("the lease of W%d lapses", false, func(t *state, _ *peer) bool {
			if t.redis.member[w] != fresh {
				return false
			}
			t.redis.member[w] = lapsed
			return true
		})
	}
	if m.scope.deaths && mortal && s.redis.member[w] != noMember {
		try("W%d is evicted", false, func(t *state, _ *peer) bool {
			m.call(t, query{request: request{kind: toFail, worker: uint8(w)}})
			return true
		})
	}
}

// rounds yields what can happen to the rounds in flight of a worker.
func (m *model) rounds(s state, w int, try trying) {
	p := &s.peers[w]
	for i, e := range p.flight {
		if !e.sent {
			continue
		}
		try("W%d: "+nth[i]+" arrives, and its answer", false, func(t *state, _ *peer) bool {
			m.arrive(t, w, i)
			return true
		})
		if s.left.lost > 0 {
			try("W%d: "+nth[i]+" arrives, the answer is lost, it repeats the round", true, func(t *state, p *peer) bool {
				t.left.lost--
				m.call(t, query{request: e.request})
				p.flight[i].repeated = true
				return true
			})
		}
		if s.left.late > 0 {
			try("W%d repeats "+nth[i]+"; the first copy is late", true, func(t *state, p *peer) bool {
				t.left.late--
				p.flight[i].repeated = true
				t.copied(e.request)
				return true
			})
		}
		if s.left.refused > 0 && i == 0 && !e.repeated {
			try("W%d: its round cannot be sent", true, func(t *state, _ *peer) bool {
				t.left.refused--
				m.restore(t, w)
				return true
			})
		}
	}
}

// nth names a round in flight.
var nth = [maxLanes]string{"its round", "its second round", "its third round", "its fourth round"}

// memberships yields how a worker joins and leaves.
func (m *model) memberships(s state, w int, try trying) {
	p, mortal := &s.peers[w], w != m.survivor()
	joins := request{kind: toJoin, worker: uint8(w), number: p.number + 1, asked: s.redis.fence}
	leaves := request{kind: toLeave, worker: uint8(w), number: p.number, asked: p.asked}
	switch p.phase {
	case away:
		if w > 0 && m.scope.successor && s.peers[w-1].phase < ousted {
			break // first the previous worker comes back
		}
		try("W%d joins", false, func(t *state, p *peer) bool { return m.joins(t, p, joins) })
		if mortal && s.left.lateJoins > 0 {
			try("W%d joins, and a copy is late", true, func(t *state, p *peer) bool {
				t.left.lateJoins--
				t.copied(joins)
				return m.joins(t, p, joins)
			})
			try("W%d joins, and gives up waiting for the answer", true, func(t *state, p *peer) bool {
				t.left.lateJoins--
				t.past.since[w] = joins.number
				t.copied(joins)
				p.phase, p.asked = loose, joins.asked
				return true
			})
		}
	case loose:
		leaves.number = joins.number
		try("W%d leaves, in case its join has arrived", false, func(t *state, p *peer) bool {
			m.parts(t, p, leaves)
			return true
		})
	case working:
		if s.left.leaves > 0 && mortal && p.flight[0].kind == nothing {
			try("W%d begins to leave", true, func(t *state, p *peer) bool {
				t.left.leaves--
				p.phase = leaving
				return true
			})
		}
	case leaving:
		over := func(t *state, p *peer) bool {
			m.parts(t, p, leaves)
			if p.phase == away && !m.has(spec.NumbersRise) {
				p.number = 0
			}
			return true
		}
		try("W%d leaves", false, over)
		if s.left.late > 0 {
			try("W%d leaves, and a copy is late", true, func(t *state, p *peer) bool {
				t.left.late--
				t.copied(leaves)
				return over(t, p)
			})
		}
	}
}

// joins makes a worker start its rounds if it may.
func (m *model) joins(s *state, p *peer, r request) bool {
	s.past.since[r.worker] = r.number
	p.asked = r.asked
	switch m.call(s, query{request: r}).answered {
	case granted:
		*p = peer{phase: working, number: r.number, asked: r.asked, seen: s.redis.token, said: s.redis.token}
	case refused:
		p.phase = ousted
	}
	return true
}

// parts makes a worker leave; one that may have been evicted doesn't come back.
func (m *model) parts(s *state, p *peer, r request) {
	switch m.call(s, query{request: r}).answered {
	case granted:
		*p = peer{number: p.number}
	case refused:
		*p = peer{number: p.number, phase: ousted}
	}
}

// produce produces the next task of the scope.
func (m *model) produce(s *state) {
	s.left.produced++
	m.call(s, query{request: request{kind: toProduce}, task: s.left.produced})
}
