package search

// What lib_settle.lua and lib_entry.lua do: how a process ends, whoever ends it,
// and where its task and its lock go.

func (r *redis) length() (n int8) {
	for _, t := range r.waiting {
		if t != 0 {
			n++
		}
	}
	return n
}

// push is LPUSH.
func (r *redis) push(task uint8) { r.waiting[r.length()] = task }

// pushFront is LMOVE … RIGHT.
func (r *redis) pushFront(task uint8) {
	copy(r.waiting[1:], r.waiting[:maxTasks-1])
	r.waiting[0] = task
}

// take is RPOPLPUSH; 0 if nothing waits.
func (r *redis) take() uint8 {
	task := r.waiting[0]
	copy(r.waiting[:], r.waiting[1:])
	r.waiting[maxTasks-1] = 0
	return task
}

// lockTaken is lock_taken: a payload was taken from the front.
func (m *model) lockTaken(s *state, task, process uint8) {
	l := &s.redis.lock
	if l.kind == nowhere {
		return
	}
	if m.same(task) && l.kind == onList && l.ahead(l.at) <= 0 {
		l.kind, l.at = running, int8(process)
	}
	l.offset++
}

// lockMoved is lock_moved: the lock at one place goes to another, or goes. A hash
// without locks is deleted (keep_offset).
func (m *model) lockMoved(s *state, task uint8, kind place, at int8, to place, there int8) {
	l := &s.redis.lock
	if l.kind == nowhere || !m.same(task) || l.kind != kind || l.at != at {
		return
	}
	if to == nowhere {
		*l = lock{}
		return
	}
	l.kind, l.at = to, there
}

// same says whether a task has the payload that locks are about.
func (m *model) same(task uint8) bool { return m.scope.tasks[task-1].payload == 'u' }

// covers says whether a cancel is of a task: 0 by its payload, 1 by its key.
func (m *model) covers(name int, task, entry uint8) bool {
	if name == 0 {
		return m.scope.tasks[task-1].payload == m.scope.cancels
	}
	return entry == 1
}

// remove is remove: what is left of a process ends for good.
func (m *model) remove(s *state, id uint8) process {
	p := s.redis.process[id-1]
	s.redis.process[id-1] = process{}
	if p.task != 0 && m.has(lockEnds) {
		m.lockMoved(s, p.task, running, int8(id), nowhere, 0)
	}
	if p.entry > 0 {
		e := &s.redis.entry[p.entry-1] // entry_ended
		e.process = 0
		if e.task != 0 {
			e.planned, e.keep = m.has(blockedReleased), false
		}
	}
	return p
}

// finish is finish: the task has done its work, or is dropped.
func (m *model) finish(s *state, id uint8, v verb) {
	m.isCanceled(s, id, s.redis.process[id-1])
	p := m.remove(s, id)
	s.outcome(id, v)
	if p.task != 0 {
		s.over(p.task, map[verb]fate{finish: finished, drop: gaveUp}[v])
	}
}

// giveBack is give_back: the task goes to the front, or ends if a cancel covers
// it (false).
func (m *model) giveBack(s *state, id uint8, v verb) bool {
	p := s.redis.process[id-1]
	if m.has(logOnReturn) && m.isCanceled(s, id, p) {
		m.remove(s, id)
		s.outcome(id, canceled)
		s.over(p.task, gaveUp)
		return false
	}
	s.redis.process[id-1] = process{}
	s.outcome(id, v)
	if p.task == 0 {
		return true
	}
	if p.entry > 0 {
		m.lockMoved(s, p.task, running, int8(id), inEntry, int8(p.entry))
		m.entryReturned(s, p, p.token, false)
		return true
	}
	s.redis.pushFront(p.task)
	if l := &s.redis.lock; l.kind != nowhere {
		position := m.returned(l)
		if m.has(lockFollows) {
			m.lockMoved(s, p.task, running, int8(id), onList, position)
		}
	}
	group := uint8(0)
	switch w := uint8(workerOf(id)); {
	case v == stop:
		group = 1 + w
	case s.redis.suspect[w] == failed:
		group = 1 + maxWorkers + w
	}
	s.past.back[p.task-1] = turn{group, p.token}
	return true
}

// putOff is put_off: the task is to be tried again.
func (m *model) putOff(s *state, id uint8) bool {
	p := s.redis.process[id-1]
	if m.has(logOnRetry) && m.isCanceled(s, id, p) {
		m.remove(s, id)
		s.outcome(id, canceled)
		s.over(p.task, gaveUp)
		return false
	}
	s.redis.process[id-1] = process{}
	s.outcome(id, retry)
	if p.task == 0 {
		return true
	}
	name := p.entry
	if name == 0 {
		name = p.task + 1
	}
	m.lockMoved(s, p.task, running, int8(id), inEntry, int8(name))
	if p.entry > 0 {
		m.entryReturned(s, p, 0, true)
	} else {
		s.redis.entry[name-1] = entry{task: p.task, planned: true, later: true}
	}
	return true
}

// entryReturned is entry_returned: what runs is to wait again, and something
// newer has a say in it.
func (m *model) entryReturned(s *state, p process, score uint8, later bool) {
	e := &s.redis.entry[p.entry-1]
	task := p.task
	if e.task != 0 {
		if e.keep {
			s.over(e.task, replaced)
		} else {
			s.over(task, replaced)
			task = e.task
		}
		score, later = 0, false // the rule: always, now
	}
	*e = entry{task: task, score: score, planned: true, later: later}
}

// unwait is unwait: the waiting part of an entry goes.
func (s *state) unwait(i int) uint8 {
	e := &s.redis.entry[i]
	task := e.task
	*e = entry{process: e.process}
	return task
}

// outcome notes how a process ended, for the invariants: at most once.
func (s *state) outcome(id uint8, v verb) {
	if s.past.ended[id-1] != none {
		s.blame(endedTwice)
	}
	s.past.ended[id-1] = v
}

// over notes what became of a task.
func (s *state) over(task uint8, f fate) {
	if s.past.fate[task-1] != accepted {
		s.blame(overTwice)
	}
	s.past.fate[task-1] = f
	s.past.doomed[task-1] = false
	s.past.begun[task-1], s.past.covered[task-1], s.past.back[task-1] = false, 0, turn{}
}
