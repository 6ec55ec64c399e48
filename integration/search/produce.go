package search

// The scripts of producers: enqueue, enqueue_unique, put.

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
		if at := l.ahead(l.at); !taken && at >= 0 && at < q.length() {
			taken = m.same(q.waiting[at])
		}
		if !taken {
			for i, t := range q.waiting {
				if t != 0 && m.same(t) {
					l.at, taken = l.position(int8(i)), true
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
	l.kind, l.at = onList, l.offset+q.length()
	if m.has(gapPushed) {
		l.at += l.gaps.count()
	}
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
