package search

import "fmt"

// A wrong is a violation caused by a move.
type wrong uint8

const (
	right wrong = iota
	failedActs
	formerActs
	failedJoins
	falseDeath
	falseRefusal
	endedTwice
	overTwice
	idTwice
	overtakes
	canceledStarts
	spared
	uniqueTwice
	toldDone
	toldGone
	escaped
)

var wrongs = [...]string{
	failedActs:     "fenced: an evicted worker has changed something",
	formerActs:     "fenced: a request from before the worker joined has changed something",
	failedJoins:    "fenced: an evicted worker is a member again",
	falseDeath:     "liveness: a worker was evicted after it had renewed its lease",
	falseRefusal:   "liveness: a round that a member waits for was refused",
	endedTwice:     "one outcome: a process has ended twice",
	overTwice:      "one outcome: a task that was not there has ended",
	idTwice:        "one outcome: an id was started twice",
	overtakes:      "order: a waiting task has started before one that is being returned",
	canceledStarts: "cancel: a task that was canceled while it ran has started again",
	spared:         "cancel: a task that came after it was dropped",
	uniqueTwice:    "unique: there are two equal tasks",
	toldDone:       "receipt: the worker got the answer that a process ended as requested, but it did not",
	escaped:        "cancel: it is done, but a task that waited when it came still waits",
	toldGone:       "receipt: the worker got the answer that a process was gone, but had ended it itself",
}

// blame records a violation; only the first counts.
func (s *state) blame(w wrong) {
	if s.past.wrong == right {
		s.past.wrong = w
	}
}

// wrong checks the invariants.
func (m *model) wrong(s state) string {
	if s.past.wrong != right {
		return wrongs[s.past.wrong]
	}
	for _, check := range []func(*state) string{m.conserved, m.owned, m.exclusive, m.ordered, m.stopped, m.running} {
		if w := check(&s); w != "" {
			return w
		}
	}
	return ""
}

// conserved: each task that hasn't ended is in exactly one place.
func (m *model) conserved(s *state) string {
	var places [maxTasks + 1]int
	for _, t := range s.redis.waiting {
		places[t]++
	}
	for _, t := range s.redis.added {
		places[t]++
	}
	for _, p := range s.redis.process {
		places[p.task]++
	}
	for _, e := range s.redis.entry {
		places[e.task]++
	}
	for i, f := range s.past.fate {
		if n := places[i+1]; n != map[bool]int{true: 1}[f == accepted] {
			return fmt.Sprintf("conservation: task %d is in %d places", i+1, n)
		}
	}
	return ""
}

// owned: the holder of a process is a member, or is being returned.
func (m *model) owned(s *state) string {
	for w := range s.redis.member {
		if s.holds(w) && s.redis.member[w] == noMember && s.redis.suspect[w] < failed {
			return fmt.Sprintf("owners are members: W%d holds tasks but is not a member", w+1)
		}
	}
	return ""
}

// exclusive: each entry has at most one process, and what waits there is planned
// unless it is blocked.
func (m *model) exclusive(s *state) string {
	var of [maxTasks + 2]int
	for i, p := range s.redis.process {
		of[p.entry]++
		if p.entry > 0 && of[p.entry] > 1 {
			return fmt.Sprintf("one process a key: entry %d has two", p.entry-1)
		}
		if p.entry > 0 && s.redis.entry[p.entry-1].process != uint8(i+1) {
			return fmt.Sprintf("one process a key: entry %d does not have the process that runs it", p.entry-1)
		}
	}
	for i, e := range s.redis.entry {
		if e.process != 0 && s.redis.process[e.process-1].entry != uint8(i+1) {
			return fmt.Sprintf("one process a key: entry %d has a process that does not run it", i)
		}
	}
	return ""
}

// ordered: tasks that were never started are behind those that were, in the order
// they were produced; tasks that came back together are in the order they were
// started.
func (m *model) ordered(s *state) string {
	fresh := uint8(0)
	var back [1 + 2*maxWorkers]uint8
	for _, t := range s.redis.waiting {
		if t == 0 {
			break
		}
		if !s.past.begun[t-1] {
			if t < fresh {
				return "order: waiting tasks are not in the order they were produced"
			}
			fresh = t
			continue
		}
		if fresh != 0 {
			return "order: a returned task is behind one that has not started yet"
		}
		if b := s.past.back[t-1]; b.group != 0 {
			if b.token < back[b.group] {
				return "order: tasks that came back together are not in the order they were started"
			}
			back[b.group] = b.token
		}
	}
	return ""
}

// stopped: once a caller learns that a cancel has ended, nothing that it covers
// is left. Until then none of it waits.
func (m *model) stopped(s *state) string {
	for i, p := range s.redis.process {
		for wait := range s.past.waits {
			if p.task != 0 && s.past.covered[p.task-1]&(1<<wait) != 0 &&
				!(s.call.begun && s.call.wait == uint8(wait)) && m.isOver(s, uint8(wait)) {
				return fmt.Sprintf("cancel: it has ended, but P%d still runs what it covers", i+1)
			}
		}
	}
	for i, t := range s.redis.waiting {
		if t != 0 && s.past.covered[t-1] != 0 {
			return fmt.Sprintf("cancel: a task that it covers waits again, in place %d", i)
		}
	}
	for i, e := range s.redis.entry {
		if e.task != 0 && s.past.covered[e.task-1] != 0 {
			return fmt.Sprintf("cancel: a task that it covers waits again, in entry %d", i)
		}
	}
	return ""
}

// running: what is listed as running though a cancel covers it does run.
func (m *model) running(s *state) string {
	for i, by := range s.redis.stopping {
		for name, token := range by {
			if token != 0 && token != s.redis.process[i].token {
				return fmt.Sprintf("cancel: P%d is listed as running for the cancel of its %s, but has ended", i+1, names[name])
			}
		}
	}
	return ""
}

// done: all tasks have ended, no worker has anything left to send, and Redis is
// empty.
func (m *model) done(s state) bool {
	for i := range m.scope.tasks {
		if f := s.past.fate[i]; f == unborn || f == accepted {
			return false
		}
	}
	for w := range s.peers {
		p := &s.peers[w]
		gone := s.redis.member[w] == noMember
		if p.flight[0].kind != nothing || gone && s.redis.round[w] != 0 || p.held != [maxSlots]held{} || s.redis.suspect[w] >= failed || s.holds(w) {
			return false
		}
	}
	q := &s.redis
	return !s.call.begun && q.cancel == [2]uint8{} && q.stopping == [maxWorkers * maxSlots][2]uint8{} && q.holder == [maxWorkers]holder{} &&
		q.entry == [maxTasks + 1]entry{}
}
