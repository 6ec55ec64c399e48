package search

import "fmt"

// A wrong is something that a move did and should not have.
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
	lockedTwice
	toldDone
	toldGone
	escaped
	unplanned
)

var wrongs = [...]string{
	failedActs:     "fenced: a worker that was failed has changed something",
	formerActs:     "fenced: a request from before the worker joined has changed something",
	failedJoins:    "fenced: a worker that was failed is a member again",
	falseDeath:     "liveness: a worker was failed that had been heard of",
	falseRefusal:   "liveness: a round was refused that a member waits for",
	endedTwice:     "one outcome: a process has ended twice",
	overTwice:      "one outcome: a task is over that was not there",
	idTwice:        "one outcome: an id was started twice",
	overtakes:      "order: a waiting task has started before one that is being returned",
	canceledStarts: "cancel: a task has started again that was canceled while it ran",
	spared:         "cancel: a task is dropped that came after it",
	lockedTwice:    "lock: two equal unique tasks are there",
	toldDone:       "receipt: the worker is told that a process has ended as it said, and it has not",
	escaped:        "cancel: it is done, and what waited when it came still waits",
	unplanned:      "recurrence: an occurrence has started, and the next one is not planned",
	toldGone:       "receipt: the worker is told that a process was gone, which it has ended itself",
}

// blame notes what a move did wrong; the first counts.
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
	for _, check := range []func(*state) string{m.conserved, m.owned, m.exclusive, m.ordered, m.locked, m.stopped, m.running} {
		if w := check(&s); w != "" {
			return w
		}
	}
	return ""
}

// conserved: each task that is not over is in exactly one place.
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

// owned: who holds a process is a member, or is being returned.
func (m *model) owned(s *state) string {
	for w := range s.redis.member {
		if s.holds(w) && s.redis.member[w] == noMember && s.redis.suspect[w] < failed {
			return fmt.Sprintf("owners are members: W%d holds tasks and is none", w+1)
		}
	}
	return ""
}

// exclusive: of each entry at most one process is there, and what waits there is
// planned unless it is blocked.
func (m *model) exclusive(s *state) string {
	var of [maxTasks + 2]int
	for i, p := range s.redis.process {
		of[p.entry]++
		if p.entry > 0 && of[p.entry] > 1 {
			return fmt.Sprintf("one process a key: entry %d has two", p.entry-1)
		}
		if p.entry > 0 && s.redis.entry[p.entry-1].process != uint8(i+1) {
			return fmt.Sprintf("one process a key: entry %d does not know what it runs", p.entry-1)
		}
	}
	for i, e := range s.redis.entry {
		if e.process != 0 && s.redis.process[e.process-1].entry != uint8(i+1) {
			return fmt.Sprintf("one process a key: entry %d is said to run, and does not", i)
		}
	}
	return ""
}

// ordered: what was never started stands behind what was, as it was produced;
// what came back together stands as it was started.
func (m *model) ordered(s *state) string {
	fresh := uint8(0)
	var back [1 + 2*maxWorkers]uint8
	for _, t := range s.redis.waiting {
		if t == 0 {
			break
		}
		if !s.past.begun[t-1] {
			if t < fresh {
				return "order: tasks that wait are not as they were produced"
			}
			fresh = t
			continue
		}
		if fresh != 0 {
			return "order: a task that was returned stands behind one that waits"
		}
		if b := s.past.back[t-1]; b.group != 0 {
			if b.token < back[b.group] {
				return "order: tasks that came back together are not as they were started"
			}
			back[b.group] = b.token
		}
	}
	return ""
}

// locked: a lock is there exactly as long as its task is, and where that is.
func (m *model) locked(s *state) string {
	l, task := s.redis.lock, s.past.unique
	there := task != 0 && s.past.fate[task-1] == accepted
	if there != (l.kind != nowhere) {
		return map[bool]string{true: "lock: it is gone, and its task is there", false: "lock: it is there, and its task is gone"}[there]
	}
	found := uint8(0)
	switch at := l.at; l.kind {
	case onList:
		if at = l.ahead(at); at >= 0 && at < maxTasks {
			found = s.redis.waiting[at]
		}
	case running:
		found = s.redis.process[at-1].task
	case inEntry:
		found = s.redis.entry[at-1].task
	}
	if there && found != task {
		return "lock: it is not where its task is"
	}
	return ""
}

// stopped: once a caller is told that a cancel is over, nothing of what it covers
// is left. Until then nothing of that waits.
func (m *model) stopped(s *state) string {
	for i, p := range s.redis.process {
		for wait := range s.past.waits {
			if p.task != 0 && s.past.covered[p.task-1]&(1<<wait) != 0 &&
				!(s.call.begun && s.call.wait == uint8(wait)) && m.isOver(s, uint8(wait)) {
				return fmt.Sprintf("cancel: it is over, and P%d still runs what it covers", i+1)
			}
		}
	}
	for i, t := range s.redis.waiting {
		if t != 0 && s.past.covered[t-1] != 0 {
			return fmt.Sprintf("cancel: what it covers waits again, in place %d", i)
		}
	}
	for i, e := range s.redis.entry {
		if e.task != 0 && s.past.covered[e.task-1] != 0 {
			return fmt.Sprintf("cancel: what it covers waits again, in entry %d", i)
		}
	}
	return ""
}

// running: what is said to run though a cancel covers it does run.
func (m *model) running(s *state) string {
	for i, by := range s.redis.stopping {
		for name, token := range by {
			if token != 0 && token != s.redis.process[i].token {
				return fmt.Sprintf("cancel: P%d is said to run though the cancel of its %s covers it, and has ended", i+1, names[name])
			}
		}
	}
	return ""
}

// done: all tasks are over, nobody has anything left to say, and of all this
// nothing is left in Redis.
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
		q.lock == lock{} && q.entry == [maxTasks + 1]entry{}
}
