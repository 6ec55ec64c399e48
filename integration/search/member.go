package search

// The scripts of membership: join, leave, beat, sweep and fail.

// join is join.lua.
func (m *model) join(s *state, r request) answered {
	q, w := &s.redis, int(r.worker)
	switch {
	case q.suspect[w] >= failed && m.has(joinMark):
		return refused
	case q.member[w] != noMember && q.round[w] >= r.number && m.has(joinCopies):
		return granted
	case r.asked < q.fence && m.has(joinFence):
		return again
	}
	if s.past.failed[w] {
		s.blame(failedJoins)
	}
	q.suspect[w], q.member[w], q.round[w] = unmarked, fresh, r.number
	return granted
}

// leave is leave.lua; it is to be repeated until it says that nothing is left.
func (m *model) leave(s *state, r request) answered {
	q, w := &s.redis, int(r.worker)
	if q.round[w] > r.number && m.has(leaveNumber) {
		return granted
	}
	if q.member[w] != noMember {
		if r.number < s.past.since[w] {
			s.blame(formerActs)
		}
		m.fence(s, w, parted)
	} else if q.suspect[w] < failed {
		if q.fence > r.asked && m.has(spentIDs) {
			return refused
		}
		if m.has(leaveFences) {
			q.fence++
		}
		return granted
	}
	m.takeBack(s, only(w))
	m.keepOffset(s)
	m.trimLog(s)
	if q.suspect[w] >= failed {
		return again
	}
	return granted
}

// What a join or a leave is answered.
type answered uint8

const (
	granted answered = iota
	again            // the fence has risen; something is left
	refused          // EVICTED
)

// beat is the first part of beat.lua. That it looks at the others, too, is left
// to sweep: who looks makes no difference to what happens to the tasks. The
// time, and who may judge, are searched apart: lease.go.
func (m *model) beat(s *state, w int) bool {
	q := &s.redis
	if q.member[w] == noMember && m.has(beatMembers) {
		return false
	}
	if s.past.failed[w] {
		s.blame(failedJoins)
	}
	q.member[w] = fresh
	if q.suspect[w] == suspected {
		q.suspect[w] = unmarked
	}
	return true
}

// sweep is look in lib_return.lua.
func (m *model) sweep(s *state) {
	q := &s.redis
	var due [maxWorkers]bool
	for w := range due {
		due[w] = q.suspect[w] == suspected
		if q.member[w] == lapsed && q.suspect[w] == unmarked {
			q.suspect[w] = suspected
		}
	}
	fenced := [maxWorkers]bool{}
	for w := range due {
		switch {
		case !due[w]:
		case q.member[w] != lapsed && m.has(heardOf):
			q.suspect[w] = unmarked
		default:
			if q.member[w] != lapsed {
				s.blame(falseDeath)
			}
			m.fence(s, w, failed)
			fenced[w] = true
		}
	}
	if m.has(resumes) {
		fenced = m.returning(s)
	}
	m.takeBack(s, fenced)
	m.keepOffset(s)
	m.trimLog(s)
}

// fail is fail.lua.
func (m *model) fail(s *state, w int) {
	if s.redis.member[w] != noMember {
		m.fence(s, w, failed)
	} else if s.redis.suspect[w] < failed {
		return
	}
	m.takeBack(s, only(w))
	m.keepOffset(s)
	m.trimLog(s)
}

func only(w int) (one [maxWorkers]bool) {
	one[w] = true
	return one
}

// fence is fence: from here on the worker changes nothing any more.
func (m *model) fence(s *state, w int, how mark) {
	q := &s.redis
	q.suspect[w] = how
	if m.has(fenceFirst) {
		q.member[w] = noMember
	}
	if m.has(fenceForgets) {
		q.round[w] = 0
	}
	q.fence++
	if !m.has(returnHolds) {
		q.holder[w] = holder{}
	}
	if how == failed {
		s.past.failed[w] = true
	}
}

func (m *model) returning(s *state) (some [maxWorkers]bool) {
	for w, how := range s.redis.suspect {
		some[w] = how >= failed
	}
	return some
}

func (m *model) anyReturning(s *state) bool { return m.returning(s) != [maxWorkers]bool{} }

// takeBack is take_back: one task of fenced workers goes back, the newest first;
// and whoever has nothing left is forgotten. It reports whether there was one.
func (m *model) takeBack(s *state, of [maxWorkers]bool) (handled bool) {
	q := &s.redis
	for range chunk {
		newest := uint8(0)
		for i, p := range q.process {
			id := uint8(i + 1)
			if p.token == 0 || !of[workerOf(id)] {
				continue
			}
			if newest == 0 || (p.token > q.process[newest-1].token) == m.has(newestFirst) {
				newest = id
			}
		}
		if newest == 0 {
			break
		}
		m.giveBack(s, newest, returned)
		handled = true
	}
	for w := range of {
		if !of[w] || q.suspect[w] < failed || s.holds(w) {
			continue
		}
		if m.has(returnEnds) {
			q.holder[w] = holder{}
		}
		q.suspect[w], q.member[w] = unmarked, noMember
	}
	return handled
}

// holds says whether a worker has a process.
func (s *state) holds(w int) bool {
	for slot := range maxSlots {
		if s.redis.process[processOf(w, slot)-1].token != 0 {
			return true
		}
	}
	return false
}
