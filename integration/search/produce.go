package search

// The scripts of producers: enqueue, enqueue_unique, put, cancel, cancel_key.

// produce makes the next task of the scope, as that says.
func (m *model) produce(s *state) {
	task := s.left.produced + 1
	s.left.produced = task
	s.past.fate[task-1] = accepted
	switch t := m.scope.tasks[task-1]; {
	case t.key:
		m.put(s, task, t.keep)
	case t.unique:
		m.enqueueUnique(s, task)
	default:
		s.redis.push(task)
	}
}

// enqueueUnique is enqueue_unique.lua.
func (m *model) enqueueUnique(s *state, task uint8) {
	q := &s.redis
	l := &q.lock
	if l.kind != nowhere {
		taken := l.kind != onList
		if at := l.at - l.offset; !taken && at >= 0 && at < q.length() {
			taken = m.same(q.waiting[at])
		}
		if !taken {
			for i, t := range q.waiting {
				if t != 0 && m.same(t) {
					l.at, taken = l.offset+int8(i), true
					break
				}
			}
		}
		if taken && m.has(duplicate) {
			s.past.fate[task-1] = rejected
			return
		}
	}
	if s.past.unique != 0 && s.past.fate[s.past.unique-1] == accepted {
		s.blame(lockedTwice)
	}
	q.lock = lock{onList, l.offset + q.length(), l.offset}
	q.push(task)
	s.past.unique = task
}

// put is put.lua with the rule always, now.
func (m *model) put(s *state, task uint8, keep bool) {
	e := &s.redis.entry[0]
	if e.task != 0 {
		if keep {
			s.over(task, replaced)
			task = e.task
		} else {
			s.over(e.task, replaced)
		}
		keep = keep && e.keep
	}
	e.task, e.later, e.score = task, false, 0
	if e.process != 0 {
		e.keep = keep
	}
	e.planned = e.process == 0 || !m.has(blocks)
}

// cancel is cancel.lua (0) and cancel_key.lua (1).
func (m *model) cancel(s *state, name int) {
	q := &s.redis
	var from [maxWorkers]bool
	for i, p := range q.process {
		w := workerOf(uint8(i + 1))
		if p.token == 0 || name == 1 && q.entry[0].process != uint8(i+1) {
			continue
		}
		from[w] = q.suspect[w] < failed || m.has(holdersReturning)
		if m.covers(name, p.task, p.entry) {
			s.past.covered[p.task-1] = true
		}
	}
	if name == 0 {
		var kept [maxTasks]uint8
		n, ahead := 0, int8(0)
		for i, t := range q.waiting {
			if t == 0 {
				break
			}
			if m.covers(0, t, 0) {
				s.over(t, gaveUp)
				if q.lock.kind == onList && q.lock.offset+int8(i) < q.lock.at {
					ahead++
				}
			} else {
				kept[n] = t
				n++
			}
		}
		q.waiting = kept
		switch l := &q.lock; {
		case l.kind == nowhere:
		case m.scope.cancels == 'u' && l.kind != running && m.has(cancelUnlocks):
			*l = lock{}
		case l.kind == onList && m.has(lockMovesUp):
			l.at -= ahead // what stands behind a removed copy moves up
		}
	}
	for i := range q.entry {
		if t := q.entry[i].task; t != 0 && m.covers(name, t, uint8(i+1)) {
			s.over(s.unwait(i), gaveUp)
		}
	}
	nobody := from == [maxWorkers]bool{}
	switch {
	case nobody && name == 1:
		return
	case q.member != [maxWorkers]lease{}:
		q.token++ // members have seen what came before
	default:
		q.token = max(q.token, 1)
	}
	if nobody {
		return
	}
	c := &q.cancel[name]
	c.token = q.token
	for w := range from {
		c.from[w] = c.from[w] || from[w]
	}
}

// acknowledge is acknowledge: the last one ends the cancel.
func (m *model) acknowledge(s *state, name, w int) {
	c := &s.redis.cancel[name]
	if !c.from[w] {
		return
	}
	c.from[w] = false
	if !c.open() || !m.has(allAcknowledge) {
		*c = record{}
	}
}
