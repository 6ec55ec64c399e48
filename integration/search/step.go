package search

// step is step.lua: one round of a worker.
func (m *model) step(s *state, r request) (a answer) {
	q, w := &s.redis, int(r.worker)
	if q.member[w] == noMember && m.has(stepMembers) {
		return answer{refused: true}
	}
	last, canceling := q.round[w], q.cancel != [2]uint8{}
	if r.number+1 < last && m.has(window) {
		return answer{refused: true}
	}
	overtaken := r.number < last
	if !overtaken || !m.has(overtakenRenews) {
		if q.suspect[w] == suspected {
			q.suspect[w] = unmarked
		}
		q.member[w], q.round[w] = fresh, r.number
	}

	for i := range s.past.back {
		if b := &s.past.back[i]; b.group == 1+r.worker {
			*b = turn{} // what goes back now is of another round
		}
	}
	for i, e := range r.ends {
		if e.verb == none {
			continue
		}
		p := q.process[e.process-1]
		switch {
		case p.token == 0 && m.has(endsHeld), p.token != 0 && p.token != e.token && m.has(endsToken):
			a.settled[i] = gone
			continue
		case s.past.failed[w]:
			s.blame(failedActs)
		case r.number <= s.past.since[w]:
			s.blame(formerActs)
		}
		a.settled[i] = ok
		switch e.verb {
		case finish, drop:
			m.finish(s, e.process, e.verb)
		case stop:
			if !m.giveBack(s, e.process, stop) {
				a.settled[i] = wasCanceled
			}
		case retry:
			if !m.putOff(s, e.process) {
				a.settled[i] = wasCanceled
			}
		}
	}

	m.hear(s, r, canceling)

	open := true
	if m.has(returnsFirst) && m.anyReturning(s) {
		handled := m.takeBack(s, m.returning(s))
		open = !(handled && m.anyReturning(s))
	}

	if r.start != 0 {
		repeats := r.number <= last
		if r.number == last && !m.has(repeatStarts) || overtaken && !m.has(overtakenStarts) {
			repeats = false
		}
		if p := q.process[r.start-1]; repeats {
			a.token, a.task, a.entry = p.token, p.task, p.entry // what it has started
		} else if open {
			m.begin(s, r.start, r.number)
			p = q.process[r.start-1]
			a.token, a.task, a.entry = p.token, p.task, p.entry
			if h := &q.holder[w]; a.token != 0 && !h.there && m.has(beginsHolding) {
				*h = holder{true, a.token - 1}
			}
		}
	}
	if !s.holds(w) && m.has(endsHolding) {
		q.holder[w] = holder{}
	}
	m.keepOffset(s)
	m.trimLog(s)

	a.seen = r.seen
	switch {
	case !canceling || overtaken && m.has(overtakenTells):
	case !s.holds(w):
		a.seen = q.token
	default:
		for name, token := range q.cancel {
			if token > r.seen {
				a.cancels[name], a.seen = token, max(a.seen, token)
			}
		}
	}
	return a
}

// hear takes in what a worker says of the cancels that it was told of: first what runs
// of them, then that this is all.
func (m *model) hear(s *state, r request, canceling bool) {
	q, w := &s.redis, int(r.worker)
	for slot, names := range r.runs {
		id := processOf(w, slot)
		for name, covered := range names {
			if p := q.process[id-1]; covered && p.token != 0 && p.token <= q.cancel[name] {
				q.stopping[id-1][name] = p.token
			}
		}
	}
	h, said := &q.holder[w], r.said
	if !m.has(saidTold) {
		said = q.token
	}
	if canceling && said > 0 && said <= q.token && (h.there || !m.has(saidHolder)) {
		*h = holder{true, max(h.said, said)}
	}
}

// begin starts a task under an id: what is due, else the front of the list.
func (m *model) begin(s *state, id, number uint8) {
	q := &s.redis
	due, at := (*entry)(nil), uint8(0)
	for i := range q.entry {
		e := &q.entry[i]
		if e.planned && e.task != 0 && !e.later && (due == nil || e.score > 0 && (due.score == 0 || e.score < due.score)) {
			due, at = e, uint8(i+1)
		}
	}
	if q.process[id-1].token != 0 || s.past.ended[id-1] != none {
		s.blame(idTwice)
	}
	var task uint8
	if due != nil {
		task = due.task
		*due = entry{process: id} // entry_started
		m.lockMoved(s, task, inEntry, int8(at), running, int8(id))
	} else if task = q.take(); task != 0 {
		for other, p := range q.process {
			if p.task != 0 && p.entry == 0 && q.suspect[workerOf(uint8(other+1))] >= failed && !s.past.begun[task-1] {
				s.blame(overtakes)
			}
		}
		if m.has(lockTaken) {
			m.lockTaken(s, task, id)
		} else if q.lock.kind != nowhere {
			q.lock.offset++
		}
	}
	if task == 0 {
		return
	}
	w := workerOf(id)
	if s.past.failed[w] {
		s.blame(failedActs)
	}
	if number <= s.past.since[w] {
		s.blame(formerActs)
	}
	if s.past.covered[task-1] != 0 {
		s.blame(canceledStarts)
	}
	q.token++
	if c := &s.call; c.begun && c.left > 0 {
		c.started = min(c.started+1, maxTasks)
	}
	q.process[id-1] = process{task, q.token, at}
	s.past.begun[task-1], s.past.back[task-1] = true, turn{}
}
