package search

// The cancel log, and the scripts that write to it: lib_log, of lib_settle what is
// about cancels, cancel and cancel_key; and IsOver, which a caller asks.

// logCancel is log_cancel: it puts a cancel on record. It returns its token, or 0 if
// nobody holds anything.
func (m *model) logCancel(s *state, name int) uint8 {
	q := &s.redis
	if q.member != [maxWorkers]lease{} {
		q.token++ // members have seen what came before
	} else {
		q.token = max(q.token, 1)
	}
	if q.holder == [maxWorkers]holder{} {
		return 0
	}
	q.cancel[name] = q.token
	return q.token
}

// cover notes what runs when a cancel comes: it is to stop.
func (m *model) cover(s *state, name int, wait uint8) {
	for _, p := range s.redis.process {
		if p.task != 0 && m.covers(name, p.task, p.entry) {
			s.past.covered[p.task-1] |= 1 << wait
		}
	}
}

// receipt is a place for the token of a cancel.
func (s *state) receipt() uint8 {
	if s.past.open(0) {
		return 1
	}
	return 0
}

// open says whether something that a cancel covers is still there.
func (p *past) open(wait uint8) bool {
	for _, by := range p.covered {
		if by&(1<<wait) != 0 {
			return true
		}
	}
	return false
}

// cancelKey is cancel_key.lua.
func (m *model) cancelKey(s *state) {
	q := &s.redis
	e := &q.entry[0]
	if e.task != 0 {
		s.over(s.unwait(0), gaveUp)
	}
	if e.process == 0 {
		return
	}
	wait := s.receipt()
	m.cover(s, 1, wait)
	token, p := m.logCancel(s, 1), q.process[e.process-1]
	s.past.waits[wait] = token
	if token > 0 && p.token != 0 && m.has(keyStops) {
		q.stopping[e.process-1][1] = p.token
	}
}

// cancel is cancel.lua: one call of it, for a page.
func (m *model) cancel(s *state) {
	c := &s.call
	first := !c.begun
	if first {
		*c = canceling{begun: true, left: s.redis.length(), wait: s.receipt()}
		m.doom(s)
		m.cover(s, 0, c.wait)
	}
	lists := first || c.left > 0
	if first && !m.has(lateUntil) {
		c.until = m.lastEntry(s)
	}
	removed, unlocks := m.cancelListed(s)
	if lists && c.left == 0 && m.has(lateUntil) {
		c.until = m.lastEntry(s)
	}
	m.cancelEntries(s, removed)
	m.cancelLock(s, unlocks)
	m.keepOffset(s)

	ends := c.left == 0 && c.until == 0
	if first && m.has(firstLogs) || ends && m.has(lastLogs) || !first && !ends && m.has(pagesLog) {
		if token := m.logCancel(s, 0); token > 0 {
			s.past.waits[c.wait] = token
		}
	}
	if ends {
		m.cover(s, 0, c.wait)
		for i, t := range s.past.doomed {
			if t && s.past.fate[i] == accepted && s.waitsFor(uint8(i+1)) {
				s.blame(escaped)
			}
		}
		*c, s.past.doomed = canceling{}, [maxTasks]bool{}
	}
}

// page is how many copies one call removes.
func (m *model) page() int8 {
	if m.scope.pages {
		return 1
	}
	return maxTasks + 1
}

// cancelListed removes a page of the list. What was in front of a lock leaves a gap
// there. It tells how many it removed, and whether the lock was among them.
func (m *model) cancelListed(s *state) (removed int8, unlocks bool) {
	q, c, l := &s.redis, &s.call, &s.redis.lock
	if c.left == 0 {
		return 0, false
	}
	if m.has(backCounted) {
		c.left = max(c.left, c.started)
	}
	c.started = 0
	most := min(c.left, m.page())
	offset, left, before, furthest := int8(0), gaps(0), l.ahead(l.at), int8(-1)
	for i := int8(0); i < maxTasks && q.waiting[i-removed] != 0 && removed < most; i++ {
		t := q.waiting[i-removed]
		if !m.covers(0, t, 0) {
			continue
		}
		furthest = i
		if furthest == removed {
			offset++
		} else {
			left |= 1 << (middle + l.position(furthest))
		}
		copy(q.waiting[i-removed:], q.waiting[i-removed+1:])
		q.waiting[maxTasks-1] = 0
		removed++
		s.over(t, gaveUp)
	}
	if l.kind != nowhere {
		if m.has(gapLeft) {
			l.gaps |= left
		}
		l.offset += offset
		unlocks = before <= furthest
	}
	if removed < most { // that was all
		c.left = 0
		return removed, true
	}
	c.left -= removed
	return removed, unlocks
}

// cancelEntries removes a page of the entries, when the list is done.
func (m *model) cancelEntries(s *state, removed int8) {
	c, page, n := &s.call, m.page(), int8(0)
	if c.left > 0 || c.until == 0 || removed >= page {
		return
	}
	for i := c.after; i < c.until && n < page; i++ {
		if t := s.redis.entry[i].task; t != 0 && m.covers(0, t, i+1) {
			s.over(s.unwait(int(i)), gaveUp)
			c.after = i + 1
			n++
		}
	}
	if n < page || c.after == c.until {
		c.until = 0
	}
}

// cancelLock has the lock go with what it is on.
func (m *model) cancelLock(s *state, unlocks bool) {
	l := &s.redis.lock
	if m.scope.cancels != 'u' || l.kind == nowhere || !m.has(cancelUnlocks) {
		return
	}
	switch l.kind {
	case inEntry:
		unlocks = s.redis.entry[l.at-1].task == 0
	case running:
		unlocks = false
	}
	if unlocks {
		*l = lock{}
	}
}

// doom notes what is there when a cancel comes.
func (m *model) doom(s *state) {
	for i := range m.scope.tasks {
		s.past.doomed[i] = s.past.fate[i] == accepted && m.covers(0, uint8(i+1), 0)
	}
}

// waitsFor says whether a task is in no process.
func (s *state) waitsFor(task uint8) bool {
	for _, p := range s.redis.process {
		if p.task == task {
			return false
		}
	}
	return true
}

// lastEntry is the last one, by its name, in which a copy waits.
func (m *model) lastEntry(s *state) (last uint8) {
	for i, e := range s.redis.entry {
		if e.task != 0 && m.covers(0, e.task, uint8(i+1)) {
			last = uint8(i + 1)
		}
	}
	return last
}

// isCanceled is count_canceled.
func (m *model) isCanceled(s *state, id uint8, p process) (covered bool) {
	for name := range s.redis.cancel {
		if token := s.redis.cancel[name]; token > 0 && p.task != 0 && m.covers(name, p.task, p.entry) &&
			(p.token <= token || !m.has(cancelSpares)) {
			if s.past.covered[p.task-1] == 0 && !s.call.begun {
				s.blame(spared)
			}
			if m.has(endsStopping) {
				s.redis.stopping[id-1][name] = 0
			}
			if name == 1 { // of a key only one runs
				s.redis.cancel[name] = 0
			}
			covered = true
		}
	}
	return covered
}

// trimLog is trim_log: cancels that are over leave the log.
func (m *model) trimLog(s *state) {
	q := &s.redis
	lowest, anybody := s.lowest()
	for name, token := range q.cancel {
		switch {
		case anybody && token > lowest && m.has(trimSaid):
		case anybody && q.stops(name, token) && m.has(trimStopped):
		default:
			q.cancel[name] = 0
		}
	}
	if !anybody {
		q.stopping = [maxWorkers * maxSlots][2]uint8{}
	}
}

// lowest is up to which cancel all holders have said what they hold.
func (s *state) lowest() (said uint8, anybody bool) {
	said = ^uint8(0)
	for _, h := range s.redis.holder {
		if h.there {
			said, anybody = min(said, h.said), true
		}
	}
	return said, anybody
}

// stops says whether something runs that a cancel up to a token covers, as far as
// that was said.
func (r *redis) stops(name int, token uint8) bool {
	for _, by := range r.stopping {
		if by[name] != 0 && by[name] <= token {
			return true
		}
	}
	return false
}

// isOver is IsOver of cancel.go. Its three questions are one here: what says what it
// holds says no more of it later.
func (m *model) isOver(s *state, wait uint8) bool {
	token, name := s.past.waits[wait], 0
	if m.scope.cancels == 0 {
		name = 1
	}
	if token == 0 {
		return true // nothing ran
	}
	lowest, _ := s.lowest()
	return (name == 1 || lowest >= token || !m.has(overSaid)) && (!s.redis.stops(name, token) || !m.has(overStopped))
}
