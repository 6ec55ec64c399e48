package search

import (
	"slices"

	"github.com/worqr/worqr/integration/spec"
)

// What the invariants must remember of a call: from Redis before and after it, and from its answer.

// observe records the effects of a call.
func (m *model) observe(s *state, was *redis, q *query, r *reply) {
	if c := &s.call; c.begun && c.left > 0 && q.kind != toCancel {
		c.started = min(c.started+int8(r.given), maxTasks)
	}
	o := &observation{m, s, was, q, [maxWorkers]bool{}, [maxWorkers * maxSlots]bool{}}
	switch q.kind {
	case toStep:
		if !r.answer.refused {
			o.ends(&r.answer)
		}
	case toJoin:
		if r.answered == granted && s.redis != *was && s.past.failed[q.worker] {
			s.blame(failedJoins)
		}
	case toBeat:
		if r.answered == granted && s.past.failed[q.worker] {
			s.blame(failedJoins)
		}
	case toLeave, toFail, toSweep:
		o.goings()
	case toProduce:
		s.past.fate[q.task-1] = accepted
		if m.scope.tasks[q.task-1].unique {
			o.unique(r)
		}
	case toCancel, toCancelKey:
		o.removals()
	}
	if q.kind == toProduce && !m.scope.tasks[q.task-1].key {
		return
	}
	o.returns()
	o.replacements()
	if q.kind == toStep && q.start > 0 {
		o.start()
	}
}

type observation struct {
	*model
	s    *state
	was  *redis
	q    *query
	dead [maxWorkers]bool            // evicted by this call
	said [maxWorkers * maxSlots]bool // processes that it ends by name
}

// ends checks what a worker ends.
func (o *observation) ends(a *answer) {
	s, w := o.s, o.q.worker
	for i := range s.past.back {
		if b := &s.past.back[i]; b.group == 1+w {
			*b = turn{} // what is returned now belongs to another round
		}
	}
	for i, e := range o.q.ends {
		if e.verb == none || a.settled[i] == gone {
			continue
		}
		switch {
		case s.past.failed[w]:
			s.blame(failedActs)
		case o.q.number <= s.past.since[w]:
			s.blame(formerActs)
		}
		how := e.verb
		if a.settled[i] == wasCanceled {
			how = canceled
		}
		o.said[e.process-1] = true
		o.ended(e.process, how)
	}
}

// ended records how a process ended, at most once, and the outcome of its task.
func (o *observation) ended(id uint8, how verb) {
	s, p := o.s, o.was.process[id-1]
	if s.past.ended[id-1] != none {
		s.blame(endedTwice)
	}
	s.past.ended[id-1] = how
	if p.task == 0 {
		return
	}
	switch how {
	case finish:
		s.over(p.task, finished)
	case drop:
		s.over(p.task, gaveUp)
	case canceled:
		if s.past.covered[p.task-1] == 0 && !s.call.begun {
			s.blame(spared)
		}
		s.over(p.task, gaveUp)
	case stop, returned:
		if p.entry > 0 {
			break
		}
		group, w := uint8(0), uint8(workerOf(id))
		switch {
		case how == stop:
			group = 1 + w
		case o.was.suspect[w] == failed || o.dead[w]:
			group = 1 + maxWorkers + w
		}
		s.past.back[p.task-1] = turn{group, p.token}
	}
}

// goings checks the workers that leave.
func (o *observation) goings() {
	s := o.s
	for w, member := range o.was.member {
		is := s.redis.suspect[w]
		switch {
		case member == noMember:
		case s.redis.member[w] != noMember && (is < failed || is == o.was.suspect[w]):
		case o.q.kind == toLeave:
			if o.q.number < s.past.since[w] {
				s.blame(formerActs)
			}
		default:
			if o.q.kind == toSweep && member != lapsed {
				s.blame(falseDeath)
			}
			o.dead[w], s.past.failed[w] = true, true
		}
	}
}

// returns checks what a call has ended without the worker naming it: it was returned, or a cancel in the log
// covers it.
func (o *observation) returns() {
	s := o.s
	for i, p := range o.was.process {
		if p.token == 0 || s.redis.process[i].token != 0 || o.said[i] {
			continue
		}
		how := returned
		if p.task != 0 && !s.redis.has(p.task) && o.logged(p) {
			how = canceled
		}
		o.ended(uint8(i+1), how)
	}
}

// logged reports whether a cancel in the log covers a process.
func (o *observation) logged(p process) bool {
	for name, token := range o.was.cancel {
		if token > 0 && o.covers(name, p.task, p.entry) && (p.token <= token || !o.has(spec.CancelSpares)) {
			return true
		}
	}
	return false
}

// has reports whether a task is anywhere.
func (r *redis) has(task uint8) bool {
	return slices.Contains(r.waiting[:], task) || slices.Contains(r.added[:], task) ||
		slices.ContainsFunc(r.process[:], func(p process) bool { return p.task == task }) ||
		slices.ContainsFunc(r.entry[:], func(e entry) bool { return e.task == task })
}

// under returns the tasks that wait and run under an entry.
func (r *redis) under(i int) (waits, runs uint8) {
	if p := r.entry[i].process; p > 0 {
		runs = r.process[p-1].task
	}
	return r.entry[i].task, runs
}

// replacements checks the key: of what was put there and what came back, one stays.
func (o *observation) replacements() {
	s := o.s
	waited, ran := o.was.under(0)
	waits, runs := s.redis.under(0)
	there := [...]uint8{waited, ran, 0}
	if o.q.kind == toProduce {
		there[2] = o.q.task
	}
	for _, t := range there {
		for _, other := range there {
			if t > 0 && other > 0 && t != other && (waits == other || runs == other) && s.past.fate[t-1] == accepted && !s.redis.has(t) {
				s.over(t, replaced)
			}
		}
	}
}

// removals checks what a cancel removes.
func (o *observation) removals() {
	name := 0
	if o.q.kind == toCancelKey {
		name = 1
	}
	o.addedGone(name)
	for _, t := range o.was.waiting {
		if t > 0 && o.covers(name, t, 0) && !o.s.redis.has(t) {
			o.s.over(t, gaveUp)
		}
	}
	for i, e := range o.was.entry {
		if e.task > 0 && o.covers(name, e.task, uint8(i+1)) && !o.s.redis.has(e.task) {
			o.s.over(e.task, gaveUp)
		}
	}
}

// unique checks a unique task.
func (o *observation) unique(r *reply) {
	p := &o.s.past
	if r.answered == refused {
		p.fate[o.q.task-1] = rejected
		return
	}
	if p.unique != 0 && p.fate[p.unique-1] == accepted {
		o.s.blame(uniqueTwice)
	}
	p.unique = o.q.task
}

// start checks what a round has started.
func (o *observation) start() {
	s, id, w := o.s, o.q.start, o.q.worker
	p, before := s.redis.process[id-1], o.was.process[id-1]
	if p.token == before.token {
		return
	}
	if before.token != 0 || s.past.ended[id-1] != none {
		s.blame(idTwice)
	}
	if p.entry == 0 && !s.past.begun[p.task-1] {
		for other, q := range s.redis.process {
			if q.task != 0 && q.entry == 0 && s.redis.suspect[workerOf(uint8(other+1))] >= failed {
				s.blame(overtakes)
			}
		}
	}
	o.queued(p)
	if s.past.failed[w] {
		s.blame(failedActs)
	}
	if o.q.number <= s.past.since[w] {
		s.blame(formerActs)
	}
	if s.past.covered[p.task-1] != 0 {
		s.blame(canceledStarts)
	}
	s.past.begun[p.task-1], s.past.back[p.task-1] = true, turn{}
}

// over records the outcome of a task.
func (s *state) over(task uint8, f fate) {
	if s.past.fate[task-1] != accepted {
		s.blame(overTwice)
	}
	s.past.fate[task-1] = f
	s.past.doomed[task-1] = false
	s.past.begun[task-1], s.past.covered[task-1], s.past.back[task-1] = false, 0, turn{}
}
