package search

import (
	"slices"

	"github.com/worqr/worqr/integration/spec"
)

// The caller of a cancel, and the answers it gets: internal/store/cancel.go.

// cancel calls the script for a page.
func (m *model) cancel(s *state) {
	c := &s.call
	q := query{request: request{kind: toCancel}, call: *c}
	q.call.wait = 0
	if !c.begun {
		*c = canceling{begun: true, wait: s.receipt()}
		m.doom(s)
		m.cover(s, 0, c.wait)
	}
	r, wait := m.call(s, q), c.wait
	if r.logged > 0 {
		s.past.waits[wait] = r.logged
	}
	*c = r.call
	c.wait = wait
	if c.begun {
		return
	}
	m.cover(s, 0, wait)
	for i, t := range s.past.doomed {
		if t && s.past.fate[i] == accepted && s.waitsFor(uint8(i+1)) {
			s.blame(escaped)
		}
	}
	*c, s.past.doomed = canceling{}, [maxTasks]bool{}
}

// cancelKey cancels the key.
func (m *model) cancelKey(s *state) {
	runs, wait := s.redis.entry[m.scope.keyed()].process != 0, s.receipt()
	if runs {
		m.cover(s, 1, wait)
	}
	if r := m.call(s, query{request: request{kind: toCancelKey}}); runs {
		s.past.waits[wait] = r.logged
	}
}

// covers reports whether a cancel is about a task: 0 by its payload, 1 by its key.
func (m *model) covers(name int, task, entry uint8) bool {
	if name == 0 {
		return m.scope.tasks[task-1].payload == m.scope.cancels
	}
	return int(entry) == 1+m.scope.keyed()
}

// cover records what runs when a cancel comes: it must stop.
func (m *model) cover(s *state, name int, wait uint8) {
	for _, p := range s.redis.process {
		if p.task != 0 && m.covers(name, p.task, p.entry) {
			s.past.covered[p.task-1] |= 1 << wait
		}
	}
}

// receipt returns a free place for the token of a cancel.
func (s *state) receipt() uint8 {
	if s.past.open(0) {
		return 1
	}
	return 0
}

// open reports whether something that a cancel covers still exists.
func (p *past) open(wait uint8) bool {
	return slices.ContainsFunc(p.covered[:], func(by uint8) bool { return by&(1<<wait) != 0 })
}

// doom records what exists when a cancel comes.
func (m *model) doom(s *state) {
	for i := range m.scope.tasks {
		s.past.doomed[i] = s.past.fate[i] == accepted && m.covers(0, uint8(i+1), 0)
	}
}

// waitsFor reports whether a task isn't in a process.
func (s *state) waitsFor(task uint8) bool {
	return !slices.ContainsFunc(s.redis.process[:], func(p process) bool { return p.task == task })
}

// isOver is Receipt.IsOver of internal/store/await.go. It reads everything at one moment instead of in three
// steps, since a holder doesn't take back an acknowledgment.
func (m *model) isOver(s *state, wait uint8) bool {
	token, name := s.past.waits[wait], 0
	if m.scope.cancels == 0 {
		name = 1
	}
	if token == 0 {
		return true // nothing ran
	}
	return (name == 1 || s.lowest() >= token || !m.has(spec.OverSaid)) && (!s.redis.stops(name, token) || !m.has(spec.OverStopped))
}

// lowest returns the last cancel for which all holders have named what they hold.
func (s *state) lowest() (said uint8) {
	said = ^uint8(0)
	for _, h := range s.redis.holder {
		if h.there {
			said = min(said, h.said)
		}
	}
	return said
}

// stops reports whether a process is listed as running that a cancel up to a
// token covers.
func (r *redis) stops(name int, token uint8) bool {
	return slices.ContainsFunc(r.stopping[:], func(by [2]uint8) bool { return by[name] != 0 && by[name] <= token })
}
